"""Known messages of torch, Gloo, NCCL, CUDA and torchrun, and what they mean for a learner.

A message is the weakest kind of evidence: `diagnosis` asks this table only when neither the ranks'
ledgers nor their exit codes tell more. Each symptom is one entry; the first whose fragment is found
wins, so the particular stands before the general. `verified` is False where the cause needs what
the machines that test this course lack: GPUs, Windows, macOS, a second host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# Kinds whose message is only an echo: whoever says it is never the first cause.
ECHOES = frozenset({"peer-lost", "rendezvous-closed"})


@dataclass(frozen=True)
class Symptom:
    """A message, by a regular expression, and what to say of it."""

    fragment: str
    kind: str
    means: str  # a clause that goes on after "rank 1: "
    remedy: str
    lesson: str = ""  # "03" and the title of the section
    verified: bool = True


SYMPTOMS = (
    # Parameters, gradients, models
    Symptom(
        r"Expected to have finished reduction in the prior iteration",
        "unused-parameters",
        "parameters got no gradient in the step before, so DDP still waited for them{names}",
        "leave the unused layer out of the model, or use it in every forward (and never replace a "
        "layer after DDP(model)); find_unused_parameters=True is for use that changes by step. "
        "TORCH_DISTRIBUTED_DEBUG=INFO names the parameters",
        '02 What does "expected to have finished reduction" mean?',
    ),
    Symptom(
        r"DDP expects same model across all ranks|appears not to match (?:sizes|strides) of",
        "different-models",
        "the ranks built different models, and DDP's constructor found it",
        "build the model from the same numbers on every rank (same seed, same vocabulary, same "
        "configuration): what depends on a rank's own data must be agreed upon first. If a count "
        "is 0, that rank had failed before: look at it",
        "10 What if the ranks build different models?",
    ),
    Symptom(
        r"mark a variable ready only once",
        "parameter-twice",
        "one parameter brought two gradients in one backward (a layer that is checkpointed twice, "
        "or reentrant activation checkpointing)",
        "checkpoint(…, use_reentrant=False), or DDP(…, static_graph=True)",
        "02 When does the averaging happen?",
    ),
    Symptom(
        r"Your training graph has changed in this iteration",
        "changed-graph",
        "static_graph=True was promised, and the set of parameters that are used has changed",
        "drop static_graph=True, or use the same parameters in every step",
        "02 When does the averaging happen?",
    ),
    Symptom(
        r"modified by an inplace operation",
        "buffer-overwritten",
        "a buffer or parameter was changed between forward and backward; under DDP every forward "
        "broadcasts buffers, so two forwards before one backward do it",
        "one forward over the concatenated batch, or DDP without forward sync of buffers",
        "02 When does the averaging happen?",
        verified=False,
    ),
    Symptom(
        r"is not needed when a module doesn't have any parameter that requires a gradient",
        "nothing-to-train",
        "every parameter of the model is frozen, so there is no gradient to average",
        "unfreeze before DDP(model), or use the model without DDP",
        "02 What does DDP do for me?",
    ),
    Symptom(
        r"SyncBatchNorm layers only work with GPU modules",
        "needs-gpu",
        "SyncBatchNorm works on GPUs only",
        "convert only if the device is a GPU; on the CPU the statistics stay each rank's own",
        "02 Does it hold for real data?",
    ),
    Symptom(
        r"device_ids and output_device arguments only work with"
        r"|only work with single-device/multiple-device",
        "device-ids",
        "DDP was given device_ids for a model on the CPU or on several devices",
        "device_ids=None (leave it out) unless the whole model is on one GPU",
        "05 What if I tell DDP the device, as always?",
    ),
    Symptom(
        r"Weights only load failed",
        "unsafe-checkpoint",
        "the checkpoint holds objects other than tensors and plain values",
        "save state_dict()s and plain numbers; weights_only=False runs code from the file, so only "
        "for a file of your own",
        "04 What may be in the file?",
    ),
    Symptom(
        r"(?s)(?:Missing|[Uu]nexpected) key.{0,300}?(?:module|_orig_mod)\.",
        "checkpoint-names",
        "the checkpoint's names are not those of the model (DDP puts `module.` before each)",
        "save model.module.state_dict(), and load before wrapping",
        "04 Why does every name begin with `module.`?",
    ),
    Symptom(
        r"failed finding central directory|PytorchStreamReader failed",
        "broken-checkpoint",
        "the checkpoint is not whole: it was written by several ranks at once, or cut short",
        "write on rank 0 only, beside the old file, then os.replace; let the others wait",
        "04 What if it dies while it saves?",
    ),
    Symptom(
        r"sampler option is mutually exclusive with shuffle",
        "shuffle-and-sampler",
        "DataLoader got both a sampler and shuffle=True",
        "leave shuffle out: DistributedSampler shuffles by itself",
        "02 Does `shuffle=True` beside a sampler slow training down?",
    ),
    Symptom(
        r"Dataset not found or corrupted|File not found or corrupted",
        "data-race",
        "the data set was not there, or half-written: several ranks may have prepared it at once",
        "prepare it once before the launch, or on rank 0 before a barrier",
        "04 May the others load right away?",
    ),
    # Collectives
    Symptom(
        r"Detected mismatch between collectives on ranks",
        "different-collectives",
        "the ranks called different collectives at the same place",
        "make every rank take the same path to the same collective, with the same shapes",
        "10 Must all ranks bring the same?",
    ),
    Symptom(
        r"Is there a distributed collective mismatch in your code"
        r"|Received data size doesn't match expected size",
        "different-collectives",
        "the ranks brought tensors of different size (or dtype) to one collective",
        "give the collective the same shape and dtype on every rank (pad, or gather sizes first)",
        "10 Must all ranks bring the same?",
    ),
    Symptom(
        r"[Rr]anks? (?P<who>[\d, ]+) failed to pass monitoredBarrier",
        "never-arrived",
        "rank {who} did not come to monitored_barrier",
        "look at what that rank did instead; every rank must call the barrier",
        "03 May one rank wait alone?",
    ),
    Symptom(
        r"exhausted all inputs|at least one rank that exhausted inputs",
        "uneven-steps",
        "one rank ran out of batches, and Join was told to say so",
        "give every rank equally many batches, or Join without throw_on_early_termination",
        "03 Can a rank without data still take part?",
    ),
    Symptom(
        r"[Gg]lobal rank (?P<who>\d+) is not part of group",
        "not-in-group",
        "rank {who}, which the call names as src, dst or peer, is no member of its process group",
        "src and dst count the ranks of the whole job; for a rank's place in the group there are "
        "group_src and group_dst",
        "05 What must two ranks hand over?",
    ),
    Symptom(
        r"Invalid process group specified|GroupMember\.NON_GROUP_MEMBER",
        "not-in-group",
        "this rank is no member of the process group that it was given to use",
        "let only the members call it: `if dist.get_rank() in ranks_of_group:`",
        "10 Must all ranks bring the same?",
    ),
    # Data workers
    Symptom(
        r"DataLoader worker \(pid[^)]*\) is killed by signal: (?:Bus error|Killed)",
        "out-of-memory",
        "a DataLoader worker was killed for want of memory (or of /dev/shm)",
        "fewer workers, smaller batches, a larger /dev/shm (docker: --shm-size)",
        "06 What happens when a rank is killed?",
    ),
    Symptom(
        r"DataLoader worker \(pid(?:\(s\))?[^)]*\) (?:exited unexpectedly|is killed)",
        "dataloader-worker",
        "a DataLoader worker died",
        "num_workers=0 shows its own error",
        "10 What if the rank at fault waits, too?",
    ),
    Symptom(
        r"DataLoader timed out after",
        "dataloader-worker",
        "the DataLoader's workers brought no batch in time",
        "num_workers=0 shows where it stands still; a lock that was held when the workers were "
        "forked is a usual reason: multiprocessing_context='spawn'",
        "10 What if the rank at fault waits, too?",
    ),
    Symptom(
        r"Too many open files|received 0 items of ancdata",
        "too-many-files",
        "this process may open no more files, and each tensor that a DataLoader's worker hands "
        "over is one",
        "torch.multiprocessing.set_sharing_strategy('file_system') at the top of the script, or "
        "`ulimit -n 65536` before it; and keep no batch longer than needed",
        "10 What if the rank at fault waits, too?",
    ),
    # Memory and native code
    Symptom(
        r"CUDA out of memory|CUDA error: out of memory|DefaultCPUAllocator: can't allocate memory"
        r"|^MemoryError|Cannot allocate memory",
        "out-of-memory",
        "memory ran out",
        "a smaller batch (and accumulation), fewer ranks on this machine, or a sharded model",
        "05 What does a stage keep in memory?",
    ),
    Symptom(
        r"Duplicate GPU detected|invalid usage.*NCCL|NCCL.*invalid usage",
        "shared-gpu",
        "two ranks use one GPU, and NCCL refuses that",
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before anything else, and as many "
        "ranks as GPUs",
        "00 Which device is mine?",
        verified=False,
    ),
    Symptom(
        r"invalid device ordinal",
        "no-such-gpu",
        "more ranks than GPUs: this rank's GPU does not exist",
        "start as many ranks as GPUs, or use Gloo on the CPU",
        "00 Which device is mine?",
        verified=False,
    ),
    Symptom(
        r"Cannot re-initialize CUDA in forked subprocess",
        "cuda-after-fork",
        "the process was forked after CUDA had been used",
        "start ranks by torchrun (launch does); DataLoader(multiprocessing_context='spawn')",
        "00 Which device is mine?",
        verified=False,
    ),
    Symptom(
        r"CUDA error: (?!out of memory)|device-side assert triggered|cudaErrorIllegalAddress",
        "cuda-error",
        "a GPU kernel failed earlier than the line that reports it: CUDA tells errors late",
        "run again with CUDA_LAUNCH_BLOCKING=1: then the traceback ends at the true line",
        "",
        verified=False,
    ),
    Symptom(
        r"Expected all tensors to be on the same device|is not on the expected device",
        "two-devices",
        "an operation got tensors from two devices",
        "move the batch and whatever the loop makes to the model's device",
        "05 How does a model use two devices in one process?",
    ),
    # Backends and devices
    Symptom(
        r"Found no NVIDIA driver|Torch not compiled with CUDA enabled|No CUDA GPUs are available"
        r"|on a CUDA device but torch\.cuda\.is_available\(\) is False",
        "no-gpu",
        "the script asks for a GPU, and torch finds none here",
        'device = "cuda" if torch.cuda.is_available() else "cpu", and .to(device) instead of '
        ".cuda(); torch.load(…, map_location=device); without a GPU no torch.cuda.set_device",
        "00 Which device is mine?",
    ),
    Symptom(
        r"ProcessGroupNCCL is only supported with GPUs|doesn't have NCCL built in",
        "nccl-without-gpu",
        "NCCL needs GPUs, and there is none here",
        "init_process_group('gloo') on the CPU; choose the backend by the device",
        "02 Who carries the bytes?",
    ),
    Symptom(
        r"Tensors must be CUDA and dense|No backend type associated with device type",
        "wrong-device",
        "a tensor was on a device that the process group's backend does not serve",
        "move the tensor to the rank's device before the collective",
        "02 Who carries the bytes?",
        verified=False,
    ),
    Symptom(
        r"doesn't have MPI built in",
        "no-mpi",
        "this torch was built without MPI",
        "use gloo (CPU) or nccl (GPU)",
        "02 Who carries the bytes?",
    ),
    Symptom(
        r"devices used by this process are currently unknown",
        "unknown-device",
        "barrier() had to guess this rank's GPU, and may have guessed another rank's",
        "torch.cuda.set_device(local_rank), and init_process_group(…, device_id=…)",
        "00 Which device is mine?",
        verified=False,
    ),
    # Meeting
    Symptom(
        r"EADDRINUSE|[Aa]ddress already in use",
        "port-in-use",
        "the port {port}on which the ranks were to meet is in use already",
        "leave the port to torchrun (--standalone) and do not set MASTER_PORT in the script; "
        "`ss -ltnp` shows who has it",
        "06 May I choose a port once and for all?",
    ),
    Symptom(
        r"Unable to find address for|makeDeviceForInterface",
        "no-such-interface",
        "the network interface that GLOO_SOCKET_IFNAME names does not exist here",
        "`ip addr` lists the interfaces; one name for all nodes, or leave it unset",
        "06 How do the nodes find each other?",
    ),
    Symptom(
        r"makeDeviceForHostname\(\): unsupported gloo device",
        "no-address",
        "Gloo found no usable address for this computer's name (the cause is not confirmed)",
        "use the loopback interface, or WSL2 on Windows",
        "06 Does it work on Windows and macOS?",
        verified=False,
    ),
    Symptom(
        r"addresses of \((?P<host>[^,]+), \d+\) cannot be retrieved",
        "unknown-host",
        "the host name {host}, where the ranks were to meet, does not resolve",
        "`getent hosts NAME` must give an address on every node; under torchrun leave MASTER_ADDR "
        "alone, on one machine it is 127.0.0.1",
        "06 How do the nodes find each other?",
    ),
    Symptom(
        r"Name or service not known|Temporary failure in name resolution|gaierror"
        r"|nodename nor servname|failed to resolve|could not be resolved",
        "unknown-host",
        "the name of the host on which the ranks were to meet does not resolve",
        "`getent hosts NAME` must give an address on every node; on one machine use 127.0.0.1",
        "06 How do the nodes find each other?",
    ),
    Symptom(
        r"connectFullMesh failed.*remote=\[127\.0\.0\.1\]",
        "loopback-name",
        "Gloo tried to reach another rank at 127.0.0.1: on several nodes, their names resolve to "
        "loopback; after a restart, an old address was read",
        "several nodes: GLOO_SOCKET_IFNAME; restarts: TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
        "06 How do the nodes find each other?",
        verified=False,
    ),
    Symptom(
        r"client socket has timed out after (?P<ms>\d+)ms while trying to connect to "
        r"\((?P<host>[^,]+), (?P<port>\d+)\)",
        "wrong-address",
        "nobody answered at {host}, port {port}, where the ranks were to meet",
        "MASTER_ADDR and MASTER_PORT must be rank 0's, and rank 0 must be running and reachable; "
        "under torchrun leave both alone. A script that starts processes itself (mp.spawn) is for "
        "plain python: under torchrun leave mp.spawn out",
        "02 How do the ranks find each other?",
    ),
    Symptom(
        r"(?P<come>\d+)/(?P<all>\d+) clients joined",
        "rank-never-started",
        "only {come} of {all} processes came to the meeting place",
        "start the missing ones; every rank needs the same MASTER_ADDR and MASTER_PORT (or "
        "init_method), every node the same --nnodes, --nproc-per-node, --rdzv-endpoint and "
        "--rdzv-id",
        "06 How do the nodes find each other?",
    ),
    Symptom(
        r"^RuntimeError: Wait timeout$",
        "rank-never-started",
        "the others did not come to the file of init_method (file://…)",
        "all ranks need one file, new for each run; under torchrun leave init_method out",
        "02 How do the ranks find each other?",
    ),
    Symptom(
        r"enforce fail at [^\n]*rank < size\. (?P<mine>\d+) vs (?P<all>\d+)",
        "wrong-world-size",
        "the process group was asked for with world_size={all}, which has no rank {mine}: they "
        "count from 0",
        "leave rank and world_size to torchrun (RANK, WORLD_SIZE), or start as many ranks",
        "02 How do the ranks find each other?",
    ),
    Symptom(
        r"RendezvousTimeoutError",
        "rank-never-started",
        "not all nodes came to the meeting place in time",
        "start the missing ones; every node needs the same --nnodes, --rdzv-endpoint and --rdzv-id",
        "06 How do the nodes find each other?",
    ),
    Symptom(
        r"server socket .*has timed out, will retry",
        "no-connection",
        "a connection was tried and tried again (with a VPN, its address may have been chosen)",
        "pin the interface: GLOO_SOCKET_IFNAME=lo on one machine",
        "06 How do the nodes find each other?",
        verified=False,
    ),
    Symptom(
        r"use_libuv was requested but PyTorch was buil[dt] without libuv",
        "no-libuv",
        "this torch (Windows) was built without libuv, which torchrun's store asks for",
        "USE_LIBUV=0 and ranks started without torchrun, or WSL2",
        "06 Does it work on Windows and macOS?",
        verified=False,
    ),
    # Command line, interpreter, notebook
    Symptom(
        r"unrecognized arguments: --local[-_]rank",
        "local-rank-flag",
        "the script was started by torch.distributed.launch's rules, or does not know its flag",
        "read int(os.environ['LOCAL_RANK']) instead of a --local-rank flag",
        "06 What does torchrun tell my script?",
    ),
    Symptom(
        r"the following arguments are required|unrecognized arguments:|error: argument ",
        "bad-flags",
        "the script did not accept its arguments",
        "python -m ddp_course run SCRIPT --ranks N -- the script's own flags",
        "06 How do I leave the notebook?",
    ),
    Symptom(
        r"^bdb\.BdbQuit",
        "no-input",
        "a breakpoint was reached, and a rank has no keyboard",
        "take breakpoint() or pdb.set_trace() out; print instead, or ask diagnose(run) where the "
        "ranks are",
        "10 Can I ask a job that still hangs?",
    ),
    Symptom(
        r"^EOFError: EOF when reading a line",
        "no-input",
        "input() was called, and a rank has no keyboard",
        "give the script what it asks as a flag: run SCRIPT --ranks N -- --name VALUE",
        "06 How do I leave the notebook?",
    ),
    Symptom(
        r"Can't get attribute .* on <module '__main__'",
        "from-a-cell",
        "a function or class from a notebook's cell cannot be found by a process that was spawned",
        "write the cell to a file (%%job NAME) and launch that",
        "00 Can I run a script of my own?",
    ),
    Symptom(
        r"ModuleNotFoundError: No module named '?(?P<name>[\w.]+)",
        "no-module",
        "Python found no module {name}",
        "run with the interpreter that has it (doctor() names ours), from the folder that holds it",
        "06 How do I leave the notebook?",
    ),
    Symptom(
        r"Default process group has not been initialized"
        r"|must call init_process_group",
        "no-group",
        "a collective was called before init_process_group (or after destroy_process_group)",
        "call dist.init_process_group() first, on every rank",
        "02 How do the ranks find each other?",
    ),
    # Echoes: somebody else failed first
    Symptom(
        r"RendezvousClosedError",
        "rendezvous-closed",
        "the meeting was closed because something had failed before",
        "look for the first error of a rank, further up",
        "10 Who failed first, and who is loudest?",
    ),
    Symptom(
        r"Connection (?:closed|reset) by peer|Broken pipe|remote process exited",
        "peer-lost",
        "another rank was gone, and the connection to it with it",
        "look at the other ranks' last words and exit codes",
        "10 Who failed first, and who is loudest?",
    ),
)  # fmt: skip

# Said without harm; never a reason.
NOTES = re.compile(
    r"Redirects are currently not supported in Windows or MacOs"
    r"|destroy_process_group\(\) was not called|Setting OMP_NUM_THREADS"
)


def find(texts: Iterable[str], *, echoes: bool = False) -> tuple[Symptom, str] | None:
    """The first symptom of the table that a text shows, with `means` filled in.

    Echoes ("connection closed by peer") count only on request.
    """
    lines = [text for text in texts if text and not NOTES.search(text)]
    for symptom in SYMPTOMS:
        if symptom.kind in ECHOES and not echoes:
            continue
        for text in lines:
            if found := re.search(symptom.fragment, text, re.MULTILINE):
                return symptom, _fill(symptom.means, found, text)
    return None


def _fill(means: str, found: re.Match[str], text: str) -> str:
    """Put what the message names into the clause."""
    values = {"names": "", "port": "", **{k: v or "" for k, v in found.groupdict().items()}}
    if unused := re.search(r"did not receive grad for rank \d+: ([^\n]+?)(?:\.?\s*$|\n)", text):
        names = unused[1].strip().rstrip(".")
        values["names"] = f" (number {names})" if re.fullmatch(r"[\d ]+", names) else f": {names}"
    if "{port}" in means and not values["port"] and (port := re.search(r"port:? (\d+)", text)):
        values["port"] = f"{port[1]} "
    return means.format_map(values) if "{" in means else means
