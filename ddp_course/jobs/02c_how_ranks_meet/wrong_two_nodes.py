"""`torchrun --nnodes=2 --rdzv-endpoint=HOST:PORT` on both nodes, as one can read: do they meet?

    python -m torch.distributed.run --standalone --nproc-per-node=1 \
        ddp_course/jobs/02c_how_ranks_meet/wrong_two_nodes.py

Two agents on this machine stand for two nodes; each is to start one rank, with the same command.
Without --rdzv-backend torchrun takes `static`, for which every node must say its own --node-rank.
Nobody does, so both are node 0, and both open the store.

Look for: `done`, how many of the two ended well; `waiting`, how many still waited for the other
when one had failed; and `answer`, that one's error.
"""

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

from ddp_course.rank.report import log, run_rank

TRAIN = "import torch.distributed as dist; dist.init_process_group(); dist.destroy_process_group()"

parser = argparse.ArgumentParser()
parser.add_argument("--patience", type=float, default=3.0, help="seconds after the first has ended")


def main() -> None:
    args = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ours = (
        "TORCHELASTIC_",
        "DDP_COURSE_",
        "GROUP_",
        "LOCAL_",
        "ROLE_",
        "RANK",
        "WORLD_",
        "MASTER_",
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    command += [f"--rdzv-endpoint=127.0.0.1:{port}"]  # … and nothing about --rdzv-backend
    command += ["--no-python", sys.executable, "-c", TRAIN]

    outputs = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115 - until the end
    agents = [subprocess.Popen(command, env=env, stderr=output) for output in outputs]
    until = time.monotonic() + 90
    while all(agent.poll() is None for agent in agents) and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(args.patience)
    done = sum(agent.poll() == 0 for agent in agents)
    waiting = sum(agent.poll() is None for agent in agents)
    for agent in agents:
        agent.kill()
        agent.wait()
    said = ""
    for output in outputs:
        output.seek(0)
        said += output.read().decode(errors="replace")
    answer = re.search(r"port: \d+, .*EADDRINUSE.*$", said, re.MULTILINE)
    log(done=done, waiting=waiting, answer=answer[0] if answer else "")


if __name__ == "__main__":
    run_rank(main)
