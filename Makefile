# `make` lists what there is to do. Python, torch and the CPU-only build are chosen by variables:
#   make lab CPU=1                                 a small torch without CUDA
#   make test PYTHON=python3.11 TORCH=2.14.1       another pair, in a folder of its own
#   make test ARGS="-k timeline"                   arguments for the program that is run
#   make test WORKERS=0                            one test at a time, in one process
PYTHON ?=
TORCH ?=
CPU ?=
ARGS ?=
WORKERS ?= 3

space := $(subst ,, )
VENV := $(subst $(space),-,$(strip .venv $(notdir $(PYTHON)) $(if $(TORCH),torch$(TORCH))))
RUN := $(VENV)/bin/python

# Any Python 3 can start the installer; the installer finds the right one, or says what is missing.
define install
	@starter=; for p in $(RUN) "$(PYTHON)" python3 python3.13 python3.12 python3.11 python; do \
	  if [ -n "$$p" ] && "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 6))' 2>/dev/null; \
	  then starter=$$p; break; fi; done; \
	if [ -z "$$starter" ]; then \
	  echo "What happened: no Python 3 was found."; \
	  echo "What to do:    install Python 3.11, 3.12 or 3.13, or name one: make $@ PYTHON=/path/to/python3.12"; \
	  exit 1; fi; \
	"$$starter" tools/install.py --venv "$(VENV)" --python "$(PYTHON)" --torch "$(TORCH)" --cpu "$(CPU)"
endef

.DEFAULT_GOAL := help
.PHONY: help setup lab test nightly course bench endure record check notebooks clean

help: ## list these targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1@\2/p' Makefile | column -t -s @ 2>/dev/null \
	  || sed -n 's/^\([a-z]*\):.*## /  make \1    /p' Makefile

setup: ## install the course into .venv, and nothing else
	$(install)

lab: ## install if needed, then open JupyterLab at the first lesson
	$(install)
	@exec $(RUN) tools/lab.py $(ARGS)

test: ## install if needed, then run the tests
	$(install) --dev
	@exec $(RUN) -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

nightly: ## what takes longer: the widest matrices, and a thousand launches
	$(install) --dev
	@$(RUN) -m pytest -m nightly -n $(WORKERS) --dist worksteal $(ARGS)
	@exec $(RUN) tools/endure.py

course: ## run every notebook without a browser; pages with outputs go to build/course/
	$(install) --dev
	@exec $(RUN) tools/course.py $(ARGS)

bench: ## measure launches and steps side by side
	$(install) --dev
	@exec $(RUN) tools/bench.py $(ARGS)

endure: ## a thousand launches, every kind of failure mixed in; ARGS="--launches 40" for fewer
	$(install) --dev
	@exec $(RUN) tools/endure.py $(ARGS)

record: ## run the cases of the diagnosis anew and keep what they leave; ARGS="shm" for one
	$(install) --dev
	@$(RUN) tests/recorded.py $(ARGS)

check: ## format, lint, types
	$(install) --dev
	@$(RUN) -m ruff format --check .
	@$(RUN) -m ruff check .
	@$(RUN) -m mypy

notebooks: ## build notebooks/*.ipynb from notebooks/src/*.py
	$(install) --dev
	@exec $(RUN) tools/build_notebooks.py $(ARGS)

clean: ## remove what can be made again: build/ and caches (runs/ and .venv stay)
	@rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	@find ddp_course tools tests notebooks exercises solutions -name __pycache__ -type d -prune \
	  -exec rm -rf {} + 2>/dev/null || true
