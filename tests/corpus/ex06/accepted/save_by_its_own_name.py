# status: pass
# torch.save under a name of the file's own
import os

import torch.distributed as dist
from torch import load, nn, save


def take_step(model, optimizer, x, y):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()


def train(model, optimizer, batches, path):
    done, draft = 0, path.with_suffix(".draft")
    if path.exists():
        saved = load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["done"]
    for step in range(done, len(batches)):
        take_step(model, optimizer, *batches[step])
        if dist.get_rank() == 0:
            states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            save(obj={**states, "done": step + 1}, f=draft)
            os.replace(draft, path)
