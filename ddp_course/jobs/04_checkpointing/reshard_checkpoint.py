"""A model in pieces: every rank saves its own, and another number of ranks loads them.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/04_checkpointing/reshard_checkpoint.py

`fully_shard` leaves each rank with a piece of every tensor. Three steps are trained and saved by
torch.distributed.checkpoint (DCP): a folder with a file of every rank. With `--resume`, the folder
of such a run, nothing is trained: the pieces are cut anew, for the ranks that are here. Look for:
`piece`, how many of the 1210 weights this rank holds, and `weights` and `moments`, put together:
loaded, they are what was saved, bit for bit, at any world size.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, my_folder, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--resume", type=str, default="", help="folder of the run to load from")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    mesh = dist.device_mesh.init_device_mesh(place.device.type, (dist.get_world_size(),))

    torch.manual_seed(7 if args.resume else 0)  # the weights of a fresh model are others
    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)).to(place.device)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    if args.resume:
        weights, moments = get_state_dict(model, optimizer)  # my pieces: where to load to
        state = {"model": weights, "optimizer": moments}
        dcp.load(state, checkpoint_id=Path(args.resume) / "pieces")  # in place
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    else:
        for _ in range(3):
            x = torch.randn(12, 64, device=place.device)
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        weights, moments = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=my_folder() / "pieces")

    piece = sum(p.to_local().numel() for p in model.parameters())
    whole = [p.full_tensor().flatten() for p in model.parameters()]  # a collective
    averages = [optimizer.state[p]["exp_avg"].full_tensor().flatten() for p in model.parameters()]
    log(piece=piece, weights=torch.cat(whole), moments=torch.cat(averages))
    files = sorted((Path(args.resume or my_folder()) / "pieces").glob("*.distcp"))
    log(files=[file.name for file in files], file_kb=[file.stat().st_size / 1000 for file in files])
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
