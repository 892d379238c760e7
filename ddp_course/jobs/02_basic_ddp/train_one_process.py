"""Rung 1: the training loop you know, in one process. Later rungs must end where it ends.

    python -m torch.distributed.run --standalone --nproc-per-node=1 \
        ddp_course/jobs/02_basic_ddp/train_one_process.py

Look for: the loss that falls, and `weights`, all parameters at the end.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ddp_course.rank.report import log, run_rank

GLOBAL_BATCH_SIZE = 48  # splits evenly over 1, 2, 3, 4, 6 and 8 ranks

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2, help="passes over the data")
parser.add_argument("--seed", type=int, default=0, help="for the weights and the data")


def main() -> None:
    args = parser.parse_args()
    torch.set_num_threads(1)  # the model is tiny: more threads would cost more than they save
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    torch.manual_seed(args.seed)
    images = torch.randn(480, 1, 8, 8)  # as large as the handwritten digits of a later rung
    labels = (images.flatten(1) @ torch.randn(64, 10)).argmax(1)  # (480,): a rule one can learn
    loader = DataLoader(TensorDataset(images, labels), batch_size=GLOBAL_BATCH_SIZE)

    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    step = 0
    for epoch in range(args.epochs):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            log(step=step, epoch=epoch, loss=loss.item(), samples=len(x))
            step += 1

    log(weights=nn.utils.parameters_to_vector(model.parameters()))  # shape (1210,)


if __name__ == "__main__":
    run_rank(main)
