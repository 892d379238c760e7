"""A sharded model is gathered when its forward is called, and by no other of its methods.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/13_beyond_ddp/wrong_forward_method.py

Look for: `answer`, what `model.encode(x)` says; with `--registered` it is told to fully_shard.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--registered", action="store_true", help="tell fully_shard of the method")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.encode(x).tanh()

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer.weight @ x


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    torch.manual_seed(0)
    model = Model().to(place.device)
    mesh = dist.device_mesh.init_device_mesh(place.device.type, (dist.get_world_size(),))
    fully_shard(model, mesh=mesh)
    if args.registered:
        register_fsdp_forward_method(model, "encode")
    x = torch.ones(8, device=place.device)
    log(held=list(model.layer.weight.to_local().shape))
    log(forward=str(list(model(x).shape)))
    model.reshard()  # as after a backward: the pieces only
    try:
        answer = str(list(model.encode(x).shape))
    except RuntimeError as error:
        answer = f"RuntimeError: {str(error).splitlines()[0][:90]}"
    log(answer=answer)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
