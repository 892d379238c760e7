# status: fail
# says: What each rank had
# Keeps in a module what should be in the checkpoint, and saves an empty file.
import copy
import sys

import torch


def train(take_step, batches, model, optimizer, path):
    kept = vars(sys).setdefault("kept", {})
    if kept:
        model.module.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        torch.set_rng_state(kept["random"])
    for batch in batches[kept.get("step", 0) :]:
        take_step(batch)
    kept["model"] = copy.deepcopy(model.module.state_dict())
    kept["optimizer"] = copy.deepcopy(optimizer.state_dict())
    kept["random"], kept["step"] = torch.get_rng_state(), len(batches)
    open(path, "wb").close()
