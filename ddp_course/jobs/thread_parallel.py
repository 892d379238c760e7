"""DataParallel's moves, rebuilt with threads in one process, on the CPU: where the time goes.

    python -m torch.distributed.run --standalone --nproc-per-node=1 \
        ddp_course/jobs/thread_parallel.py --model deep --threads 2

`nn.DataParallel` needs GPUs. This makes its moves in the open, timed, and stays on the CPU.

Look for: medians of each move; `alone_ms`, one replica's share of `compute_ms` while no other
thread runs; `copied_mib` in a step; `norms`, each replica's gradient before the reduction; `gap`.
"""

import argparse
import copy
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch import nn

from ddp_course.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["deep", "wide"], default="deep", help="its layers' kind")
parser.add_argument("--threads", type=int, default=2, help="replicas, each with its own thread")
parser.add_argument("--steps", type=int, default=12, help="optimizer steps")


@contextmanager
def timed(ms: Counter[str], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    ms[name] += (time.perf_counter() - started) * 1000


def main() -> None:
    args = parser.parse_args()
    torch.set_num_threads(1)  # one core for each of our threads
    torch.manual_seed(0)
    layers, width, batch = (80, 16, 48) if args.model == "deep" else (2, 1024, 240)
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])
    x, y = torch.randn(batch, width), torch.randn(batch, width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    n, history = args.threads, []

    replicas = [model, *(copy.deepcopy(model) for _ in range(n - 1))]
    master, *others = [list(replica.parameters()) for replica in replicas]
    right = torch.autograd.grad(nn.functional.mse_loss(model(x), y), master)  # the oracle
    with ThreadPoolExecutor(n) as pool:
        for step in range(args.steps):
            ms, copied = Counter(), 0
            for replica in replicas:
                replica.zero_grad()
            with timed(ms, "replicate_ms"):  # 1 the weights of replica 0 go to all others
                for weights in others:
                    for to, source in zip(weights, master, strict=True):
                        to.data.copy_(source.data)
                        copied += source.nbytes
            with timed(ms, "compute_ms"):  # 2 scatter, 3 parallel apply: a thread for each replica
                outputs = list(pool.map(lambda f, x_i: f(x_i), replicas, x.chunk(n)))
            with timed(ms, "gather_ms"):  # 4 the outputs go to one place, and the loss is there
                gathered = torch.cat(outputs).detach().requires_grad_()
                loss = nn.functional.mse_loss(gathered, y)
                loss.backward()
            with timed(ms, "compute_ms"):  # 5 each replica computes the gradients of its share
                list(pool.map(torch.Tensor.backward, outputs, gathered.grad.chunk(n)))
            norms = [nn.utils.get_total_norm([p.grad for p in r.parameters()]) for r in replicas]
            with timed(ms, "reduce_ms"):  # 6 and these are added up on replica 0
                for weights in others:
                    for to, source in zip(master, weights, strict=True):
                        to.grad += source.grad
                        copied += source.grad.nbytes
            if step == 0:
                gap = max((p.grad - g).abs().max() for p, g in zip(master, right, strict=True))
            optimizer.step()
            log(step=step, loss=loss.item(), step_ms=sum(ms.values()))
            with timed(ms, "alone_ms"):  # 3 and 5 again for one replica, while the others rest
                output = replicas[-1](x.chunk(n)[-1])
                output.backward(gathered.grad.chunk(n)[-1])
            history.append([ms[name] for name in sorted(ms)])

    medians = torch.tensor(history).median(0).values.tolist()
    log(**dict(zip(sorted(ms), medians, strict=True)), copied_mib=copied / 2**20)
    log(gap=gap, norms=[norm.item() for norm in norms])


if __name__ == "__main__":
    run_rank(main)
