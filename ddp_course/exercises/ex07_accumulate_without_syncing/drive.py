"""How a rank calls the function of ex07: for two windows with a plain model, and for a third with
one that shows whether each micro-batch went forward and backward before the next."""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.checks.calling import Broad, Function, Tensors, as_array


class Remembering(Broad):
    """Its output depends on all samples of a forward, as after a BatchNorm, and on the direction of
    the gradient that it has already: only one backward after the other gives the right gradient."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(0)
        output = super().forward(centred)
        before = self.weight.grad
        if before is not None and before.any():
            output = output + centred @ (before / before.norm()).T
        return torch.tanh(output)


def drive(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    seen = {"all_reduces": 0, "backwards": 0, "quiet": 0}  # quiet: backwards inside no_sync
    plain = _wrapped(Broad(4, 2), inputs, device, seen)
    remembering = _wrapped(Remembering(4, 2), inputs, device, seen)
    outputs: Tensors = {}
    for window, model in {"long": plain, "short": plain, "single": remembering}.items():
        x = torch.tensor(inputs[f"x/{window}"], device=device)  # (micro-batches, samples, 4)
        y = torch.tensor(inputs[f"y/{window}"], device=device)
        model.zero_grad()
        seen.update(all_reduces=0, backwards=0, quiet=0)
        function(model, list(zip(x, y, strict=True)))
        for name in ("weight", "bias"):
            gradient = model.module.get_parameter(name).grad
            if gradient is not None:
                outputs[f"{window}/{name}"] = as_array(gradient)
        outputs |= {f"{window}/{name}": as_array(torch.tensor(n)) for name, n in seen.items()}
    return outputs


def _wrapped(module: Broad, inputs: Tensors, device: torch.device, seen: dict[str, int]) -> DDP:
    """The module in DDP, which counts in `seen`, and takes a hook of the learner's besides."""
    module.to(device)
    for name in ("weight", "bias"):
        module.get_parameter(name).data = torch.tensor(inputs[f"weight/{name}"], device=device)
    model = DDP(module, device_ids=[device.index] if device.type == "cuda" else None)
    theirs: list[tuple[Any, Any]] = [(None, allreduce_hook)]

    def count(_: object, bucket: dist.GradBucket) -> Future[torch.Tensor]:  # type: ignore[name-defined]
        seen["all_reduces"] += 1
        state, hook = theirs[-1]
        return hook(state, bucket)  # type: ignore[no-any-return]

    def look(_: torch.Tensor) -> None:
        seen["backwards"] += 1
        seen["quiet"] += not model.require_backward_grad_sync

    model.register_comm_hook(None, count)
    model.register_comm_hook = lambda s, hook: theirs.append((s, hook))  # type: ignore
    module.bias.register_hook(look)  # type: ignore[no-untyped-call]
    return model
