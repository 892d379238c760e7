"""Runs kept as recorded evidence, to be diagnosed again in milliseconds and without a launch.

    diagnosis/cases.toml       each case: what is run, and what the diagnosis must say of it
    diagnosis/scripts/NAME.py  the script of a case that is no job of the course
    diagnosis/recorded/NAME.json  what such a run left: its folder, trimmed to what is judged

`python tests/recorded.py [NAME …]` records cases anew, all or these, and prints what it gets:
read it before it is committed. A record holds the source that ran, so a job may change freely.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "diagnosis"
CASES: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "cases.toml").read_text())
HERE = "/case"  # stands for the folder of the script, in a record
_KEEP_LINES = 150  # of each rank, the last ones, and as many of torchrun
_FRAME = {"file", "line", "function", "code"}
_ASKED = "job", "ranks", "knobs", "nodes", "limit_s", "restarts", "warm"
_RESULT = "ended", "exit_code", "exit_codes", "wall_s", "observed", "began"


def replay(name: str, folder: Path) -> Path:
    """Lay a recorded run out in a folder; return the run's own folder."""
    text = (FOLDER / "recorded" / f"{name}.json").read_text()
    record = json.loads(
        text.replace(f'"{HERE}/', f'"{folder}/').replace(f" {HERE}/", f" {folder}/")
    )
    run = folder / "run"
    run.mkdir()
    for path, source in record["sources"].items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(source)
    asked = {"command": "torchrun", **record["asked"]}
    (run / "run.json").write_text(json.dumps(asked))
    if Path(asked["script"]).exists():
        (run / "job.py").write_text(Path(asked["script"]).read_text())
    result = {"failure": None, **record["result"]}
    (run / "result.json").write_text(json.dumps(result))
    names = "t_s", "rank", "stream", "text", "attempt"
    lines = [json.dumps(dict(zip(names, line, strict=True))) for line in record["lines"]]
    (run / "lines.jsonl").write_text("".join(f"{line}\n" for line in lines))
    for rank, events in record["events"].items():
        told = "".join(f"{json.dumps(event)}\n" for event in events)
        (run / f"events-{rank}.jsonl").write_text(told)
    for file, ledger in record["ledgers"].items():
        whole = _unpack(ledger, record["frames"], result["began"])
        (run / file).write_text(json.dumps(whole))
    return run


def record(name: str) -> Path:
    """Run a case, keep what it left, and return the run's folder."""
    from ddp_course import launch

    case, script = CASES[name], FOLDER / "scripts" / f"{name}.py"
    run = launch(
        case.get("job", script), ranks=case["ranks"], limit_s=case.get("limit_s", 60),
        env=case.get("env", {}), wait=False, **case.get("knobs", {}),
    ).wait()  # fmt: skip
    frames: list[dict[str, Any]] = []
    ledgers = {
        path.name: _pack(json.loads(path.read_text()), frames, run.result["began"])
        for path in sorted(run.folder.glob("ledger-*.json"))
    }
    home = str(Path(run.asked["script"]).parent)
    events: dict[int, list[Any]] = {}
    for event in run.events:
        events.setdefault(event["rank"], []).append(event)
    parts = {
        "asked": {key: run.asked[key] for key in _ASKED if key in run.asked}
        | {"script": run.asked["script"]},
        "result": {key: run.result[key] for key in _RESULT if key in run.result},
        "lines": _last_lines(run.lines),
        "events": events,
        "frames": frames,
        "ledgers": ledgers,
        "sources": _sources(frames, home)
        | {run.asked["script"]: (run.folder / "job.py").read_text()},
    }
    text = ",\n".join(f'"{part}":{_json(value)}' for part, value in parts.items())
    for path, stands in (
        (home, HERE), (sysconfig.get_path("purelib"), "/venv/site-packages"),
        (sysconfig.get_path("stdlib"), "/usr/lib/python3.12"), (str(run.folder), "/run"),
        (sys.prefix, "/venv"), (str(FOLDER.parent.parent), "/course"),
    ):  # fmt: skip
        text = text.replace(path, stands)
    (FOLDER / "recorded").mkdir(exist_ok=True)
    (FOLDER / "recorded" / f"{name}.json").write_text(f"{{{text}}}\n")
    return Path(run.folder)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _last_lines(lines: list[Any]) -> list[list[Any]]:
    """What diagnosis reads of the output: the ranks' stderr, and torchrun's own."""
    kept: dict[Any, list[Any]] = {}
    for number, line in enumerate(lines):
        if line.rank is None or line.stream == "stderr":
            row = [round(line.t_s, 3), line.rank, line.stream, line.text[:2000], line.attempt]
            kept.setdefault(line.rank, []).append((number, row))
    return [row for _, row in sorted(one for rows in kept.values() for one in rows[-_KEEP_LINES:])]


def _sources(frames: list[dict[str, Any]], home: str) -> dict[str, str]:
    own = {frame["file"] for frame in frames if frame["file"].startswith(home)}
    return {file: Path(file).read_text() for file in sorted(own) if Path(file).is_file()}


def _pack(value: Any, frames: list[dict[str, Any]], began: float) -> Any:
    """A ledger in a fraction of its size: frames by number, entries as a table, times from 0."""
    if isinstance(value, dict) and value.keys() >= _FRAME:
        frames += [value] * (value not in frames)
        return {"frame": frames.index(value)}
    if isinstance(value, dict):
        packed = {
            key: round(one - began, 4) if key in ("t", "end") and one else _pack(one, frames, began)
            for key, one in value.items()
        }
        if "entries" in packed:
            names = sorted({key for entry in packed["entries"] for key in entry})
            rows = [[entry.get(key) for key in names] for entry in packed["entries"]]
            packed["entries"] = {"names": names, "rows": rows}
        return packed
    return [_pack(one, frames, began) for one in value] if isinstance(value, list) else value


def _unpack(value: Any, frames: list[dict[str, Any]], began: float) -> Any:
    if isinstance(value, dict) and value.keys() == {"frame"}:
        return frames[value["frame"]]
    if isinstance(value, dict) and value.keys() == {"names", "rows"}:
        pairs = (zip(value["names"], row, strict=True) for row in value["rows"])
        entries = [{name: one for name, one in row if one is not None} for row in pairs]
        return _unpack(entries, frames, began)
    if isinstance(value, dict):
        return {
            key: one + began if key in ("t", "end") and one else _unpack(one, frames, began)
            for key, one in value.items()
        }
    return [_unpack(one, frames, began) for one in value] if isinstance(value, list) else value


if __name__ == "__main__":
    from ddp_course import diagnose

    os.chdir(tempfile.mkdtemp())
    Path("out").mkdir()  # some scripts save there
    for name in sys.argv[1:] or CASES:
        print(f"\n== {name}\n{diagnose(record(name))}", flush=True)
