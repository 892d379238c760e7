"""ddp_course: learn PyTorch distributed training by running it.

The public names are resolved on first use, so that importing the package costs nothing: a rank
that only wants `ddp_course.report` does not pay for the notebook's panel, and a notebook's kernel
never imports torch.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_HOME = {
    "Diagnosis": "ddp_course.diagnosis",
    "Run": "ddp_course.runs",
    "attempts": "ddp_course.views.attempts",
    "bars": "ddp_course.views.bars",
    "check": "ddp_course.checks",
    "collectives": "ddp_course.views.ledger",
    "compare": "ddp_course.views.compare",
    "diagnose": "ddp_course.diagnosis",
    "doctor": "ddp_course.machine",
    "explore": "ddp_course.views.explore",
    "hint": "ddp_course.checks",
    "launch": "ddp_course.launcher",
    "parts": "ddp_course.views.bars",
    "predict": "ddp_course.views.predict",
    "progress": "ddp_course.checks",
    "reset": "ddp_course.checks",
    "show_diff": "ddp_course.views.diff",
    "show_job": "ddp_course.views.diff",
    "slurm_script": "ddp_course.slurm",
    "stages": "ddp_course.views.stages",
    "timeline": "ddp_course.views.timeline",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - the table above is the one list of names
__version__ = "0.1.0"


if (
    "IPython" in sys.modules and sys.platform != "win32"
):  # in a notebook's kernel: the panel, %%job, a warm start
    importlib.import_module("ddp_course.notebook").install()


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"ddp_course has no {name!r}; it offers {', '.join(__all__)}")
    if sys.platform == "win32" and name != "doctor":
        raise importlib.import_module("ddp_course.machine").not_on_windows()
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
