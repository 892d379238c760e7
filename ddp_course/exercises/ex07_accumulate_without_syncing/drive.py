"""How a rank calls the function of ex07."""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.exercises.calling import Broad, Function, Tensors, as_array


def drive(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    module = Broad(4, 2).to(device)
    for name in ("weight", "bias"):
        module.get_parameter(name).data = torch.tensor(inputs[f"weight/{name}"], device=device)
    model = DDP(module, device_ids=[device.index] if device.type == "cuda" else None)
    seen = {"all_reduces": 0, "backwards": 0, "quiet": 0}  # quiet: backwards inside no_sync

    def count(_: object, bucket: dist.GradBucket) -> Future[torch.Tensor]:  # type: ignore[name-defined]
        seen["all_reduces"] += 1
        return allreduce_hook(None, bucket)  # type: ignore[arg-type]

    def look(_: torch.Tensor) -> None:
        seen["backwards"] += 1
        seen["quiet"] += not model.require_backward_grad_sync

    model.register_comm_hook(None, count)
    module.bias.register_hook(look)  # type: ignore[no-untyped-call]
    outputs: Tensors = {}
    for window in ("long", "short"):
        x = torch.tensor(inputs[f"x/{window}"], device=device)  # (micro-batches, samples, 4)
        y = torch.tensor(inputs[f"y/{window}"], device=device)
        model.zero_grad()
        seen.update(all_reduces=0, backwards=0, quiet=0)
        function(model, list(zip(x, y, strict=True)))
        for name in ("weight", "bias"):
            gradient = module.get_parameter(name).grad
            if gradient is not None:
                outputs[f"{window}/{name}"] = as_array(gradient)
        outputs |= {f"{window}/{name}": as_array(torch.tensor(n)) for name, n in seen.items()}
    return outputs
