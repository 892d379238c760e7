"""How far a rank's training is: passes, optimizer steps, the loss scale, and its replicas.

    pass    a forward of a DDP model whose backward will average gradients: with gradients enabled
            and not in `no_sync` (Reducer.prepare_for_forward, nn/parallel/distributed.py)
    step    a step of an optimizer; with several optimizers, of the one that made the most

After each pass and its step the replica's parameters are sampled: a checksum of some bytes of each,
at places that depend on the pass only, so that ranks compare. What a rank does to its model after
its last pass is no part of the training, and is not sampled.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import ctypes
import sys
import time
import types
import weakref
import zlib
from typing import Any

from .hooks import note_lookups

_C10D = "torch.distributed.distributed_c10d"
_KEEP_TIMES = 4000
_KEEP_SAMPLES, _KEEP_NUMBERS = 64, 8192  # of one model: samples, and checksums in all
_MOST_PARAMETERS = 1000  # of one model that are sampled, evenly spread
_EACH_PASS = 64  # so many passes are sampled one by one; then as many as keep to so many checksums
_EACH_STEP = 16  # a step, on average, or a large model would be slowed down
_WINDOW = 256  # bytes of a parameter in one sample
_STRIDE = 2_654_435_761  # of the window's place from pass to pass: 2^32 / golden ratio
_APART = "post_localSGD_hook", "noop_hook"  # communication hooks whose replicas differ by design
_NESTING = 8  # frames within which one optimizer may call another


class Count:
    """How often the busiest of several has done something, and when."""

    def __init__(self) -> None:
        self.total = 0
        self.times: collections.deque[float] = collections.deque(maxlen=_KEEP_TIMES)
        self._by: collections.Counter[int] = collections.Counter()

    def add(self, who: object) -> None:
        self._by[id(who)] += 1
        if self._by[id(who)] > self.total:
            self.total += 1
            self.times.append(time.time())

    def at(self, t: float) -> int:
        """The total at a time; the least of those remembered, for a time before them."""
        times = list(self.times)
        return self.total - len(times) + bisect.bisect_right(times, t)


class Progress:
    def __init__(self) -> None:
        self.passes, self.steps = Count(), Count()
        self.forwards: collections.deque[tuple[float, int]] = collections.deque(maxlen=2000)
        self._scales: collections.deque[tuple[int, float]] = collections.deque(maxlen=8)
        self._updates = 0
        self._replicas: dict[int, _Replica] = {}

    def watch_reducer(self) -> None:
        from torch._C._distributed_c10d import Logger, Reducer

        note_lookups(Logger, "set_construction_data_and_log", self._on_construction)
        note_lookups(Reducer, "prepare_for_forward", self._on_forward)

    def watch_optimizers(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self._on_step)

    def watch_scaler(self) -> None:
        scaler = sys.modules["torch.amp.grad_scaler"].GradScaler
        note_lookups(scaler, "update", self._on_update)

    def record(self) -> dict[str, Any]:
        return {
            "passes": self.passes.total,
            "steps": self.steps.total,
            "scales": dict(self._scales),
            "replicas": [r.record() for r in self._replicas.values() if r.samples],
        }

    def _on_construction(self, logger: Any, frame: types.FrameType) -> None:
        model = frame.f_locals["self"]
        self._replicas[id(model.reducer)] = _Replica(model, len(self._replicas))

    def _on_forward(self, reducer: Any, frame: types.FrameType) -> None:
        model = frame.f_locals["self"]
        replica = self._replicas.get(id(reducer))
        if replica is None:
            replica = self._replicas[id(reducer)] = _Replica(model, len(self._replicas))
        if replica.stale or not replica.passes:
            replica.sample(replica.passes)
        replica.passes += 1
        replica.stale = True
        self.passes.add(reducer)
        self.forwards.append((time.time(), id(reducer)))

    def _on_step(self, optimizer: Any, args: object, kwargs: object) -> None:
        with contextlib.suppress(Exception):
            if _is_nested(sys._getframe(1)):
                return  # ZeroRedundancyOptimizer hands the others' share out after its own's step
            self.steps.add(optimizer)
            for replica in self._replicas.values():
                if replica.stale:
                    replica.sample(replica.passes)
                elif not replica.passes:  # trained past DDP, by model.module(x)
                    replica.sample(self.steps.total)

    def _on_update(self, scaler: Any, frame: types.FrameType) -> None:
        self._updates += 1
        if scaler._scale is not None and scaler._scale.device.type == "cpu":
            self._scales.append((self._updates, float(scaler._scale)))


def _is_nested(step: types.FrameType) -> bool:
    """Whether this optimizer's step is part of another optimizer's."""
    frame = step.f_back
    for _ in range(_NESTING):
        if frame is None:
            return False
        if frame.f_code is step.f_code:
            return True
        frame = frame.f_back
    return False


class _Replica:
    """A model in DDP, and checksums of its parameters after its passes."""

    def __init__(self, model: Any, number: int) -> None:
        self.passes, self.stale = 0, False
        self._model = weakref.ref(model)
        ranks = sys.modules[_C10D].get_process_group_ranks(model.process_group)
        self._told = {"name": type(model.module).__name__, "number": number, "ranks": ranks}
        named = [
            pair for pair in model.module.named_parameters()
            if pair[0] not in model.parameters_to_ignore
        ]  # fmt: skip
        named = named[:: -(-len(named) // _MOST_PARAMETERS) or 1]
        self._names = [name for name, _ in named]
        self._parameters = [weakref.ref(parameter) for _, parameter in named]
        most = max(4, min(_KEEP_SAMPLES, _KEEP_NUMBERS // (len(named) or 1)))
        self.samples: collections.deque[tuple[int, list[int | None]]]
        self.samples = collections.deque(maxlen=most)  # passes made, checksums then

    def sample(self, after: int) -> None:
        self.stale = False
        if after > _EACH_PASS and after % (len(self._names) // _EACH_STEP + 1):
            return
        model = self._model()
        if model is None or any(getattr(h, "__name__", "") in _APART for h, _ in model._comm_hooks):
            return
        numbers = [_checksum(reference(), after) for reference in self._parameters]
        self.samples.append((after, numbers))

    def record(self) -> dict[str, Any]:
        return {**self._told, "parameters": self._names, "samples": dict(self.samples)}


def _checksum(parameter: Any, after: int) -> int | None:
    """Of some of its bytes; None if it is not trained, or its bytes are not the CPU's."""
    if parameter is None or not parameter.requires_grad or not parameter.is_cpu:
        return None
    if not parameter.is_contiguous():
        return None
    size, start = parameter.nbytes, parameter.data_ptr()
    if not size or not start:
        return None
    if size > _WINDOW:
        start += after * _STRIDE % (size - _WINDOW + 1)
    return zlib.crc32(ctypes.string_at(start, min(size, _WINDOW)))
