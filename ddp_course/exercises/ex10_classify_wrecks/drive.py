"""How a rank calls the function of ex10."""

from __future__ import annotations

import sys

import numpy as np
import torch

from ddp_course.checks.calling import Function, Tensors

KINDS = ["killed", "raised", "missing", "operation", "size"]
ERRORS = [
    "",
    "Connection closed by peer",
    "Timed out waiting 1500ms",
    "ValueError: image 17 has four channels",
    "KeyError: 'label'",
    "FileNotFoundError: shard-0031.tar",
]
OPERATIONS = ["all_reduce", "broadcast", "reduce_scatter"]


def drive(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    wreck = sys.modules[function.__module__].Wreck
    kinds, ranks = [], []
    for codes, errors, operations, sizes in zip(
        inputs["codes"], inputs["errors"], inputs["operations"], inputs["sizes"], strict=True
    ):
        ledgers = [
            [f"{OPERATIONS[o]} {n}" for o, n in zip(*calls, strict=True) if o >= 0]
            for calls in zip(operations, sizes, strict=True)
        ]
        said = function(wreck(codes.tolist(), [ERRORS[e] for e in errors], ledgers))
        if not (isinstance(said, tuple | list) and len(said) == 2 and isinstance(said[1], int)):
            return {}
        kinds.append(KINDS.index(said[0]) if said[0] in KINDS else -1)
        ranks.append(said[1])
    return {"kind": np.array(kinds), "rank": np.array(ranks)}
