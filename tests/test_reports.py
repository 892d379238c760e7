"""What people reported of launching and of messages, each as its kind: the table, and its tests.

Every row is a symptom from public threads. Behind it stand the tests that hold it: of this file, or
of another one by name. A test below asserts that they all exist.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from conftest import ROOT
from launching import caller, script, until

from ddp_course import launch, notebook
from ddp_course.diagnosis import messages
from ddp_course.diagnosis.diagnose import Diagnosis, diagnose
from ddp_course.launcher import launch as launcher
from ddp_course.launcher.options import Options
from ddp_course.launcher.plan import Plan
from ddp_course.rank import data
from ddp_course.run.folder import runs_folder
from ddp_course.run.run import Run

LONG_S = 240

KNOWN = "test_diagnosis.py::test_a_known_message_is_explained"
# symptom (one public thread of several) -> the tests that hold its kind
REPORTS = {
    "a function or class of a cell cannot be found by spawned processes (lightning#6694)": [
        "test_classes_of_a_cell_work_in_spawned_workers", KNOWN,
    ],
    "fork after the kernel has used CUDA (accelerate#940)": [
        "test_a_kernel_that_has_used_torch_launches", KNOWN,
        "test_warm.py::test_no_device_is_touched_before_the_fork",
    ],
    "the notebook's model is unchanged after training (lightning#2092)": [
        "test_a_kernel_that_has_used_torch_launches",
    ],
    "interrupt and restart leave ranks behind (jupyter_client#104)": [
        "test_survivors.py::test_the_caller_is_ended_by_a_signal",
        "test_survivors.py::test_a_kernel_ends", "test_survivors.py::test_the_server_is_closed",
        "test_guard.py::test_what_a_run_that_is_over_has_left_is_ended",
        "test_endurance.py::test_forty_launches_that_fail_leave_nothing",
    ],
    "orphans of ranks with DataLoader workers hold memory (ultralytics#8232)": [
        "test_survivors.py::test_training_ranks_with_workers",
        "test_guard.py::test_what_a_run_that_is_over_has_left_is_ended",
    ],
    "a fixed port, two jobs (torchtune#1025)": [
        "test_launcher.py::test_nothing_of_the_caller_s_world_leaks_in",
        "test_launcher.py::test_two_processes_at_once_share_nothing",
        "test_lesson_06.py::test_a_fixed_port_is_taken", KNOWN,
    ],
    "torchrun on one machine hangs without --standalone (conditional-flow-matching#149)": [
        "test_the_command_stays_on_this_machine",
        "test_launcher.py::test_a_time_out_says_where_every_rank_was",
    ],
    "another torchrun, or none, on PATH (pytorch#77737)": [
        "test_launcher.py::test_nothing_of_the_caller_s_world_leaks_in",
        "test_an_empty_path_is_no_obstacle", KNOWN,
    ],
    "output of ranks interleaved (pytorch#60911)": [
        "test_launcher.py::test_output_is_whole_in_order_and_tagged",
        "test_runs.py::test_a_progress_bar_ends_as_a_terminal_shows_it",
    ],
    "a flag --local-rank that nobody typed (BasicSR#626)": [KNOWN],
    "device_ids on a CPU model (pytorch#100243)": [
        KNOWN, "test_lesson_05.py::test_device_ids_are_refused",
    ],
    "nccl without a GPU, CPU tensors on nccl (llama3#127)": [
        "test_devices.py::test_nccl_only_where_each_local_rank_has_a_gpu",
        KNOWN,
    ],
    "more processes than GPUs (stanford_alpaca#67)": [
        "test_devices.py::test_more_ranks_than_gpus_is_explained", KNOWN,
    ],
    "the warning about OMP_NUM_THREADS (pytorch#22260)": [
        "test_a_clean_run_warns_of_nothing", "test_a_note_is_not_the_failure",
    ],
    "libuv on Windows (pytorch#139990)": [
        "test_windows_is_told_at_once", KNOWN,
        "test_machine.py::test_what_stops_the_course_is_a_problem_with_its_remedy",
    ],
    "Gloo finds no device on Windows (OneTrainer#1122)": [KNOWN],
    "with a VPN the start never ends (vllm-metal#625)": [
        "test_the_command_stays_on_this_machine", KNOWN,
        "test_diagnosis.py::test_the_gallery",
    ],
    "several nodes connect to 127.0.0.1 (pytorch#68726)": [KNOWN],
    "a note on redirects is taken for the failure (llama#592)": [
        "test_a_note_is_not_the_failure", "test_on_macos_nothing_asks_for_redirects",
    ],
    "only ChildFailedError is seen (MiniGPT-4#237)": [
        "test_launcher.py::test_the_rank_that_failed_is_named_with_its_exit_code",
        "test_the_cause_stands_before_torchruns_table",
    ],
    "RendezvousClosedError hides the first failure (pytorch#147064)": [
        "test_an_echo_stands_behind_a_ranks_own_error",
    ],
    "each node meets only itself (accelerate#2816)": [
        "test_lesson_06.py::test_two_nodes_are_one_job",
        "test_lesson_06.py::test_the_command_of_two_nodes_runs_in_a_shell",
        "test_a_note_is_not_the_failure",
    ],
    "a node that never comes (pytorch#107855)": [
        "test_a_node_that_never_comes_is_said", KNOWN,
    ],
    "destroy_process_group() was not called (pytorch#126275)": ["test_a_note_is_not_the_failure"],
    "barrier() guesses the GPU (pytorch#60752)": [
        "test_devices.py::test_a_rank_with_a_gpu_makes_it_current", KNOWN,
    ],
    "ranks build different models (pytorch#73547)": [
        KNOWN, "test_diagnosis.py::test_the_gallery",
    ],
    "two forwards before a backward, with a buffer (pytorch#22095)": [
        KNOWN,
    ],
    "a deprecated flag warns in every run (pytorch#111138)": ["test_a_clean_run_warns_of_nothing"],
    "shuffle beside a sampler (yolov3#231)": [KNOWN],
    "ranks download one data set together (tutorials#3065)": [
        "test_data_is_prepared_before_any_rank_starts", KNOWN,
        "test_data.py::test_racing_callers_download_once",
    ],
    "a time-out gives no call site (flight recorder tutorial)": [
        "test_launcher.py::test_a_time_out_says_where_every_rank_was",
        "test_diagnosis.py::test_the_gallery",
    ],
    "DETAIL crashes DDP's constructor (found while probing)": [
        "test_diagnosis.py::test_the_gallery",
    ],
}  # fmt: skip


@pytest.mark.parametrize("symptom", REPORTS)
def test_every_report_has_its_tests(symptom: str) -> None:
    for name in REPORTS[symptom]:
        file, _, function = name.rpartition("::")
        path = ROOT / "tests" / (file or Path(__file__).name)
        defined = {
            node.name
            for node in ast.walk(ast.parse(path.read_bytes()))
            if isinstance(node, ast.FunctionDef)
        }
        assert function in defined, f"{path.name} has no {function}"


# Messages: a run that some rank ended with these words


def failed_run(folder: Path, said: str, *, torchrun: str = "", rank: int | None = 1) -> Run:
    """A finished run of two ranks, as the launcher leaves it."""
    folder.mkdir()
    asked = {"job": "job", "ranks": 2, "knobs": {}, "command": "torchrun job.py"}
    codes = {} if rank is None else {"0": -15, str(rank): 1}
    result: dict[str, Any] = {
        "ended": "failed", "exit_code": 1, "exit_codes": codes, "wall_s": 1.0, "failure": None
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(asked))
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "torchrun.log").write_text(dedent(torchrun))
    if rank is not None:
        logs = folder / "logs" / "x_y" / "attempt_0" / str(rank)
        logs.mkdir(parents=True)
        trace = 'Traceback (most recent call last):\n  File "/x/job.py", line 3, in <module>\n'
        (logs / "stderr.log").write_text(trace + said + "\n")
    return Run.open(folder)


NOTES = [
    "NOTE: Redirects are currently not supported in Windows or MacOs.",
    "Warning: WARNING: destroy_process_group() was not called before program exit, which can leak",
    "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid",
    "UserWarning: barrier(): the devices used by this process are currently unknown.",
    "Stack trace of the failed collective not found, potentially because FlightRecorder is "
    "disabled. You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE",
    "master_addr is only used for static rdzv_backend and when rdzv_endpoint is not specified.",
]  # fmt: skip


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note[:40])
def test_a_note_is_not_the_failure(tmp_path: Path, note: str) -> None:
    """Beside another error it is not named; torchrun's own note is no reason either."""
    run = failed_run(tmp_path / "run", "ValueError: boom", torchrun=f"{note}\n")
    found = diagnose(run)
    assert "boom" in found.sentence
    assert found.rank == 1
    assert note[:30] not in found.sentence + found.remedy
    logs = tmp_path / "run" / "logs" / "x_y" / "attempt_0" / "1" / "stderr.log"
    logs.write_text(f"{note}\n{logs.read_text()}{note}\n")
    found = diagnose(Run.open(tmp_path / "run"))
    assert "boom" in found.sentence
    assert note[:30] not in found.sentence + found.remedy


TABLE = """
    Traceback (most recent call last):
      File "/x/torch/distributed/run.py", line 970, in <module>
    torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
    ============================================================
    job.py FAILED
    ------------------------------------------------------------
    Failures:
      <NO_OTHER_FAILURES>
    ------------------------------------------------------------
    Root Cause (first observed failure):
    [0]:
      time      : 2026-01-01_00:00:00
      host      : localhost
      rank      : 1 (local_rank: 1)
      exitcode  : 1 (pid: 4711)
      error_file: <N/A>
      traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
    ============================================================
    """


def test_the_cause_stands_before_torchruns_table(tmp_path: Path) -> None:
    found = diagnose(failed_run(tmp_path / "run", "ValueError: no image 17", torchrun=TABLE))
    assert found.rank == 1
    assert "ValueError: no image 17" in found.sentence
    assert "error_file" not in found.sentence
    assert "Root Cause" in found.table
    assert str(found).index("no image 17") < str(found).index("torchrun's own account")


@pytest.mark.parametrize(
    "echo",
    [
        "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
        "RuntimeError: [/x/pair.cc:561] Connection closed by peer [127.0.0.1]:1234.",
        "RuntimeError: [/x/pair.cc:545] Read error: Connection reset by peer",
    ],
)
def test_an_echo_stands_behind_a_ranks_own_error(tmp_path: Path, echo: str) -> None:
    run = failed_run(tmp_path / "run", echo, rank=0, torchrun=f"{echo}\n")
    logs = tmp_path / "run" / "logs" / "x_y" / "attempt_0" / "1"
    logs.mkdir()
    (logs / "stderr.log").write_text("Traceback (most recent call last):\nKeyError: 'label'\n")
    result = json.loads((run.folder / "result.json").read_bytes())
    result["exit_codes"] = {"0": 1, "1": 1}
    (run.folder / "result.json").write_text(json.dumps(result))
    found: Diagnosis = diagnose(Run.open(run.folder))
    assert found.rank == 1
    assert "KeyError: 'label'" in found.sentence
    assert found.consequences.keys() == {0}


def test_a_node_that_never_comes_is_said(tmp_path: Path) -> None:
    said = "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\n"
    found = diagnose(failed_run(tmp_path / "run", "", torchrun=said, rank=None))
    assert found.kind == "rank-never-started"
    assert "not all nodes came" in found.sentence
    assert "--rdzv-endpoint" in found.remedy


def test_what_could_not_be_tried_here_is_called_so() -> None:
    """Of GPUs, Windows and several hosts we have reports only; the table says where."""
    unverified = {message.kind for message in messages.MESSAGES if not message.verified}
    assert {"shared-gpu", "no-such-gpu", "cuda-after-fork", "no-address", "no-libuv"} <= unverified


# Launches


def test_classes_of_a_cell_work_in_spawned_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kernel's own `__main__` cannot give: the cell is a file, so a child can import it."""
    monkeypatch.chdir(tmp_path)
    cell = """
        import os
        import torch, torch.distributed as dist
        import torch.multiprocessing as mp
        from torch.utils.data import DataLoader, Dataset

        class Squares(Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, index):
                return index * index

        def work(number, answers):
            answers.put(number + 1)

        if __name__ == "__main__":
            dist.init_process_group("gloo")
            loader = DataLoader(Squares(), num_workers=1, multiprocessing_context="spawn")
            total = torch.tensor([float(sum(loader))])
            dist.all_reduce(total)
            answers = mp.get_context("spawn").SimpleQueue()
            mp.spawn(work, (answers,), nprocs=1)
            print("total", total.item(), answers.get(), flush=True)
            os._exit(0)
        """
    notebook.save_job("squares_of_a_cell", dedent(cell))
    run = launch("squares_of_a_cell", ranks=1, limit_s=LONG_S)
    assert run.ok, run
    assert run.lines_of(0, "stdout") == ["total 14.0 1"]


def test_a_kernel_that_has_used_torch_launches(tmp_path: Path) -> None:
    """It has threads, a backward pass and a process group behind it; no rank is forked from it.

    What the ranks trained comes back by file, in the run's folder.
    """
    job = script(
        tmp_path,
        """
        import os
        import torch, torch.distributed as dist
        from ddp_course.rank.report import my_folder
        dist.init_process_group("gloo")
        weight = torch.ones(2)
        dist.all_reduce(weight)
        if dist.get_rank() == 0:
            torch.save({"weight": weight}, my_folder() / "model.pt")
        dist.barrier()
        os._exit(0)
        """,
    )
    text = f"""
        import torch, torch.distributed as dist
        from ddp_course import launch
        model = torch.nn.Linear(64, 64)
        model(torch.ones(512, 64)).sum().backward()
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        dist.all_reduce(torch.ones(4))
        run = launch({str(job)!r}, ranks=2, limit_s={LONG_S})
        print("RESULT", run.ok, torch.load(run.folder / "model.pt")["weight"].tolist())
        """
    with caller(tmp_path, text) as process:
        process.wait(LONG_S)
    said = (tmp_path / "caller.log").read_text()
    assert "RESULT True [2.0, 2.0]" in said, said


def test_an_empty_path_is_no_obstacle(tmp_path: Path) -> None:
    """The interpreter that runs the kernel runs the ranks, and the command names it."""
    job = script(tmp_path, "import sys\nprint('by', sys.executable, flush=True)")
    text = f"""
        from ddp_course import launch
        for warm in (True, False):
            run = launch({str(job)!r}, ranks=1, warm=warm, limit_s={LONG_S})
            print("RESULT", run.ok, run.lines_of(0, "stdout"), flush=True)
            print("COMMAND", run.command, flush=True)
        """
    with caller(tmp_path, text, {"PATH": ""}) as process:
        process.wait(LONG_S)
    said = (tmp_path / "caller.log").read_text()
    assert said.count(f"RESULT True ['by {sys.executable}']") == 2, said
    assert f"{sys.executable} -m torch.distributed.run" in said


def plan(job: Path, knobs: dict[str, Any] | None = None, **more: Any) -> Plan:
    return Plan(job, Options(**more), knobs or {})


def test_the_command_stays_on_this_machine(tmp_path: Path) -> None:
    job = script(tmp_path, "pass")
    command = plan(job).command
    assert "--standalone" in command
    assert "--local-addr=127.0.0.1" in command
    assert "GLOO_SOCKET_IFNAME=lo" in command
    assert "--rdzv-endpoint=localhost:" in plan(job, nodes=2).command
    assert "DETAIL" not in json.dumps(plan(job).environment(tmp_path))


def test_on_macos_nothing_asks_for_redirects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not tried on a Mac. torchrun opens the ranks' files itself; only its C redirects are not."""
    monkeypatch.setattr(sys, "platform", "darwin")
    mac = plan(script(tmp_path, "pass"))
    assert not mac.warm, "a plain torchrun"
    assert "GLOO_SOCKET_IFNAME=lo0" in mac.command
    assert "--tee" not in mac.command
    assert "--redirects" not in mac.command


@pytest.mark.parametrize("what", ["launch", "run hello_ranks", "import"])
def test_windows_is_told_at_once(what: str) -> None:
    """Pretended: the name of the platform, and no fcntl."""
    do = {
        "launch": "from ddp_course import launch",
        "run hello_ranks": "sys.exit(main(sys.argv[1:]))",
        "import": "sys.modules['IPython'] = sys; del sys.modules['ddp_course']; import ddp_course; "
        "print('imported')",
    }[what]
    platform = "sys.platform = 'win32'; sys.modules['fcntl'] = None"
    before = "import sys, zoneinfo, ddp_course.machine; from ddp_course.__main__ import main"
    code = f"{before}; {platform}; {do}"
    ended = subprocess.run(
        [sys.executable, "-c", code, *what.split()[:2]], cwd=ROOT, capture_output=True, text=True
    )
    if what == "import":
        assert ended.stdout == "imported\n", ended.stderr
        return
    assert "wsl --install" in ended.stderr
    assert ended.returncode == (2 if what.startswith("run") else 1)
    assert ("Traceback" in ended.stderr) == (what == "launch")


def test_a_clean_run_warns_of_nothing() -> None:
    """Warnings that Python would hide are errors here, and torchrun has nothing to say."""
    strict = {"PYTHONWARNINGS": "error::FutureWarning,error::DeprecationWarning"}
    run = launch("train_ddp", ranks=2, warm=False, limit_s=LONG_S, env=strict)
    assert run.ok, run
    assert run.lines_of(None) == []
    for rank in (0, 1):
        assert run.lines_of(rank, "stderr") == []
    assert "OMP_NUM_THREADS=" in run.command


def test_the_threads_of_a_rank_are_its_share(tmp_path: Path) -> None:
    job = script(tmp_path, "import torch\nprint('threads', torch.get_num_threads(), flush=True)")
    run = launch(job, ranks=2, limit_s=LONG_S)
    cores = len(os.sched_getaffinity(0))
    assert run.lines_of(1, "stdout") == [f"threads {max(1, cores // 2)}"]


def test_data_is_prepared_before_any_rank_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    job = script(
        tmp_path,
        """
        import argparse
        from ddp_course.rank.data import load
        parser = argparse.ArgumentParser()
        parser.add_argument("--data", default="mnist")
        load(parser.parse_args().data, train=True)
        """,
    )
    monkeypatch.setattr(data, "prepare", lambda name: order.append(f"prepare {name}"))
    monkeypatch.setattr(launcher, "_submit", lambda one: order.append("start"))
    monkeypatch.setattr(launcher, "print_while_running", lambda run: None)
    launch(job)
    launch(job, data="digits")
    assert order == ["prepare mnist", "start", "prepare digits", "start"]


def test_a_run_of_a_script_of_ones_own_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the results are: a folder that the run names, whatever the present folder is."""
    monkeypatch.chdir(tmp_path)
    run = launch(script(tmp_path, "print('ok')"), ranks=1, limit_s=LONG_S)
    assert run.folder.parent == runs_folder()
    assert until(lambda: Run.open(run.folder).ok, "the run on disk")
