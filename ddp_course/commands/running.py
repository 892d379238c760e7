"""Commands that launch and explain jobs: doctor, prepare, run, diagnose."""

from __future__ import annotations

import argparse
import ast
import contextlib
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddp_course.commands.grading import hand_over
from ddp_course.errors import BadArgument, NoSuchRun
from ddp_course.launcher import options

if TYPE_CHECKING:
    from ddp_course.run.run import Run


def add(commands: Any) -> None:
    """Add these commands to a parser's sub-parsers."""
    _add_doctor(commands)
    _add_prepare(commands)
    _add_run(commands)
    _add_diagnose(commands)


def knobs_of(flags: Sequence[str]) -> dict[str, Any]:
    """Flags as a shell gives them, as knobs of `launch`: --bucket-mb 1 is {"bucket_mb": 1}."""
    knobs: dict[str, Any] = {}
    rest = list(flags)
    while rest:
        flag = rest.pop(0)
        if not flag.startswith("--") or flag == "--":
            raise BadArgument(
                f"After -- comes {flag!r}, which is no flag.",
                action="give the job's flags so: -- --bucket-mb 1 --steps 20",
            )
        name, equals, value = flag[2:].partition("=")
        if not equals and rest and not rest[0].startswith("--"):
            value, equals = rest.pop(0), "="
        knobs[name.replace("-", "_")] = _literal(value) if equals else True
    return knobs


def _literal(text: str) -> Any:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
    return value if isinstance(value, int | float) else text


def _add_doctor(commands: Any) -> None:
    parser = commands.add_parser("doctor", help="can the course run on this machine?")
    parser.add_argument(
        "--grading", action="store_true", help="also run a job of two ranks in the graders' sandbox"
    )
    parser.set_defaults(command=_doctor)


def _doctor(given: argparse.Namespace) -> int:
    from ddp_course.machine import doctor

    report = doctor(fresh=True)
    print(report)
    if given.grading and (code := hand_over(["doctor"])):
        return code
    return 0 if report.ok else 1


def _add_prepare(commands: Any) -> None:
    parser = commands.add_parser("prepare", help="download a data set, once")
    parser.add_argument("name", help="digits, mnist or fashion_mnist")
    parser.set_defaults(command=_prepare)


def _prepare(given: argparse.Namespace) -> int:
    from ddp_course.rank.data import prepare

    print(f"{given.name} is ready in {prepare(given.name)}")
    return 0


def _add_run(commands: Any) -> None:
    parser = commands.add_parser("run", help="launch a job and wait for it", allow_abbrev=False)
    parser.add_argument("job", help="a job's name, or the path of any script (.py)")
    parser.add_argument(
        "-m", dest="module", action="store_true", help="JOB is a module: run -m package.train"
    )
    options.add_flags(parser)
    parser.epilog = (
        "What follows -- goes to the script: run train.py --ranks 4 -- --lr 0.1 data/. For a "
        "script of your own --limit counts from the last sign of progress: a line of output, a "
        "logged step, a collective."
    )
    parser.set_defaults(command=_run, takes_flags=True)


def _run(given: argparse.Namespace) -> int:
    from ddp_course.launcher import catalogue
    from ddp_course.launcher.launch import begin
    from ddp_course.launcher.plan import Plan

    # What the words of another script mean, only it knows.
    ours = not given.module and catalogue.is_ours(catalogue.find_job(given.job))
    knobs = knobs_of(given.flags) if ours else {}
    if clashes := [name for name in knobs if name in ("job", *options.NAMES)]:
        raise BadArgument(
            f"After -- comes --{clashes[0]}, which is no flag of the job {given.job!r}.",
            action=f"put what `run` itself takes before --: run {given.job} --ranks 4 -- …",
        )
    names = "ranks", "nodes", "trace", "limit_s", "restarts", "warm"
    own = options.Options(
        **{name: getattr(given, name) for name in names},
        env=_variables(given.env),
        argv=[] if ours else given.flags,
    )
    mine = not ours
    plan = Plan(given.job, own, knobs, module=given.module, while_idle=mine, share_stdin=mine)
    with _signals_end():
        run = begin(plan, wait=True)
    _say_more(run)
    return 0 if run.ok else 1


@contextlib.contextmanager
def _signals_end() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as Ctrl-C does, with what is known so far; then 128 + number."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _variables(words: Sequence[str]) -> dict[str, str]:
    for word in words:
        if not word.partition("=")[1]:
            raise BadArgument(
                f"-e {word} gives no value.", action=f"write -e {word}=VALUE (VALUE may be empty)"
            )
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def _say_more(run: Run) -> None:
    if run.ended == "time-out":
        limit_s = run.asked["limit_s"]
        print(f"It had {limit_s:g} s; for more: run … --limit {10 * limit_s:g}")
    elif run.ok and not (found := run.diagnosis).healthy:  # a mistake that nothing else reports
        print(found)
    if not run.ok:
        print(f"All about it: python -m ddp_course diagnose {run.folder}")
    for path in run.traces.values():
        print(f"Trace (for Perfetto or chrome://tracing): {path}")


def _add_diagnose(commands: Any) -> None:
    parser = commands.add_parser(
        "diagnose", help="what happened in a run, or happens while it runs, and what to do"
    )
    parser.add_argument("run", nargs="?", help="a run's folder (default: the newest run)")
    parser.set_defaults(command=_diagnose)


def _diagnose(given: argparse.Namespace) -> int:
    from ddp_course.run.run import Run

    run = Run.open(newest_run() if given.run is None else given.run)
    live = not run.done
    found = run.diagnosis
    print(found)
    return 0 if (found.healthy if live else run.ok) else 1


def newest_run() -> Path:
    """The newest run, ended or not. Raises NoSuchRun if there is none."""
    from ddp_course.run.folder import NAME, runs_folder

    root = runs_folder()
    folders = sorted(path.parent for path in root.glob("*/run.json"))
    folders = [folder for folder in folders if NAME.fullmatch(folder.name)]
    if not folders:
        raise NoSuchRun(f"There is no run in {root}.", action="python -m ddp_course run JOB")
    return folders[-1]
