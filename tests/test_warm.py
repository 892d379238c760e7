"""A warm rank is as a fresh process, and the host that it comes from is clean."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from launching import caller, family, listening_ports, lives, script, until

import ddp_course
from ddp_course import launch
from ddp_course.launcher import launch as launcher
from ddp_course.process import host, warm
from ddp_course.run.run import Run

LONG_S = 240
WAYS = {"warm": True, "plain": False}


@pytest.fixture
def no_host() -> Iterator[None]:
    """Start without a host, and leave none."""
    warm.close()
    yield
    warm.close()


@pytest.fixture(autouse=True)
def no_run_goes_on() -> Iterator[None]:
    """A test that fails leaves no run for the next one to wait for."""
    yield
    for run in launcher.live_runs():
        run.stop()


def both_ways(job: Path, ranks: int, **more: Any) -> dict[str, Run]:
    """The same launch, warm and plain."""
    found = {
        name: launch(job, ranks=ranks, warm=way, limit_s=LONG_S, **more)
        for name, way in WAYS.items()
    }
    for run in found.values():
        assert run.ok, run
    return found


def host_process() -> psutil.Process:
    """The host itself: the child of its guard."""
    assert warm._host is not None
    (host,) = psutil.Process(warm._host.pid).children()
    return host


# The same results


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.nightly), 2, 4])
def test_results_are_bitwise_the_same(tmp_path: Path, ranks: int) -> None:
    job = script(
        tmp_path,
        """
        import hashlib, random
        import numpy, torch, torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        from ddp_course.rank.report import log, run_rank

        def main():
            dist.init_process_group("gloo")
            torch.manual_seed(3)
            model = torch.nn.Sequential(
                torch.nn.Conv2d(1, 4, 3), torch.nn.Dropout(0.2), torch.nn.Flatten(),
                torch.nn.Linear(144, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10),
            )
            model = DistributedDataParallel(model, bucket_cap_mb=0.02)
            optimizer = torch.optim.AdamW(model.parameters())
            torch.manual_seed(dist.get_rank())
            for step in range(4):
                images, labels = torch.randn(16, 1, 8, 8), torch.randint(10, (16,))
                loss = torch.nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            numpy.random.seed(1)
            random.seed(1)
            digest = hashlib.sha256()
            for parameter in model.parameters():
                digest.update(parameter.detach().numpy().tobytes())
            log(digest=digest.hexdigest(), loss=loss.item(), draws=[random.random()],
                arrays=numpy.random.rand(3), product=(torch.randn(99, 99) @ torch.randn(99, 99)))
            dist.destroy_process_group()

        if __name__ == "__main__":
            run_rank(main)
        """,
    )
    found = both_ways(job, ranks)
    for name in ("digest", "loss", "draws", "arrays", "product"):
        assert found["warm"].by_rank(name) == found["plain"].by_rank(name)
    assert len(set(found["warm"].by_rank("digest").values())) == 1


def test_every_rank_and_launch_draws_its_own_random_numbers(tmp_path: Path) -> None:
    job = script(
        tmp_path,
        """
        import random, uuid
        import numpy, torch
        from ddp_course.rank.report import log
        log(draws=[torch.rand(1).item(), numpy.random.rand(), random.random(),
                   numpy.random.default_rng().random(), torch.initial_seed(), uuid.uuid4().hex,
                   torch.randperm(10**6)[0].item(), hash("a string")])
        """,
    )
    draws = [
        draw
        for _ in range(2)
        for draw in launch(job, ranks=3, limit_s=LONG_S).by_rank("draws").values()
    ]
    assert len(draws) == 6
    for kind in list(zip(*draws, strict=True))[:-1]:
        assert len(set(kind)) == 6, kind


# What is edited takes effect


def test_edits_take_effect_at_the_next_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_host: None
) -> None:
    """The job, a module beside it, and a module of the course (in a copy of the package)."""
    package = tmp_path / "path" / "ddp_course"
    shutil.copytree(
        Path(ddp_course.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # two edits within a second differ
    text = """
        import helper
        import ddp_course, ddp_course.rank.place
        print(helper.NAME, ddp_course.rank.place.EDIT, "{edit}", ddp_course.__file__)
        """
    for edit in ("one", "two"):
        job = script(tmp_path / "jobs", text.format(edit=edit))
        script(tmp_path / "jobs", f"NAME = {edit!r}", "helper.py")
        with open(package / "rank" / "place.py", "a") as file:
            file.write(f"\nEDIT = {edit!r}\n")
        run = launch(job, ranks=1, limit_s=LONG_S)
        assert run.lines_of(0) == [f"{edit} {edit} {edit} {package / '__init__.py'}"]


# As a fresh process


PORTRAIT = """
    '''A self-portrait.'''
    import sys
    before = {
        "course": [n for n in sys.modules if n.split(".")[0] in ("ddp_course", "guard", "shim")],
        "path": list(sys.path), "argv": list(sys.argv), "globals": sorted(
            n for n in globals() if n.startswith("__") and n != "__annotations__"),
    }
    import atexit, faulthandler, gc, json, locale, os, resource, signal, stat
    import tempfile, threading, time

    here = os.listdir("/proc/self/fd")
    portrait = {
        **before, "name": __name__, "file": __file__, "doc": __doc__, "spec": __spec__,
        "package": __package__, "loader": type(__loader__).__name__, "cached": __cached__,
        "builtins": type(__builtins__).__name__, "cwd": os.getcwd(), "stdin": sys.stdin.read(),
        "fds": sorted(
            (int(fd), stat.S_IFMT(os.fstat(int(fd)).st_mode))
            for fd in here if os.path.exists(f"/proc/self/fd/{fd}")
        ),
        "signals": {
            s.name: getattr(signal.getsignal(s), "__name__", str(signal.getsignal(s)))
            for s in signal.Signals
        },
        "kernel_signals": dict(
            line.split()[:2] for line in (s.replace(":", " ") for s in open("/proc/self/status"))
            if line.startswith(("Sig", "Shd", "Cap", "Seccomp"))
        ),
        "wakeup_fd": signal.set_wakeup_fd(-1), "timer": signal.getitimer(signal.ITIMER_REAL),
        "leader": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
        "umask": os.umask(0o22), "nice": os.nice(0), "affinity": sorted(os.sched_getaffinity(0)),
        "limits": {
            n: resource.getrlimit(getattr(resource, n))
            for n in dir(resource) if n.startswith("RLIMIT_")
        },
        "oom": open("/proc/self/oom_score_adj").read(),
        "faulthandler": faulthandler.is_enabled(),
        "streams": [
            [s.encoding, s.errors, s.line_buffering, s.write_through, s.mode, s.name, s.fileno()]
            for s in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "originals": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__,
                      sys.stderr is sys.__stderr__],
        "threads": [t.name for t in threading.enumerate()],
        "system_threads": len(os.listdir("/proc/self/task")),
        "main_thread": [threading.current_thread() is threading.main_thread(),
                        threading.main_thread().ident == threading.get_ident()],
        "gc": [gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.get_freeze_count()],
        "interpreter": [sys.getrecursionlimit(), sys.getswitchinterval(), sys.dont_write_bytecode,
                        sys.pycache_prefix, sys.flags.dev_mode, sys.flags.utf8_mode,
                        str(sys.gettrace()), str(sys.getprofile()), sys.displayhook.__name__,
                        threading.excepthook.__name__, sys.unraisablehook.__name__],
        "locale": [locale.setlocale(c) for c in (locale.LC_CTYPE, locale.LC_ALL)],
        "temp": tempfile.gettempdir() == os.environ["TMPDIR"],
        "variables": sorted(os.environ), "zone": time.tzname,
        "user_signal": signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL,
        "orphan": os.getppid() == 1,
    }
    import logging, multiprocessing
    import numpy, torch, torch.distributed as dist
    portrait["torch"] = {
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "system_threads": len(os.listdir("/proc/self/task")),
        "defaults": [str(torch.get_default_dtype()), str(torch.get_default_device()),
                     torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled(),
                     torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark],
        "devices": [torch.cuda._is_in_bad_fork(), torch.cuda.is_initialized(),
                    torch.accelerator.is_available()],
        "denormal": (torch.tensor([1e-310], dtype=torch.float64) + 0).item(),
        "processes": [multiprocessing.get_start_method(), str(multiprocessing.parent_process()),
                      multiprocessing.current_process().name,
                      torch.multiprocessing.get_sharing_strategy()],
        "debug": str(dist.get_debug_level()), "excepthook": sys.excepthook.__name__,
        "jit": torch.jit._state._enabled.enabled, "numpy": numpy.geterr(),
        "logging": [str(logging.root.handlers), logging.root.level],
        "distributed": dist.is_initialized(),
    }
    def at_exit():
        print("at exit", flush=True)
    atexit.register(at_exit)
    def late():
        time.sleep(0.3)
        sys.__stdout__.write("a thread outlived main\\n")
    threading.Thread(target=late).start()
    class Pickled:
        pass
    import pickle
    portrait["pickle"] = type(pickle.loads(pickle.dumps(Pickled()))).__module__
    import inspect
    portrait["source"] = inspect.getsource(Pickled)
    with open(os.path.join(os.environ["OUT"], os.environ["RANK"]), "w") as file:
        json.dump(portrait, file)
    """


@pytest.mark.parametrize(
    "env",
    [
        {"TZ": "Asia/Tokyo", "TORCH_DISTRIBUTED_DEBUG": "INFO", "OMP_NUM_THREADS": "1,2"},
        {"PYTORCH_JIT": "0", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONSAFEPATH": "1"},
    ],
    ids=["each rank", "at import"],
)
def test_a_warm_rank_s_portrait_is_that_of_a_fresh_process(
    tmp_path: Path, env: dict[str, str], no_host: None
) -> None:
    job = script(tmp_path / "jobs", PORTRAIT)
    portraits = {}
    for name, way in WAYS.items():
        out = tmp_path / name
        out.mkdir()
        run = launch(job, ranks=2, warm=way, limit_s=LONG_S, env={**env, "OUT": str(out)})
        assert run.ok, run
        assert run.lines_of(1, "stdout") == ["a thread outlived main", "at exit"]
        portraits[name] = json.loads((out / "1").read_text())
    warm_rank, fresh = portraits["warm"], portraits["plain"]
    assert warm_rank.keys() == fresh.keys()
    for portrait in portraits.values():
        # glibc's own two signals: caught once a thread has been made, be it gone.
        caught = portrait["kernel_signals"].pop("SigCgt")
        del portrait["kernel_signals"]["SigQ"]  # of the user, not of the process
        portrait["kernel_signals"]["caught"] = int(caught, 16) & 0x7FFF_FFFF
    for field in fresh:
        assert warm_rank[field] == fresh[field], field
    assert fresh["torch"]["devices"] == [False, False, False]


@pytest.mark.parametrize(
    ("said", "threads"),
    [("3", 3), (" 3 , 2", 3), ("", 0), ("0", 0), ("-1", 0), ("abc", 0), ("²", 0)],
)
def test_any_number_of_threads_is_taken_as_openmp_takes_it(said: str, threads: int) -> None:
    assert host._threads(said) == (threads or len(os.sched_getaffinity(0)))


def test_what_is_read_at_import_takes_effect(tmp_path: Path, no_host: None) -> None:
    folder = tmp_path / "more"
    script(folder, "VALUE = 'from PYTHONPATH'", "only_there.py")
    job = script(
        tmp_path,
        """
        import os, sys, torch
        try:
            import only_there
            print(only_there.VALUE)
        except ImportError:
            print("not there")
        print(os.environ.get("PYTHONHASHSEED"), hash("x"))
        print(torch.get_num_threads(), (torch.ones(9, 9) @ torch.ones(9, 9)).sum().item())
        print(torch._logging._internal.log_state.log_qname_to_level)
        """,
    )
    first = host_pid_after(job)
    assert host_pid_after(job) == first, "the same environment, the same host"
    assert host_pid_after(job, {"MINE": "x", "OMP_NUM_THREADS": "2"}) == first
    env = {
        "PYTHONPATH": str(folder),
        "PYTHONHASHSEED": "7",
        "TORCH_LOGS": "+dynamo",
        "OMP_NUM_THREADS": "2",
    }
    runs = both_ways(job, 1, env=env)
    assert runs["warm"].lines_of(0, "stdout") == runs["plain"].lines_of(0, "stdout")
    assert runs["warm"].lines_of(0, "stdout")[0] == "from PYTHONPATH"
    assert not psutil.pid_exists(first), "the former host has gone"
    assert launch(job, ranks=1, limit_s=LONG_S).lines_of(0, "stdout")[0] == "not there"


def host_pid_after(job: Path, env: dict[str, str] | None = None) -> int:
    assert launch(job, ranks=1, limit_s=LONG_S, env=env).ok
    return host_process().pid


ENDS = {
    "sys.exit()": 0, "sys.exit(0)": 0, "sys.exit(None)": 0, "sys.exit(3)": 3, "sys.exit(256)": 0,
    "sys.exit(-1)": 255, "sys.exit(True)": 1, "sys.exit('words')": 1, "sys.exit(2.5)": 1,
    "sys.exit(10**30)": 255, "raise KeyboardInterrupt": -2, "raise SystemExit(4)": 4,
    "os._exit(5)": 5, "atexit.register(os._exit, 6)": 6, "raise Exception": 1,
    "threading.Thread(target=lambda: 1 / 0).start()": 0,
    "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()": 0,
    "os.kill(os.getpid(), 15); time.sleep(9)": -15, "os.kill(os.getpid(), 10)": -10,
    "sys.stdout.close(); sys.stderr.close()": 0, "os.close(1)": 0, "del sys.stdout": 0,
    "sys.stdout = None": 0, "raise GeneratorExit": 1, "sys.modules.clear()": 0,
}  # fmt: skip


def test_exit_codes_are_python_s_own(tmp_path: Path) -> None:
    """Each rank ends in another way; one at a time, as torchrun stops at the first failure."""
    for statement, code in ENDS.items():
        job = script(tmp_path, f"import atexit, os, sys, threading, time\n{statement}\n")
        plain = subprocess.run([sys.executable, "-u", str(job)], capture_output=True)
        assert plain.returncode == code, f"python itself: {statement}"
        run = launch(job, ranks=1, limit_s=LONG_S)
        assert run.exit_codes == {0: code}, statement


@pytest.mark.parametrize(
    ("leave", "code", "said"),
    [
        ("sys.exit(10**30)", 255, ""),
        ("sys.exit([1, 2])", 1, "[1, 2]\n"),
        ("sys.exit('x')", 1, "x\n"),
    ],
)
def test_run_rank_leaves_as_python_does(leave: str, code: int, said: str) -> None:
    without_torch = "import sys; sys.modules['torch'] = None"
    through = f"from ddp_course.rank.report import run_rank; run_rank(lambda: {leave})"
    for way in (leave, through):
        ended = subprocess.run(
            [sys.executable, "-c", f"{without_torch}; {way}"], capture_output=True, text=True
        )
        assert (ended.returncode, ended.stderr) == (code, said)


def test_what_jobs_do_with_processes_works_in_a_warm_rank(tmp_path: Path) -> None:
    job = script(
        tmp_path,
        """
        import multiprocessing, os, subprocess, sys
        import torch, torch.multiprocessing as mp
        from torch.profiler import ProfilerActivity, profile
        from torch.utils.data import DataLoader, Dataset
        from ddp_course.rank.report import log

        class Squares(Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, index):
                return torch.tensor(index * index), os.getpid()

        def work(number, queue):
            queue.put((number, torch.rand(1).item()))

        def spawned(number):
            assert number in (0, 1)

        if __name__ == "__main__":
            for method in ("fork", "spawn", "forkserver"):
                loader = DataLoader(Squares(), batch_size=4, num_workers=2,
                                    multiprocessing_context=method)
                batches = list(loader)
                log(**{method: [values.tolist() for values, _ in batches]},
                    workers=len({pid.item() for _, pids in batches for pid in pids}))
                context = multiprocessing.get_context(method)
                queue = context.SimpleQueue()
                children = [context.Process(target=work, args=(n, queue)) for n in range(2)]
                for child in children:
                    child.start()
                got = sorted(queue.get() for _ in children)
                for child in children:
                    child.join()
                log(numbers=[number for number, _ in got], codes=[c.exitcode for c in children])
            mp.spawn(spawned, nprocs=2)
            torch.save(Squares(), "squares.pt")
            log(saved=len(torch.load("squares.pt", weights_only=False)))
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                torch.ones(64, 64) @ torch.ones(64, 64)
            log(profiled=any(event.key == "aten::mm" for event in profiler.key_averages()))
            log(said=subprocess.run(["echo", "hi"], capture_output=True, text=True).stdout,
                python=subprocess.run([sys.executable, "-c", "print(1)"]).returncode,
                shell=os.popen("echo $RANK").read())
        """,
    )
    folder = tmp_path / "here"
    folder.mkdir()
    before = os.getcwd()
    os.chdir(folder)
    try:
        run = launch(job, ranks=1, limit_s=LONG_S)
    finally:
        os.chdir(before)
    assert run.ok, run
    squares = [[0, 1, 4, 9], [16, 25, 36, 49]]
    for method in ("fork", "spawn", "forkserver"):
        assert run.value(method) == squares
    assert run.values("workers") == [2, 2, 2]
    assert run.values("numbers") == [[0, 1]] * 3
    assert run.values("codes") == [[0, 0]] * 3
    assert run.value("saved") == 8
    assert run.value("profiled") is True
    assert (run.value("said"), run.value("python"), run.value("shell")) == ("hi\n", 0, "0\n")
    assert run.lines_of(0, "stdout") == ["1"], "a child's output is the rank's"


# The host


def test_no_device_is_touched_before_the_fork(tmp_path: Path) -> None:
    threat = """
        import os, torch
        if {asks}:
            torch.accelerator.is_available()
        if os.fork() == 0:
            print(torch.cuda._is_in_bad_fork(), flush=True)
            os._exit(0)
        os.wait()
        """
    for asks in (True, False):
        path = script(tmp_path, threat.format(asks=asks), "threat.py")
        said = subprocess.run([sys.executable, str(path)], capture_output=True, text=True)
        assert said.stdout == f"{asks}\n", said.stderr

    job = script(
        tmp_path,
        "import os, torch\nprint(torch.cuda._is_in_bad_fork(), torch.cuda.is_initialized())\n"
        "print(os.getppid())",
    )
    run = launch(job, ranks=2, limit_s=LONG_S)
    for rank in range(2):
        assert run.lines_of(rank, "stdout")[0] == "False False"
    host = host_process()
    opened = [os.readlink(f"/proc/{host.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{host.pid}/fd")]
    assert not [path for path in opened if path.startswith("/dev/nvidia")]
    maps = Path(f"/proc/{host.pid}/maps").read_text()
    assert "/dev/nvidia" not in maps
    assert host.num_threads() == 1
    assert listening_ports([host]) == set()
    assert not (tmp_path / "core").exists()


def test_an_idle_host_ends_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_host: None
) -> None:
    monkeypatch.setattr(warm, "IDLE_S", 0.2)
    job = script(tmp_path, "print('ok')")
    assert launch(job, ranks=1, limit_s=LONG_S).ok
    first = warm._host
    assert first is not None
    until(lambda: not first.alive(), "the idle host's end")
    assert launch(job, ranks=1, limit_s=LONG_S).ok
    assert warm._host is not first


def test_a_host_is_not_idle_while_a_launch_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_host: None
) -> None:
    monkeypatch.setattr(warm, "IDLE_S", 0.2)
    run = launch(
        script(tmp_path, "import time\ntime.sleep(1)\nprint('ok')"), ranks=1, limit_s=LONG_S
    )
    assert run.ok, run


def test_a_killed_host_is_replaced(tmp_path: Path) -> None:
    job = script(tmp_path, "print('ok')")
    assert launch(job, ranks=1, limit_s=LONG_S).ok
    for number in (signal.SIGKILL, signal.SIGSTOP, None):
        victim = host_process() if number else psutil.Process(host_process().ppid())
        below = [victim, *victim.children(recursive=True)]
        victim.send_signal(number or signal.SIGKILL)
        assert launch(job, ranks=1, limit_s=LONG_S).ok
        until(lambda below=below: not any(map(lives, below)), "the old host's end")


def test_a_host_killed_during_a_launch_fails_it(tmp_path: Path) -> None:
    job = script(tmp_path, "import time\nprint('alive', flush=True)\ntime.sleep(60)")
    run = launch(job, ranks=2, limit_s=LONG_S, wait=False)
    until(lambda: any("alive" in line.text for line in run.tail()), "a line")
    assert warm._host is not None
    below = family(warm._host.pid)
    assert len(below) >= 7, "host, supervisor, agent, two shims, two ranks"
    host_process().kill()
    assert run.wait().ended == "failed"
    assert run.failure is not None
    assert "killed" in run.failure.what
    until(lambda: not any(map(lives, below)), "the end of the launch", 5)
    assert launch(script(tmp_path, "print('ok')"), ranks=1, limit_s=LONG_S).ok


def test_a_supervisor_or_a_shim_that_is_killed_ends_the_run_at_once(tmp_path: Path) -> None:
    job = script(tmp_path, "import time\nprint('alive', flush=True)\ntime.sleep(60)")
    for which in ("shim.py", "supervisor"):
        run = launch(job, ranks=2, limit_s=LONG_S, wait=False)
        until(lambda run=run: any("alive" in line.text for line in run.tail()), "a line")
        host = host_process()
        below = family(host.pid)
        (supervisor,) = host.children()
        shims = [p for p in below if any("shim.py" in word for word in p.cmdline())]
        assert len(shims) == 2
        (shims[0] if which == "shim.py" else supervisor).kill()
        assert run.wait().ended == "failed"
        until(lambda below=below: not any(map(lives, below)), "the end of the launch", 5)
        assert lives(host), "the host serves the next launch"


def test_strangers_at_the_door_change_nothing(tmp_path: Path) -> None:
    """Connections to a launch's own socket that say nothing, or nonsense."""
    job = script(
        tmp_path,
        f"""
        import time
        from pathlib import Path
        print("alive", flush=True)
        while not Path({str(tmp_path)!r}, "go").exists():
            time.sleep(0.01)
        """,
    )
    run = launch(job, ranks=1, limit_s=LONG_S, wait=False)
    until(lambda: any("alive" in line.text for line in run.tail()), "a line")
    (supervisor,) = host_process().children()
    table = Path("/proc/net/unix").read_text().split()
    doors = [word[1:] for word in table if word.startswith(f"@ddp-course-{supervisor.pid}-")]
    assert doors
    for said in (b"", b"\0" * 8, (5).to_bytes(8, "big"), (3).to_bytes(8, "big") + b"a\0b", b"x"):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect("\0" + doors[0])
            stranger.sendall(said)
    (tmp_path / "go").touch()
    assert run.wait().ok, run


def test_torch_that_cannot_be_imported_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_host: None
) -> None:
    script(tmp_path / "path" / "torch", "raise ImportError('libtorch is broken')", "__init__.py")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    run = launch(script(tmp_path, "pass"), ranks=1, limit_s=LONG_S)
    assert run.ended == "failed"
    assert run.failure is not None
    assert "doctor" in run.failure.what


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ('Traceback\n  File "x", line 1\nImportError: no libtorch\n', "ImportError: no libtorch"),
        ("what(): x\n  what():  std::bad_alloc\nFatal Python error: Aborted\n\n  File 1\n",
         "what(): x"),
        ("Fatal Python error: Segmentation fault\n\nCurrent thread 0x1:\n  File 1\n",
         "Fatal Python error: Segmentation fault"),
        ("Killed\n\n", "Killed"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_host_that_ends_is_quoted_with_its_reason(printed: str, told: str) -> None:
    assert warm.telling(printed.split("\n")) == told


def test_a_stop_is_obeyed_while_the_host_still_imports(tmp_path: Path, no_host: None) -> None:
    job = script(tmp_path, "print('must not run')")
    run = launch(job, ranks=1, limit_s=LONG_S, wait=False)
    until(lambda: run.state == "starting", "the start")
    run.stop()
    assert run.wait().ended == "stopped"
    assert launch(script(tmp_path, "print('ok')", "next.py"), ranks=1, limit_s=LONG_S).ok
    assert run.lines == []
    assert list(run.folder.glob("logs/*")) == []


def test_a_fork_of_the_caller_launches_for_itself(tmp_path: Path) -> None:
    job = script(tmp_path, "print('ok')")
    text = f"""
        import os
        from ddp_course import launch
        from ddp_course.process import warm
        assert launch({str(job)!r}, ranks=1, limit_s={LONG_S}).ok
        child = os.fork()
        if child == 0:
            ok = launch({str(job)!r}, ranks=1, limit_s={LONG_S}).ok
            warm.close()
            os._exit(0 if ok else 1)
        assert os.wait()[1] == 0
        assert launch({str(job)!r}, ranks=1, limit_s={LONG_S}).ok
        print("RESULT ok")
        """
    with caller(tmp_path, text) as process:
        process.wait(LONG_S)
    assert "RESULT ok" in (tmp_path / "caller.log").read_text()


@pytest.mark.nightly
def test_two_hundred_launches_leave_nothing(tmp_path: Path) -> None:
    job = script(tmp_path, "import os\nprint(os.environ['RANK'])")
    assert launch(job, ranks=1, limit_s=LONG_S).ok
    me, host = psutil.Process(), host_process()
    until(lambda: not host.children(), "the end of the first launch")

    def state() -> dict[str, Any]:
        gc.collect()  # runs of earlier tests hold their folders
        return {
            "descendants": len(family(me.pid)),
            "descriptors": me.num_fds(),
            "threads": me.num_threads(),
            "host's descriptors": host.num_fds(),
            "host's children": len(host.children()),
            "host's folder": sorted(os.listdir(host.environ()["TMPDIR"])),
            "live runs": launcher.live_runs(),
        }

    before = state()
    for _ in range(200):
        assert launch(job, ranks=1, limit_s=LONG_S).ok
    try:
        until(lambda: state() == before, "the state as before", 5)
    except AssertionError:
        assert state() == before
    assert host_process() == host


def test_a_rank_s_signals_are_its_own(tmp_path: Path) -> None:
    """What reaches the rank through torchrun and its shim: SIGTERM, and it may clean up."""
    job = script(
        tmp_path,
        """
        import os, signal, sys, time
        def clean_up(number, frame):
            print("cleaned up", flush=True)
            sys.exit(0)
        signal.signal(signal.SIGTERM, clean_up)
        print("alive", flush=True)
        time.sleep(60)
        """,
    )
    run = launch(job, ranks=2, limit_s=LONG_S, wait=False)
    until(lambda: sum("alive" in line.text for line in run.tail()) == 2, "both ranks")
    run.stop()
    assert run.wait().ended == "stopped"
    for rank in range(2):
        assert run.lines_of(rank, "stdout")[-1] == "cleaned up"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_shim_reads_its_answer_though_a_signal_comes_when_the_rank_has_ended() -> None:
    """torchrun may end a worker in the moment in which its rank is gone and the line is closed."""
    address = f"ddp-course-test-{os.getpid()}-{os.urandom(4).hex()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + address)
        listener.listen(1)
        shim = Path(warm.__file__).with_name("shim.py")
        process = subprocess.Popen(
            [sys.executable, "-S", "-E", str(shim), address, "job.py"], stderr=subprocess.PIPE
        )
        supervisor, _ = listener.accept()
        length = int.from_bytes(supervisor.recv(8, socket.MSG_WAITALL), "big")
        supervisor.recv(length, socket.MSG_WAITALL)
        status = Path(f"/proc/{process.pid}/status")
        bit = 1 << (signal.SIGUSR2 - 1)
        until(
            lambda: int(status.read_text().split("SigCgt:")[1].split()[0], 16) & bit,
            "the shim's handlers",
        )
        process.send_signal(signal.SIGSTOP)
        supervisor.sendall(str(3 << 8).encode())
        supervisor.close()
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (3, b"")
