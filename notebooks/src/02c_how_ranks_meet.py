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
# # 02c How ranks meet
#
# | | |
# |---|---|
# | **do** | let ranks leave each other notes; meet in three ways; start ranks in four; try a two-node command that does not work |
# | **learn** | store, process group and backend; what torchrun does for you, and what `mp.spawn` lacks; what `destroy_process_group` ends |
# | **need** | [02 Basic DDP](02_basic_ddp.ipynb) |
# | **minutes** | 30 |
# | **exercise** | none; you change a script |
#
# New words are in the [glossary](glossary.md).

# %%
from ddp_course import compare, doctor, launch, predict, show_job, table

# %% [markdown]
# ## What can this machine prove?
#
# How ranks start, meet and leave, which is the same everywhere. NCCL needs GPUs; two agents stand for
# two machines.

# %%
doctor(short=True)

# %% [markdown]
# ## How can processes that know nothing of each other talk?
#
# By a *store*: a small table of keys and values at a place that all were told. `set` writes; `get` waits
# until somebody has written. Run the next cell: it saves a script that has a store and no process group.

# %%
# %%job my_store
import os

import torch.distributed as dist

store, rank, world_size = next(dist.rendezvous("env://"))
store.set(f"note of {rank}", f"rank {rank} is process {os.getpid()}")
print("I read:", store.get(f"note of {(rank + 1) % world_size}").decode())

# %%
notes = launch("my_store", ranks=3)

# %% [markdown]
# Each rank read its neighbour's note. Change the cell: let rank 0 wait for a note that nobody writes, and
# launch it with `limit_s=10`. A process group begins in the same way: each rank leaves its address in
# the store and reads the others'. From then on gradients go from rank to rank, and never through the
# store.
#
# ## How do the ranks find each other?
#
# `init_process_group` needs a place to meet, the number of ranks, and which one this is. `env://` (the
# default) reads all of it from variables that torchrun sets; for `tcp://` and `file://` you say it.

# %%
show_job("join_group")

# %%
by_env = launch("join_group", ranks=2, method="env")
by_tcp = launch("join_group", ranks=2, method="tcp")
by_file = launch("join_group", ranks=2, method="file")

# %%
compare({"env": by_env, "tcp": by_tcp, "file": by_file}, "url", "store", "total", "join_ms")

# %% [markdown]
# The same group in all three ways; only the store differs. A `FileStore` needs no port and no server, but
# a file that all ranks can reach and that is new for each job: what a killed job leaves there misleads
# the next one. Tutorials for Windows use it with Gloo.
#
# You may have read: "choose an uncommon port; I use 29500". That is torch's own default, so it is the
# most common one. Two jobs with the same port cannot share a machine (lesson 06 tries it). Best is no
# number: `--standalone` takes a free port.
#
# ## Who starts the ranks?
#
# Any program can; the ranks only need to be told who they are. Four ways, each with the same two ranks.
# Rank 1 dies while rank 0 computes for five more seconds.

# %%
guess = predict(
    "Rank 1 is dead. Which way lets rank 0 compute to its end?",
    choices=["torchrun", "mp.spawn", "by hand: RANK=0 … python script.py &"],
)

# %%
torchrun = launch("start_ranks", ranks=1, way="torchrun", fail=True, limit_s=120)
spawn = launch("start_ranks", ranks=1, way="spawn", fail=True, limit_s=120)
hand = launch("start_ranks", ranks=1, way="hand", fail=True, limit_s=120)

# %%
guess.reveal(
    "torchrun"
    if not torchrun.value("stopped")
    else "mp.spawn"
    if not spawn.value("stopped")
    else "by hand: RANK=0 … python script.py &"
)

# %%
compare({"torchrun": torchrun, "mp.spawn": spawn, "by hand": hand}, "told", "stopped", "seconds")

# %% [markdown]
# - **By hand** (`MASTER_ADDR=… MASTER_PORT=… WORLD_SIZE=2 RANK=0 python script.py &`, once for each rank)
#   costs least, and nobody watches: with GPUs, a rank without its partner holds its GPU until somebody
#   looks. `LOCAL_RANK` is missing, too.
# - **`mp.spawn(work, nprocs=2)`** ends the others and hands you the first error. It calls your function
#   with the rank and sets *no* variable: address, port and world size are yours to invent. It knows one
#   machine, no restarts and no logs for each rank.
# - **torchrun** sets all of them, on any number of machines, restarts, and reports who failed first
#   (lesson 06). It costs one more process.
#
# ## What about torch.distributed.launch?

# %%
old = launch("start_ranks", ranks=1, way="launch", limit_s=120)

# %%
compare({"launch": old, "torchrun": torchrun}, "told", "seconds")

# %% [markdown]
# It is torchrun's predecessor, marked as deprecated, and today it runs torchrun's code. It adds an
# argument, `--local-rank=0`, to your script's own: a parser that does not know it stops with "unrecognized
# arguments". `--use-env` leaves it out. Write `torchrun` in place of
# `python -m torch.distributed.launch --use-env`, and read `LOCAL_RANK`.
#
# ## Why not mp.spawn in a notebook?

# %%
cell = launch("start_ranks", ranks=1, way="cell", limit_s=120)

# %%
cell

# %% [markdown]
# A spawned process is a fresh Python that imports the program to find your function. A cell is no file, so
# there is nothing to import: "Can't get attribute". (The job runs such a program with `python -c`, which
# is no file either.) That is why this course saves cells as scripts and launches those.
#
# ## Do two nodes meet by an endpoint alone?
#
# A command that you can find in tutorials, to be run on both nodes:
# `torchrun --nnodes=2 --nproc-per-node=4 --rdzv-endpoint=HOST:29500 train.py`. Two agents on this machine run
# it.

# %%
guess = predict("How many of the two agents end well?", choices=[0, 1, 2])

# %%
endpoint = launch("wrong_two_nodes", ranks=1, limit_s=120)

# %%
guess.reveal(endpoint.value("done"))

# %%
table(endpoint, "done", "waiting", "answer")

# %% [markdown]
# Without `--rdzv-backend` torchrun takes `static`, which wants `--node-rank` from each node. Nobody said
# it, so both are node 0: each opens the store, one finds the address in use, and the other waits for a
# node 1 that never comes. (On two machines both would wait, each in its own store.) With
# `--rdzv-backend=c10d` and an `--rdzv-id` they agree on numbers by themselves:

# %%
both = launch("hello_ranks", ranks=2, nodes=2, steps=1)
print(both.command)

# %% [markdown]
# ## Who carries the bytes?
#
# The *backend*. The next job asks each one for an `all_reduce`.

# %%
guess = predict("Can NCCL carry an all_reduce of these two ranks, here?", choices=[True, False])

# %%
backends = launch("list_backends", ranks=2)

# %%
guess.reveal(backends.values("works")[1], note=backends.values("answer")[1])

# %%
table(backends, "name", "built_in", "works", "what_for", "answer")

# %% [markdown]
# Built in does not mean usable. For a choice:
#
# | your tensors | backend | why |
# |---|---|---|
# | on NVIDIA GPUs, one for each rank | `nccl` | the fast way between GPUs; it refuses two ranks on one GPU |
# | on the CPU | `gloo` | everywhere; this course |
# | on the CPU, on a cluster whose network only MPI knows | `mpi` | PyTorch must be compiled against that MPI |
# | on GPUs without NCCL | `gloo` | it takes CUDA tensors, but copies each to the CPU and back: slow (not run here) |
# | on both | `cpu:gloo,cuda:nccl` | each tensor goes by the backend of its device (not run here) |
#
# ## What does `destroy_process_group` end?
#
# Every script calls it last. The next job counts its open connections and threads.

# %%
left = launch("leave_group", ranks=2)

# %%
table(left, "when", "connections", "threads", "initialized", "answer")

# %% [markdown]
# It closes the connections and ends the backend's threads, so that the process can end cleanly, or make
# another group: a second `init_process_group` is refused while the first group lives. Call it when no
# rank needs the others any more; a rank that leaves earlier looks to them like one that crashed.
#
# ## What would have gone wrong?
#
# - **A port number in the script** The second job on the machine cannot start (lesson 06).
# - **A `file://` of yesterday** Ranks read old addresses. Give each job a new file.
# - **Ranks started by hand in a batch script** One fails, the others keep their GPUs until the time limit.
# - **`--rdzv-endpoint` without `--rdzv-backend`** Two nodes 0.
# - **No `destroy_process_group`** NCCL complains at the end, and a process may not end cleanly.
#
# ## What should you remember?
#
# - Ranks meet in a store; what they send afterwards does not pass through it.
# - torchrun tells each rank who it is, ends all when one fails, and knows several machines.
# - The backend follows the device: NCCL for GPUs, Gloo for the CPU.
#
# **From memory:** which five variables does torchrun set for a rank, and which of them does `mp.spawn`
# set?
#
# > **On your cluster.** Under a scheduler start one torchrun per machine (`srun torchrun …`), with
# > `--rdzv-backend=c10d` and the first machine as endpoint. Lesson 06 writes that batch script.
#
# **Sources.** PyTorch documentation,
# [torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html) (backends, stores),
# [torchrun](https://docs.pytorch.org/docs/stable/elastic/run.html) and
# [Multiprocessing](https://docs.pytorch.org/docs/stable/multiprocessing.html) · torch 2.15.0,
# `torch/distributed/run.py`, `launch.py` · behaviour as measured in this run.
#
# **Next:** [02d Collectives by hand](02d_collectives.ipynb)
