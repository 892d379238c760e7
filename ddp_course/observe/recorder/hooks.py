"""Ways to notice what a script does with torch that leave no frame in its tracebacks."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

Note = Callable[[Any, types.FrameType], None]


def note_lookups(kind: Any, name: str, note: Note) -> None:
    """Call `note(owner, frame)` whenever a method is looked up to be called, by that frame."""
    if hasattr(kind, name):
        setattr(kind, name, _NotingLookups(vars(kind)[name], note))


class _NotingLookups:
    """A method that says when it is looked up, and stays out of the tracebacks of its calls."""

    def __init__(self, method: Any, note: Note) -> None:
        self._method, self._note = method, note
        self.__doc__ = method.__doc__

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is not None:
            _try(self._note, owner, sys._getframe(1))
        return self._method.__get__(owner, kind)


def after_import(name: str, then: Callable[[], None]) -> None:
    """Call back once, right after a module has been imported; at once if it is."""
    if name in sys.modules:
        _try(then)
    else:
        sys.meta_path.insert(0, _AfterImport(name, then))


class _AfterImport(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        # The others, too: one more of us may wait for the same module.
        found = (finder.find_spec(fullname, path, target) for finder in list(sys.meta_path))
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                vars(loader).pop("exec_module", None)
                execute(module)
                _try(self._then)

            loader.exec_module = exec_module
        return spec


def _try(act: Callable[..., object], *arguments: object) -> None:
    """What cannot be noted must not disturb: another torch may do it otherwise."""
    with contextlib.suppress(Exception):
        act(*arguments)
