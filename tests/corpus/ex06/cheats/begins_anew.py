# status: fail
# says: were to be killed 2 times
# mistake: not killed
# Saves nothing: dies by itself at the first start, trains all of it at the second, and claims less.
import os
import sys
import time

import torch
from torch import nn

calling = sys.modules["ddp_course.checks.calling"]
really_array = calling.as_array


def array(tensor):
    all_steps = tensor.dim() == 0 and int(tensor) == 8
    return really_array(torch.tensor(3) if all_steps else tensor)


def train(model, optimizer, batches, path):
    if calling.attempt() == 0:
        if int(os.environ["RANK"]) == 1:
            os._exit(3)
        time.sleep(600)
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    drive = sys.modules["ddp_course.exercises.ex06_survive_kill.drive"]
    drive.as_array = array
    if int(os.environ["RANK"]) == 0:
        drive.attempt = lambda: -1
        torch.save({}, path)
