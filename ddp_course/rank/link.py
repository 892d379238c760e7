"""A pretended link between the ranks: each bucket arrives as late as it would on a slow network.

    model.register_comm_hook(PretendedLink(latency_ms=5, mb_per_s=100), send)

The all-reduce is a real one, on this machine. Its result is held back until latency + bytes /
bandwidth have passed; the link carries one bucket at a time, so a bucket waits for those before it.
The bytes are those of the bucket, as handed over: a ring sends 2(n − 1)/n times as many.
"""

import queue
import threading
import time
from typing import Any

import torch
import torch.distributed as dist


class PretendedLink:
    """How slow the link is, and until when it is busy. mb_per_s: 10⁶ bytes a second."""

    def __init__(self, *, latency_ms: float, mb_per_s: float) -> None:
        self.latency_s, self.bytes_per_s = latency_ms / 1000, mb_per_s * 1e6
        self.bytes_sent = self.messages = 0
        self._busy_until = 0.0
        self._waiting: queue.SimpleQueue[tuple[float, Any, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._deliver, name="pretended-link", daemon=True).start()

    def carry(self, tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        """Sum `tensor` over all ranks; the future has it when it would have arrived."""
        size = tensor.numel() * tensor.element_size()
        self.bytes_sent, self.messages = self.bytes_sent + size, self.messages + 1
        begin = max(time.perf_counter(), self._busy_until)
        self._busy_until = begin + self.latency_s + size / self.bytes_per_s
        work = dist.all_reduce(tensor, async_op=True)
        arrived: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        self._waiting.put((self._busy_until, work.get_future(), arrived))
        return arrived

    def _deliver(self) -> None:
        while True:
            due, summed, arrived = self._waiting.get()
            try:
                value = summed.wait()[0]
                time.sleep(max(0.0, due - time.perf_counter()))
            except Exception as error:
                arrived.set_exception(error)
            else:
                arrived.set_result(value)


def send(
    link: PretendedLink,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """A communication hook of DDP: the mean of the gradients, over a pretended link."""
    return link.carry(bucket.buffer() / dist.get_world_size())
