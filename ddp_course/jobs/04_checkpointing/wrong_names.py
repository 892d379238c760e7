"""A checkpoint of the DDP wrapper, loaded into the bare model: every name begins with `module.`

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/04_checkpointing/wrong_names.py

Look for: `loaded`, how many of the model's four tensors are those of the checkpoint afterwards.
With the wrong names it is 0: at least an error by default, and not even that with strict=False.
`names` shows one of each.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, my_folder, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0, help="for the weights")


def build(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    model = DDP(build(args.seed).to(place.device), device_ids=place.device_ids)
    path = my_folder() / "names.pt"
    if dist.get_rank() == 0:
        torch.save({"wrapper": model.state_dict(), "inner": model.module.state_dict()}, path)
    dist.barrier()
    saved = torch.load(path, map_location="cpu")

    for what, strict in (("wrapper", True), ("wrapper", False), ("inner", True)):
        bare = build(args.seed + 1)  # as in another script: no DDP, other weights
        try:
            bare.load_state_dict(saved[what], strict=strict)
            error = ""
        except RuntimeError as problem:
            error = str(problem).split(", ")[0]
        pairs = zip(bare.state_dict().values(), saved[what].values(), strict=True)
        loaded = sum(torch.equal(mine, its) for mine, its in pairs)
        log(what=what, strict=strict, loaded=loaded, names=next(iter(saved[what])), error=error)

    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
