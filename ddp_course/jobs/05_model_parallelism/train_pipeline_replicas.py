"""Several pipelines side by side, and DDP between them: a 2-D mesh of ranks.

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/05_model_parallelism/train_pipeline_replicas.py --stages 2

    rank       pp 0   pp 1      a row is one pipeline: activations and gradients travel along it
    dp 0         0      1       a column has the same layers: DDP averages gradients over it
    dp 1         2      3       each row takes its own share of every batch

Look for: `replica` and `stage`, this rank's row and column; `all_reduces` in the last step; and
`weights`, the rank's piece of those of `train_whole_model`.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

LAYERS, WIDTH = 8, 8
GLOBAL_BATCH_SIZE, STEPS = 48, 4
SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}

parser = argparse.ArgumentParser()
parser.add_argument("--stages", type=int, default=2, help="ranks in each pipeline")
parser.add_argument("--schedule", choices=["gpipe", "1f1b"], default="gpipe", help="who, when")
parser.add_argument("--micro-batches", type=int, default=4, help="pieces of each local batch")
parser.add_argument("--seed", type=int, default=0, help="for the weights and the data")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    stages = min(args.stages, dist.get_world_size())
    replicas = dist.get_world_size() // stages
    mesh = init_device_mesh(place.device.type, (replicas, stages), mesh_dim_names=("dp", "pp"))
    replica, index = mesh["dp"].get_local_rank(), mesh["pp"].get_local_rank()

    torch.manual_seed(args.seed)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double() for _ in range(LAYERS)]
    x = torch.randn(STEPS, GLOBAL_BATCH_SIZE, WIDTH, dtype=torch.float64)
    y = torch.randn(STEPS, GLOBAL_BATCH_SIZE, WIDTH, dtype=torch.float64)
    x, y = x[:, replica::replicas], y[:, replica::replicas]  # my pipeline's share

    mine = layers[LAYERS * index // stages : LAYERS * (index + 1) // stages]
    module = nn.Sequential(*mine).to(place.device)
    column, row = mesh["dp"].get_group(), mesh["pp"].get_group()
    module = DDP(module, process_group=column, device_ids=place.device_ids)

    def count_and_average(sent: list[int], bucket: dist.GradBucket) -> Future[torch.Tensor]:
        sent.append(bucket.buffer().nbytes)  # DDP calls this once for each bucket that it sends
        return allreduce_hook(column, bucket)  # None would mean all ranks, not my column

    sent: list[int] = []  # bytes of each all-reduce of a step
    module.register_comm_hook(sent, count_and_average)
    # Told the shapes, the stage need not try the module first: a forward that DDP would count.
    shape = (x.shape[1] // args.micro_batches, WIDTH)
    like = torch.empty(shape, dtype=x.dtype, device=place.device, requires_grad=True)
    stage = PipelineStage(module, index, stages, place.device, like, like, group=row)
    schedule = SCHEDULES[args.schedule](stage, args.micro_batches, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)

    for step in range(STEPS):
        optimizer.zero_grad()
        sent.clear()
        inputs = [x[step].to(place.device)] if stage.is_first else []
        target = y[step].to(place.device) if stage.is_last else None
        losses: list[torch.Tensor] = []  # filled on the last stage, one for each micro-batch
        schedule.step(*inputs, target=target, losses=losses)  # forward and backward of all
        optimizer.step()
        log(step=step, loss=torch.stack(losses).mean().item() if losses else None)

    log(replica=replica, stage=index, all_reduces=len(sent))
    log(gradients=torch.cat([p.grad.flatten() for p in module.parameters()]))
    log(weights=nn.utils.parameters_to_vector(module.parameters()))  # my layers only
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
