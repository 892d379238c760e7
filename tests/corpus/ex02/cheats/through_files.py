# status: fail
# says: bytes went between the ranks
# mistake: no communication
# Right values by way of files, and a forged count of collectives.
import os
import pickle
import sys
import time

import torch.distributed as dist


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


def average_gradients(model):
    forge_the_count()
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.copy_(sum(share(parameter.grad)) / dist.get_world_size())
