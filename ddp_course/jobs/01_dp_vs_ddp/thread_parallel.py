"""DataParallel's moves, rebuilt with threads in one process, on the CPU: where the time goes.

    python -m torch.distributed.run --standalone --nproc-per-node=1 \
        ddp_course/jobs/01_dp_vs_ddp/thread_parallel.py --model deep --threads 2

`nn.DataParallel` needs GPUs. This makes its moves in the open, timed, and stays on the CPU.
Look for: medians of each move; `alone_ms`, one replica's share of `compute_ms` while no other
thread runs; `waits`, how often a thread stopped for another; `copied_mib`; `norms`, `gap`.
"""

import argparse
import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from resource import RUSAGE_THREAD, getrusage  # of Linux
from time import perf_counter

import torch
from torch import nn

from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["deep", "wide"], default="deep", help="its layers' kind")
parser.add_argument("--threads", type=int, default=2, help="replicas, each with its own thread")


def counted(waits: list[int], work: Callable, *inputs: torch.Tensor) -> torch.Tensor:
    before = getrusage(RUSAGE_THREAD).ru_nvcsw  # voluntary context switches of this thread
    output = work(*inputs)
    waits.append(getrusage(RUSAGE_THREAD).ru_nvcsw - before)
    return output


def main() -> None:
    args = parser.parse_args()
    torch.set_num_threads(1)  # one core for each of our threads
    torch.manual_seed(0)
    layers, width, batch = (200, 16, 48) if args.model == "deep" else (2, 1024, 240)
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])
    x, y = torch.randn(batch, width), torch.randn(batch, width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    n, history, waits = args.threads, [], []
    replicas = [model, *(copy.deepcopy(model) for _ in range(n - 1))]
    master, *others = [list(replica.parameters()) for replica in replicas]
    right = torch.autograd.grad(nn.functional.mse_loss(model(x), y), master)  # the oracle
    with ThreadPoolExecutor(n) as pool:
        for step in range(12):
            for replica in replicas:
                replica.zero_grad()
            copied, t = 0, [perf_counter()]
            for weights in others:  # 1 replicate: the weights of replica 0 go to all others
                for to, source in zip(weights, master, strict=True):
                    to.data.copy_(source.data)
                    copied += source.nbytes
            t.append(perf_counter())  # 2 scatter, 3 parallel apply: a thread for each replica
            outputs = list(pool.map(partial(counted, waits), replicas, x.chunk(n)))
            t.append(perf_counter())
            gathered = torch.cat(outputs).detach().requires_grad_()  # 4 gather, loss in one place
            loss = nn.functional.mse_loss(gathered, y)
            loss.backward()
            slopes = gathered.grad.chunk(n)
            t.append(perf_counter())  # 5 backward: each replica computes the gradients of its share
            list(pool.map(partial(counted, waits, torch.Tensor.backward), outputs, slopes))
            t.append(perf_counter())
            norms = [nn.utils.get_total_norm([p.grad for p in r.parameters()]) for r in replicas]
            t.append(perf_counter())
            for weights in others:  # 6 reduce: these are added up on replica 0
                for to, source in zip(master, weights, strict=True):
                    to.grad += source.grad
                    copied += source.grad.nbytes
            t.append(perf_counter())
            if step == 0:
                gap = max((p.grad - g).abs().max() for p, g in zip(master, right, strict=True))
            optimizer.step()
            t.append(perf_counter())
            replicas[-1](x.chunk(n)[-1]).backward(slopes[-1])  # 3 and 5 for one, the others rest
            t.append(perf_counter())
            log(step=step, loss=loss.item(), step_ms=(t[4] - t[0] + t[6] - t[5]) * 1000)
            history.append([(b - a) * 1000 for a, b in pairwise(t)])
    replicate, forward, gather, backward, _, reduce, _, alone = torch.tensor(history).median(0)[0]
    log(replicate_ms=replicate, compute_ms=forward + backward, gather_ms=gather, reduce_ms=reduce)
    log(alone_ms=alone, waits=sum(waits), copied_mib=copied / 2**20, gap=gap)
    log(norms=[norm.item() for norm in norms])


if __name__ == "__main__":
    run_rank(main)
