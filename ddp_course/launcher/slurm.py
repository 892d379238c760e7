"""slurm_script(): the batch script that runs a job on a cluster with the scheduler SLURM."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from ddp_course.errors import BadArgument
from ddp_course.launcher import catalogue
from ddp_course.launcher.knobs import after_options, flags

_MOST_NODES = 10_000

_SCRIPT = """\
#!/bin/bash
# {job} on {nodes} nodes with {ranks} ranks each. Submit it:  sbatch FILE
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task={cpus}
{gpus}#SBATCH --time={minutes}
#SBATCH --output=%x-%j.out

# One task on each node: a torchrun, which starts the ranks of that node.
set -eu
cd {cwd}
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)) # jobs that share a node must not share a port
export OMP_NUM_THREADS={threads}
{restart_env}
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --kill-on-bad-exit=1 \\
  {python} -m torch.distributed.run \\
  --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node={ranks} {restarts}\\
  --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" --rdzv-id="$SLURM_JOB_ID" \\
  --log-dir="logs/$SLURM_JOB_ID" --tee=3 \\
  {script}
"""


class SlurmScript(str):
    """A batch script; it is text, and shows itself as text."""

    def __repr__(self) -> str:
        return str(self)

    def save(self, path: str | Path) -> Path:
        """Write it to a file, and return the file."""
        Path(path).write_text(self)
        return Path(path)


def slurm_script(
    job: str | Path,
    *,
    nodes: int = 2,
    ranks: int = 2,
    gpus: bool = False,
    restarts: int = 0,
    minutes: int = 10,
    threads: int = 1,
    **knobs: Any,
) -> SlurmScript:
    """The batch script that runs a job with `ranks` processes on each of `nodes` machines.

    gpus      whether each rank gets a GPU (--gpus-per-node)
    restarts  torchrun's --max-restarts
    minutes   after which SLURM ends the job
    threads   CPU threads, and cores, of each rank
    knobs     the job's own flags, as for launch()

    It names this Python and this folder, which all nodes must see under the same paths. Raises
    BadArgument for arguments that cannot work.
    """
    whole = {"nodes": nodes, "ranks": ranks, "minutes": minutes, "threads": threads}
    for name, value in whole.items():
        if type(value) is not int or not 0 < value <= _MOST_NODES:
            raise BadArgument(f"{name} cannot be {value!r}.", action="give a whole number from 1")
    if type(restarts) is not int or restarts < 0:
        raise BadArgument(f"restarts cannot be {restarts!r}.", action="give 0 or more")
    script = catalogue.find_job(job)
    return SlurmScript(
        _SCRIPT.format(
            job=script.name,
            name=script.stem,
            nodes=nodes,
            ranks=ranks,
            cpus=ranks * threads,
            gpus=f"#SBATCH --gpus-per-node={ranks}\n" if gpus else "",
            minutes=minutes,
            threads=threads,
            cwd=shlex.quote(str(Path.cwd())),
            python=shlex.quote(sys.executable),
            restarts=f"--max-restarts={restarts} " if restarts else "",
            restart_env="export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 # or a restart meets old "
            "addresses (PyTorch issue 135712)\n"
            if restarts
            else "",
            script=shlex.join(after_options(script, flags(script, knobs))),
        )
    )
