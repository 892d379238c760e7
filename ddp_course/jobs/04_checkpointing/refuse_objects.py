"""What may be in a checkpoint? torch.load reads tensors and plain Python, and refuses the rest.

    python -m torch.distributed.run --standalone --nproc-per-node=1 \
        ddp_course/jobs/04_checkpointing/refuse_objects.py

A file with arbitrary objects can run arbitrary code when it is unpickled, so `weights_only=True`
has been the default since PyTorch 2.6. Look for: `what` and `loads`, and `refused`, the names of
those that are refused. Each of them has a plain form beside it that loads.
"""

import argparse
import io
import random
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1, help="something to keep in the arguments")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    layer = torch.nn.Linear(2, 2)
    things = {
        "state_dict()": layer.state_dict(),
        "the module itself": layer,
        "torch.get_rng_state()": torch.get_rng_state(),
        "random.getstate()": random.getstate(),
        "np.random.get_state()": np.random.get_state(),
        "the same, as a tensor": torch.from_numpy(np.random.get_state()[1].astype(np.int64)),
        "args": args,
        "vars(args)": vars(args),
        "a loss, by numpy": np.float64(0.25),
        "float(a loss)": float(np.float64(0.25)),
        "a Path": Path("data"),
        "str(a Path)": str(Path("data")),
    }
    refused = []
    for what, thing in things.items():
        file = io.BytesIO()
        torch.save({what: thing}, file)
        file.seek(0)
        try:
            torch.load(file, map_location="cpu")
        except Exception as error:  # UnpicklingError
            refused.append(what)
            log(what=what, loads=False, error=type(error).__name__)
        else:
            log(what=what, loads=True, error="")
    log(refused=refused, count=len(refused))
    dist.barrier()  # who leaves early breaks the line to those who are still connecting
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
