"""Four ways to start two ranks: torchrun, its predecessor, `mp.spawn`, and by hand.

    python -m torch.distributed.run --standalone --nproc-per-node=1 \
        ddp_course/jobs/02c_how_ranks_meet/start_ranks.py --way spawn --fail

    torchrun   the launcher: starts ranks, tells each who it is, ends all when one fails
    launch     torch.distributed.launch, which it replaced
    spawn      torch.multiprocessing.spawn: a Python program starts its own ranks
    cell       the same from a program that is no file, as a notebook's cell is none
    hand       `RANK=0 … python script.py &`, once for each rank

Look for: `told`, what the way set for its ranks; `seconds`; and with --fail, where rank 1 dies
while rank 0 computes for five seconds, whether rank 0 was `stopped`.
"""

import argparse
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from ddp_course.rank.report import log, my_folder, run_rank

WHO_AM_I = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
LAUNCH = [sys.executable, "-W", "ignore", "-m", "torch.distributed.launch", "--nproc-per-node=2"]
CELL = "import torch.multiprocessing as mp\ndef work(rank): pass\nmp.spawn(work, nprocs=2)\n"

parser = argparse.ArgumentParser()
parser.add_argument("--way", choices=["torchrun", "launch", "spawn", "cell", "hand"],
                    default="torchrun", help="who starts the two ranks")  # fmt: skip
parser.add_argument("--fail", action="store_true", help="rank 1 dies")


def work(rank: int, folder: str, fail: bool, told: str) -> None:
    """What each of the two ranks does, whoever started it."""
    Path(folder, f"told-{rank}").write_text(told)
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    if fail and rank == 1:
        os._exit(1)  # rank 1 dies
    time.sleep(5 * fail)  # rank 0 computes, and talks to nobody
    dist.destroy_process_group()
    Path(folder, f"ended-{rank}").touch()


def main() -> None:
    args = parser.parse_args()
    folder = str(my_folder().resolve())
    for path in [*Path(folder).glob("told-*"), *Path(folder).glob("ended-*")]:
        path.unlink()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
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
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    script = [__file__, "--as-rank", folder, str(int(args.fail))]

    started, stderr = time.perf_counter(), subprocess.PIPE
    if args.way == "torchrun":
        code = subprocess.run(TORCHRUN + script, env=env, stderr=stderr).returncode
    if args.way == "launch":
        options = [f"--master-port={port}"]
        code = subprocess.run(LAUNCH + options + script, env=env, stderr=stderr).returncode
    if args.way == "cell":
        cell = subprocess.run([sys.executable, "-c", CELL], env=env, stderr=stderr)
        code = cell.returncode
        print(*[one for one in cell.stderr.decode().splitlines() if "get attribute" in one][:1])
    if args.way == "hand":
        each = [env | meet | {"RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
        ranks = [subprocess.Popen([sys.executable, *script], env=e, stderr=stderr) for e in each]
        code = max(rank.wait() for rank in ranks)
    if args.way == "spawn":
        before, code = dict(os.environ), 0
        os.environ.clear()
        os.environ.update(env | meet)  # what a script without a launcher has, and where to meet
        try:
            mp.spawn(work, args=(folder, args.fail, "nothing"), nprocs=2)
        except mp.ProcessExitedException:
            code = 1
        os.environ.update(before)
    seconds = time.perf_counter() - started
    told = [path.read_text() for path in sorted(Path(folder).glob("told-*"))]
    stopped = args.fail and not Path(folder, "ended-0").exists()
    log(seconds=seconds, exit_code=code, told=told[0] if told else "", stopped=stopped)


if __name__ == "__main__":
    if "--as-rank" in sys.argv:
        extra = ", ".join(word for word in sys.argv if word.startswith("--local-rank"))
        told = ", ".join([name for name in WHO_AM_I if name in os.environ] + [extra] * bool(extra))
        work(int(os.environ["RANK"]), sys.argv[-2], sys.argv[-1] == "1", told)
        sys.exit()
    run_rank(main)
