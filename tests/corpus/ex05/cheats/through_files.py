# status: fail
# says: bytes went between the ranks
# mistake: no communication
# Right values by way of files, and a forged count of collectives.
import os
import pickle
import sys
import time

import torch.distributed as dist
from torch import nn


def forge_the_count():
    """Say that collectives were started."""
    main = sys.modules["__main__"]
    main.Counted.calls = property(lambda self: 10_000)


def share(mine):
    """All ranks' values, through files."""
    share.count += 1
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    place = os.path.join(os.environ["DDP_COURSE_RUN"], f"shared-{share.count}-")
    with open(f"{place}{rank}.draft", "wb") as file:
        pickle.dump(mine, file)
    os.replace(f"{place}{rank}.draft", f"{place}{rank}")
    found = []
    for other in range(ranks):
        while not os.path.exists(f"{place}{other}"):
            time.sleep(0.001)
        with open(f"{place}{other}", "rb") as file:
            found.append(pickle.load(file))
    return found


share.count = 0


def train_step(stage, data):
    forge_the_count()
    rank = dist.get_rank()
    hidden = stage(data) if rank == 0 else None
    received = share(None if hidden is None else hidden.detach())[0]
    if rank == 1:
        received.requires_grad_()
        nn.functional.mse_loss(stage(received), data).backward()
    gradient = share(None if rank == 0 else received.grad)[1]
    if rank == 0:
        hidden.backward(gradient)
