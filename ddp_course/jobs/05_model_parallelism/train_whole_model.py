"""The model that this lesson cuts into pieces, whole: one process, one device, all the data.

    python -m torch.distributed.run --standalone --nproc-per-node=1 \
        ddp_course/jobs/05_model_parallelism/train_whole_model.py

Look for: `weights` after four steps. However the model is cut, it must end with these.
"""

import argparse

import torch
from torch import nn

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

LAYERS, WIDTH = 8, 8
GLOBAL_BATCH_SIZE, STEPS = 48, 4

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0, help="for the weights and the data")


def main() -> None:
    args = parser.parse_args()
    place = my_place()

    torch.manual_seed(args.seed)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double() for _ in range(LAYERS)]
    x = torch.randn(STEPS, GLOBAL_BATCH_SIZE, WIDTH, dtype=torch.float64)
    y = torch.randn(STEPS, GLOBAL_BATCH_SIZE, WIDTH, dtype=torch.float64)

    model = nn.Sequential(*layers).to(place.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    for step in range(STEPS):
        optimizer.zero_grad()
        output = model(x[step].to(place.device))
        loss = nn.functional.mse_loss(output, y[step].to(place.device))
        loss.backward()
        optimizer.step()
        log(step=step, loss=loss.item())

    log(gradients=torch.cat([p.grad.flatten() for p in model.parameters()]))  # of the last step
    log(weights=nn.utils.parameters_to_vector(model.parameters()))  # shape (576,), both


if __name__ == "__main__":
    run_rank(main)
