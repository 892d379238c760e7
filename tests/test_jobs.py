"""Every job at 1, 2 and 4 ranks against an oracle, and the command in its docstring in a shell."""

from __future__ import annotations

import ast
import os
import re
import runpy
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from torch.distributed.run import parse_args

from ddp_course.launcher import catalogue, knobs, watch
from ddp_course.launcher.launch import launch
from ddp_course.run.run import Run
from ddp_course.show.timeline import timeline

ROOT = Path(__file__).resolve().parent.parent


@cache
def ran(job: str, ranks: int, knobs: tuple[tuple[str, Any], ...] = (), trace: bool = False) -> Run:
    """A finished run; the same question is not run twice."""
    return launch(job, ranks=ranks, trace=trace, **dict(knobs))


def weights(run: Run, rank: int = 0) -> npt.NDArray[Any]:
    return np.array(run.value("weights", rank))


def every(run: Run, name: str) -> list[list[Any]]:
    """All values of that name, rank by rank."""
    return [run.values(name, rank) for rank in range(run.ranks)]


@cache
def one_process_in_float64() -> npt.NDArray[Any]:
    """The ladder's training, written again: one process, all data, double precision."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    images = torch.randn(480, 1, 8, 8)
    labels = (images.flatten(1) @ torch.randn(64, 10)).argmax(1)
    first, second = nn.Linear(64, 16), nn.Linear(16, 10)
    parameters = [*first.parameters(), *second.parameters()]
    parameters = [p.detach().double().requires_grad_() for p in parameters]
    for _ in range(2):
        for x, y in zip(images.flatten(1).double().split(48), labels.split(48), strict=True):
            hidden = (x @ parameters[0].T + parameters[1]).clamp(min=0)
            logits = hidden @ parameters[2].T + parameters[3]
            loss = (logits.logsumexp(1) - logits.gather(1, y[:, None])[:, 0]).mean()
            gradients = torch.autograd.grad(loss, parameters)
            parameters = [
                (p - 0.5 * g).detach().requires_grad_()
                for p, g in zip(parameters, gradients, strict=True)
            ]
    array: npt.NDArray[Any] = torch.cat([p.detach().flatten() for p in parameters]).numpy()
    return array


def hello_ranks(run: Run) -> None:
    n = run.ranks
    assert every(run, "total") == [[n * (n + 1) // 2] * 5] * n
    assert run.by_rank("rank_seen") == run.by_rank("local_rank") == {r: r for r in range(n)}
    assert set(run.by_rank("world_size").values()) == {n}
    assert len(set(run.by_rank("pid").values())) == n
    assert all(waited > 0 for values in every(run, "waited_ms") for waited in values)


def wrong_device_index(run: Run) -> None:
    n = run.ranks
    assert set(run.by_rank("missing").values()) == {max(0, n - 2)}
    assert run.by_rank("by_rank") == {r: f"cuda:{r}" for r in range(n)}
    assert run.by_rank("by_local_rank") == {r: f"cuda:{r % 2}" for r in range(n)}


def wrong_device_index_on_one_machine(run: Run) -> None:
    assert set(run.by_rank("missing").values()) == {0}


def train_one_process(run: Run) -> None:
    for rank in range(run.ranks):
        np.testing.assert_allclose(weights(run, rank), one_process_in_float64(), atol=1e-5)
    assert every(run, "samples") == [[48] * 20] * run.ranks


def one_model(run: Run) -> None:
    for rank in range(run.ranks):
        np.testing.assert_allclose(weights(run, rank), one_process_in_float64(), atol=1e-5)
        np.testing.assert_array_equal(weights(run, rank), weights(run))
    assert every(run, "samples") == [[48 // run.ranks] * 20] * run.ranks


def split_over_ranks(run: Run) -> None:
    one_model(run)
    losses = np.mean(every(run, "loss"), axis=0)
    alone = ran("train_one_process", 1).values("loss")
    np.testing.assert_allclose(losses, alone, atol=1e-5)
    assert losses[-1] < losses[0]


def train_digits(run: Run) -> None:
    alone = ran("train_digits", 1)
    for rank in range(run.ranks):
        np.testing.assert_allclose(weights(run, rank), weights(alone), atol=1e-4)
        np.testing.assert_array_equal(weights(run, rank), weights(run))
    assert set(run.by_rank("accuracy").values()) == {alone.value("accuracy")}
    assert run.value("accuracy") > 0.9
    steps = 8 * (1437 // 48)
    assert every(run, "samples") == [[48 // run.ranks] * steps] * run.ranks


def overlap_buckets(run: Run) -> None:
    layer_mb = 4 * (512 * 512 + 512) / 2**20
    assert run.value("buckets_mb") == [layer_mb] * 8
    assert [len(steps) for steps in every(run, "step_ms")] == [4] * run.ranks
    assert run.values("loss")[-1] < run.values("loss")[0]
    drawn = timeline(run)
    assert drawn.collectives == {rank: run.value("buckets") for rank in range(run.ranks)}


def overlap_buckets_in_one(run: Run) -> None:
    assert run.value("buckets") == 1
    small = ran("overlap_buckets", run.ranks, trace=True)
    np.testing.assert_allclose(run.values("loss"), small.values("loss"), rtol=1e-5)


def compare_replicas(run: Run) -> None:
    for before, *after in every(run, "spread"):
        assert (before > 0) is (run.ranks > 1)
        assert after == [0.0] * 6
    assert run.values("when")[:2] == ["before DDP", "after DDP(model)"]


def use_data_parallel(run: Run) -> None:
    """Without several GPUs it is the one-process script, and says so by its one replica."""
    import torch

    train_one_process(run)
    wanted = max(1, torch.cuda.device_count()) if run.ranks == 1 else 1
    assert set(run.by_rank("replicas").values()) == {wanted}
    assert len(run.value("devices")) == wanted


WEIGHTS_OF = {"deep": 200 * (16 * 16 + 16), "wide": 2 * (1024 * 1024 + 1024)}


@cache
def losses_in_float64(model: str) -> list[float]:
    """The training of thread_parallel and process_parallel: one process, the whole batch."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers, width, batch = (200, 16, 48) if model == "deep" else (2, 1024, 240)
    network = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])
    x, y = torch.randn(batch, width).double(), torch.randn(batch, width).double()
    parameters = list(network.double().parameters())
    losses = []
    for _ in range(12):
        loss = ((network(x) - y) ** 2).mean()
        losses.append(loss.item())
        for p, g in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            p.data -= 0.01 * g
    return losses


def thread_parallel(run: Run) -> None:
    """Each rank is one whole job; nothing passes between them."""
    threads, model = run.knobs.get("threads", 2), run.knobs.get("model", "deep")
    weights_mib = WEIGHTS_OF[model] * 4 / 2**20
    for rank in range(run.ranks):
        np.testing.assert_allclose(run.values("loss", rank), losses_in_float64(model), rtol=1e-5)
        assert run.value("copied_mib", rank) == 2 * (threads - 1) * weights_mib
        assert run.value("gap", rank) < 1e-7
        norms = run.value("norms", rank)
        assert len(set(norms)) == threads and min(norms) > 0
    names = ("replicate_ms", "compute_ms", "gather_ms", "reduce_ms", "alone_ms", "step_ms")
    assert all(run.value(name) > 0 for name in names)


def process_parallel(run: Run) -> None:
    model = run.knobs.get("model", "deep")
    weights_mib = WEIGHTS_OF[model] * 4 / 2**20
    losses = np.mean(every(run, "loss"), axis=0)
    np.testing.assert_allclose(losses, losses_in_float64(model), rtol=1e-5)
    assert set(run.by_rank("copied_mib").values()) == {weights_mib}
    assert max(run.by_rank("gap").values()) < 1e-7
    assert all(run.value(name) > 0 for name in ("compute_ms", "wait_ms", "step_ms"))


def accumulate_gradients(run: Run) -> None:
    one_model(run)
    assert every(run, "all_reduces") == [[1] * 20] * run.ranks


def time_accumulation(run: Run) -> None:
    """One bucket a layer; the profiler sees as many collectives as the hook counts."""
    syncs = 4 if run.knobs.get("sync") == "every" else 1
    assert set(run.by_rank("all_reduces").values()) == {8 * syncs}
    layer_mib = 4 * (512 * 512 + 512) / 2**20
    assert run.value("mib_sent") == 8 * syncs * layer_mib
    assert timeline(run).collectives == dict.fromkeys(range(run.ranks), 8 * syncs)
    other = ran("time_accumulation", run.ranks, trace=True)
    np.testing.assert_allclose(run.values("loss"), other.values("loss"), rtol=1e-5)


def right_accumulation(run: Run) -> None:
    assert set(run.by_rank("all_reduces").values()) == {1}
    assert set(run.by_rank("spread").values()) == {0.0}
    assert max(run.by_rank("distance").values()) < 1e-14


def right_windows(run: Run) -> None:
    assert run.by_rank("windows") == {rank: [4, 4, 2] for rank in range(run.ranks)}
    assert set(run.by_rank("all_reduces").values()) == {3}
    assert run.value("lost") == 0
    assert max(run.by_rank("distance").values()) < 1e-13


def average_by_hooks(run: Run) -> None:
    one_model(run)
    assert every(run, "order") == [[["3.bias", "3.weight", "1.bias", "1.weight"]] * 20] * run.ranks
    assert every(run, "in_flight") == [[4] * 20] * run.ranks


def buckets_in_order(run: Run) -> None:
    """One bucket in the first step; then each leaves when its layer is done."""
    assert every(run, "left_after") == [[8, 2, 4, 6, 8]] * run.ranks
    assert run.values("holds")[1] == ["d.bias", "d.weight"]


def buckets_that_wait(run: Run) -> None:
    assert every(run, "left_after") == [[7, 8, 8, 8, 8] * 2] * run.ranks
    assert run.values("holds")[5] == ["a.bias"]


def refuse_two_devices(run: Run) -> None:
    assert "must have its parameters and buffers on device" in run.value("answer")


def same_data(run: Run) -> None:
    assert set(run.by_rank("trained_on").values()) == {400}
    assert set(run.by_rank("leaked").values()) == {0}


def own_data(run: Run) -> None:
    assert set(run.by_rank("trained_on").values()) == {400 // run.ranks}
    assert set(run.by_rank("leaked").values()) == {0}


def own_split(run: Run) -> None:
    if run.ranks > 1:
        assert 400 // run.ranks < run.value("trained_on") < 400
        assert 20 < run.value("leaked") < 80
    else:
        same_data(run)


def wrong_download(run: Run) -> None:
    n = run.ranks
    assert run.values("how") == ["all at once", "one late", "prepared"]
    assert run.values("downloads") == [n, 1, 1]
    assert run.values("broken")[1:] == [n - 1, 0]


def compare_epoch_orders(run: Run) -> None:
    assert run.values("set_epoch") == [True, False]
    for name in ("on_train", "on_test"):
        assert min(run.values(name)) > 0.9
    with_it, without = run.values("on_test")
    assert abs(with_it - without) < 0.03


def leave_group(run: Run) -> None:
    before, inside, twice, after = run.values("connections")
    assert before == after < inside == twice
    threads = run.values("threads")
    assert threads[0] == threads[3] < threads[1]
    assert run.values("initialized") == [False, True, True, False]
    assert run.values("answer")[2] == "trying to initialize the default process group twice!"


def join_group(run: Run) -> None:
    method = run.knobs["method"]
    assert set(run.by_rank("total").values()) == {run.ranks * (run.ranks + 1) // 2}
    urls = set(run.by_rank("url").values())
    assert len(urls) == 1 and urls.pop().startswith(f"{method}://")
    assert set(run.by_rank("method").values()) == {method}
    stores = {"FileStore"} if method == "file" else {"TCPStore"}
    assert set(run.by_rank("store").values()) == stores


def list_backends(run: Run) -> None:
    assert run.values("name") == ["gloo", "nccl", "mpi"]
    works = dict(zip(run.values("name"), run.values("works"), strict=True))
    built_in = dict(zip(run.values("name"), run.values("built_in"), strict=True))
    assert works["gloo"] and works[run.value("chosen")]
    assert works["nccl"] is (run.value("chosen") == "nccl")
    assert not built_in["mpi"] and not works["mpi"]
    assert all(run.values("answer"))


def right_wrapping(run: Run) -> None:
    assert every(run, "spread") == [[0.0] * 5] * run.ranks


def silent_mistake(run: Run) -> None:
    for spreads in every(run, "spread"):
        assert len(spreads) == 5 and all((spread > 0) is (run.ranks > 1) for spread in spreads)


def late_error(run: Run) -> None:
    for spreads in every(run, "spread"):
        assert len(spreads) == 1 and (spreads[0] > 0) is (run.ranks > 1)
    assert run.failure is not None
    assert "Expected to have finished reduction" in run.failure.traceback


def found_unused(run: Run) -> None:
    assert every(run, "spread") == [[0.0] * 3] * run.ranks


def same_order(run: Run) -> None:
    batches = run.value("batches")
    assert every(run, "repeated") == [[0, batches, batches]] * run.ranks
    first = every(run, "first_batch")
    assert all(epoch == mine[0] for mine in first for epoch in mine)


def other_order(run: Run) -> None:
    assert every(run, "repeated") == [[0, 0, 0]] * run.ranks


def wrong_shuffle(run: Run) -> None:
    assert run.failure is not None
    assert "sampler option is mutually exclusive with shuffle" in run.failure.traceback
    assert "training" not in run.values("state")


def resume_training(run: Run) -> None:
    assert [len(steps) for steps in every(run, "loss")] == [58] * run.ranks
    first = np.array(every(run, "samples"))[:, :29]
    assert first.size == np.unique(first).size == 29 * 48, "an epoch sees no image twice"
    for rank in range(run.ranks):
        np.testing.assert_array_equal(weights(run, rank), weights(run))
    draws = set(run.by_rank("next_random").values())
    assert len(draws) == run.ranks, "every rank has a random state of its own"


def wrong_resume(run: Run) -> None:
    for name in ("weights", "moments", "learning_rate", "next_random"):
        assert every(run, name) == every(ran("resume_training", run.ranks), name)


def interrupt_save(run: Run) -> None:
    for rank in range(run.ranks):
        counts = [run.values(name, rank) for name in ("way", "old", "new", "broken")]
        assert counts == [["in place", "beside"], [0, 11], [2, 1], [10, 0]]
    errors = {error for values in every(run, "errors") for errors in values for error in errors}
    assert "RuntimeError" in errors and "EOFError" in errors


def no_barrier(run: Run) -> None:
    assert every(run, "found") == [[1, 2, 3]] + [[0, 1, 2]] * (run.ranks - 1)
    assert every(run, "wrong") == [[run.ranks - 1] * 3] * run.ranks
    for first, *later in every(run, "error")[1:]:
        assert first == "FileNotFoundError: No such file or directory" and later == ["", ""]


def with_barrier(run: Run) -> None:
    assert every(run, "found") == [[1, 2, 3]] * run.ranks
    assert every(run, "wrong") == [[0] * 3] * run.ranks


def load_on_device(run: Run) -> None:
    mine = {e["rank"]: e["device"] for e in run.events if e["event"] == "place"}
    for rank in range(run.ranks):
        no_map, _, mapped = run.values("lands_on", rank)
        assert mapped == mine[rank]
        assert no_map == ("cuda:0" if has_a_gpu() else "nowhere")
        assert run.values("elsewhere", rank)[2] == 0
        assert has_a_gpu() or "CUDA device" in run.values("error", rank)[0]


def has_a_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def wrong_names(run: Run) -> None:
    for rank in range(run.ranks):
        assert run.values("loaded", rank) == [0, 0, 4]
        loud, silent, right = run.values("error", rank)
        assert "Missing key(s)" in loud and silent == right == ""
        assert run.values("names", rank) == ["module.1.weight", "module.1.weight", "1.weight"]


def refuse_objects(run: Run) -> None:
    refused = {
        "the module itself", "np.random.get_state()", "args", "a loss, by numpy", "a Path"
    }  # fmt: skip
    for rank in range(run.ranks):
        assert set(run.value("refused", rank)) == refused
        assert run.value("count", rank) == len(refused)
        loads = dict(zip(run.values("what", rank), run.values("loads", rank), strict=True))
        assert {what for what, fine in loads.items() if not fine} == refused


def reshard_checkpoint(run: Run) -> None:
    assert sum(run.by_rank("piece").values()) == 1210
    assert (max(run.by_rank("piece").values()) < 1210) is (run.ranks > 1)
    assert run.value("files") == [f"__{rank}_0.distcp" for rank in range(run.ranks)]
    np.testing.assert_allclose(weights(run), weights(ran("reshard_checkpoint", 1)), atol=1e-5)


def time_saves(run: Run) -> None:
    layers = 2 * (1024 * 1024 + 1024)
    for rank in range(run.ranks):
        assert run.values("way", rank) == ["save", "async_save"]
        assert run.values("gap", rank) == [0.0, 0.0]
        assert all(moved > 0 for moved in run.values("moved", rank))
        assert run.value("weights_mb", rank) == 4 * layers / 1e6
        assert all(3.0 <= mb / run.value("weights_mb") < 3.1 for mb in run.values("file_mb"))
        blocked, done = run.values("blocked_ms", rank), run.values("done_ms", rank)
        assert blocked[1] < done[1] and abs(blocked[0] - done[0]) < 1
        assert run.values("steps_meanwhile", rank)[0] == 0


def gathered(run: Run) -> None:
    everyone = [rank for rank in range(run.ranks) for _ in range(2 + rank)]
    assert run.by_rank("gathered") == dict.fromkeys(range(run.ranks), everyone)


def consolidate_optimizer(run: Run) -> None:
    held = run.by_rank("held")
    assert run.by_rank("collected") == {r: sum(held.values()) * (r == 0) for r in held}
    assert sum(held.values()) == 2 * 1210 + 4  # two moments, and four tensors' counts of steps
    assert run.ranks == 1 or "not been consolidated" in run.value("early")


def differentiate_twice(run: Run) -> None:
    assert (run.value("spread") > 0.01) is (run.ranks > 1)
    right = run.knobs.get("penalty") != "weights" or run.ranks == 1
    assert run.value("distance") < 1e-12 if right else run.value("distance") > 0.01


def wrong_registration_order(run: Run) -> None:
    first, last = run.values("output"), run.values("output", run.ranks - 1)
    alike = run.ranks == 1 or run.knobs.get("order") == "same"
    assert (first == last) is alike
    assert run.value("spread") == 0


# job, its knobs, what must be true of its run, whether it must end well
CASES: list[tuple[str, dict[str, Any], Callable[[Run], None], bool]] = [
    ("hello_ranks", {}, hello_ranks, True),
    ("wrong_device_index", {}, wrong_device_index, True),
    ("wrong_device_index", {"ranks_per_machine": 4}, wrong_device_index_on_one_machine, True),
    ("train_one_process", {}, train_one_process, True),
    ("average_by_hand", {}, split_over_ranks, True),
    ("train_ddp", {}, split_over_ranks, True),
    ("train_digits", {}, train_digits, True),
    ("overlap_buckets", {}, overlap_buckets, True),
    ("overlap_buckets", {"bucket_mb": 100.0}, overlap_buckets_in_one, True),
    ("average_by_hooks", {}, average_by_hooks, True),
    ("watch_buckets", {}, buckets_in_order, True),
    ("watch_buckets", {"registered": "reversed", "find_unused": True}, buckets_that_wait, True),
    ("compare_replicas", {}, compare_replicas, True),
    ("refuse_two_devices", {}, refuse_two_devices, True),
    ("use_data_parallel", {}, use_data_parallel, True),
    ("thread_parallel", {}, thread_parallel, True),
    ("thread_parallel", {"model": "wide"}, thread_parallel, True),
    ("process_parallel", {}, process_parallel, True),
    ("process_parallel", {"model": "wide"}, process_parallel, True),
    ("accumulate_gradients", {}, accumulate_gradients, True),
    ("time_accumulation", {}, time_accumulation, True),
    ("time_accumulation", {"sync": "every"}, time_accumulation, True),
    ("compare_accumulation", {}, right_accumulation, True),
    ("repair_windows", {}, right_windows, True),
    ("resume_training", {}, resume_training, True),
    ("wrong_resume", {}, wrong_resume, True),
    ("interrupt_save", {}, interrupt_save, True),
    ("wrong_no_barrier", {}, no_barrier, True),
    ("wrong_no_barrier", {"barrier": True}, with_barrier, True),
    ("load_on_device", {}, load_on_device, True),
    ("wrong_names", {}, wrong_names, True),
    ("refuse_objects", {}, refuse_objects, True),
    ("reshard_checkpoint", {}, reshard_checkpoint, True),
    ("time_saves", {}, time_saves, True),
    ("join_group", {"method": "env"}, join_group, True),
    ("join_group", {"method": "tcp"}, join_group, True),
    ("join_group", {"method": "file"}, join_group, True),
    ("list_backends", {}, list_backends, True),
    ("wrong_wrapping", {"mistake": "none"}, right_wrapping, True),
    ("wrong_wrapping", {"mistake": "module"}, silent_mistake, True),
    ("wrong_wrapping", {"mistake": "unfrozen"}, silent_mistake, True),
    ("wrong_wrapping", {"mistake": "replaced"}, late_error, False),
    ("wrong_unused_parameters", {}, late_error, False),
    ("wrong_unused_parameters", {"find_unused": True}, found_unused, True),
    ("wrong_epoch_order", {}, same_order, True),
    ("wrong_epoch_order", {"set_epoch": True}, other_order, True),
    ("wrong_shuffle", {}, wrong_shuffle, False),
    ("wrong_data_seed", {"own": "nothing"}, same_data, True),
    ("wrong_data_seed", {"own": "data"}, own_data, True),
    ("wrong_data_seed", {"own": "split"}, own_split, True),
    ("wrong_download", {}, wrong_download, True),
    ("compare_epoch_orders", {}, compare_epoch_orders, True),
    ("leave_group", {}, leave_group, True),
    ("gather_unequal_sizes", {"way": "padded"}, gathered, True),
    ("gather_unequal_sizes", {"way": "objects"}, gathered, True),
    ("consolidate_optimizer", {}, consolidate_optimizer, True),
    ("differentiate_twice", {}, differentiate_twice, True),
    ("differentiate_twice", {"penalty": "weights"}, differentiate_twice, True),
    ("wrong_registration_order", {}, wrong_registration_order, True),
    ("wrong_registration_order", {"order": "same"}, wrong_registration_order, True),
]
TRACED = {"overlap_buckets", "time_accumulation"}
LONG = {
    "resume_training", "wrong_resume",  # all that resuming takes, in one place
    "start_ranks",  # four launchers beside each other
    "train_convnet",  # the capstone
}  # fmt: skip
HANGING = {
    "stop_together",
    "train_uneven",
    "wrong_barrier",
    "wrong_evaluation",
}  # from two ranks on
DIAGNOSED = {  # from the gallery of what can go wrong
    "hang_missing_rank", "hang_different_collectives", "hang_crossed_pairs", "hang_data_worker",
    "hang_at_start", "crash_one_rank", "crash_different_models",
}  # fmt: skip
REFUSED = {"wrong_ring_order", "wrong_device_ids", "wrong_output_device", "wrong_output_kept"}
ELSEWHERE = {  # their cases are in test_lesson_02.py
    "template", "start_ranks", "wrong_two_nodes",
} | {  # … in test_lesson_03.py
    *HANGING, "train_uneven_one_process", "wait_for_straggler", "weight_batches",
} | {  # … and in test_lesson_05.py
    *REFUSED, "train_whole_model", "train_two_devices", "train_pipeline",
    "train_pipeline_replicas", "count_pipeline_memory", "wrong_isend",
} | {  # … and in test_lesson_06.py
    "read_environment", "survive_kill", "follow_nodes", "wrong_fixed_port", "wrong_modulo_index",
} | {  # … in test_lesson_08.py
    "share_samples", "read_stream", "hold_data", "augment_samples", "normalise_batches",
    "count_padding", "report_metric",
} | {  # … in test_lesson_09.py
    "send_under_autocast", "compress_gradients", "scale_loss", "overlap_link",
    "scale_learning_rate", "average_seldom",
} | {  # … in test_lesson_13.py
    "shard_model", "wrong_forward_method", "split_layers", "recompute_activations",
} | {  # … in test_lesson_14.py
    "train_convnet",
} | {  # … and in test_pictures.py
    "show_collectives", "sum_by_hand", "wrong_ring_order",
} | DIAGNOSED  # … and in test_diagnosis.py  # fmt: skip
FAILING = (
    HANGING
    | DIAGNOSED
    | REFUSED
    | {job for job, knobs, _, ends_well in CASES if not ends_well and not knobs}
)


def names(case: tuple[str, dict[str, Any], Callable[[Run], None], bool]) -> str:
    return "-".join([case[0], *(f"{name}={value}" for name, value in case[1].items())])


def test_every_job_has_a_case() -> None:
    assert {job for job, *_ in CASES} | ELSEWHERE >= set(catalogue.names())


# The lessons run most jobs with two ranks.
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.nightly), 4])
@pytest.mark.parametrize("case", CASES, ids=map(names, CASES))
def test_job(case: tuple[str, dict[str, Any], Callable[[Run], None], bool], ranks: int) -> None:
    job, knobs, holds, ends_well = case
    run = ran(job, ranks, tuple(knobs.items()), trace=job in TRACED)
    assert run.ok is ends_well, str(run)
    holds(run)


@pytest.mark.parametrize("job", ["average_by_hand", "train_ddp", "train_digits"])
def test_training_again_gives_the_same_bits(job: str) -> None:
    np.testing.assert_array_equal(weights(ran(job, 2)), weights(launch(job, ranks=2)))


def test_the_unused_layer_is_named_on_request() -> None:
    run = launch("wrong_unused_parameters", env={"TORCH_DISTRIBUTED_DEBUG": "INFO"})
    assert run.failure is not None
    assert "spare_head.bias, spare_head.weight" in run.failure.traceback


def test_a_killed_rank_takes_the_others_with_it() -> None:
    run = launch("hello_ranks", ranks=3, steps=1000, wait=False, limit_s=40).wait_for_step(3)
    run.kill(1)
    assert not run.ok
    assert run.exit_codes[1] == -9
    assert run.failure is not None and run.failure.rank == 1
    assert all(len(steps) < 1000 for steps in every(run, "total"))


def test_a_paused_rank_stops_the_others_until_it_goes_on() -> None:
    run = launch("hello_ranks", ranks=2, steps=60, pause_ms=10.0, wait=False).wait_for_step(3)
    run.pause(1)
    run.resume(1)
    assert run.ok
    assert [len(steps) for steps in every(run, "total")] == [60, 60]


def docstring(job: str) -> str:
    return ast.get_docstring(ast.parse(catalogue.find_job(job).read_text())) or ""


def command(job: str) -> str:
    """The command that the docstring gives, on one line."""
    found = re.search(
        r"^    ((?:[A-Z_]+=\S+ )*python -m torch\.distributed\.run .*(?:\\\n.*)*)",
        docstring(job).replace("\\\n", " "),
        re.MULTILINE,
    )
    assert found, f"{job}: its docstring gives no command"
    return " ".join(found[1].split())


@pytest.mark.parametrize("job", catalogue.names())
def test_the_docstring(job: str) -> None:
    text = docstring(job)
    assert str(catalogue.find_job(job).relative_to(ROOT)) in command(job)
    assert "Look for:" in text
    source = catalogue.find_job(job).read_text()
    assert len(source.splitlines()) <= (128 if job in LONG else 92)
    assert len(knobs.knobs_of(catalogue.find_job(job))) <= 5
    assert ("dist.init_process_group(" in source) is ("dist.destroy_process_group()" in source)
    leave = "main()" if job == "template" else "run_rank(main)"
    assert source.endswith(f'if __name__ == "__main__":\n    {leave}\n') or job == "start_ranks"


@pytest.mark.parametrize("job", catalogue.names())
def test_torchrun_and_the_job_accept_the_docstrings_command(job: str) -> None:
    words = shlex.split(command(job))
    given = parse_args(words[words.index("torch.distributed.run") + 1 :])
    assert given.standalone and 1 <= int(given.nproc_per_node) <= 4
    assert (ROOT / given.training_script).samefile(catalogue.course_jobs()[job])
    settings = runpy.run_path(given.training_script)
    if "parser" in settings:
        settings["parser"].parse_args(given.training_script_args)
    else:
        assert not given.training_script_args


RUN_IN_A_SHELL = {"train_ddp", "crash_one_rank", "hang_missing_rank", "survive_kill"}


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(job, marks=() if job in RUN_IN_A_SHELL else pytest.mark.nightly)
        for job in catalogue.names()
        if job != "template"  # in test_lesson_02.py
    ],
)
def test_the_docstrings_command_runs_in_a_shell(job: str) -> None:
    words = command(job).replace("python ", f"{shlex.quote(sys.executable)} ", 1)
    done = subprocess.run(
        words,
        shell=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (done.returncode != 0) is (job in FAILING), done.stderr
    assert "[rank 0]" in done.stdout, "log() prints where no run folder is"


def test_a_blocking_launch_prints_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow terminal, too: lines that come while others are printed are not lost."""
    printed: list[str] = []

    def slow_terminal(text: str) -> None:
        time.sleep(0.005)
        printed.append(text)

    monkeypatch.setattr(watch, "say", slow_terminal)
    run = launch("hello_ranks", ranks=2, steps=60, pause_ms=5.0, wait=True)
    for rank in range(2):
        said = [text for text in printed if text.startswith(f"[rank {rank}]")]
        assert said == [f"[rank {rank}] {text}" for text in run.lines_of(rank, "stdout")]
        assert len(said) == 61
