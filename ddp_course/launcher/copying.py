"""copy_job(): a job of the course as a script of your own, without any import of the course."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from ddp_course import disk
from ddp_course.errors import BadArgument, CourseError
from ddp_course.launcher.catalogue import find_job

# Where what a copy needs is found: in place of ours, and what needs nothing of ours as it is.
_PLAIN = [disk.PACKAGE / "rank" / name for name in ("plain.py", "link.py")]


def copy_job(job: str | Path, to: str | Path) -> Path:
    """Write a job to a new file that plain torchrun runs and that imports nothing of ours.

    `log`, `my_place` and the like are replaced by a few lines of plain torch; `run_rank(main)`
    becomes `main()`. Returns the file's path, to edit, to show_job() and to launch(). A copy of the
    same job that is there already, edited or not, stays as it is.

    Raises BadArgument for a job that there is not, another file of that name, or a name that would
    hide a module of Python's; CourseError where the file cannot be written.
    """
    script, path = find_job(job), Path(to).expanduser().absolute()
    text = alone(script.read_text(encoding="utf-8"), path.name)
    problem = ""
    if _is_edited(path, text):
        print(f"{path.name} is a copy that you have edited: it stays as it is.")
        return path
    if path.suffix != ".py":
        problem = "a script's name ends in .py"
    elif path.stem in sys.stdlib_module_names or path.stem in ("torch", "torchvision", "numpy"):
        problem = f"beside it, `import {path.stem}` would find this file in place of the module"
    elif path.exists() and not (path.is_file() and path.read_bytes() == text.encode()):
        problem = "there is a file of that name, and it stays as it is"
    if problem:
        raise BadArgument(
            f"The job cannot be copied to {path.name}: {problem}.",
            action=f'choose a new name: copy_job({script.stem!r}, "my_{script.stem}.py")',
        )
    try:
        disk.write(path, text)
    except OSError as error:
        raise CourseError(
            f"{path} cannot be written: {error.strerror}.",
            action="name a folder that is there and yours to write",
        ) from error
    return path


def _is_edited(path: Path, text: str) -> bool:
    """Whether the file is a copy of the same job, by its first line, that has been changed."""
    if not path.is_file():
        return False
    there = path.read_bytes()
    first = text.encode().partition(b"\n")[0]
    return there != text.encode() and there.partition(b"\n")[0] == first


def alone(source: str, name: str) -> str:
    """The text of a script without our imports; `name` is the file that its docstring runs."""
    tree = ast.parse(source)
    ours = [
        node
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ddp_course")
    ]
    wanted = [alias.name for node in ours for alias in node.names if alias.name != "run_rank"]
    imports, functions = _plain(wanted, known=_bound(tree.body))
    lines = source.splitlines()
    for node in reversed(ours):
        del lines[node.lineno - 1 : node.end_lineno]
    if ours:
        here = ours[0].lineno - 1
        lines[here:here] = functions
        lines[here - 1 : here - 1] = [one for one in imports if not _is_standard(one)]
        first = next(n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)).lineno
        lines[first:first] = [one for one in imports if _is_standard(one)]
    text = "\n".join([*lines, ""])
    text = text.replace("run_rank(main)", "main()")
    text = re.sub(r"\\\n\s+(?=\S*ddp_course/jobs/)", "", text)
    text = re.sub(r"\S*ddp_course/jobs/\S+\.py", name, text)
    return re.sub(r"\n{4,}", "\n\n\n", text)


def _plain(names: list[str], known: set[str]) -> tuple[list[str], list[str]]:
    """The imports that these functions and classes need beyond what is known, and themselves."""
    imports: list[str] = []
    functions: list[str] = []
    for path in _PLAIN:
        more = _plain_of(path.read_text(encoding="utf-8"), names, known)
        imports += [one for one in more[0] if one not in imports]
        functions += more[1]
    return imports, functions


def _plain_of(source: str, names: list[str], known: set[str]) -> tuple[list[str], list[str]]:
    tree = ast.parse(source)
    found = [
        n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name in names
    ]
    used = {n.id for f in found for n in ast.walk(f) if isinstance(n, ast.Name)} - known
    imports = [
        ast.unparse(node)
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom) and _bound([node]) & used
    ]
    lines = source.splitlines()
    functions: list[str] = []
    for one in found:
        first = min([one.lineno, *(mark.lineno for mark in one.decorator_list)])
        functions += ["", "", *lines[first - 1 : one.end_lineno]]
    return imports, functions


def _bound(nodes: Iterable[ast.stmt]) -> set[str]:
    """The names that imports among these statements bind."""
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    return {(a.asname or a.name).split(".")[0] for node in imports for a in node.names}


def _is_standard(statement: str) -> bool:
    return re.split(r"[ .]", statement)[1] in sys.stdlib_module_names
