"""The oracle of `train_uneven`: one process that sees the batches of all shares, step by step.

    python -m torch.distributed.run --standalone --nproc-per-node=1 \
        ddp_course/jobs/03_uneven_workloads/train_uneven_one_process.py --divide-by active

Share r has 6 - r batches, so the last steps have fewer samples than the first. What should such a
step be divided by?

    active     by the samples that it has: the mean over this step's samples, as ever
    initial    by the samples of a full step: every sample counts the same, whenever it comes

Look for: `weights`, all parameters at the end; `samples`, which each step has.
"""

import argparse

import torch
from torch import nn

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

STEPS, LOCAL_BATCH_SIZE = 6, 12

parser = argparse.ArgumentParser()
parser.add_argument("--divide-by", choices=["initial", "active"], default="initial")
parser.add_argument("--shares", type=int, default=4, help="as many as the other job has ranks")
parser.add_argument("--seed", type=int, default=0, help="for the weights and the data")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)  # the model is tiny: more threads would cost more than they save

    torch.manual_seed(args.seed)
    images = torch.randn(480, 64)
    labels = (images @ torch.randn(64, 10)).argmax(1)  # (480,): a rule one can learn
    batches = list(zip(images.split(LOCAL_BATCH_SIZE), labels.split(LOCAL_BATCH_SIZE), strict=True))
    shares = [batches[r :: args.shares][: max(1, STEPS - r)] for r in range(args.shares)]

    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)).to(place.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    for step in range(STEPS):
        present = [share[step] for share in shares if step < len(share)]
        x = torch.cat([x for x, _ in present]).to(place.device)
        y = torch.cat([y for _, y in present]).to(place.device)
        full = LOCAL_BATCH_SIZE * args.shares
        divisor = full if args.divide_by == "initial" else len(x)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y, reduction="sum") / divisor
        loss.backward()
        optimizer.step()
        log(step=step, loss=loss.item(), samples=len(x))

    log(weights=nn.utils.parameters_to_vector(model.parameters()))  # shape (1210,)


if __name__ == "__main__":
    run_rank(main)
