"""ddp_course: learn PyTorch distributed training by running it.

The public names are resolved on first use, so that importing the package costs nothing: a rank
that only wants `ddp_course.rank.report` does not pay for the notebook's panel, and a notebook's
kernel never imports torch.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_HOME = {
    "Diagnosis": "ddp_course.diagnosis.diagnose",
    "Run": "ddp_course.run.run",
    "attempts": "ddp_course.show.attempts",
    "bars": "ddp_course.show.bars",
    "check": "ddp_course.checks",
    "collectives": "ddp_course.show.ledger",
    "compare": "ddp_course.show.compare",
    "copy_job": "ddp_course.launcher.copying",
    "curves": "ddp_course.show.curves",
    "diagnose": "ddp_course.diagnosis.diagnose",
    "differences": "ddp_course.show.differences",
    "doctor": "ddp_course.machine",
    "each_rank": "ddp_course.show.compare",
    "explore": "ddp_course.show.explore",
    "hint": "ddp_course.checks",
    "launch": "ddp_course.launcher.launch",
    "parts": "ddp_course.show.bars",
    "picture": "ddp_course.show.picture",
    "predict": "ddp_course.show.predict",
    "progress": "ddp_course.checks",
    "restore": "ddp_course.checks",
    "show_diff": "ddp_course.show.diff",
    "show_job": "ddp_course.show.diff",
    "slurm_script": "ddp_course.launcher.slurm",
    "stages": "ddp_course.show.stages",
    "table": "ddp_course.show.compare",
    "timeline": "ddp_course.show.timeline",
    "write_page": "ddp_course.show.page",
}

# What a run asks of the rooms above its own when somebody looks at it.
HOOKS = {
    "diagnose": "ddp_course.diagnosis.diagnose",
    "diagnosis_html": "ddp_course.show.result",
    "failure_html": "ddp_course.show.result",
    "first_failure": "ddp_course.diagnosis.diagnose",
    "run_html": "ddp_course.show.result",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - the table above is the one list of names
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"ddp_course has no {name!r}; it offers {', '.join(__all__)}")
    if sys.platform == "win32" and name != "doctor":
        raise importlib.import_module("ddp_course.machine").not_on_windows()
    return getattr(importlib.import_module(_HOME[name]), name)


def hook(name: str) -> Any:
    """The function of this name in HOOKS."""
    return getattr(importlib.import_module(HOOKS[name]), name)


def __dir__() -> list[str]:
    return __all__


# In a notebook's kernel: the panel, %%job, a warm start, and every public name at hand.
if "IPython" in sys.modules and sys.platform != "win32":
    importlib.import_module("ddp_course.notebook").install()
