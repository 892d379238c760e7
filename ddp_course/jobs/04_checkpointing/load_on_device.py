"""Where do loaded tensors land? On the device that saved them, unless you say otherwise.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/04_checkpointing/load_on_device.py

Rank 0 writes a checkpoint as a rank on GPU 0 does: each tensor carries the note "cuda:0". (Here the
note is pretended, so that no GPU is needed to write it.) Every rank loads it, with and without
`map_location`. Look for: `lands_on`. Without map_location it is GPU 0 for all ranks, or an error
where there is no GPU; `elsewhere` counts the ranks whose tensor is not where they compute.
"""

import argparse

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, my_folder, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--saved-by", type=int, default=0, help="the GPU that the notes name")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    path = my_folder() / "from_a_gpu.pt"

    if dist.get_rank() == 0:
        note = f"cuda:{args.saved_by}"
        torch.serialization.register_package(0, lambda storage: note, lambda storage, note: None)
        torch.save({"weights": torch.ones(1000)}, path)
    dist.barrier()

    for way, map_location in (("none", None), ("cpu", "cpu"), ("my device", place.device)):
        try:
            weights = torch.load(path, map_location=map_location)["weights"]
            lands_on, error = str(weights.device), ""
        except RuntimeError as problem:
            lands_on, error = "nowhere", str(problem).split(". ")[0]
        elsewhere = torch.tensor(int(lands_on != str(place.device)), device=place.device)
        dist.all_reduce(elsewhere)
        log(map_location=way, lands_on=lands_on, elsewhere=elsewhere.item(), error=error)

    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
