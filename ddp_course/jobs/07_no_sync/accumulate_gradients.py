"""Gradient accumulation: several small backwards, one all-reduce, one optimizer step.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/07_no_sync/accumulate_gradients.py --micro-batches 4

Look for: `weights` are still those of one process with whole batches, up to rounding, while the
`all_reduces` of a step stay 1 however many micro-batches it has. Memory holds one micro-batch.
"""

import argparse
import os  # NEW:
from contextlib import nullcontext

import torch
import torch.distributed as dist  # NEW:
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel as DDP  # NEW:
from torch.utils.data import DataLoader, TensorDataset

from ddp_course.rank.report import log, run_rank

GLOBAL_BATCH_SIZE = 48  # splits evenly over 1, 2, 3, 4, 6 and 8 ranks

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2, help="passes over the data")
parser.add_argument("--micro-batches", type=int, default=4, help="pieces of each local batch")
parser.add_argument("--seed", type=int, default=0, help="for the weights and the data")


def count_and_average(sent: list[int], bucket: dist.GradBucket) -> Future[torch.Tensor]:
    sent.append(bucket.buffer().nbytes)  # DDP calls this once for each bucket that it sends
    return allreduce_hook(None, bucket)  # what DDP does without a hook


def main() -> None:
    args = parser.parse_args()
    torch.set_num_threads(1)  # the model is tiny: more threads would cost more than they save
    local_rank = int(os.environ["LOCAL_RANK"])  # NEW: my number on this machine; torchrun sets it
    on_gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])  # NEW: one each
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")  # NEW:
    if on_gpu:  # NEW:
        torch.cuda.set_device(device)  # NEW: else every rank would begin on GPU 0
    dist.init_process_group("nccl" if on_gpu else "gloo")  # NEW: the backend for this device
    rank, world_size = dist.get_rank(), dist.get_world_size()  # NEW: who I am, of how many

    torch.manual_seed(args.seed)
    images = torch.randn(480, 1, 8, 8)  # as large as the handwritten digits of a later rung
    labels = (images.flatten(1) @ torch.randn(64, 10)).argmax(1)  # (480,): a rule one can learn
    loader = DataLoader(TensorDataset(images, labels), batch_size=GLOBAL_BATCH_SIZE)

    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    model.to(device)
    model = DDP(model, device_ids=[local_rank] if on_gpu else None)  # NEW: averages gradients
    sent: list[int] = []  # bytes of each all-reduce
    model.register_comm_hook(sent, count_and_average)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    step = 0
    for epoch in range(args.epochs):
        for x, y in loader:
            x, y = x[rank::world_size], y[rank::world_size]  # NEW: my share of the batch
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            sent.clear()
            k = args.micro_batches
            pieces = list(zip(x.chunk(k), y.chunk(k), strict=True))
            for i, (x_i, y_i) in enumerate(pieces):
                last = i + 1 == len(pieces)
                with nullcontext() if last else model.no_sync():  # forward AND backward inside
                    loss = nn.functional.cross_entropy(model(x_i), y_i)
                    share = len(x_i) / len(x)  # 1/k for k equal pieces
                    (loss * share).backward()  # adds to .grad; on the last one averages .grad
            optimizer.step()
            log(step=step, epoch=epoch, loss=loss.item(), samples=len(x), all_reduces=len(sent))
            step += 1

    log(weights=nn.utils.parameters_to_vector(model.parameters()))  # shape (1210,)
    dist.destroy_process_group()  # NEW:


if __name__ == "__main__":
    run_rank(main)
