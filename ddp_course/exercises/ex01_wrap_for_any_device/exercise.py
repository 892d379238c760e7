"""ex01: put a model on this rank's device and wrap it in DDP, on machines real and pretended."""

from __future__ import annotations

import numpy as np

from ddp_course.checks.agreed import BALLAST, CPU
from ddp_course.checks.manifest import (
    Check,
    Exercise,
    PerRank,
    Tensors,
    Tiers,
    all_close,
    all_reduced,
    close,
    known,
)


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    """Samples for the real wrap here, and the numbers of three pretended machines.

    On each of them local rank and rank differ: it is the second machine of its job.
    """
    return [_machines(rank, ranks) | _samples(random) for rank in range(ranks)]


def _samples(random: np.random.Generator) -> Tensors:
    x = random.normal(size=(3, 4)).astype(np.float32)
    return {"here/x": x, "here/alone": x.mean(axis=0)}


def _machines(rank: int, ranks: int) -> Tensors:
    machines: Tensors = {}
    for case, gpus in {"gpus": ranks + 1, "enough": ranks, "few": ranks - 1}.items():
        machines |= {
            f"{case}/local_rank": np.array([(rank + 1) % ranks]),
            f"{case}/local_world_size": np.array([ranks]),
            f"{case}/gpus": np.array([gpus]),
        }
    return machines


def _averaged(inputs: PerRank) -> PerRank:
    """The gradient of the mean of x @ weight is the mean of x, here over all ranks' samples."""
    mean = np.mean([mine["here/x"].astype(np.float64) for mine in inputs], axis=(0, 1))
    return [{"here/gradient": mean} for _ in inputs]


def _own_gpu(inputs: PerRank) -> PerRank:
    return [
        {
            f"{case}/{asked}": mine[f"{case}/local_rank"]
            for case in ("gpus", "enough")
            for asked in ("device", "device_ids")
        }
        for mine in inputs
    ]


def _on_cpu(inputs: PerRank) -> PerRank:
    return [{"few/device": np.array([CPU]), "few/device_ids": np.array([CPU])} for _ in inputs]


def _not_wrapped(inputs: PerRank, outputs: PerRank) -> bool:
    alone = [{"here/gradient": mine["here/alone"]} for mine in inputs]
    return all_close(outputs, alone) or not any("here/gradient" in mine for mine in outputs)


def _device_is(outputs: PerRank, numbers: list[int]) -> bool:
    return all_close(outputs, [{"gpus/device": np.array([number])} for number in numbers])


def _by_global_rank(inputs: PerRank, outputs: PerRank) -> bool:
    return _device_is(outputs, list(range(len(inputs))))


def _first_gpu(inputs: PerRank, outputs: PerRank) -> bool:
    return _device_is(outputs, [0] * len(inputs))


def _not_moved(inputs: PerRank, outputs: PerRank) -> bool:
    return _device_is(outputs, [CPU] * len(inputs))


def _on_own_gpu(inputs: PerRank, outputs: PerRank) -> bool:
    return _device_is(outputs, [int(mine["gpus/local_rank"][0]) for mine in inputs])


def _ids_left_out(inputs: PerRank, outputs: PerRank) -> bool:
    ids = [mine.get("gpus/device_ids") for mine in outputs]
    none = all(one is not None and close(one, np.array([CPU])) for one in ids)
    return _on_own_gpu(inputs, outputs) and none


def _all_ids(inputs: PerRank, outputs: PerRank) -> bool:
    ids = [mine.get("gpus/device_ids") for mine in outputs]
    return _on_own_gpu(inputs, outputs) and all(one is not None and one.size != 1 for one in ids)


def _one_too_many(inputs: PerRank, outputs: PerRank) -> bool:
    on_cpu = [{"enough/device": np.array([CPU])} for _ in inputs]
    return _on_own_gpu(inputs, outputs) and all_close(outputs, on_cpu)


def _shared_gpu(inputs: PerRank, outputs: PerRank) -> bool:
    return any(mine["few/device"][0] >= 0 for mine in outputs if mine.get("few/device") is not None)


EXERCISE = Exercise(
    name="ex01",
    stem="ex01_wrap_for_any_device",
    function="wrap",
    title="Wrap for any device",
    lesson="01",
    difficulty="medium",
    minutes=10,
    ranks=3,
    draw=_draw,
    moves=lambda ranks: all_reduced(BALLAST, ranks),
    checks=(
        Check(
            id="here",
            title="here: the model comes back in DDP, and its gradient is averaged",
            why="the same lines must train on the machine that you have",
            points=2,
            expected=_averaged,
            shown=("here/alone", "here/gradient"),
        ),
        Check(
            id="gpus",
            title="pretended, a GPU for each rank: on cuda:{local_rank}, and DDP is told so",
            why="two ranks on one device fight for it; a rank is no device number",
            points=2,
            expected=_own_gpu,
            shown=("gpus/local_rank", "gpus/device"),
            depends=("here",),
        ),
        Check(
            id="few",
            title="pretended, fewer GPUs than ranks: all on the CPU, and no device_ids",
            why="NCCL refuses two ranks on one GPU, and ranks on different kinds of device do not "
            "find each other",
            points=1,
            expected=_on_cpu,
            shown=("few/local_rank", "few/device"),
            depends=("here", "gpus"),
        ),
    ),
    mistakes=known(
        __file__,
        {
            "not wrapped in DDP": _not_wrapped,
            "the rank as a device number": _by_global_rank,
            "the first GPU for everyone": _first_gpu,
            "not on the GPU when it is wrapped": _not_moved,
            "device_ids left out": _ids_left_out,
            "all GPUs in device_ids": _all_ids,
            "one GPU too many asked for": _one_too_many,
            "a GPU for some ranks only": _shared_gpu,
        },
    ),
    errors={
        "device_ids and output_device": "device_ids was given for a model on the CPU. There it is "
        "None: a CPU has no device number.",
        "NVIDIA": "A GPU was asked for on a machine that has none: gpus is 0 there.",
        "CUDA": "A GPU was asked for on a machine that has none: gpus is 0 there.",
    },
    hang_hint="DDP's constructor is a collective: every rank must build one. Does each path "
    "through your function reach it?",
    calls=lambda inputs: 1,
    tiers=Tiers(
        question="On which machines has every rank here a GPU of its own, and by which number "
        "would it call it?",
        api="model.to(device) moves the parameters; DDP(model, device_ids=[number]) for one GPU, "
        "device_ids=None on the CPU.",
        skeleton="if …:                                    # a GPU for each rank on this machine\n"
        "    return DDP(model.to(…), device_ids=[…])\n"
        "return …                                 # all ranks on the CPU",
    ),
)
