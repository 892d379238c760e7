"""A SLURM cluster of two nodes on this host, in a folder of its own, as a fixture for tests."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from launching import lives, until

# The second node's name is never looked up: the job's meeting place is its first node.
CONF = """\
ClusterName=course
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={ports[0]}
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=2
NodeName={host} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8 RealMemory=1000
NodeName={host}-b NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8 RealMemory=1000
PartitionName=course Nodes={host},{host}-b Default=YES MaxTime=60 State=UP
"""


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


class Cluster:
    """Two idle nodes; `submit` takes a script, `state` follows a job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        host = socket.gethostname().split(".")[0]
        for name in ("state", f"spool-{host}", f"spool-{host}-b"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        text = CONF.format(
            host=host, user=getpass.getuser(), folder=self.folder, ports=free_ports(3)
        )
        (self.folder / "slurm.conf").write_text(text)
        files = {"socket": "sock", "key-file": "key", "pid-file": "pid", "seed-file": "seed"}
        named = [f"--{flag}={self.folder}/munge.{end}" for flag, end in files.items()]
        self._daemon(["munged", "--foreground", "--force", *named])
        until((self.folder / "munge.sock").exists, "munged's socket")
        self._daemon(["slurmctld", "-D", "-c"])
        for name in (host, f"{host}-b"):
            self._daemon(["slurmd", "-D", "-N", name])
        until(lambda: self.ask("sinfo", "-h", "-t", "idle", "-o", "%D") == "2", "two idle nodes")

    def _daemon(self, command: list[str]) -> None:
        path = "/usr/sbin:/sbin:" + os.environ.get("PATH", "")
        with open(self.folder / f"{command[0]}-{len(self._daemons)}.out", "wb") as output:
            self._daemons.append(
                subprocess.Popen(
                    command,
                    env={**self.env, "PATH": path},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            )

    def stop(self) -> None:
        """Cancel all jobs, wait until nothing of them is left, and end the daemons."""
        self.ask("scancel", "--user", getpass.getuser())
        until(lambda: not self.processes(), "the end of all jobs")
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait(30)

    def ask(self, *command: str) -> str:
        """What a SLURM command prints; a failed one has nothing to say."""
        done = subprocess.run(command, env=self.env, capture_output=True, text=True)
        return done.stdout.strip()

    def submit(self, script: Path, *options: str) -> str:
        """The id of the job."""
        command = ["sbatch", "--parsable", f"--chdir={self.folder}", *options, str(script)]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def state(self, job: str) -> str:
        """PENDING, RUNNING, COMPLETED, FAILED, CANCELLED …"""
        words = self.ask("scontrol", "--oneliner", "show", "job", job).split()
        return next((w[9:] for w in words if w.startswith("JobState=")), "unknown")

    def processes(self) -> list[psutil.Process]:
        """Every living process of this cluster's jobs: they carry its configuration and an id."""
        found = []
        for process in psutil.process_iter():
            try:
                env = process.environ()
            except psutil.Error:
                continue
            mine = env.get("SLURM_CONF") == self.env["SLURM_CONF"] and "SLURM_JOB_ID" in env
            if mine and lives(process):
                found.append(process)
        return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    one = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        one.start()
        yield one
    finally:
        one.stop()
