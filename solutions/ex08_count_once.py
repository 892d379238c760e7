"""Exercise 08: an evaluation that counts each sample once.

Target: every rank calls `evaluate` with the guesses and labels of its share, and gets the accuracy
and the macro-F1 of the whole test set: two numbers, the same on all ranks.

- The shares are those of DistributedSampler(shuffle=False): rank r has the samples r, r + N,
  r + 2N, …; the last ones repeat the first where `total` does not divide. Those do not count.
- F1 of a class is 2 × hits / (samples with this label + samples with this guess); macro-F1 is the
  mean over the classes.

Difficulty: medium, about 15 minutes.

Write the marked lines, then run `check("ex08")` in lesson 08. To run this file by itself:

    python -m torch.distributed.run --standalone --nproc-per-node=3 exercises/ex08_count_once.py

API: torch.arange(n) * world_size + rank are the places of this rank's samples in the test set;
matrix.index_put_((i, j), torch.ones(…), accumulate=True) counts pairs; dist.all_reduce(matrix).
"""

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank


def evaluate(
    guesses: torch.Tensor,  # (share,): classes, as whole numbers
    labels: torch.Tensor,  # (share,)
    total: int,  # samples of the whole test set
    classes: int,
) -> tuple[float, float]:
    """Accuracy and macro-F1 of the whole test set, on every rank."""
    # TODO: write from here …
    places = torch.arange(len(labels)) * dist.get_world_size() + dist.get_rank()
    counts = (places < total).double().to(labels.device)  # 0 for what only fills up
    matrix = torch.zeros(classes, classes, dtype=torch.float64, device=labels.device)
    matrix.index_put_((labels, guesses), counts, accumulate=True)
    dist.all_reduce(matrix)
    hits = matrix.diag()
    f1 = 2 * hits / (matrix.sum(0) + matrix.sum(1))
    return (hits.sum() / matrix.sum()).item(), f1.mean().item()
    # … to here (6-10 lines)


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2, 2])
    guesses = torch.tensor([0, 0, 1, 1, 1, 0, 2, 2, 2, 0])  # 7 of 10 are right
    mine = list(DistributedSampler(range(10), shuffle=False))
    mine_guessed, mine_labels = guesses[mine].to(place.device), labels[mine].to(place.device)
    accuracy, macro_f1 = evaluate(mine_guessed, mine_labels, 10, 3)
    log(accuracy=accuracy, macro_f1=macro_f1)  # 0.7 and 0.698
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
