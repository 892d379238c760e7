"""The house from its source: who may import whom, no cycle, and no private name from elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from conftest import ROOT

# A room and the rooms that it may import. A module beside the rooms counts as one.
FLOORS: dict[str, str] = {
    "errors": "",
    "process": "errors",  # warm.py only: the others are programs that are run by path
    "disk": "errors",
    "rank": "errors",
    "machine": "errors disk run",
    "copies": "errors disk",
    "run": "errors disk",
    "observe": "errors disk run",
    "diagnosis": "errors disk run observe",
    "launcher": "errors disk machine rank process run observe",
    "show": "errors disk machine run observe diagnosis launcher",
    "checks": "errors disk copies rank launcher run observe show",
    "exercises": "errors rank checks",
    "jobs": "rank",
}
ABOVE = {"__init__", "__main__", "commands", "notebook", "ddp_grading"}  # may import all below
EXCEPTIONS = {
    # The machine's report is a document as all else that is shown; document.py needs none of ours.
    "ddp_course.machine imports ddp_course.show.document",
}


@cache
def modules() -> dict[str, Path]:
    """Every module of the two packages, by its full name."""
    files = [*(ROOT / "ddp_course").rglob("*.py"), *(ROOT / "ddp_grading").rglob("*.py")]
    return {name_of(path): path for path in files}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(module: str) -> str:
    package, *inside = module.split(".")
    if package == "ddp_grading":
        return package
    return inside[0] if inside else "__init__"


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text())


@cache
def imports(module: str) -> frozenset[str]:
    """The modules of ours that it imports, anywhere in it."""
    found = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(node, module)
            inside = {f"{source}.{alias.name}" for alias in node.names}
            found |= inside & modules().keys() or {source}
    return frozenset(found & modules().keys() - {module})


def _absolute(node: ast.ImportFrom, module: str) -> str:
    """The module that is named; what is loaded by its path (the recorder) imports relatively."""
    if not node.level:
        return str(node.module)
    package = module.split(".")
    if modules()[module].name != "__init__.py":
        package.pop()
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, *filter(None, [node.module])])


def test_every_room_has_a_floor() -> None:
    assert {room(module) for module in modules()} == FLOORS.keys() | ABOVE


def test_no_import_goes_upwards_or_sideways() -> None:
    wrong = []
    for module in modules():
        here = room(module)
        allowed = {here, *FLOORS.get(here, "").split()}
        if here in ABOVE:
            allowed |= FLOORS.keys() | ABOVE - {"ddp_grading"}
        wrong += [f"{module} imports {one}" for one in imports(module) if room(one) not in allowed]
    assert set(wrong) <= EXCEPTIONS


def test_programs_run_by_path_import_nothing_of_ours() -> None:
    programs = {m for m in modules() if room(m) == "process"} - {"ddp_course.process.warm"}
    assert {module: imports(module) for module in programs if imports(module)} == {}


def test_no_cycle() -> None:
    """What imports nothing that is left, and what nothing left imports, is taken away in turn."""
    left = {module: set(imports(module)) for module in modules()}
    while True:
        imported = set().union(*left.values())
        ends = {module for module, below in left.items() if not below or module not in imported}
        if not ends:
            break
        left = {module: below - ends for module, below in left.items() if module not in ends}
    assert left == {}, "these import each other"


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("_") and name != "_"


@cache
def defines(module: str) -> frozenset[str]:
    """The private names that a module makes: variables, functions, classes, attributes."""
    found = set()
    for node in ast.walk(tree(module)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
    return frozenset(filter(private, found))


def libraries(module: str) -> set[str]:
    """The names by which a module calls modules that are not ours, such as os in os._exit."""
    imported = [node for node in ast.walk(tree(module)) if isinstance(node, ast.Import)]
    names = [alias for node in imported for alias in node.names]
    return {one.asname or one.name.split(".")[0] for one in names if one.name not in modules()}


def foreign(module: str) -> Iterator[str]:
    """The private names that a module uses and another module of ours makes."""
    elsewhere = frozenset().union(*(defines(other) for other in modules() if other != module))
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in (
            "ddp_course",
            "ddp_grading",
        ):
            yield from (alias.name for alias in node.names if private(alias.name))
        elif isinstance(node, ast.Attribute) and node.attr in elsewhere - defines(module):
            library = isinstance(node.value, ast.Name) and node.value.id in libraries(module)
            yield from () if library else (node.attr,)


def test_no_private_name_of_another_module_is_used() -> None:
    found = {module: set(foreign(module)) for module in modules()}
    assert {module: names for module, names in found.items() if names} == {}


@pytest.mark.parametrize("room", [*FLOORS])
def test_floors_do_not_go_round(room: str) -> None:
    seen, ask = set(), FLOORS[room].split()
    while ask:
        one = ask.pop()
        assert one != room
        if one not in seen:
            seen.add(one)
            ask += FLOORS[one].split()
