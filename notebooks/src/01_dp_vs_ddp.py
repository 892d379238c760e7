# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 01 DP or DDP
#
# | | |
# |---|---|
# | **do** | train one model over several replicas, as threads of one process (DP) and as processes (DDP); take both steps apart; kill a rank |
# | **learn** | what each way moves and waits for, what Python's interpreter lock costs, and which of the two to take |
# | **need** | [00 Start here](00_start_here.ipynb): rank, `all_reduce` |
# | **minutes** | 30 |
# | **exercise** | 10 minutes more |
#
# Both are *data parallelism*: each replica of the model computes the gradient of a share of the batch,
# and the shares are added up. `nn.DataParallel` (DP) keeps all replicas in **one process, with a
# thread for each GPU**. `DistributedDataParallel` (DDP) gives each a **process of its own**. If you came
# for DDP, start with [02](02_basic_ddp.ipynb) and return here when you meet `nn.DataParallel`. New words
# are in the [glossary](glossary.md).

# %%
from ddp_course import (
    check,
    compare,
    doctor,
    explore,
    launch,
    parts,
    picture,
    predict,
    show_diff,
    show_job,
    table,
)

# %% [markdown]
# ## What can this machine prove?
#
# DP needs two GPUs in one machine. Its *mechanism* does not: below it is rebuilt with threads on the
# CPU. Counts (bytes, replicas, who dies) hold for any machine; times depend on how many cores are free.

# %%
doctor(short=True)

# %% [markdown]
# ## What does the real DataParallel do here?
#
# It is the shortest distributed program there is: one line more than a one-process script. (The other
# lines marked NEW write down how many replicas ran, and where.)

# %%
show_diff("train_one_process", "use_data_parallel")

# %%
real = launch("use_data_parallel", ranks=1)

# %%
table(real, "replicas", "devices")

# %% [markdown]
# One replica for each GPU that the process may use. Without GPUs, or with one, the wrapper just calls
# your model, **and says nothing**. Print what it runs on.
#
# ## What do two threads of one process share?
#
# Memory, and a lock. In CPython, only the thread that holds the *global interpreter lock* (GIL) runs
# Python code. Run the next cell: it saves a script in which one thread, then two threads count.

# %%
# %%job my_threads
import threading
import time


def work():
    for _ in range(5_000_000):
        pass


for number in (1, 2):
    threads = [threading.Thread(target=work) for _ in range(number)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{number} thread(s), each the same work: {time.perf_counter() - started:.2f} s")

# %%
mine = launch("my_threads", ranks=1)

# %% [markdown]
# Side by side, two threads would take the time of one. Change the cell: let `work` be `time.sleep(0.3)`,
# which releases the lock while it sleeps; then one large operation, such as
# `torch.rand(2000, 2000).svd()` (import torch, and say `torch.set_num_threads(1)`). Which of them run
# side by side?
#
# ## What happens in a step with threads?
#
# Six moves, in *every* step: replicate the weights, scatter the batch, apply in parallel, gather the
# outputs and compute the loss in one place, backward on each replica, reduce the gradients onto
# replica 0, whose optimizer steps. Here they are, on the CPU.

# %%
show_job("thread_parallel")

# %% [markdown]
# It runs one of two models. **deep**: 200 layers of 16 × 16, each so small that Python's own work takes
# longer than the arithmetic. **wide**: 2 layers of 1024 × 1024, where matrix products take nearly all
# the time.
#
# ## Does DataParallel compute the gradients on one device?
#
# You may have read that the first GPU computes the gradients, and the others only the forward. Each
# replica reports the norm of its own gradient, *before* the reduction.

# %%
guess = predict("Two replicas. How many have gradients of their own?", choices=[1, 2])

# %%
deep_threads = launch("thread_parallel", ranks=1, model="deep", threads=2)

# %%
guess.reveal(len(set(deep_threads.value("norms"))))

# %%
table(deep_threads, "norms")

# %% [markdown]
# Both compute gradients; the norms differ because their samples differ. On one device they are *added
# up*, and the sum is the gradient that one process computes from the whole batch. So the first device
# has more to keep and more to do, but not all of it.

# %%
picture("dp_moves")

# %% [markdown]
# ## Can DataParallel hold a model on two devices?

# %%
refused = launch("refuse_two_devices", ranks=1)

# %%
table(refused, "devices", "answer")

# %% [markdown]
# No: it copies the whole model to every device, so all of it must fit on the first. A model that is too
# large for one device needs DDP around model parallelism (lesson 05). (Without two GPUs the second
# device is pretended; the refusal is torch's own.)
#
# ## What does the interpreter lock cost?
#
# PyTorch releases the lock in every operation, but only a long operation gives another thread time to
# use it. (Operations of the backward are started by C++ threads that do not hold it. Python builds
# without a GIL exist since 3.13.) `compute` is forward and backward of both replicas at once; `alone` is
# one replica's share while the other thread rests. Side by side the ratio is 1; one after the other, 2.

# %%
guess = predict(
    "The deep model, two threads: compute, divided by alone?", unit="times", low=0.5, high=10
)

# %%
guess.reveal(deep_threads.value("compute_ms") / deep_threads.value("alone_ms"))

# %%
wide_threads = launch("thread_parallel", ranks=1, model="wide", threads=2)

# %%
compare(
    {"deep": deep_threads, "wide": wide_threads},
    "replicate_ms",
    "compute_ms",
    "alone_ms",
    "waits",
    "gather_ms",
    "reduce_ms",
)

# %% [markdown]
# A ratio near 2 or above: the threads took turns. Two things can cause that, and `waits`, how often a
# thread stopped *for another thread*, tells them apart. Hundreds: at the lock. Few: at the cores, because
# this machine had no second one free (run the cells again when it has). Python's own work (deep) cannot
# be shared among threads however many cores there are; time inside large operations (wide) can. With
# GPUs it is the same lock: kernels run side by side, but one process's Python must start them all.
#
# The sliders launch it again. (On a machine with few cores, four threads wait for cores, too.)

# %%
explore(
    "thread_parallel",
    parts("replicate_ms", "compute_ms", "alone_ms", "gather_ms", "reduce_ms"),
    ranks=1,
    threads=[2, 1, 4],
    model=["deep", "wide"],
)

# %% [markdown]
# ## And with processes?
#
# The same models, batches and gradients; each replica in a process with an interpreter of its own.
# Nothing is replicated or gathered in a step. What is new is `wait`: from this rank's last gradient
# until the average is back.

# %%
show_job("process_parallel")

# %%
guess = predict(
    "The deep model: compute of one of two processes, in % of compute with two threads?",
    unit="%",
    low=0,
    high=300,
)

# %%
deep_processes = launch("process_parallel", ranks=2, model="deep")
wide_processes = launch("process_parallel", ranks=2, model="wide")

# %%
guess.reveal(100 * deep_processes.value("compute_ms") / deep_threads.value("compute_ms"))

# %%
compare(
    {
        "deep, threads": deep_threads,
        "deep, processes": deep_processes,
        "wide, threads": wide_threads,
        "wide, processes": wide_processes,
    },
    "replicate_ms",
    "compute_ms",
    "gather_ms",
    "reduce_ms",
    "wait_ms",
    "gap",
)

# %% [markdown]
# `gap`: the gradients are those of one process, in both ways. Processes share no lock, so `compute` is
# one replica's share, if a core is free for each rank. In exchange they wait, for messages and for the
# slower rank. Your table says which *sum* is smaller: on one machine's cores a small model can be
# quickest in a single process. With GPUs and NCCL messages are quicker, and DDP sends them while
# backward still runs (lesson 02a).
#
# ## How many bytes does a step move?

# %%
guess = predict(
    "The deep model has 0.21 MiB of weights. Four threads: how much is copied in one step?",
    unit="MiB",
    low=0,
    high=10,
)

# %%
four_threads = launch("thread_parallel", ranks=1, model="deep", threads=4)
four_processes = launch("process_parallel", ranks=4, model="deep")

# %%
guess.reveal(four_threads.value("copied_mib"))

# %%
compare(
    {
        "2 threads": deep_threads,
        "4 threads": four_threads,
        "2 processes": deep_processes,
        "4 processes": four_processes,
    },
    "copied_mib",
)

# %% [markdown]
# With threads, in this job, replica 0 sends all weights to each of the other *n* − 1 replicas and receives
# all gradients from it: 2(*n* − 1) times the weights, in every step, through one device. (Real DP on GPUs
# copies and reduces with NCCL where it can.) With processes no weights travel, and each rank hands over
# its gradients once, however many ranks there are. (A ring all-reduce, Gloo's default, sends and receives
# 2(*n* − 1)/*n* times that per rank: less than twice.) That is one reason why DP stops scaling where DDP
# continues.

# %%
picture("ring")

# %% [markdown]
# ## Is DDP fault tolerant?
#
# Another common claim: with processes, the others carry on when one fails.

# %%
guess = predict("Rank 1 of 3 is killed during training. How many ranks finish?", choices=[0, 1, 2])

# %%
killed = launch("process_parallel", ranks=3, steps=5000, limit_s=40, wait=False).wait_for_step(5)
killed.kill(1)

# %%
guess.reveal(list(killed.exit_codes.values()).count(0), note=f"exit codes: {killed.exit_codes}")

# %% [markdown]
# None. The others need rank 1's gradients in their next all-reduce, so the job ends. DDP by itself
# tolerates no fault. Processes make it *possible* to start again: torchrun does that, from a checkpoint
# of yours (lessons 04 and 06). With threads there is not even that: one process, one fate.
#
# ## So which one?
#
# | | DP (threads) | DDP (processes) | backed by |
# |---|---|---|---|
# | **performance** | one interpreter lock for all replicas; weights copied in every step | a lock for each; gradients sent during backward | your ratios and the table of moves; overlap: lesson 02a |
# | **scaling** | one machine; traffic of replica 0 grows with the replicas | many machines; traffic per rank stays bounded | the bytes above; documentation [1] |
# | **complexity** | one line | a process group, a share of the data, a launcher | `show_diff` above, and that of `train_ddp` in lesson 02 |
# | **fault tolerance** | none | none by itself; torchrun restarts | the killed rank above; lesson 06 |
# | **model over several devices** | no | yes | the refusal above; lesson 05 |
# | **when to use** | old code, or a quick try on one machine with several GPUs | everything else; PyTorch recommends it on a single machine too | documentation [2] |
#
# There is a third mechanism: **RPC** (`torch.distributed.rpc`), with which a process calls functions
# and holds objects of another one. It serves what is neither a replica nor a collective: a parameter
# server, actors of reinforcement learning. Its documentation says: stable, and in maintenance mode [3].
#
# ## Can you write a wrap for any device?
#
# **Exercise 01.** One function that wraps a model on a laptop, on a GPU server and on the second node
# of a cluster:
# [exercises/ex01_wrap_for_any_device.py](../exercises/ex01_wrap_for_any_device.py). The check runs it
# here for real, then pretends machines with GPUs and reads what it asks for. (A script calls
# `torch.cuda.set_device` as well, before anything else touches a GPU; `my_place()` does that here.)

# %%
check("ex01")

# %% [markdown]
# ## What would have gone wrong?
#
# - **DP on a CPU, or with one visible GPU** Nothing is parallel, and nothing says so.
# - **Ten GPUs, one DP process** Python starts all kernels of all of them. Look at `compute / alone`.
# - **A counter in the model under DP** What forward writes into a replica is gone after the step [2].
# - **BatchNorm under DP** Each replica normalises its share, and only replica 0's statistics stay.
# - **`device_ids` with all GPUs in DDP** That is DP's argument. A rank names its own one, or None.
#
# ## What should you remember?
#
# - DP: one process, one interpreter lock, weights copied in every step.
# - DDP: a process for each replica; only gradients travel, and nobody has the double load of replica 0.
# - Neither tolerates a fault; DDP can be restarted.
#
# **From memory:** which six moves does a DP step make, and which of them does DDP not need?
#
# > **On your cluster.** With two or more GPUs in this machine, `use_data_parallel` above runs the real
# > thing: `replicas` says on how many. For DDP take one process for each GPU: `python -m
# > torch.distributed.run --standalone --nproc-per-node=GPUS ddp_course/jobs/01_dp_vs_ddp/process_parallel.py
# > --model wide`; over two machines replace `--standalone` by `--nnodes=2
# > --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 --rdzv-id=JOB`, on both. DP has no such command: it ends
# > at the machine's edge.
#
# **Sources.** [1] S. Li, J. Zhu,
# [Getting Started with Distributed Data Parallel](https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html),
# section on DP and DDP · [2] PyTorch documentation,
# [DataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html) · [3] PyTorch
# documentation, [Distributed RPC Framework](https://docs.pytorch.org/docs/stable/rpc.html) · P. Patarasuk,
# X. Yuan,
# [Bandwidth optimal all-reduce algorithms for clusters of workstations](https://doi.org/10.1016/j.jpdc.2008.09.002),
# J. Parallel Distrib. Comput. 69, 2009 (the ring) · behaviour as measured in this run.
#
# **Next:** [02 Basic DDP](02_basic_ddp.ipynb)
