"""Where launches come from: a notebook that somebody reads, one that is executed, or a shell.

`ddp_course.notebook` fills it in when the package is imported in a notebook's kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ddp_course.run.run import Run


@dataclass
class Session:
    """What a launch, a view or a check must know of the place that it was called from."""

    in_kernel: bool = False  # a notebook's kernel
    in_background: bool = False  # a front end shows live runs, so `launch` returns at once
    cell: object = None  # the cell that is being executed
    listeners: list[Callable[[Run], None]] = field(default_factory=list)  # told of every new run


session = Session()
