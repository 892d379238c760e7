"""The averaging starts inside backward: an autograd hook on each parameter sends its gradient.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/02a_inside_ddp/average_by_hooks.py

Look for: `order`, in which gradients became ready and left, the last layer first; `in_flight`, how
many all-reduces had begun when backward returned; and `weights`, still those of one process. DDP
does this in C++, and puts several gradients into one message.
"""

import argparse
import os  # NEW:

import torch
import torch.distributed as dist  # NEW:
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ddp_course.rank.report import log, run_rank

GLOBAL_BATCH_SIZE = 48  # splits evenly over 1, 2, 3, 4, 6 and 8 ranks

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2, help="passes over the data")
parser.add_argument("--seed", type=int, default=0, help="for the weights and the data")


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
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    sent: dict[str, dist.Work] = {}  # NEW: the all-reduces of this step, in the order they began
    for name, parameter in model.named_parameters():  # NEW:

        def send(ready: nn.Parameter, name: str = name) -> None:  # NEW: autograd calls it
            sent[name] = dist.all_reduce(ready.grad, async_op=True)  # NEW: begins, does not wait

        parameter.register_post_accumulate_grad_hook(send)  # NEW: when this gradient is complete

    step = 0
    for epoch in range(args.epochs):
        for x, y in loader:
            x, y = x[rank::world_size], y[rank::world_size]  # NEW: my share of the batch
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            log(step=step, order=list(sent), in_flight=len(sent))  # NEW:
            for name, parameter in model.named_parameters():  # NEW:
                sent.pop(name).wait()  # NEW: until the sum has arrived
                parameter.grad /= world_size  # NEW: … and now the mean
            optimizer.step()
            log(step=step, epoch=epoch, loss=loss.item(), samples=len(x))
            step += 1

    log(weights=nn.utils.parameters_to_vector(model.parameters()))  # shape (1210,)
    dist.destroy_process_group()  # NEW:


if __name__ == "__main__":
    run_rank(main)
