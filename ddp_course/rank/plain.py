"""What `copy_job` writes in place of the course's own names: a script that stands alone.

No job imports this. Each function is copied as it stands, with the imports that it uses, and does
in plain torch what its namesake in this folder does for the course.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.profiler import profile, record_function


def log(**values):
    """Print what this rank has to say."""
    said = " ".join(f"{name}={value}" for name, value in values.items())
    print(f"[rank {os.environ.get('RANK', '0')}] {said}", flush=True)


def load(name, *, train):
    """scikit-learn's handwritten digits: images (N, 1, 8, 8) in 0 … 1, and labels (N,)."""
    assert name == "digits", f"read {name} here"
    images, labels = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(labels))
    mine = order[:1437] if train else order[1437:]
    images = torch.tensor(images[mine], dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    return images, torch.tensor(labels[mine])


def my_place():
    """A GPU for each rank if there are enough, with NCCL; else the CPU, with Gloo."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    on_gpu = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    return SimpleNamespace(
        device=device,
        backend="nccl" if on_gpu else "gloo",
        device_id=device if on_gpu else None,
        device_ids=[local_rank] if on_gpu else None,
        timeout=timedelta(minutes=1),
        why="enough GPUs for all ranks here" if on_gpu else "fewer GPUs than ranks here",
    )


def my_folder():
    """Where this script leaves its files, the same on all ranks of this machine."""
    folder = Path("out")
    folder.mkdir(exist_ok=True)
    return folder


def span(name):
    """Name a piece of the step on the profiler's timeline."""
    return record_function(name)


@contextmanager
def traced():
    """Profile what runs inside; open the file at https://ui.perfetto.dev."""
    with profile() as profiler:
        yield
    profiler.export_chrome_trace(f"trace-{os.environ.get('RANK', '0')}.json")


def digest(model):
    """Equal on two ranks only if their parameters are equal, bit for bit."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        flat = parameter.detach().cpu().contiguous().reshape(-1)
        found.update(flat.view(torch.uint8).numpy().tobytes())
    print(f"[rank {os.environ.get('RANK', '0')}] digest={found.hexdigest()[:16]}", flush=True)
