"""The ledgers that ranks leave: at every kind of end, and with no trace in the job itself."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from launching import script, until

from ddp_course import Run, launch
from ddp_course.observe import ledger, recorder
from ddp_course.observe.align import align, first_difference, first_divergence, pairs
from ddp_course.observe.ledger import Entry, read
from ddp_course.observe.recorder import calls, frames, hooks, progress
from ddp_course.observe.recorder.parts import Parts

LONG_S = 300.0
PATIENT_LIMITS_S = 8.0, 40.0  # the second for a machine on which the ranks are not up in the first


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("recorder")


HEALTHY = """
import json, os, signal, subprocess, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

CHILD = "import json, os; print(json.dumps(sorted(os.environ)), os.environ.get('PYTHONPATH'))"

class Told(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        return torch.tensor([default, os._exit.__module__ == "posix"])

def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for told in torch.utils.data.DataLoader(Told(), num_workers=1, multiprocessing_context="fork"):
        print("worker", told.all().item())
    layers = [torch.nn.Linear(40, 40) for _ in range(3)]
    model = DDP(torch.nn.Sequential(*layers, torch.nn.BatchNorm1d(40)), bucket_cap_mb=0.001)
    for step in range(3):
        loss = model(torch.randn(4, 40)).sum()
        loss.backward()
    with model.no_sync():
        model(torch.randn(4, 40)).sum().backward()
    pair = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(2), group=pair)
    if rank == 0:
        dist.send(torch.ones(3), 1)
        dist.recv(torch.ones(4))
    else:
        dist.recv(torch.ones(3), 0)
        dist.send(torch.ones(4), 0)
    dist.monitored_barrier()
    dist.all_gather_object([None, None], rank)
    dist.all_reduce(torch.ones(1))
    child = os.fork()
    if child == 0:
        time.sleep(1000)
    os.kill(child, signal.SIGTERM)  # at once: it has hardly begun
    print("killed", os.waitpid(child, 0)[1])
    child = os.fork()
    if child == 0:
        reader, writer = os.pipe()  # the numbers that the scribe has freed
        if os.fork() == 0:
            os.write(writer, b"x")
            os._exit(0)
        os.close(writer)
        os._exit(os.read(reader, 1) != b"x")
    print("grandchild", os.waitpid(child, 0)[1])
    child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True)
    print("child", child.stdout.strip())
    print("modules", [name for name in sys.modules if "recorder" in name], sys.path)
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def healthy(folder: Path) -> Run:
    run = launch(script(folder, HEALTHY), ranks=2, limit_s=LONG_S, wait=False).wait()
    assert run.ok, run
    return run


def _of(run: Run, rank: int, *, p2p: bool = False) -> list[Entry]:
    return [entry for entry in read(run.folder)[rank].entries if (entry.p2p is not None) is p2p]


def test_a_healthy_job_leaves_equal_ledgers(healthy: Run) -> None:
    found = read(healthy.folder)
    assert not found.refused
    assert {rank: (one.why, one.exit_code) for rank, one in found.items()} == {
        0: ("exit", 0),
        1: ("exit", 0),
    }
    assert first_divergence(found) is None
    assert {row.verdict for row in align(found)} == {"same"}
    names = sorted(path.name for path in healthy.folder.iterdir() if "ledger" in path.name)
    assert names == ["ledger-0-0.json", "ledger-1-0.json"]


def test_each_entry_names_its_part_and_its_line(healthy: Run) -> None:
    entries = _of(healthy, 0)
    told = [(entry.part, entry.line.code) for entry in entries if entry.line is not None]
    assert len(told) == len(entries)
    parts = [part for part, _ in told]
    assert parts[0] == "parameter check at construction"
    assert "weights at construction" in parts
    assert "bucket rebuild" in parts
    backward = [part for part, code in told if code == "loss.backward()"]
    buckets = len(set(backward))
    assert buckets > 1
    after_rebuild = backward[-2 * buckets :]
    assert after_rebuild == [f"gradient bucket {number}" for number in range(buckets)] * 2
    forward = {part for part, code in told if code.startswith("loss = model(")}
    assert forward == {"buffers before forward", "bucket rebuild"}
    assert ("inside all_gather_object", "dist.all_gather_object([None, None], rank)") in told
    assert (None, "dist.all_reduce(torch.ones(1))") in told


def test_sizes_and_types_are_told(healthy: Run) -> None:
    last = _of(healthy, 1)[-1]
    assert (last.op, last.sizes, last.dtypes, last.bytes) == (
        "all_reduce",
        ((1,),),
        ("float32",),
        4,
    )
    assert last.state == "scheduled"
    in_pair = [entry for entry in _of(healthy, 0) if entry.group != "0"]
    assert [(entry.op, entry.n, entry.elements, entry.members) for entry in in_pair] == [
        ("new_group", 1, 0, (0, 1)),
        ("all_reduce", 1, 2, ()),
    ]
    assert any(entry.op == "monitored_barrier" for entry in _of(healthy, 0))


def test_what_the_flight_recorder_leaves_out_is_noted(healthy: Run) -> None:
    def told(rank: int) -> list[tuple[str, int, int]]:
        pairs = [(entry.p2p, entry.elements) for entry in _of(healthy, rank, p2p=True)]
        return [(pair.direction, pair.peer, size) for pair, size in pairs if pair is not None]

    assert told(0) == [("send", 1, 3), ("recv", ledger.ANY_RANK, 4)]
    assert told(1) == [("recv", 0, 3), ("send", 0, 4)]


def test_nothing_of_it_shows_in_the_job(healthy: Run) -> None:
    for rank in (0, 1):
        said = healthy.lines_of(rank, "stdout")
        assert said.count("worker True") == 2
        assert "killed 15" in said
        assert "grandchild 0" in said
        child = next(line for line in said if line.startswith("child "))
        assert "DDP_COURSE_RECORD" not in child
        assert child.endswith("None") or "rank_side" not in child
        modules = next(line for line in said if line.startswith("modules "))
        assert "rank_side" not in modules
        assert not any("Traceback" in line for line in healthy.lines_of(rank, "stderr"))


FACTS = """
import os, pathlib, time, traceback
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for step in range(4):
        optimizer.zero_grad()
        scaler.scale(model(torch.randn(4, 4) + step).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        if rank == 2 and step == 1:
            with torch.no_grad():
                model.module[1].bias += 1
    model.eval()
    with torch.no_grad():
        model(torch.randn(4, 4))  # its broadcast of buffers is no pass
        if rank == 0:
            model.module[0].weight.zero_()  # after training: its own business
    if rank == 1:
        loss, accuracy = torch.ones(1), torch.ones(1)
        dist.all_reduce(accuracy)
        dist.all_reduce(loss)
    else:
        loss, accuracy = torch.ones(1), torch.ones(1)
        dist.all_reduce(loss)
        dist.all_reduce(accuracy)
    dist.reduce(torch.ones(3), dst=1 if rank == 2 else 0, op=dist.ReduceOp.MAX)
    pair = dist.new_group([1, 2])
    if rank == 0:
        dist.all_reduce(torch.ones(1), group=pair)  # no member
    else:
        dist.broadcast(torch.ones(1), src=2, group=pair)
    try:
        dist.all_reduce(torch.ones(1), op="no operation")
    except Exception:
        print("observe" in traceback.format_exc())
    gate = pathlib.Path(os.environ["DDP_COURSE_RUN"], "go")
    while rank == 1 and not gate.exists():
        time.sleep(0.01)
    dist.barrier()

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def facts(folder: Path) -> Run:
    run = launch(script(folder, FACTS), ranks=3, limit_s=LONG_S, wait=False)

    def waits() -> bool:
        lane = run.lanes()[0]
        return run.done or (lane.doing == "waits in barrier" and lane.since_s > 0.4)

    try:
        until(waits, "rank 0 in the barrier", LONG_S)
        assert not run.done
        run.pause(1)
        until(lambda: run.lanes()[1].doing == "paused", "rank 1 paused")
        run.resume(1)
    finally:
        (run.folder / "go").touch()
    assert run.wait().ok, run
    assert {lane.doing for lane in run.lanes()} == {""}
    return run


def test_passes_of_the_loop_are_counted(facts: Run) -> None:
    for mine in read(facts.folder).values():
        assert (mine.passes, mine.steps) == (4, 4)
        buffers = [entry for entry in mine.entries if entry.part == "buffers before forward"]
        assert [(entry.passes, entry.steps) for entry in buffers[:8:2]] == [
            (1, 0), (2, 1), (3, 2), (4, 3),
        ]  # fmt: skip
        assert mine.scales == {1: 256.0, 2: 256.0, 3: 256.0, 4: 256.0}


def test_the_first_pass_and_parameter_that_differ_are_told(facts: Run) -> None:
    found = first_difference(read(facts.folder))
    assert found is not None
    assert (found.after, found.since, found.ranks) == (3, 2, (2,))
    assert "1.bias" in found.parameters


def test_root_reduction_members_and_strays_are_told(facts: Run) -> None:
    found = read(facts.folder)
    rows = [row for row in align(found) if row.verdict != "same"]
    assert [row.entries[0].op for row in rows if row.entries[0]] == [*["all_reduce"] * 2, "reduce"]
    loss = first_divergence(found)
    assert loss is not None
    assert (loss.kind, loss.ranks) == ("order", (1,))
    last = rows[-1].entries
    assert {rank: (n.root, n.reduce) for rank, n in last.items() if n is not None} == {
        0: (0, "max"), 1: (0, "max"), 2: (1, "max"),
    }  # fmt: skip
    roots = [n.root for n in found[2].entries if n.op == "broadcast" and n.group != "0"]
    assert roots == [2]
    assert [(stray.op, stray.line and stray.line.code[:15]) for stray in found[0].outside] == [
        ("all_reduce", "dist.all_reduce")
    ]
    assert not found[1].outside
    assert facts.lines_of(0, "stdout") == ["False"], "a frame of ours in a traceback"


ENDS = """
import os, pathlib, signal, sys, time
import torch, torch.distributed as dist

def main():
    dist.init_process_group("gloo")
    rank, issued = dist.get_rank(), pathlib.Path(os.environ["DDP_COURSE_RUN"], "issued")
    pair, column = dist.new_group([0, 1]), dist.new_group([2, 3])
    if rank == 2:
        dist.send(torch.ones(1), 3, group=column)
    if rank == 3:
        dist.recv(torch.ones(1), 2, group=column)
    if rank == 1:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    dist.barrier()
    if rank == 0:
        work = dist.all_reduce(torch.ones(2), group=pair, async_op=True)
        issued.touch()
        work.wait()
    if rank == 1:
        while True:
            time.sleep(0.01)
    if rank == 3:
        os._exit(0)
    while not issued.exists():
        time.sleep(0.01)
    raise ValueError("boom")

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def ends(folder: Path) -> Run:
    return launch(script(folder, ENDS), ranks=4, limit_s=LONG_S, wait=False).wait()


def test_the_exit_codes_are_as_without_it(ends: Run) -> None:
    assert ends.ended == "failed"
    assert ends.exit_codes == {0: -15, 1: 5, 2: 1, 3: 0}


def test_an_exception_is_told_with_its_line(ends: Run) -> None:
    mine = read(ends.folder)[2]
    assert (mine.why, mine.exit_code) == ("exception", 1)
    assert mine.exception is not None
    assert (mine.exception.type, mine.exception.text) == ("ValueError", "boom")
    assert mine.exception.line is not None
    assert mine.exception.line.code == 'raise ValueError("boom")'
    assert mine.stack[-1] == mine.exception.line


def test_a_survivor_tells_in_what_it_waited(ends: Run) -> None:
    mine = read(ends.folder)[0]
    assert mine.why == "terminated"
    assert (mine.entries[-1].op, mine.entries[-1].elements) == ("all_reduce", 2)
    assert mine.stack[-1].code == "work.wait()"
    assert [frame.function for frame in mine.stack] == ["<module>", "main"]


def test_a_handler_of_the_script_is_kept(ends: Run) -> None:
    mine = read(ends.folder)[1]
    assert (mine.why, mine.exit_code) == ("terminated", 5)


def test_a_rank_that_leaves_by_the_back_door_has_a_ledger(ends: Run) -> None:
    mine = read(ends.folder)[3]
    assert (mine.why, mine.exit_code) == ("exit", 0)
    assert mine.entries[-1].op == "barrier"


def test_a_pair_in_a_group_has_the_ranks_of_the_job(ends: Run) -> None:
    assert [(set(row.entries), row.verdict) for row in pairs(read(ends.folder))] == [
        ({2, 3}, "same")
    ]


def test_the_rank_that_is_missing_is_found(ends: Run) -> None:
    found = first_divergence(read(ends.folder))
    assert found is not None
    assert (found.kind, found.ranks) == ("missing", (1,))


def test_a_size_that_differs_is_told_by_the_rank_that_aborts(folder: Path) -> None:
    job = script(
        folder,
        """
        import torch, torch.distributed as dist

        dist.init_process_group("gloo")
        for step in range(2300):
            dist.all_reduce(torch.ones(1))
        dist.all_reduce(torch.ones(2 + 100 * dist.get_rank()))
        """,
    )
    run = launch(job, ranks=2, limit_s=LONG_S, wait=False).wait()
    found = read(run.folder)
    aborted = [rank for rank, one in found.items() if one.why == "aborted"]
    assert aborted
    assert [run.exit_codes[rank] for rank in aborted] == [-6] * len(aborted)
    for rank in aborted:
        said = "\n".join(run.lines_of(rank, "stderr"))
        assert "terminate called after throwing" in said
        assert "Fatal Python error: Aborted" in said
    for one in found.values():
        assert len(one.entries) == calls.KEEP
        assert one.dropped == 2301 - calls.KEEP
    divergence = first_divergence(found)
    assert divergence is not None
    assert (divergence.kind, divergence.ranks, divergence.entry.n) == ("size", (1,), 2301)


def test_a_live_rank_tells_on_request_and_at_the_time_out(folder: Path) -> None:
    job = script(
        folder,
        """
        import time
        import torch, torch.distributed as dist

        dist.init_process_group("gloo")
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1))
        time.sleep(1000)
        """,
    )

    def has_told(run: Run) -> bool:
        if run.done or not run.ask():
            return run.done
        told = read(run.folder)
        inner = [frame.code for frame in told[1].stack[-1:]]
        return bool(told[0].entries) and inner == ["time.sleep(1000)"]

    for limit_s in PATIENT_LIMITS_S:
        run = launch(job, ranks=2, limit_s=limit_s, wait=False)
        until(lambda run=run: has_told(run), "both ledgers", 2 * limit_s + 60)
        if not run.done:
            break
    assert not run.done
    asked = read(run.folder)
    assert {one.why for one in asked.values()} == {"asked"}
    run.wait()
    assert not run.ask()
    assert run.ended == "time-out"
    found = read(run.folder)
    assert any(found[rank].t > asked[rank].t for rank in (0, 1))
    divergence = first_divergence(found)
    assert divergence is not None
    assert (divergence.kind, divergence.ranks) == ("missing", (1,))


PLAIN = """
import os, pathlib, sys, time
import torch, torch.distributed as dist

def main():
    print("elsewhere", getattr(sys.modules.get("sitecustomize"), "WHO", None))
    print("path", os.environ["PYTHONPATH"], sys.path)
    print("asked", "DDP_COURSE_RECORD" in os.environ)
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    issued = pathlib.Path(os.environ["DDP_COURSE_RUN"], "issued")
    if dist.get_rank() == 1:
        while not issued.exists():
            time.sleep(0.01)
        raise ValueError("boom")
    work = dist.all_reduce(torch.ones(1), async_op=True)
    issued.touch()
    work.wait()

if __name__ == "__main__":
    main()
"""


def test_a_plain_launch_has_ledgers_too(folder: Path) -> None:
    theirs = script(folder, "WHO = 'theirs'", "site/sitecustomize.py").parent
    job = script(folder, PLAIN)
    run = launch(
        job, ranks=2, warm=False, limit_s=LONG_S, wait=False, env={"PYTHONPATH": str(theirs)}
    ).wait()
    found = read(run.folder)
    assert {rank: len(one.entries) for rank, one in found.items()} == {0: 2, 1: 1}
    assert found[1].why == "exception"
    assert found[1].exception is not None
    assert found[1].exception.text == "boom"
    assert found[0].why in ("exception", "terminated")
    divergence = first_divergence(found)
    assert divergence is not None
    assert (divergence.kind, divergence.ranks) == ("missing", (1,))
    for rank in (0, 1):
        said = run.lines_of(rank, "stdout")
        assert "elsewhere theirs" in said
        assert "asked False" in said
        path = next(line for line in said if line.startswith("path "))
        assert path.startswith(f"path {theirs} ")
        assert "rank_side" not in path


HALF_AN_ERROR_FILE = """
import os, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
rank, first = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
if first and rank == 0:
    file = open(os.environ["TORCHELASTIC_ERROR_FILE"], "w")  # as torch's error handler begins
dist.barrier()
if first and rank == 1:
    sys.exit(3)
while first:
    time.sleep(0.01)  # until torchrun ends it
dist.destroy_process_group()
"""


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "plain"])
def test_no_half_error_file_is_left_for_torchrun_to_fail_on(folder: Path, warm: bool) -> None:
    """torchrun 2.14 gives up, and restarts nothing, if a rank ended in the middle of that file."""
    job = script(folder, HALF_AN_ERROR_FILE)
    run = launch(job, ranks=2, restarts=1, warm=warm, limit_s=200)
    assert run.ok, str(run)


def test_what_is_not_a_rank_of_ours_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: object) -> None:
        raise AssertionError("started")

    monkeypatch.setattr(recorder.Recorder, "start", start)
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("DDP_COURSE_RECORD", "1")
    recorder.begin()  # torchrun itself
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("DDP_COURSE_RECORD")
    recorder.begin()  # a job in a shell


TORCH = "/venv/site-packages/torch/"
BACKWARD = [(f"{TORCH}autograd/graph.py", 9, "_engine_run_backward"), ("/train.py", 5, "main")]


def _bucket(t: float, dtype: str = "float32") -> dict[str, Any]:
    return {"group": "0", "op": "all_reduce", "dtypes": [dtype], "t": t}


def test_buckets_are_numbered_from_each_forward_on() -> None:
    parts = Parts([(1.0, 7), (2.0, 7), (3.0, 7)])
    told = [parts.of(_bucket(t), BACKWARD) for t in (0.5, 1.5, 1.6, 3.5, 3.6)]
    assert told == ["gradient bucket", *[f"gradient bucket {n}" for n in (0, 1, 0, 1)]]
    assert parts.of(_bucket(3.7, "int32"), BACKWARD) == "map of unused parameters"


def test_buckets_of_two_models_have_no_numbers() -> None:
    parts = Parts([(1.0, 7), (2.0, 8)])
    assert parts.of(_bucket(2.5), BACKWARD) == "gradient bucket"


def test_buckets_of_a_rank_that_has_joined() -> None:
    joined = [(f"{TORCH}nn/parallel/distributed.py", 9, "_match_all_reduce_for_bwd_pass")]
    notice = [(f"{TORCH}distributed/algorithms/join.py", 9, "_get_num_nonjoined_procs")]
    parts = Parts([(1.0, 7)])
    told = [parts.of(_bucket(2.0), frames) for frames in (joined, joined, notice, joined)]
    assert told == [
        "gradient bucket 0", "gradient bucket 1", "how many ranks have inputs left, for Join",
        "gradient bucket 0",
    ]  # fmt: skip


def test_a_record_of_nccl(tmp_path: Path) -> None:
    """Made up after torch's ProcessGroupNCCL.cpp, not recorded on a GPU."""
    mine = recorder.Recorder({"RANK": "0", "DDP_COURSE_RUN": str(tmp_path)}, leaves_by_exit=False)
    raw = {
        "profiling_name": "nccl:send 0->1", "process_group": ["0", "default_pg"], "is_p2p": True,
        "p2p_seq_id": 3, "collective_seq_id": 9, "input_sizes": [[2, 3]], "input_dtypes": ["Half"],
        "time_created_ns": 5_000_000_000, "time_discovered_completed_ns": 6_000_000_000,
        "state": "completed", "frames": [],
    }  # fmt: skip
    told = mine._calls._collective(raw, {})
    assert (told["op"], told["n"], told["bytes"]) == ("send", 3, 12)
    assert told["p2p"] == {"peer": 1, "direction": "send", "tag": 0}
    assert (told["state"], told["t"]) == ("completed", 5.0)
    told = mine._calls._collective(
        {**raw, "profiling_name": "nccl:reduce", "is_p2p": False}, {("0", 9): (3, "max")}
    )
    assert (told["op"], told["n"], told["root"], told["reduce"]) == ("reduce", 9, 3, "max")


def test_a_ledger_that_cannot_be_written_disturbs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"RANK": "0", "DDP_COURSE_RUN": str(tmp_path / "nowhere")}
    mine = recorder.Recorder(env, leaves_by_exit=False)
    mine._write("exit", 0)
    assert not (tmp_path / "nowhere").exists()
    mine._folder = str(tmp_path)
    mine._write("exit", 3)
    told = json.loads((tmp_path / "ledger-0-0.json").read_text())
    assert (told["why"], told["exit_code"], told["entries"]) == ("exit", 3, [])


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("/home/me/train.py", True),
        ("/home/me/.venv/lib/python3.12/site-packages/torch/nn/modules/module.py", False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", False),
        (json.__file__, False),
        ("/home/me/libmine.so", False),
        (calls.__file__, False),
        (str(Path(calls.__file__).parents[2] / "jobs" / "02_basic_ddp" / "train_ddp.py"), True),
    ],
)
def test_whose_code_a_file_is(file: str, own: bool) -> None:
    assert frames.is_own(file) is own


def test_a_deep_stack_keeps_the_learners_line(tmp_path: Path) -> None:
    """It is far outside, where the rest is torch's own."""
    mine = recorder.Recorder({"RANK": "0", "DDP_COURSE_RUN": str(tmp_path)}, leaves_by_exit=False)
    told = mine._source.stack(
        [("/home/me/train.py", 3, "main"), *[("/v/torch/x.py", 1, "f")] * 900]
    )
    assert told[0]["file"] == "/home/me/train.py" and len(told) == 60


def test_each_who_waits_for_a_module_is_told(tmp_path: Path, monkeypatch: Any) -> None:
    """Several parts of the recorder watch one module of torch."""
    (tmp_path / "watched_module.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    told: list[int] = []
    for number in range(3):
        hooks.after_import("watched_module", lambda number=number: told.append(number))
    importlib.import_module("watched_module")
    assert told == [0, 1, 2]


def test_a_large_model_is_sampled_less_often_after_a_while() -> None:
    layers = [torch.nn.Linear(1, 1) for _ in range(20)]  # 40 parameters
    model = mock.MagicMock(module=torch.nn.Sequential(*layers), parameters_to_ignore=())
    told = progress.Progress()
    with mock.patch.object(torch.distributed.distributed_c10d, "get_process_group_ranks"):
        for _ in range(100):
            told._on_forward(model.reducer, mock.MagicMock(f_locals={"self": model}))
    (replica,) = told.record()["replicas"]
    passes = [one for one in replica["samples"] if one > 60]
    assert passes == [61, 62, 63, 64, 66, 69, 72, 75, 78, 81, 84, 87, 90, 93, 96, 99]
