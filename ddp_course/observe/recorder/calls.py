"""What a rank communicates: torch's flight recorder, and what that leaves out.

Gloo keeps a flight record, too: every collective, with the Python frames that issued it
(torch/csrc/distributed/c10d/FlightRecorder.hpp). It holds neither root nor reduce operation, and on
Gloo no send, recv or monitored_barrier; those are noted when distributed_c10d looks the method up.
On Gloo its state is always "scheduled".
"""

from __future__ import annotations

import collections
import io
import math
import pickle
import re
import sys
import time
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from .frames import Source, frames_of
from .hooks import note_lookups
from .parts import Parts
from .progress import Progress

ANY_RANK = -1  # the peer of a receive from whoever sends
NEW_GROUP = "new_group"  # calls of new_group count as a group of their own, of all ranks
KEEP = 500  # entries that are written, the last ones
_KEEP_NOTES = 2000
_KEEP_SIZES = 64  # of one entry's tensors
_CALLERS = 6  # of a learner's call that are kept
_FRAMES_OF_ISSUE = 24  # noted with a send or recv
_C10D = "torch.distributed.distributed_c10d"
_COLLECTIVES = (
    "allreduce", "allreduce_coalesced", "broadcast", "reduce", "gather", "scatter",
    "reduce_scatter", "reduce_scatter_single", "_reduce_scatter_base",
)  # fmt: skip
_PAIRS = "send", "recv", "recv_anysource", "monitored_barrier"
_NO_CALLS = "get_", "is_", "destroy", "_"  # functions that ask about a group and do not use it
_DTYPES = {  # c10::toString of a ScalarType -> torch's name
    "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64",
    "Half": "float16", "Float": "float32", "Double": "float64", "Bool": "bool",
    "BFloat16": "bfloat16", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
}  # fmt: skip
_BYTES = {
    "uint8": 1, "int8": 1, "bool": 1, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4,
    "float32": 4, "int64": 8, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip

_Key = tuple[str, int]  # name of a process group, number of a collective in it
_Details = tuple[int | None, str]  # global rank of the root, reduce operation


class Calls:
    def __init__(self, progress: Progress, source: Source) -> None:
        self._progress, self._source = progress, source
        self._groups: dict[str, list[int]] = {}
        self._note_count = 0
        self._notes: collections.deque[dict[str, Any]] = collections.deque(maxlen=_KEEP_NOTES)
        self._numbers: collections.Counter[tuple[Any, ...]] = collections.Counter()
        self._details: collections.deque[tuple[_Key, _Details]]
        self._details = collections.deque(maxlen=_KEEP_NOTES)
        self._outside: collections.deque[dict[str, Any]] = collections.deque(maxlen=20)
        self._file = ""  # of distributed_c10d: only its calls are noted

    def watch(self) -> None:
        from torch._C._distributed_c10d import ProcessGroup

        c10d: Any = sys.modules[_C10D]
        self._file = c10d._rank_not_in_group.__code__.co_filename
        for name in _COLLECTIVES:
            note_lookups(ProcessGroup, name, self._note_details)
        for name in _PAIRS:
            note_lookups(ProcessGroup, name, partial(self._note_pair, name))
        c10d._rank_not_in_group = self._asking(c10d._rank_not_in_group)
        c10d._process_group_name = self._naming(c10d._process_group_name)

    # As it happens

    def _note_details(self, group: Any, frame: types.FrameType) -> None:
        if frame.f_code.co_filename != self._file:
            return
        options = next((v for k, v in frame.f_locals.items() if k.endswith("opts")), None)
        root, reduce = getattr(options, "rootRank", None), getattr(options, "reduceOp", None)
        members = self._members_of(group)
        if root is not None and 0 <= root < len(members):
            root = members[root]
        name = str(getattr(reduce, "op", "")).rpartition(".")[2].lower()
        number = group._get_sequence_number_for_group() + 1
        self._details.append(((str(group.group_name), number), (root, name)))

    def _note_pair(self, name: str, group: Any, frame: types.FrameType) -> None:
        if frame.f_code.co_filename != self._file:
            return
        told = frame.f_locals
        note = {"frames": frames_of(frame, _FRAMES_OF_ISSUE), "n": 0, "p2p": None}
        op, sizes, dtypes = name.removesuffix("_anysource"), [], []
        if name != "monitored_barrier":
            tensor, tag = told["tensor"], told["tag"]
            peer = told.get("group_dst" if op == "send" else "group_src")
            members = self._members_of(group)
            if name == "recv_anysource" or peer is None:
                peer = ANY_RANK
            elif 0 <= peer < len(members):
                peer = members[peer]  # from here on its global rank
            key = op, group.group_name, peer, tag
            self._numbers[key] += 1
            note |= {
                "n": self._numbers[key],
                "p2p": {"peer": peer, "direction": op, "tag": tag},
            }
            sizes, dtypes = [tensor.shape], [str(tensor.dtype).removeprefix("torch.")]
        self._add({**_entry(op, group.group_name, sizes, dtypes, time.time()), **note})

    def _add(self, note: dict[str, Any]) -> None:
        self._note_count += 1
        self._notes.append(note)

    def _asking(self, ask: Callable[[Any], bool]) -> Callable[[Any], bool]:
        """_rank_not_in_group: a collective that is told so does nothing."""

        def rank_not_in_group(group: Any) -> bool:
            outside = ask(group)
            if outside:
                frame = sys._getframe(1)
                op = frame.f_code.co_name
                if frame.f_code.co_filename == self._file and not op.startswith(_NO_CALLS):
                    frames = frames_of(frame, _FRAMES_OF_ISSUE)
                    self._outside.append({"op": op, "t": time.time(), "frames": frames})
            return outside

        return rank_not_in_group

    def _naming(self, name_of: Callable[..., str]) -> Callable[..., str]:
        """_process_group_name: each group that is made gets its name there, in the same order."""

        def process_group_name(ranks: Sequence[int], use_hashed_name: bool) -> str:
            name = name_of(ranks, use_hashed_name)
            frame = sys._getframe(1)
            if frame.f_code.co_name == "_new_group_with_tag":
                self._groups[str(name)] = members = list(ranks)
                if not use_hashed_name:  # else its members only make it
                    self._numbers[NEW_GROUP,] += 1
                    entry = _entry(NEW_GROUP, NEW_GROUP, [], [], time.time())
                    frames = frames_of(frame, _FRAMES_OF_ISSUE)
                    n = self._numbers[NEW_GROUP,]
                    self._add({**entry, "n": n, "members": members, "frames": frames})
            return name

        return process_group_name

    def _members_of(self, group: Any) -> Sequence[int]:
        """The global ranks of a group, in its order; remembered, because it may be destroyed."""
        name = str(group.group_name)
        if name not in self._groups:
            ranks = sys.modules[_C10D]._world.pg_group_ranks.get(group, {})
            self._groups[name] = sorted(ranks, key=ranks.__getitem__)
        return self._groups[name]

    # As it is told

    def record(self) -> dict[str, Any]:
        """The last entries, how many came before, groups, and calls of a group by a stranger."""
        c10d = getattr(sys.modules.get("torch._C"), "_distributed_c10d", None)
        if c10d is None or _C10D not in sys.modules:
            return {}
        recorded, lost = _recorded(c10d)
        details = dict(self._details)
        merged = [
            *(self._collective(raw, details) for raw in recorded),
            *self._noted(any(raw["is_p2p"] for raw in recorded)),
        ]
        merged.sort(key=lambda entry: float(entry["t"]))
        parts = Parts(list(self._progress.forwards))
        for entry in merged:
            entry["part"] = parts.of(entry, entry["frames"])
        _number(merged)
        total = lost + len(recorded) + self._note_count
        kept = merged[-KEEP:]
        for entry in kept:
            own = self._source.own(entry.pop("frames"))
            entry["line"] = self._source.line(next(own, None))
            if entry["part"] is None:
                entry["callers"] = [self._source.line(frame) for frame in islice(own, _CALLERS)]
            entry["passes"] = self._progress.passes.at(entry["t"])
            entry["steps"] = self._progress.steps.at(entry["t"])
        outside = [
            {"op": one["op"], "t": one["t"], "line": self._source.own_line(one["frames"])}
            for one in list(self._outside)
        ]
        alive = _ranks_of_groups()
        groups = {**alive, **self._groups}
        return {
            "entries": kept, "dropped": total - len(kept), "groups": groups, "outside": outside,
            "in_group": bool(alive),
        }  # fmt: skip

    def _collective(
        self, raw: Mapping[str, Any], details: Mapping[_Key, _Details]
    ) -> dict[str, Any]:
        op, *ends = str(raw["profiling_name"]).rpartition(":")[2].split()  # NCCL: "send 0->1"
        which = "output" if op == "scatter" else "input"
        dtypes = [_DTYPES.get(name, name.lower()) for name in raw[f"{which}_dtypes"]]
        group, t = str(raw["process_group"][0]), raw["time_created_ns"] / 1e9
        entry = _entry(op, group, raw[f"{which}_sizes"], dtypes, t)
        entry["n"] = raw["p2p_seq_id" if raw["is_p2p"] else "collective_seq_id"]
        if raw["is_p2p"] and ends:
            members, peer = self._groups.get(group, ()), int(re.split("->|<-", ends[0])[1])
            peer = members[peer] if peer < len(members) else peer
            entry["p2p"] = {"peer": peer, "direction": op, "tag": 0}
        else:
            entry["root"], entry["reduce"] = details.get((group, entry["n"]), (None, ""))
        entry["state"] = str(raw["state"])
        entry["frames"] = [(f["filename"], f["line"], f["name"]) for f in raw["frames"]]
        return entry

    def _noted(self, has_pairs: bool) -> Iterator[dict[str, Any]]:
        """What the flight recorder leaves out; NCCL's has sends and receives."""
        for note in list(self._notes):
            if note["p2p"] is None or not has_pairs:
                yield dict(note)


def _entry(
    op: str, group: str, sizes: Sequence[Any], dtypes: Sequence[str], t: float
) -> dict[str, Any]:
    width = [_BYTES.get(dtype, 0) for dtype in dtypes]
    if len(width) == 1:
        width *= len(sizes)
    count = sum(math.prod(size) * one for size, one in zip(sizes, width, strict=False))
    return {
        "n": 0,
        "group": group,
        "op": op,
        "sizes": [list(size) for size in sizes[:_KEEP_SIZES]],
        "dtypes": list(dtypes[:_KEEP_SIZES]),
        "bytes": count,
        "t": t,
        "state": "scheduled",
        "p2p": None,
        "root": None,
        "reduce": "",
        "members": [],
    }


def _number(entries: Iterable[dict[str, Any]]) -> None:
    """Number the monitored barriers: torch counts them with the collectives of their group."""
    last: collections.Counter[str] = collections.Counter()
    for entry in entries:
        if entry["p2p"] is None:
            entry["n"] = last[entry["group"]] = entry["n"] or last[entry["group"]] + 1


class _PlainData(pickle.Unpickler):
    """torch's own record of this process, in memory; it holds no object."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} in a flight record")


def _recorded(c10d: Any) -> tuple[list[dict[str, Any]], int]:
    """What torch has recorded, and how many records it has dropped."""
    torch: dict[str, Any] = vars(sys.modules["torch"])
    dumps = [c10d._dump_fr_trace]
    if torch["cuda"].is_initialized():  # NCCL has a recorder of its own; NOT VERIFIED on a GPU
        dumps.append(c10d._dump_nccl_trace)
    # To name the frames they ask for torch._inductor, which would be imported now: a second.
    stand_in = object()
    lazy = torch.setdefault("_inductor", stand_in) is stand_in
    try:
        records = [_PlainData(io.BytesIO(dump())).load().get("entries", []) for dump in dumps]
    finally:
        if lazy and torch.get("_inductor") is stand_in:
            del torch["_inductor"]
    dropped = sum(entries[0]["record_id"] for entries in records if entries)
    return [entry for entries in records for entry in entries], dropped


def _ranks_of_groups() -> dict[str, list[int]]:
    """{name of a process group of this rank: its global ranks}; none once they are destroyed."""
    world = sys.modules[_C10D]._world
    return {
        str(name): sorted(ranks, key=ranks.__getitem__)
        for group, name in list(world.pg_names.items())
        if (ranks := world.pg_group_ranks.get(group)) is not None
    }
