"""Does a forgotten `set_epoch` overfit, as one can read? Three seeds with it, and three without.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/02b_ddp_mistakes/compare_epoch_orders.py

Look for: the mean accuracies of both ways, on the digits that were trained on and on the test
digits, and `spread`, how far apart the three seeds lie on the latter. A difference between the ways
that is smaller than that proves nothing.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DistributedSampler

from ddp_course.rank.data import load
from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

GLOBAL_BATCH_SIZE = 48

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=12, help="passes over the data")
parser.add_argument("--seeds", type=int, default=3, help="trainings of each way")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    local_batch_size = GLOBAL_BATCH_SIZE // dist.get_world_size()
    train, test = (
        [tensor.to(place.device) for tensor in load("digits", train=which)]
        for which in (True, False)
    )

    def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
        with torch.no_grad():
            return (model(images).argmax(1) == labels).float().mean().item()

    def train_once(seed: int, set_epoch: bool) -> tuple[float, float]:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        ddp = DDP(model.to(place.device), device_ids=place.device_ids)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.5)
        sampler = DistributedSampler(train[0], seed=seed, drop_last=True)
        for epoch in range(args.epochs):
            if set_epoch:
                sampler.set_epoch(epoch)
            for batch in torch.tensor(list(sampler)).split(local_batch_size):
                optimizer.zero_grad()
                nn.functional.cross_entropy(ddp(train[0][batch]), train[1][batch]).backward()
                optimizer.step()
        return accuracy(model, *train), accuracy(model, *test)

    for set_epoch in (True, False):
        found = torch.tensor([train_once(seed, set_epoch) for seed in range(args.seeds)])
        on_train, on_test = found.mean(0).tolist()
        spread = (found[:, 1].max() - found[:, 1].min()).item()
        log(set_epoch=set_epoch, on_train=on_train, on_test=on_test, spread=spread)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
