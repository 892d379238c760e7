"""How long does training stand still for a checkpoint, and how large is it?

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/04_checkpointing/time_saves.py

`save` returns when the files are on the disk. `async_save` copies the tensors, returns, and lets a
thread write the copy while training goes on. Look for: `blocked_ms`, how long the training loop
had to wait, `done_ms`, until the files were whole, and `steps_meanwhile`, steps between the two.
`gap` compares the file with the weights at the moment of the call: 0, although training has
`moved` them since. `file_mb` against `weights_mb`: AdamW keeps two more numbers for each weight.
"""

import argparse
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, my_folder, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=1024, help="of the model's two square layers")
parser.add_argument("--steps", type=int, default=10, help="training steps after each save")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    writers = dist.new_group(backend="gloo")  # the writing thread meets the other ranks' here
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [nn.Linear(args.width, args.width) for _ in range(2)]
    model = DDP(nn.Sequential(*layers).to(place.device), device_ids=place.device_ids)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x = torch.randn(8, args.width, device=place.device)

    def train() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    def weights() -> torch.Tensor:
        return nn.utils.parameters_to_vector(model.parameters()).detach().clone()

    train()  # the optimizer has its moments from here on
    for way in ("save", "async_save"):
        folder, done = my_folder() / way, []
        dist.barrier()
        at_the_call, started = weights(), time.perf_counter()
        model_state, optimizer_state = get_state_dict(model, optimizer)
        state = {"model": model_state, "optimizer": optimizer_state}
        if way == "save":
            dcp.save(state, checkpoint_id=folder, process_group=writers)
            done.append(time.perf_counter())
        else:
            future = dcp.async_save(state, checkpoint_id=folder, process_group=writers)
            future.add_done_callback(lambda _, done=done: done.append(time.perf_counter()))
        blocked_ms = (time.perf_counter() - started) * 1000

        steps_meanwhile = 0
        for _ in range(args.steps):
            train()
            steps_meanwhile += not done
        if way == "async_save":
            future.result()  # raises what the thread raised; before it there is no checkpoint
        whole = done[0] if done else time.perf_counter()  # the callback may come a moment later
        moved = (weights() - at_the_call).abs().max()

        dist.barrier()
        dcp.load({"model": model_state}, checkpoint_id=folder)  # in place: the weights go back
        files_mb = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
        gap = (weights() - at_the_call).abs().max()
        done_ms = (whole - started) * 1000
        log(way=way, blocked_ms=blocked_ms, done_ms=done_ms, steps_meanwhile=steps_meanwhile)
        log(moved=moved, gap=gap, file_mb=files_mb, **{f"{way}_ms": blocked_ms})
    log(weights_mb=weights().nbytes / 1e6)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
