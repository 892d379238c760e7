"""What a rank of a plain launch runs before the learner's script: it starts the recorder.

The launcher puts this folder first on PYTHONPATH. Here a rank takes it away again, so that neither
the script nor what it starts sees it, and runs the sitecustomize that it stands in front of.
"""

import contextlib
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _load(name: str, spec: importlib.machinery.ModuleSpec | None) -> None:
    if spec is not None and spec.loader is not None:
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def _start() -> None:
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    if "RANK" in os.environ and os.environ.get("DDP_COURSE_RECORD"):
        others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        others = [entry for entry in others if os.path.abspath(entry) != _HERE]
        os.environ["PYTHONPATH"] = os.pathsep.join(others)
        if not any(others):
            del os.environ["PYTHONPATH"]
        with contextlib.suppress(Exception):
            name = "_ddp_course_recorder"
            course = os.path.dirname(os.path.dirname(_HERE))
            path = os.path.join(course, "observe", "recorder", "__init__.py")
            _load(name, importlib.util.spec_from_file_location(name, path))
            recorder = sys.modules[name]
            for module in [module for module in sys.modules if module.startswith(name)]:
                del sys.modules[module]
            recorder.begin()
    _load("sitecustomize", importlib.machinery.PathFinder.find_spec("sitecustomize"))


_start()
