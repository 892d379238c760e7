"""`nn.DataParallel` around a model that lies on two devices: it refuses at the first forward.

    python -m torch.distributed.run --standalone --nproc-per-node=1 \
        ddp_course/jobs/01_dp_vs_ddp/refuse_two_devices.py

With two GPUs the halves lie on them. Elsewhere the second device is pretended: torch's `meta`,
which has shapes and no memory; the test that refuses is torch's own, and the same.

Look for: `answer`. DP copies the whole model to every device, so all of it must lie on the first.
DDP takes such a model, if `device_ids` is left out (lesson 05).
"""

import argparse

import torch
from torch import nn

from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()


def main() -> None:
    parser.parse_args()
    on_gpus = torch.cuda.device_count() > 1
    first, second = (torch.device("cuda", i) for i in (0, 1)) if on_gpus else ("cpu", "meta")
    model = nn.Sequential(nn.Linear(8, 8).to(first), nn.Linear(8, 8).to(second))

    parallel = nn.DataParallel(model)
    if not on_gpus:  # without GPUs DataParallel looks at nothing: pretend that it found two devices
        parallel.device_ids, parallel.src_device_obj = [0, 1], torch.device(first)
    try:
        parallel(torch.randn(4, 8, device=first))
        answer = "it runs"
    except RuntimeError as error:
        answer = str(error)
    log(devices=[str(first), str(second)], answer=answer)


if __name__ == "__main__":
    run_rank(main)
