"""The ranks register the same two layers in different orders: DDP notices nothing.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/10_when_it_hangs/wrong_registration_order.py

DDP matches parameters by position, never by name, and the two layers have equal shapes. So the last
rank's `first` gets the weights and the gradients of the others' `second`. With --order same, all
ranks register them alike.

Look for: `output`, what each rank's model makes of the same input after DDP's constructor and after
training, and `spread`, how far the ranks' parameters are apart, position by position: 0.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--order", choices=["different", "same"], default="different")
parser.add_argument("--seed", type=int, default=0, help="for the weights")


class TwoLayers(nn.Module):
    def __init__(self, names: list[str]) -> None:
        super().__init__()
        for name in names:  # as when names come from a set, or from files as the disk lists them
            self.register_module(name, nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(args.seed)
    names = ["first", "second"]
    if args.order == "different" and world_size > 1 and rank == world_size - 1:
        names.reverse()
    model = DDP(TwoLayers(names).to(place.device), device_ids=place.device_ids)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(1, 8, device=place.device)

    for step in range(4):
        output = model(x)
        log(step=step, output=output.sum().item(), registered=", ".join(names))
        optimizer.zero_grad()
        output.square().sum().backward()
        optimizer.step()

    mine = nn.utils.parameters_to_vector(model.parameters()).detach()  # (144,)
    largest, smallest = mine.clone(), mine.clone()
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    dist.all_reduce(smallest, op=dist.ReduceOp.MIN)
    log(spread=(largest - smallest).max())
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
