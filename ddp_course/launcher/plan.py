"""A checked launch: the command, the environment of its ranks, and the folder that it gets."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddp_course.disk import PACKAGE
from ddp_course.errors import BadArgument
from ddp_course.launcher import catalogue, knobs
from ddp_course.launcher.options import Options
from ddp_course.process import warm
from ddp_course.run import folder as folders
from ddp_course.run.run import Control, Run

# A node is taken for lost after 5 s without a sign of life. With fewer than 3 attempts a live one
# can be taken for dead, and two jobs come of it.
_NODE_PATIENCE = "last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=5"
_RANK_SIDE = str(PACKAGE / "process" / "rank_side")
_BYTES_PER_RANK = {True: 130 << 20, False: 500 << 20}  # warm or not; measured with torch 2.14

# What another job's torchrun may have left in the environment of the caller.
_SCRUBBED = (
    "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
_SCRUBBED_PREFIXES = (
    "TORCHELASTIC_", "PET_", "DDP_COURSE_RUN", "DDP_COURSE_TRACE", "DDP_COURSE_RECORD",
    "DDP_COURSE_OWN_TMPDIR",
)  # fmt: skip


def caller_environment() -> dict[str, str]:
    """This process's environment without what another job's torchrun may have left in it."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _SCRUBBED and not name.startswith(_SCRUBBED_PREFIXES)
    }


class Plan:
    """Everything that is known of a launch before it starts.

    module       run it as `python -m` does: `job` is then a module's name
    while_idle   the limit counts from the last sign of progress: a line, a step, a collective
    share_stdin  the ranks inherit the caller's standard input, as torchrun's do

    Raises BadArgument for what cannot work.
    """

    def __init__(
        self,
        job: str | Path,
        options: Options,
        given: Mapping[str, Any],
        *,
        module: bool = False,
        while_idle: bool = False,
        share_stdin: bool = False,
    ) -> None:
        self.warm = options.warm and warm.available()
        self.module = str(job) if module else ""
        self.script = catalogue.find_module(self.module) if module else catalogue.find_job(job)
        self.words = [*knobs.flags(self.script, given), *options.argv]
        self.nodes, self.ranks = options.nodes, options.nodes * options.ranks  # of all nodes
        _check_memory(self.ranks, warm_start=self.warm)
        _prepare_data(self.script, given)
        self.trace, self.limit_s, self.restarts = options.trace, options.limit_s, options.restarts
        self.while_idle, self.share_stdin = while_idle, share_stdin
        self.knobs, self.cwd = dict(given), _working_folder()
        self._given_env, self._caller_env = dict(options.env), caller_environment()
        elastic = self.nodes > 1 and bool(self.restarts)
        meeting = _meeting(self.nodes, elastic=elastic) if self.nodes > 1 else ["--standalone"]
        self._patience = _NODE_PATIENCE if elastic else ""
        each = f"--nproc-per-node={options.ranks}"
        self.torchrun_args = [*meeting, "--local-addr=127.0.0.1", each]
        if self.restarts:
            self.torchrun_args.append(f"--max-restarts={self.restarts}")

    @property
    def script_and_words(self) -> list[str]:
        """What stands after torchrun's own options."""
        if self.module:
            return ["-m", "--", self.module, *self.words]
        return knobs.after_options(self.script, self.words)

    @property
    def rank_words(self) -> list[str]:
        """What stands after `python` in each rank."""
        script = ["-m", self.module] if self.module else [str(self.script)]
        return [*script, *self.words]

    @property
    def visible_env(self) -> dict[str, str]:
        """The variables that belong to the command: a shell needs them for the same job."""
        threads = self._caller_env.get("OMP_NUM_THREADS") or str(max(1, _cores() // self.ranks))
        env = {"OMP_NUM_THREADS": threads}  # torchrun would say 1 and print a warning
        loopback = {"linux": "lo", "darwin": "lo0"}.get(sys.platform)
        if loopback:
            env["GLOO_SOCKET_IFNAME"] = loopback  # never a VPN's address
        if self.restarts:
            # Without it ranks of the second attempt read the first one's addresses (issue 135712).
            env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        return {**env, **self._given_env}

    @property
    def command(self) -> str:
        """The command, ready to paste into a shell."""
        assignments = [f"{name}={shlex.quote(value)}" for name, value in self.visible_env.items()]
        words = [sys.executable, "-m", "torch.distributed.run", *self.torchrun_args]
        parts = [*assignments, shlex.join(words)]
        if self.nodes > 1:  # what guard.environment_of says
            conf = filter(None, ["is_host=$((node==0))", self._patience])
            parts.append(f"--rdzv-conf={','.join(conf)}")
        text = " ".join([*parts, shlex.join(self.script_and_words)])
        if self.nodes > 1:
            each = " ".join(str(node) for node in range(self.nodes))
            text = f"for node in {each}; do {text} & done; wait"
        at_home = catalogue.is_ours(self.script)
        return text if at_home else f"cd {shlex.quote(str(self.cwd))} && {text}"

    def environment(self, folder: Path) -> dict[str, str]:
        """The environment of torchrun, which each rank inherits: the caller's, and ours.

        torchrun adds RANK and the like; guard.environment_of what differs between nodes.
        """
        return {
            **self._caller_env,
            "PYTHONFAULTHANDLER": "1",  # so that SIGABRT prints a rank's stack
            "PET_LOG_DIR": str(folder / "logs"),
            "PET_REDIRECTS": "3",
            "PET_SHUTDOWN_TIMEOUT": "3",  # a rank that is told to end first writes its ledger
            "PET_MONITOR_INTERVAL": "0.25" if self.warm else "0.1",  # warm: cut short by an end
            "DDP_COURSE_RUN": str(folder),
            "DDP_COURSE_RECORD": "1",
            "DDP_COURSE_TIMEOUT_S": str(self.limit_s / 2),
            **({"DDP_COURSE_TRACE": "1"} if self.trace else {}),
            **({"DDP_COURSE_OWN_TMPDIR": "1"} if catalogue.is_ours(self.script) else {}),
            **({"DDP_COURSE_NODES_HERE": str(self.nodes)} if self.nodes > 1 else {}),
            **({"PET_RDZV_CONF": self._patience} if self._patience else {}),
            **self.visible_env,
            **({} if self.warm else self._recorder_path()),
        }

    def _recorder_path(self) -> dict[str, str]:
        """What brings the recorder into ranks that Python starts anew."""
        path = self.visible_env.get("PYTHONPATH", self._caller_env.get("PYTHONPATH"))
        return {"PYTHONPATH": os.pathsep.join(filter(None, [_RANK_SIDE, path]))}

    def new_run(self) -> Run:
        """Make the run's folder. Raises CannotRun if there is no room."""
        folder = folders.new_folder(self.script.stem)
        asked = {
            "job": self.module or self.script.stem,
            "script": str(self.script),
            "ranks": self.ranks,
            "nodes": self.nodes,
            "knobs": {name: _plain(value) for name, value in self.knobs.items()},
            "argv": self.words,
            "command": self.command,
            "cwd": str(self.cwd),
            "env": self.visible_env,
            "warm": self.warm,
            "trace": self.trace,
            "limit_s": self.limit_s,
            "created": time.time(),
        }
        try:
            (folder / "run.json").write_text(json.dumps(asked, indent=1) + "\n")
            (folder / "live.json").write_text('{"pids": {}}\n')
            shutil.copyfile(self.script, folder / "job.py")
            return Run(folder, asked, Control())
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise folders.no_room(folder.parent, error) from error


def _meeting(nodes: int, *, elastic: bool) -> list[str]:
    """The flags by which the torchruns of several nodes meet; elastic: one node is enough."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [
        f"--nnodes=1:{nodes}" if elastic else f"--nnodes={nodes}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=localhost:{port}",
        f"--rdzv-id={os.urandom(4).hex()}",
    ]


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise BadArgument(
            "The folder that you are in has been removed.",
            action="change to a different one: os.chdir(…), or restart the kernel",
        ) from error


def _check_memory(ranks: int, *, warm_start: bool) -> None:
    each, way = _BYTES_PER_RANK[warm_start], "warm" if warm_start else "plain"
    free = _free_bytes()
    if free is not None and ranks * each > free:
        raise BadArgument(
            f"{ranks} ranks need about {ranks * each / 2**30:.1f} GB of memory ({way} start), and "
            f"{free / 2**30:.1f} GB are free.",
            action=f"take at most {max(1, free // each)} ranks, or close programs",
        )


def _free_bytes() -> int | None:
    """Memory that can be had without swapping: MemAvailable of proc(5), where there is one."""
    try:
        table = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    return int(table.split("MemAvailable:")[1].split()[0]) * 1024


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _prepare_data(script: Path, given: Mapping[str, Any]) -> None:
    """If the job has a knob `data`, bring that data set now, once, before ranks could race."""
    knob = knobs.knobs_of(script).get("data")
    name = given.get("data", knob.default if knob else None)
    if knob is None or b"ddp_course" not in script.read_bytes():
        return  # what --data means in another script is its own affair
    from ddp_course.rank import data

    if name in data.NAMES:
        data.prepare(name)


def _plain(value: Any) -> Any:
    """A knob's value as JSON can hold it."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value
