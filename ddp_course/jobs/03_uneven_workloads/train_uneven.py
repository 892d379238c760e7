"""The ranks have unequal numbers of batches: without `Join` the job hangs, with it it ends.

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/03_uneven_workloads/train_uneven.py --join none --timeout-s 5

Rank r has 6 - r batches.

    none       the last rank is done first; the others wait for its gradients, until the time-out
    initial    a rank that is done answers the others' all-reduces with zeros; sums are divided by
               the number of ranks that began
    active     the same, but divided by the number of ranks that still have batches

Look for: `doing`, the last thing that each rank began. In a hang, the rank that is somewhere else
than the others is the one to look at. With Join: `weights`, those of `train_uneven_one_process`.
"""

import argparse
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

STEPS, LOCAL_BATCH_SIZE = 6, 12

parser = argparse.ArgumentParser()
parser.add_argument("--join", choices=["none", "initial", "active"], default="none")
parser.add_argument("--timeout-s", type=float, default=30.0, help="how long a collective may wait")
parser.add_argument("--seed", type=int, default=0, help="for the weights and the data")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)  # the model is tiny: more threads would cost more than they save
    patience = timedelta(seconds=args.timeout_s)  # torch's own: 30 minutes, NCCL 10
    dist.init_process_group(place.backend, timeout=patience, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(args.seed)
    images = torch.randn(480, 64)
    labels = (images @ torch.randn(64, 10)).argmax(1)  # (480,): a rule one can learn
    batches = list(zip(images.split(LOCAL_BATCH_SIZE), labels.split(LOCAL_BATCH_SIZE), strict=True))
    mine = batches[rank::world_size][: max(1, STEPS - rank)]  # one batch fewer than rank - 1 has

    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)).to(place.device)
    model = DDP(model, device_ids=place.device_ids)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    by_initial = args.join == "initial"
    with model.join(divide_by_initial_world_size=by_initial, enable=args.join != "none"):
        for step, (x, y) in enumerate(mine):
            x, y = x.to(place.device), y.to(place.device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            log(step=step, loss=loss.item(), samples=len(x), doing=f"all_reduce of step {step}")
            loss.backward()
            optimizer.step()

    log(doing="barrier at the end")
    dist.barrier()
    log(doing="done", weights=nn.utils.parameters_to_vector(model.parameters()))  # shape (1210,)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
