"""The script that a check's ranks run: import the learner's file, call its function, report.

Started by torchrun, once per rank, with the supervisor's socket in DDP_COURSE_CHECK_SOCKET. Only
here is torch imported. A rank leaves when the supervisor says so, not when it is done: a rank that
left early would make the others fail for a reason that is not the learner's.
"""

import argparse
import contextlib
import importlib.util
import io
import linecache
import operator
import os
import queue
import random
import signal
import socket
import sys
import threading
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch._dynamo  # what DDP's constructor would import in the middle of a check
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.checks.agreed import BACK, BALLAST, CPU, LEARNING_RATE, MOMENTUM, SAVED_BALLAST
from ddp_course.checks.evidence import SOCKET, Array, Message, pack, split, unpack
from ddp_course.rank.place import my_place
from ddp_course.rank.report import my_folder, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--file", type=str, default="", help="the learner's file")
parser.add_argument("--function", type=str, default="", help="the function in it")
parser.add_argument("--exercise", type=str, default="", help="its short name")

MOST_FILE_BYTES = 16 << 20
MOST_STORE_S = 10.0  # then init_process_group waits, and says what for

Function = Callable[..., Any]
Tensors = dict[str, Array]


def attempt() -> int:
    """How often torchrun has started the ranks again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


class Channel:
    """This rank's line to the supervisor. A thread reads it, so that a rank that waits in a
    collective can still say where."""

    def __init__(self) -> None:
        self.answer: Callable[[], dict[str, Any]] = lambda: {"cpu_s": 0.0}  # to "where"
        self._who = {"rank": int(os.environ["RANK"]), "attempt": attempt()}
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(os.environ[SOCKET])
        self._lock = threading.Lock()
        self._came: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="ddp-course-channel", daemon=True).start()

    def send(self, event: str, tensors: Tensors | None = None, **fields: Any) -> None:
        fields = {"event": event, **self._who, **fields}
        with self._lock:
            self._socket.sendall(pack(Message(fields, tensors or {})))

    def receive(self) -> Message:
        """The next message. Raises EOFError when the supervisor is gone."""
        message = self._came.get()
        if message is None:
            raise EOFError("the supervisor is gone")
        return message

    def _listen(self) -> None:
        buffer = b""
        with contextlib.suppress(OSError):
            while piece := self._socket.recv(1 << 16):
                body, buffer = split(buffer + piece)
                while body is not None:
                    message = unpack(body)
                    if message.fields.get("event") == "where":
                        self.send("at", **self.answer())
                    else:
                        self._came.put(message)
                    body, buffer = split(buffer)
        self._came.put(None)


class Counted:
    """The learner's function, with a count of the collectives, sends and receives inside it."""

    def __init__(self, function: Function, module: str) -> None:
        self._function, self._before = function, -1  # -1: not inside
        self._done = 0
        self.back = False  # whether it has been called, and has come back
        self.__module__ = module

    def __call__(self, *inputs: Any) -> Any:
        self._before, self.back = _started(), False
        try:
            return self._function(*inputs)
        finally:
            self._done, self._before, self.back = self.calls or 0, -1, True

    @property
    def calls(self) -> int | None:
        """None: this backend does not count all of them."""
        if dist.get_backend() != "gloo":
            return None
        return self._done + (_started() - self._before if self._before >= 0 else 0)


def _started() -> int:
    """How many collectives, sends and receives this process has started, by its groups' numbers."""
    groups: Any = dist.distributed_c10d._world.pg_map
    return sum(group._get_sequence_number_for_group() for group in groups)


class Whereabouts:
    """Where the main thread is, for another thread to ask. Made in the main thread."""

    def __init__(self, path: str) -> None:
        self._path, self._thread = path, threading.get_ident()
        self._began_s = self._cpu_s()
        self.function: Counted | None = None

    def say(self) -> dict[str, Any]:
        """The line of the learner's file, and the processor time and collectives until there."""
        frame = sys._current_frames().get(self._thread)
        while frame is not None and frame.f_code.co_filename != self._path:
            frame = frame.f_back
        line = ""
        if frame is not None:
            text = linecache.getline(self._path, frame.f_lineno).strip()
            line = f"line {frame.f_lineno}: {text}"
        elif self.function and self.function.back:
            line = BACK
        calls = self.function.calls if self.function else None
        return {"line": line, "cpu_s": self._cpu_s() - self._began_s, "calls": calls}

    def _cpu_s(self) -> float:
        if hasattr(time, "pthread_getcpuclockid"):
            return time.clock_gettime(time.pthread_getcpuclockid(self._thread))
        return time.process_time()


def drive_ex00(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    number = torch.tensor(inputs["number"], device=device)
    result = function(number)
    outputs = {"argument": _array(number)}
    bulk = function(torch.tensor(inputs["bulk/number"], device=device))
    for name, tensor in {"result": result, "bulk/result": bulk}.items():
        if isinstance(tensor, torch.Tensor):
            outputs[name] = _array(tensor)
    return outputs


class Broad(nn.Linear):
    """A linear layer with further parameters, which change nothing but are averaged as well."""

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool = True, ballast: int = BALLAST
    ) -> None:
        super().__init__(inputs, outputs, bias)
        self.ballast = nn.Parameter(torch.zeros(ballast))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 0 * self.ballast.sum()


class Pretended(nn.Module):
    """A model that writes down where it is sent, and goes nowhere."""

    where, current = CPU, 0  # CPU or a GPU's number; the GPU that `cuda` without a number means

    def to(self, device: Any = None, **named: Any) -> "Pretended":  # type: ignore[override]
        self.where = _number(device if device is not None else named["device"], self.current)
        return self

    def cuda(self, device: Any = None) -> "Pretended":
        return self.to("cuda" if device is None else device)

    def cpu(self) -> "Pretended":
        return self.to("cpu")


class PretendedDDP(nn.Module):
    """What the learner's function asks DDP for, on a machine that is not there."""

    def __init__(self, module: Pretended, device_ids: Any = None, **_: Any) -> None:
        super().__init__()
        ids = [CPU] if device_ids is None else [_number(one, 0) for one in device_ids]
        self.asked = {"device": np.array([module.where]), "device_ids": np.array(ids, np.int64)}


class PretendedDataParallel(nn.Module):
    """nn.DataParallel on a machine that is not there: whatever it does, it is no DDP."""

    def __init__(self, module: Pretended, *_: Any, **__: Any) -> None:
        super().__init__()


def _number(device: Any, current: int) -> int:
    """A GPU's number, or CPU."""
    named = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if named.type == "cpu":
        return CPU
    return current if named.index is None else named.index


def _pretend(function: Function, local_rank: int, local_world_size: int, gpus: int) -> Tensors:
    """What `wrap` asks for on a machine with that many GPUs."""
    model = Pretended()
    theirs = vars(sys.modules[function.__module__])
    stand_ins: dict[Any, Any] = {DDP: PretendedDDP, nn.DataParallel: PretendedDataParallel}
    named = {
        name: stand_in
        for name, value in theirs.items()
        for real, stand_in in stand_ins.items()
        if value is real
    }

    def set_device(device: Any) -> None:
        model.current = _number(device, model.current)

    @contextlib.contextmanager
    def use_device(device: Any) -> Iterator[None]:
        before = model.current
        set_device(device)
        yield
        model.current = before

    with (
        patch.dict(theirs, named),
        patch.object(nn.parallel, "DistributedDataParallel", PretendedDDP),
        patch.object(nn.parallel, "DataParallel", PretendedDataParallel),
        patch.object(nn, "DataParallel", PretendedDataParallel),
        patch.object(torch.cuda, "is_available", lambda: gpus > 0),
        patch.object(torch.cuda, "device_count", lambda: gpus),
        patch.object(torch.cuda, "current_device", lambda: model.current),
        patch.object(torch.cuda, "set_device", set_device),
        patch.object(torch.cuda, "device", use_device),
    ):
        wrapped = function(model, local_rank, local_world_size, gpus)
    return wrapped.asked if isinstance(wrapped, PretendedDDP) else {}


def drive_ex01(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    outputs: Tensors = {}
    model = Broad(4, 1, bias=False)
    gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    here = (int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"]), gpus)
    wrapped = function(model, *here)
    if isinstance(wrapped, nn.Module):
        wrapped(torch.tensor(inputs["here/x"], device=device)).mean().backward()
        weight = next(one for one in wrapped.parameters() if one.dim() == 2)
        if weight.grad is not None:
            outputs["here/gradient"] = _array(weight.grad[0])
    for case in ("gpus", "enough", "few"):
        names = ("local_rank", "local_world_size", "gpus")
        asked = _pretend(function, *(int(inputs[f"{case}/{name}"][0]) for name in names))
        outputs |= {f"{case}/{name}": value for name, value in asked.items()}
    return outputs


def drive_ex02(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    wide = nn.Linear(128, 128, bias=False)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2), wide).to(device)
    for name, parameter in model.named_parameters():
        parameter.data = torch.tensor(inputs[f"weight/{name}"], device=device)
        if f"grad/{name}" in inputs:
            parameter.grad = torch.tensor(inputs[f"grad/{name}"], device=device)
        else:
            parameter.requires_grad_(False)
    function(model)
    outputs = {f"weight/{name}": _array(one) for name, one in model.named_parameters()}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            outputs[f"grad/{name}"] = _array(parameter.grad)
    given = {name for name in outputs if name.startswith("grad/")} <= inputs.keys()
    outputs["frozen/without gradient"] = np.array(int(given))
    return outputs


def drive_ex07(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    module = Broad(4, 2).to(device)
    for name in ("weight", "bias"):
        module.get_parameter(name).data = torch.tensor(inputs[f"weight/{name}"], device=device)
    model = DDP(module, device_ids=[device.index] if device.type == "cuda" else None)
    seen = {"all_reduces": 0, "backwards": 0, "quiet": 0}  # quiet: backwards inside no_sync

    def count(_: object, bucket: dist.GradBucket) -> Future[torch.Tensor]:  # type: ignore[name-defined]
        seen["all_reduces"] += 1
        return allreduce_hook(None, bucket)  # type: ignore[arg-type]

    def look(_: torch.Tensor) -> None:
        seen["backwards"] += 1
        seen["quiet"] += not model.require_backward_grad_sync

    model.register_comm_hook(None, count)
    module.bias.register_hook(look)  # type: ignore[no-untyped-call]
    outputs: Tensors = {}
    for window in ("long", "short"):
        x = torch.tensor(inputs[f"x/{window}"], device=device)  # (micro-batches, samples, 4)
        y = torch.tensor(inputs[f"y/{window}"], device=device)
        model.zero_grad()
        seen.update(all_reduces=0, backwards=0, quiet=0)
        function(model, list(zip(x, y, strict=True)))
        for name in ("weight", "bias"):
            gradient = module.get_parameter(name).grad
            if gradient is not None:
                outputs[f"{window}/{name}"] = _array(gradient)
        outputs |= {f"{window}/{name}": _array(torch.tensor(n)) for name, n in seen.items()}
    return outputs


def drive_ex03(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    models: dict[str, DDP] = {}
    losses: dict[str, torch.Tensor] = {}
    for case in ("uneven", "empty"):
        bare = nn.Linear(4, 1, bias=False, device=device)
        bare.weight.data = torch.tensor(inputs["weight"], device=device)[None]
        models[case] = DDP(bare)  # kept until after backward: without it nothing is averaged
        x, y = (torch.tensor(inputs[f"{case}/{name}"], device=device) for name in ("x", "y"))
        losses[case] = (models[case](x)[:, 0] - y) ** 2 / 2
    results = {case: function(losses[case]) for case in losses}
    outputs: Tensors = {}
    for case, loss in results.items():
        if isinstance(loss, torch.Tensor):
            torch.autograd.backward(loss)
            (weight,) = models[case].parameters()
            if weight.grad is not None:
                outputs[f"{case}/gradient"] = _array(weight.grad[0])
            outputs[f"{case}/finite"] = _array(torch.isfinite(loss).all().long())
    values = [function(torch.ones(count, device=device)) for count in inputs["rounds/count"]]
    numbers = [value for value in values if isinstance(value, torch.Tensor) and value.numel() == 1]
    if len(numbers) == len(values):  # of any shape: backward() takes (1,) as well
        outputs["rounds/loss"] = _array(torch.stack([one.reshape(()) for one in numbers]))
    return outputs


def drive_ex03b(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    outputs = {}
    for case in ("some", "none", "rounds"):
        stops = [function(bool(wish), device) for wish in inputs[f"{case}/wish"]]
        if all(isinstance(stop, int | float | np.generic | torch.Tensor) for stop in stops):
            outputs[f"{case}/stop"] = _array(torch.tensor([int(bool(stop)) for stop in stops]))
    return outputs


def drive_ex02b(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(int(inputs["seed"]))
    random.seed(int(inputs["seed"]))
    np.random.seed(int(inputs["seed"]))
    outputs: Tensors = {}
    for case in ("even", "uneven", "tiny"):
        size = int(inputs[f"{case}/size"])
        shares = [_whole(function(size, int(epoch), rank, ranks)) for epoch in inputs["epochs"]]
        kept = [share for share in shares if share is not None]
        if len(kept) == len(shares):
            outputs[f"{case}/counts"] = np.array([len(share) for share in kept], np.int64)
            outputs[f"{case}/indices"] = np.concatenate(kept)
    return outputs


def _whole(indices: Any) -> Array | None:
    """Whole numbers in a row, if that is what it is."""
    if not isinstance(indices, list | tuple | range | torch.Tensor | np.ndarray):
        return None
    try:
        array = np.array([operator.index(one) for one in indices], np.int64)
    except (TypeError, OverflowError, RuntimeError):
        return None
    return array


def drive_ex03c(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    models = {}
    for case in ("full", "hole"):  # both before any call: DDP's constructor communicates
        module = Broad(3, 1, bias=False).to(device)
        module.weight.data = torch.tensor(inputs["weight"], device=device)
        models[case] = DDP(module, device_ids=[device.index] if device.type == "cuda" else None)
    outputs: Tensors = {}
    for case, model in models.items():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = (torch.tensor(inputs[f"{case}/{name}"], device=device) for name in ("x", "y"))
        counts = inputs[f"{case}/count"]
        batches = [(x[i, :count], y[i, :count]) for i, count in enumerate(counts)]
        loss = function(model, optimizer, batches)
        outputs[f"{case}/weight"] = _array(model.module.weight)
        if isinstance(loss, int | float | np.number | torch.Tensor):
            number = torch.as_tensor(loss, dtype=torch.float64)
            outputs[f"{case}/loss"] = _array(number.reshape(()) if number.numel() == 1 else number)
    return outputs


def drive_ex04(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    """Call it three times. In the first, rank 1 is killed at the beginning of a step, and torchrun
    starts anew; the second goes on; at the third all steps are done."""
    path, first = my_folder() / "checkpoint.pt", int(inputs["first"])
    models = []
    for name in ("weight", "fresh_weight", "fresh_weight"):  # before any call: DDP communicates
        layer = Broad(inputs[name].shape[1], 1, bias=False, ballast=SAVED_BALLAST).to(device)
        layer.weight.data = torch.tensor(inputs[name], device=device)
        models.append(DDP(layer, device_ids=[device.index] if device.type == "cuda" else None))
    batches = [
        (torch.tensor(x, device=device), torch.tensor(y, device=device))
        for x, y in zip(inputs["x"], inputs["y"], strict=True)
    ]
    drawn: list[float] = []

    def call(model: DDP, seed: str) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        torch.manual_seed(int(inputs[seed][0]))
        drawn.clear()

        def take_step(batch: Any) -> None:
            if model is models[0] and len(drawn) == first:
                _kill_rank_1()
            x, y = batch
            drawn.append(torch.rand(1).item())
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.mse_loss(model(x)[:, 0], y))
            optimizer.step()

        function(take_step, batches, model, optimizer, path)
        return optimizer

    if attempt() == 0:
        call(models[0], "seed")
        _kill_rank_1()  # who takes fewer steps is killed after them
    outputs = {"saved": np.array(int(path.exists()))}
    optimizer = call(models[1], "fresh_seed")
    outputs["steps"] = np.array(len(drawn))
    outputs["draws"] = np.array(drawn, dtype=np.float32)
    outputs["next"] = outputs["draws"][:1]
    outputs["weight"] = _array(models[1].module.weight)
    if momentum := optimizer.state.get(models[1].module.weight):
        outputs["momentum"] = _array(momentum["momentum_buffer"])
    call(models[2], "fresh_seed")
    outputs["further"] = np.array(len(drawn))
    return outputs


def _kill_rank_1() -> None:
    dist.barrier()  # rank 0 has saved
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def drive_ex06(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    """Train, twice interrupted: rank 1 is killed in its fourth forward; after the restart, rank 0
    in the middle of its third save."""
    rank, forwards, saves = dist.get_rank(), 0, 0
    module = Broad(3, 1, bias=False, ballast=SAVED_BALLAST).to(device)
    module.weight.data = torch.tensor(inputs["weight"], device=device)
    model = DDP(module, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = (torch.tensor(inputs[name], device=device) for name in ("x", "y"))
    really_save = torch.save

    def before_forward(*_: Any) -> None:
        nonlocal forwards
        forwards += 1
        if attempt() == 0 and forwards == 4:
            dist.barrier()  # rank 0 has saved its third step
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    def save(obj: Any, f: Any, *more: Any, **named: Any) -> None:  # named as torch.save's are
        nonlocal saves
        saves += not torch.is_storage(obj)  # of a tensor that is pickled, perhaps to be sent
        if attempt() != 1 or rank != 0 or saves != 3:
            really_save(obj, f, *more, **named)
            return
        whole = io.BytesIO()
        really_save(obj, whole)
        with open(f, "wb") if isinstance(f, str | Path) else f as target:
            target.write(whole.getvalue()[: whole.tell() // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    module.register_forward_pre_hook(before_forward)
    for place in (torch, torch.serialization, sys.modules[function.__module__]):
        names = [name for name, value in vars(place).items() if value is really_save]
        vars(place).update(dict.fromkeys(names, save))
    path = my_folder() / "checkpoint.pt"
    half = path.exists() and not zipfile.is_zipfile(path)
    function(model, optimizer, list(zip(x, y, strict=True)), path)
    return {
        "half": np.array(int(half)),
        "weight": _array(module.weight),
        "forwards": _array(torch.tensor(forwards)),
        "writes": _array(torch.tensor(int(saves > 0))),
    }


def drive_ex05(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    stage = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).to(device)
    for name, parameter in stage.named_parameters():
        parameter.data = torch.tensor(inputs[f"weight/{name}"], device=device)
    outputs: Tensors = {}
    for when in ("first", "both"):  # two micro-batches of one step
        function(stage, torch.tensor(inputs[f"data/{when}"], device=device))
        for name, parameter in stage.named_parameters():
            if parameter.grad is not None:
                outputs[f"{when}/{name}"] = _array(parameter.grad).copy()
    stage.zero_grad()
    function(stage, torch.tensor(inputs["data/bulk"], device=device))
    for name, parameter in stage.named_parameters():
        if parameter.grad is not None:
            outputs[f"bulk/{name}"] = _array(parameter.grad)
    return outputs


DRIVES = {
    "ex00": drive_ex00,
    "ex01": drive_ex01,
    "ex02": drive_ex02,
    "ex02b": drive_ex02b,
    "ex03": drive_ex03,
    "ex03b": drive_ex03b,
    "ex03c": drive_ex03c,
    "ex04": drive_ex04,
    "ex05": drive_ex05,
    "ex06": drive_ex06,
    "ex07": drive_ex07,
}


def _array(tensor: torch.Tensor) -> Array:
    array: Array = tensor.detach().cpu().contiguous().numpy()
    return array


def load(path: Path, function: str) -> Counted:
    """The learner's function. Whatever importing the file raises is the learner's to see."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.append(str(path.parent))  # other files beside it can be imported, and hide nothing
    spec.loader.exec_module(module)
    found = getattr(module, function, None)
    if not callable(found):
        raise TypeError(f"{function} is {found!r:.80} in {path.name}: nothing that can be called")
    return Counted(found, path.stem)


def limit_files() -> None:
    """What never stops printing would fill the disk: no file of this rank may grow for ever."""
    with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):
        resource = importlib.import_module("resource")  # not on every system
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # an OSError instead
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        least = MOST_FILE_BYTES if most == resource.RLIM_INFINITY else min(most, MOST_FILE_BYTES)
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))


def await_store() -> None:
    """Return when rank 0's store listens, where ranks may be started again and so do not use that
    of torchrun. Whoever asks for it earlier tries again only after half a second, or longer."""
    if os.environ["RANK"] == "0" or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    deadline = time.monotonic() + MOST_STORE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=1.0):
            return
        time.sleep(0.005)


def main() -> None:
    args = parser.parse_args()
    limit_files()
    place = my_place()
    await_store()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    channel = Channel()
    channel.send("here")
    channel.receive()  # all ranks are known to the supervisor before any runs the learner's code
    whereabouts = Whereabouts(args.file)
    channel.answer = whereabouts.say
    try:
        function = load(Path(args.file), args.function)
        channel.send("loaded")
        inputs = channel.receive().tensors
        whereabouts.function = function
        outputs = DRIVES[args.exercise](function, inputs, place.device)
    except BaseException as error:
        now, text = time.monotonic(), "it has no text"
        with contextlib.suppress(Exception):
            text = str(error)
        said = f"{type(error).__name__}: {text}"
        channel.send("raised", error=said, traceback=_own_frames(error), t=now)
    else:
        channel.send("returned", outputs, calls=function.calls, t=time.monotonic())
    with contextlib.suppress(EOFError):
        while channel.receive().fields.get("event") != "leave":
            pass
    # No destroy_process_group(): after a mistake it may wait for a collective that never ends.


def _own_frames(error: BaseException) -> str:
    """The traceback from the learner's file on, without the driver's own frames."""
    frames = traceback.extract_tb(error.__traceback__)
    while frames and frames[0].filename == __file__:
        frames.pop(0)
    lines = traceback.format_list(frames) + traceback.format_exception_only(error)
    return "".join(lines)


if __name__ == "__main__":
    run_rank(main)
