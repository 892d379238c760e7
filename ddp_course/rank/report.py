"""A job's pen: what a rank reports about itself.

    log(step=3, loss=0.25)        one JSON line in the run's folder (in a shell: printed)
    with span("forward"): …       a named piece of the step, on the profiler's timeline
    with traced(): …              profile these steps, if the launch asked for a trace
    digest(model)                 note what this replica's parameters are, to be compared afterwards
    run_rank(main)                run main() and leave as a rank should
    my_folder()                   where to leave files, such as checkpoints

The launcher sets DDP_COURSE_RUN to the run's folder; without it `log` prints. It sets
DDP_COURSE_TRACE=1 for `launch(…, trace=True)`; without it `traced` and `span` cost nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

_TRACE = "DDP_COURSE_TRACE"


def log(**values: Any) -> None:
    """Report named values of this rank: numbers, strings, lists; tensors become plain numbers.

    Fields that the live panel knows: `step` (an integer), `loss`, `state` (a word).
    """
    emit("log", **values)


def emit(event: str, /, **values: Any) -> None:
    """Write one event of this rank; `log` is the kind that jobs use.

    The names t, rank, attempt and event are the record's own, whatever `values` says.
    """
    plain = {name: _plain(value) for name, value in values.items()}
    folder = os.environ.get("DDP_COURSE_RUN")
    rank = int(os.environ.get("RANK", "0"))
    if folder is None:
        if event == "log":
            text = "  ".join(f"{name}={_short(value)}" for name, value in plain.items())
            sys.stdout.write(f"[rank {rank}] {text}\n")
            sys.stdout.flush()
        return
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    record = {**plain, "t": time.time(), "rank": rank, "attempt": attempt, "event": event}
    line = json.dumps(record) + "\n"
    # One write of one line: it arrives whole, or not at all if the rank is killed before it.
    descriptor = os.open(
        Path(folder) / f"events-{rank}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644
    )
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def span(name: str) -> contextlib.AbstractContextManager[Any]:
    """Name a piece of the step on the timeline; does nothing when the run is not traced."""
    if os.environ.get(_TRACE) != "1":
        return contextlib.nullcontext()
    from torch.profiler import record_function

    return record_function(name)


@contextlib.contextmanager
def traced() -> Iterator[None]:
    """Profile what runs inside and leave `trace-<rank>.json` in the run's folder.

    The format is the Chrome trace of torch.profiler; `ddp_course.observe.trace` reads it. A script
    that does not say `traced()` has its first steps profiled by the recorder.
    """
    folder = os.environ.get("DDP_COURSE_RUN")
    if os.environ.get(_TRACE) != "1" or folder is None:
        yield
        return
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # a CUDA build without a GPU complains otherwise
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)  # NCCL's kernels; not verified on a GPU
    with profile(activities=activities, record_shapes=True) as profiler:
        yield
        time.sleep(0.02)  # Gloo's threads close their last event a moment after wait() returns
    profiler.export_chrome_trace(str(Path(folder) / f"trace-{os.environ.get('RANK', '0')}.json"))


def digest(model: Any, name: str = "model") -> str:
    """Note a digest of a model's parameters, bit for bit, and return it; no rank waits for another.

    Replicas that DDP keeps equal have equal digests: `ddp_course.diagnose` compares what the ranks
    noted under the same name, first with first, second with second.
    """
    import hashlib

    import torch

    found = hashlib.sha256()
    for parameter in model.parameters():
        flat = parameter.detach().cpu().contiguous().reshape(-1)
        found.update(str((tuple(parameter.shape), parameter.dtype)).encode())
        found.update(flat.view(torch.uint8).numpy().tobytes())
    value = found.hexdigest()[:16]
    emit("digest", name=name, digest=value)
    return value


def my_folder() -> Path:
    """A folder for the job's own files, the same on all ranks of this machine.

    It is the run's folder; in a shell, where there is none, `runs/<script>` where you are.
    """
    folder = os.environ.get("DDP_COURSE_RUN")
    if folder is not None:
        return Path(folder)
    shell = Path(os.environ.get("DDP_COURSE_RUNS", "runs")) / Path(sys.argv[0]).stem
    shell.mkdir(parents=True, exist_ok=True)
    return shell


def run_rank(main: Callable[[], object]) -> NoReturn:
    """Run a rank's `main` and leave by `os._exit`, with the exit code that Python would give.

    Why not simply return: on a busy machine one of Gloo's threads may still hold a Python object
    when the interpreter shuts down, and the process aborts (exit code -6) although its work is done
    (PyTorch issue 190489). Leaving by `os._exit` after a flush cannot trip over that.
    """
    code = 0
    try:
        with contextlib.suppress(ImportError):
            from torch.distributed.elastic.multiprocessing.errors import record

            main = record(main)
        main()
    except SystemExit as leaving:
        if leaving.code is not None and not isinstance(leaving.code, int):
            sys.stderr.write(f"{leaving.code}\n")
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        code = code if abs(code) < 2**63 else -1  # what C makes of it
    except BaseException as error:
        own = error.__traceback__
        while own is not None and own.tb_frame.f_code.co_name in ("run_rank", "wrapper"):
            own = own.tb_next  # this frame and that of @record say nothing about the job
        sys.excepthook(type(error), error.with_traceback(own), own)
        code = 1
    finally:
        for name in ("stdout", "stderr"):
            with contextlib.suppress(Exception):
                getattr(sys, name).flush()
    os._exit(code & 0xFF)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _short(value: Any) -> str:
    if isinstance(value, list) and len(value) > 8:
        return f"[{', '.join(map(_short, value[:3]))}, … {len(value)} in all]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
