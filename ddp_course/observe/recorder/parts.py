"""What a collective is inside DDP: a gradient bucket, a broadcast of buffers, …"""

from __future__ import annotations

import collections
import os
from collections.abc import Mapping, Sequence
from typing import Any

from .frames import Frame


class Parts:
    """What an entry is inside DDP, from the frames that issued it; None where that is not sure.

    The order of a step's collectives is that of DDP's reducer (torch/csrc/distributed/c10d/
    reducer.cpp): one all_reduce for each bucket, in order; after the first backward the buckets are
    rebuilt, and two broadcasts tell how.

    forwards  when each forward of a model began, and whose it was: a backward starts anew
    """

    def __init__(self, forwards: Sequence[tuple[float, int]]) -> None:
        self._forwards = collections.deque(forwards)
        self._one_model = len({reducer for _, reducer in forwards}) == 1
        self._next: int | None = None  # bucket, since the last forward; None before the first one
        self._joined: collections.Counter[str] = collections.Counter()

    def of(self, entry: Mapping[str, Any], frames: Sequence[Frame]) -> str | None:
        group, names = str(entry["group"]), [function for _, _, function in frames]
        inside = {function for file, _, function in frames if "torch" in file}
        if not names:
            return None
        if names[0] == "_match_all_reduce_for_bwd_pass":  # by a rank that has no inputs left
            self._joined[group] += 1
            return f"gradient bucket {self._joined[group] - 1}"
        self._joined[group] = 0
        if names[0] == "_verify_param_shape_across_processes":
            return "parameter check at construction"
        if "_sync_params_and_buffers" in inside:
            return "weights after Join" if "_sync_final_model" in inside else (
                "weights at construction" if _in_ddp(frames) else None
            )  # fmt: skip
        if names[0] in ("_pre_forward", "_rebuild_buckets") and entry["op"] == "broadcast":
            return "bucket rebuild"
        for function, part in _PARTS.items():
            if function in inside:
                return part
        if names[0] == "_engine_run_backward" and entry["op"] == "all_reduce":
            unused = entry["dtypes"] == ["int32"]
            return "map of unused parameters" if unused else self._bucket(entry["t"])
        if "_allreduce_fut" in inside:  # DDP's own communication hooks, once for each bucket
            return self._bucket(entry["t"])
        return None

    def _bucket(self, t: float) -> str:
        while self._forwards and self._forwards[0][0] <= t:
            self._forwards.popleft()
            self._next = 0
        if self._next is None or not self._one_model:
            return "gradient bucket"
        self._next += 1
        return f"gradient bucket {self._next - 1}"


_PARTS = {  # a function of torch that issued a collective, at any depth -> what it was for
    "_find_common_rank": "whose buffers count, for Join",
    "_sync_module_buffers": "buffers before forward",
    "_check_global_requires_backward_grad_sync": "whether gradients are averaged, for Join",
    "_notify_procs_to_terminate": "that inputs are exhausted, for Join",
    "notify_join_context": "who still has inputs, for Join",
    "_get_num_nonjoined_procs": "how many ranks have inputs left, for Join",
    "all_gather_object": "inside all_gather_object",
    "gather_object": "inside gather_object",
    "scatter_object_list": "inside scatter_object_list",
    "broadcast_object_list": "inside broadcast_object_list",
    "foreach_all_gather": "gathering of sharded weights",
    "foreach_reduce": "scattering of sharded gradients",
    "reduce_scatter": "how Gloo does reduce_scatter",
    "reduce_scatter_tensor": "how Gloo does reduce_scatter",
    "reduce_scatter_single": "how Gloo does reduce_scatter",
}


def _in_ddp(frames: Sequence[Frame]) -> bool:
    return any(file.endswith(os.path.join("nn", "parallel", "distributed.py"))
               for file, _, _ in frames)  # fmt: skip
