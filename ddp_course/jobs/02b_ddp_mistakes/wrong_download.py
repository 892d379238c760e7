"""`if not path.exists(): download(path)` on every rank: too many downloads, or half a file.

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/02b_ddp_mistakes/wrong_download.py

Rank 0 is also the web server, on the loopback interface; it counts, and takes its time to answer.

    all at once   all ranks find nothing, so all of them download
    one late      the others look while rank 0 is still writing: there is a file, so they read it
    prepared      rank 0 writes to a name beside it and renames; the others wait at a barrier

Look for: `downloads`, and `broken`, how many ranks read less than the whole file.
"""

import argparse
import os
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, my_folder, run_rank

PIECE, PIECES = bytes(10_000), 30

parser = argparse.ArgumentParser()


class SlowServer(BaseHTTPRequestHandler):
    downloads = 0

    def do_GET(self) -> None:
        SlowServer.downloads += 1
        self.send_response(200)
        self.end_headers()
        for _ in range(PIECES):
            self.wfile.write(PIECE)
            time.sleep(0.01)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def download(url: str, path: Path) -> None:
    with urllib.request.urlopen(url) as source, path.open("wb", buffering=0) as file:
        while piece := source.read(len(PIECE)):
            file.write(piece)


def main() -> None:
    parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, server = dist.get_rank(), None
    told: list = [None]
    if rank == 0:
        server = ThreadingHTTPServer(("127.0.0.1", 0), SlowServer)  # port 0: one that is free
        threading.Thread(target=server.serve_forever, daemon=True).start()
        told = [f"http://127.0.0.1:{server.server_port}/"]
    dist.broadcast_object_list(told, src=0)
    url = told[0]

    for how in ("all at once", "one late", "prepared"):
        path, SlowServer.downloads = my_folder() / f"data, {how}", 0
        path.unlink(missing_ok=True)
        dist.barrier()
        if how == "prepared":
            if rank == 0:
                beside = path.with_suffix(".part")
                download(url, beside)
                os.replace(beside, path)  # whole or not at all
            dist.barrier()
        while how == "one late" and rank > 0 and not path.exists():
            time.sleep(0.001)
        missing = not path.exists()
        if how == "all at once":
            dist.barrier()  # every rank has looked before any begins
        if missing:
            download(url, path)
        broken = torch.tensor([int(path.stat().st_size < len(PIECE) * PIECES)], device=place.device)
        dist.all_reduce(broken)
        log(how=how, downloads=SlowServer.downloads if rank == 0 else None, broken=broken.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
