"""The learner's own code, as far as a diagnosis looks into it: conditions and loops around a line.

A line of code is evidence of what a script means, never of what happened: the calls that ranks
made come first. A script that cannot be parsed has no conditions and no loops.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ddp_course import disk
from ddp_course.disk import PACKAGE

Place = tuple[str, int]  # file, line

_RANKED = re.compile(
    r"\b\w*_?rank\b|\bis_main\w*|\bmain_process\b|\bis_master\b|\bmaster\b|\bis_primary\w*"
    r"|\b(?:is_)?rank_?(?:0|zero)\b|\bis_(?:global_zero|chief|root)\b|\bgpu(?:_id)? == 0"
)
_RANKS_SOURCE = re.compile(r"\bget_(?:local_|node_|global_)?rank\(|\b(?:LOCAL_|GROUP_)?RANK\b")
_GENERATED = re.compile(r"/torchinductor_|/torch_compile_debug/|^<")


@dataclass(frozen=True)
class Guard:
    """Lines that only some ranks reach."""

    told: str  # "inside `if rank == 0:`", "after `if rank != 0: return`"
    first: int
    body: int  # the last of these lines
    last: int  # that of the whole statement, `else` included
    leaves: bool  # the body ends by leaving, so that what follows is an `else`


class Source:
    """The files of a learner.

    script  the script that ran
    copy    how it was then: the learner may have changed it since
    """

    def __init__(self, script: Path, copy: Path | None = None) -> None:
        self._script, self._copy = script, copy

    def is_own(self, file: str) -> bool:
        """Whether a file is the learner's: not installed, generated, Python's own or this one's."""
        path = Path(file)
        if path == self._script:
            return True
        installed = any(part in ("site-packages", "dist-packages") for part in path.parts)
        ours = path.is_relative_to(PACKAGE) and not path.is_relative_to(PACKAGE / "jobs")
        python = any(re.fullmatch(r"python3(\.\d+)?t?", part) for part in path.parts[:-1])
        return not (installed or ours or python or _GENERATED.search(file))

    def text(self, file: str) -> str:
        """The source of a learner's file, or ""."""
        if not self.is_own(file):
            return ""
        copied = self._copy if Path(file) == self._script else None
        for path in filter(None, (copied, Path(file))):
            try:
                return disk.read_bytes(path, 1 << 20).decode(errors="replace")
            except OSError:
                continue
        return ""

    def line(self, file: str, line: int) -> str:
        lines = self.text(file).splitlines()
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    @property
    def may_exit_inside(self) -> bool:
        """Whether an early end of the script is an exit, rather than the end of its data."""
        text = self.text(str(self._script))
        return "destroy_process_group" in text or _exits_inside(text)

    def argument(self, function: str, name: str) -> str:
        """The code of a keyword argument of a function's first call, as far back as its name."""
        tree = _parsed(self.text(str(self._script)))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(function):
                for keyword in node.keywords:
                    if keyword.arg == name:
                        return ast.unparse(_assigned(tree, keyword.value))
        return ""

    def guard(self, place: Place | None) -> Guard | None:
        """The innermost `if` on the rank around a line, or around every call of its function."""
        if place is None:
            return None
        text, line = self.text(place[0]), place[1]
        if found := _guard_at(text, line):
            return found
        guards = [_guard_at(text, call) for call in _called_from(text, line)]
        return guards[0] if guards and all(guards) else None

    def branches(self, mine: Place | None, theirs: Place | None) -> bool:
        """Whether two calls at different lines are what a script has for different ranks."""
        if mine is None or theirs is None or mine == theirs:
            return False
        found = self.guard(mine)
        if found is None:
            return False
        if self.guard(theirs):
            return True
        lines = [theirs[1], *_called_from(self.text(mine[0]), theirs[1])]
        return theirs[0] == mine[0] and any(found.first <= line <= found.last for line in lines)

    def condition_apart(self, here: Sequence[Place], there: Sequence[Place]) -> str:
        """The innermost `if` around one of these lines that is around none of the others, or ""."""
        for file, line in here:
            around = [
                node
                for node in ast.walk(_parsed(self.text(file)))
                if isinstance(node, ast.If)
                and _spans(node, line)
                and not any(f == file and _spans(node, at) for f, at in there)
            ]
            if around and there:
                inner = max(around, key=lambda node: node.lineno)
                test = " ".join(ast.unparse(inner.test).split())[:60]
                return "" if "__name__" in test else f"if {test}:"
        return ""

    def alternatives(self, one: Place | None, other: Place | None) -> bool:
        """Whether two lines are the two sides of an `if`, or of `try` and `except`."""
        if one is None or other is None or one[0] != other[0]:
            return False
        for node in ast.walk(_parsed(self.text(one[0]))):
            if (
                isinstance(node, ast.If | ast.Try)
                and _spans(node, one[1])
                and _spans(node, other[1])
            ):
                first, last = node.body[0].lineno, node.body[-1].end_lineno or 0
                if (first <= one[1] <= last) != (first <= other[1] <= last):
                    return True
        return False

    def loop(self, place: Place | None) -> ast.For | ast.While | None:
        """The innermost loop around a line."""
        if place is None:
            return None
        loops = [
            node
            for node in ast.walk(_parsed(self.text(place[0])))
            if isinstance(node, ast.For | ast.While) and _spans(node, place[1])
        ]
        return max(loops, key=lambda loop: loop.lineno, default=None)

    def loops_over(self, place: Place | None) -> str:
        """What the innermost loop around a line goes over: "model.parameters()", or ""."""
        loop = self.loop(place)
        return ast.unparse(loop.iter) if isinstance(loop, ast.For) else ""

    def in_same_loop(self, here: Sequence[Place], there: Sequence[Place]) -> bool | None:
        """Whether one path stands in the innermost loop around the other; None: there is none."""
        around = next(((at[0], loop) for at in there if (loop := self.loop(at))), None)
        if around is None:
            return None if not any(self.loop(at) for at in here) else False
        file, loop = around
        return any(f == file and _spans(loop, line) for f, line in here)

    def cleanup(self, place: Place | None) -> str:
        """The `finally` or `except` in which a line stands, or ""."""
        for node in ast.walk(_parsed(self.text(place[0]))) if place else ():
            if isinstance(node, ast.Try):
                handlers = [stmt for handler in node.handlers for stmt in handler.body]
                for word, block in (("finally", node.finalbody), ("except", handlers)):
                    if place is not None and any(_spans(stmt, place[1]) for stmt in block):
                        return word
        return ""


def _assigned(tree: ast.Module, value: ast.expr) -> ast.expr:
    """What a name was given, where the script gives it one value by itself."""
    for node in ast.walk(tree) if isinstance(value, ast.Name) else ():
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == ast.unparse(value):
            return node.value
    return value


def _spans(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or 0)


@lru_cache(maxsize=64)
def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


@lru_cache(maxsize=8)
def _exits_inside(source: str) -> bool:
    """Whether a script calls exit() in a loop, or under a condition on the rank."""
    leave = {"exit", "quit", "sys.exit", "os._exit"}
    leave |= {
        node.name
        for node in ast.walk(_parsed(source))
        if isinstance(node, ast.FunctionDef) and leave & _calls(node) and node.name != "main"
    }
    for outer in ast.walk(_parsed(source)):
        ranked = isinstance(outer, ast.If) and _RANKED.search(ast.unparse(outer.test))
        if (ranked or isinstance(outer, ast.For | ast.While)) and leave & _calls(outer):
            return True
    return False


def _calls(tree: ast.AST) -> set[str]:
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def _guard_at(source: str, line: int) -> Guard | None:
    around = [guard for guard in _guards(source) if guard.first <= line <= guard.body]
    return max(around, key=lambda guard: guard.first, default=None)


@lru_cache(maxsize=64)
def _guards(source: str) -> list[Guard]:
    tree, found = _parsed(source), list[Guard]()
    names = _names_of_rank(tree)
    for block in _blocks(tree):
        for node in block:
            if isinstance(node, ast.If) and _asks_rank(node.test, names):
                found += _guards_of(node, block)
    return found


def _asks_rank(test: ast.expr, names: set[str]) -> bool:
    used = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    return bool(_RANKED.search(ast.unparse(test)) or used & names)


def _guards_of(node: ast.If, block: list[ast.stmt]) -> Iterator[Guard]:
    """The body of an `if` on the rank; what follows it, if the body always leaves."""
    told, end = f"if {' '.join(ast.unparse(node.test).split())[:60]}:", node.body[-1]
    leaves = isinstance(end, ast.Return | ast.Continue)
    lines = node.body[0].lineno, end.end_lineno or 0, node.end_lineno or 0
    yield Guard(f"inside `{told}`", *lines, leaves)
    rest = block[block.index(node) + 1 :]
    always = not isinstance(node.test, ast.BoolOp)  # not "and step == 7"
    if leaves and always and rest and not node.orelse:
        word, to = type(end).__name__.lower(), rest[-1].end_lineno or 0
        yield Guard(f"after `{told} {word}`", rest[0].lineno, to, to, leaves=True)


def _blocks(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def _names_of_rank(tree: ast.Module) -> set[str]:
    """The variables that a script gives its rank: r, in `r, w = get_rank(), get_world_size()`."""
    names = set()
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            assert isinstance(node, ast.Assign)
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for name, value in pairs:
                if isinstance(name, ast.Name) and _RANKS_SOURCE.search(ast.unparse(value)):
                    names.add(name.id)
    return names


@lru_cache(maxsize=256)
def _called_from(source: str, line: int) -> tuple[int, ...]:
    """The lines that call the function around this line, in the same file."""
    functions = [
        node
        for node in ast.walk(_parsed(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno < line <= (node.end_lineno or 0)
    ]
    if not functions:
        return ()
    inner = max(functions, key=lambda node: node.lineno)
    calls = [node for node in ast.walk(_parsed(source)) if isinstance(node, ast.Call)]
    names = [(ast.unparse(node.func).rpartition(".")[2], node.lineno) for node in calls]
    return tuple(at for name, at in names if name == inner.name)
