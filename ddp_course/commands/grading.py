"""Commands for instructors."""

from __future__ import annotations

from typing import Any

from ddp_course.commands import gradebook


def add(commands: Any) -> None:
    """Add these commands to a parser's sub-parsers."""
    gradebook.add(commands)
