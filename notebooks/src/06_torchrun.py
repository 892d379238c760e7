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
# # 06 torchrun
#
# | | |
# |---|---|
# | **do** | run a script of yours from a terminal; kill a rank and watch the job recover; lose a whole node and take it back; write the batch script for a cluster |
# | **learn** | what torchrun tells your script and what it does when a rank dies; what a script must do to survive that; where the cause of a failure is recorded |
# | **need** | [00 Start here](00_start_here.ipynb), [02 Basic DDP](02_basic_ddp.ipynb); the idea of a checkpoint ([04](04_checkpointing.ipynb)) |
# | **minutes** | 55 |
# | **exercises** | 35 minutes more |
#
# Processes start, die and meet in the same way on every machine, and that is what this lesson shows.
# Two *nodes* here are two torchruns on one host, so you do not see a slow network between them, and the
# times are those of this machine.
#
# - [Part 1: what torchrun tells a script](#Part-1:-what-torchrun-tells-a-script)
# - [Part 2: surviving](#Part-2:-surviving)
# - [Part 3: logs and clusters](#Part-3:-logs-and-clusters)
# - [Appendix: ports, device numbers, other systems](#Appendix:-ports,-device-numbers,-other-systems)
#
# New words are in the [glossary](glossary.md).

# %%
from ddp_course import (
    attempts,
    check,
    compare,
    differences,
    doctor,
    each_rank,
    launch,
    picture,
    predict,
    show_diff,
    show_job,
    slurm_script,
)

# %%
doctor(short=True)

# %% [markdown]
# # Part 1: what torchrun tells a script
#
# ## How do I leave the notebook?
#
# With a file and a command. This cell is saved as `my_sum.py`, beside the notebook. It uses nothing
# of the course.

# %%
# %%job my_sum
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # "nccl" where every rank has a GPU
number = torch.ones(1)
dist.all_reduce(number)
print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}: the sum is {number.item():.0f}")
dist.destroy_process_group()

# %%
mine = launch("my_sum", ranks=2)

# %%
print(mine.command)

# %% [markdown]
# **Now you.** Open a terminal (in JupyterLab: File, New, Terminal), paste that line, and look at the
# same two lines of output. Then let the script also print `LOCAL_RANK` and `MASTER_PORT`, and run it
# with three ranks. (`python -m torch.distributed.run` is what `torchrun` is short for; `--standalone`
# means that this is the only node, and that torchrun may pick any free port.)
#
# ## What does torchrun tell my script?
#
# Environment variables, and nothing else: your script gets the arguments that you gave it.

# %%
show_job("read_environment")

# %%
guess = predict(
    "Two ranks on one machine. Which of these variables differ between them?",
    choices=["RANK", "LOCAL_RANK and RANK", "LOCAL_RANK, MASTER_PORT and RANK"],
)

# %%
one_node = launch("read_environment", ranks=2)
told = one_node.by_rank("told")

# %%
guess.reveal(" and ".join(sorted(dict(told[0].items() ^ told[1].items()))))

# %%
each_rank(one_node, "local_rank", "world_size", "local_world_size", "master_addr", "master_port")

# %% [markdown]
# The other variables that the job prints are the same on both ranks, above all the place where they
# meet. (Two that it does not print also differ: `ROLE_RANK` and `TORCHELASTIC_ERROR_FILE`.) So a script
# needs no list of hosts and no number of ranks: it asks.
#
# ## What changes with a second node?
#
# A node is a machine with a torchrun of its own. `nodes=2` starts two torchruns here, which meet as if
# each were alone on its machine.

# %%
guess = predict(
    "Two nodes with two ranks each. Which variables differ between the first rank of one node and "
    "the first rank of the other?",
    choices=["GROUP_RANK and RANK", "LOCAL_RANK and RANK", "GROUP_RANK, LOCAL_RANK and RANK"],
)

# %%
two_nodes = launch("read_environment", ranks=2, nodes=2)
told = two_nodes.by_rank("told")

# %%
guess.reveal(" and ".join(sorted(dict(told[0].items() ^ told[2].items()))))

# %%
each_rank(two_nodes, "group_rank", "local_rank", "world_size", "local_world_size")

# %% [markdown]
# `LOCAL_RANK` starts at 0 on each node: it picks a device of *that* machine. `GROUP_RANK` is the node.

# %%
print(two_nodes.command)

# %% [markdown]
# The loop in the command stands for two terminals. On a real cluster you type the same line on each
# machine, with the first one's name in place of `localhost`.

# %%
picture("agents")

# %% [markdown]
# ## How do the nodes find each other?
#
# | | c10d | static |
# |---|---|---|
# | flags | `--rdzv-backend=c10d --rdzv-endpoint=HOST:PORT --rdzv-id=JOB` | `--master-addr=HOST --master-port=PORT --node-rank=0` |
# | on each node | the same line | a different `--node-rank` |
# | which is node 0 | the nodes agree on it | you say it |
# | a node that leaves or comes later | the others can continue: `--nnodes=1:2` | ends the job |
#
# In both, HOST is a node that the others can reach, and PORT is free on it. `is_host` in the command
# above is needed only because both nodes are the same machine here: each would think that it is HOST.
#
# # Part 2: surviving
#
# ## What happens when a rank is killed?
#
# By default the job ends, as in lesson 00. With `--max-restarts=1` torchrun starts it again, and that
# helps only if the script does its part:

# %%
show_diff("train_ddp", "survive_kill")

# %%
undisturbed = launch("survive_kill", ranks=2)

# %%
guess = predict(
    "One of two ranks is killed after step 7. How many ranks does torchrun start again?",
    choices=[0, 1, 2],
)

# %%
run = launch("survive_kill", ranks=2, restarts=1, pause_ms=80.0, wait=False).wait_for_step(7)
run.kill(1)
killed = attempts(run)

# %%
guess.reveal(killed.rows[-1].ranks)

# %%
killed

# %% [markdown]
# Each row is a start of *all* ranks. A process group cannot replace one member, so the healthy rank was
# stopped too. The first row names the rank that failed first. The last column is the time to recover:
# from the rank's death to the next step. (Started warm, as here, it leaves out importing torch, which
# every restart on a cluster pays for again.)

# %%
guess = predict(
    "Killed and resumed against never killed: how do the final weights compare?",
    choices=["exactly equal", "equal up to rounding", "different"],
)

# %%
guess.reveal(differences({"": run}, undisturbed).words[""])

# %% [markdown]
# The second start found how many steps were done and took the rest. With more than two ranks expect a
# difference of rounding: the first step after a start adds the gradients in a different order (DDP does
# not know yet in which order they become ready), and sums of three or more floats depend on their order.
#
# ## What does it cost to save less often?

# %%
guess = predict(
    "A checkpoint after every eighth step, and a kill after step 13. How many steps are done twice?",
    unit="steps",
    low=0,
    high=20,
)

# %%
rare = launch(
    "survive_kill", ranks=2, restarts=1, save_every=8, pause_ms=80.0, wait=False
).wait_for_step(13)
rare.kill(1)

# %%
guess.reveal(attempts(rare).repeated)

# %%
attempts(rare)

# %% [markdown]
# What was done since the last checkpoint is done again. A failure costs that plus the time to recover;
# saving often costs the saving (lesson 04).
#
# **Exercise 06.** Write the loop in
# [exercises/ex06_survive_kill.py](../exercises/ex06_survive_kill.py), about ten lines. The check starts
# three ranks with your file, kills one between two steps, lets torchrun start them again, kills rank 0
# *in the middle of a save*, and compares the end with one undisturbed process.

# %%
check("ex06")

# %% [markdown]
# ## Can the job continue when a whole node is lost?
#
# Yes, if you allow fewer nodes: with `--nnodes=1:2` one is enough, and two are the most. The next job
# trains until a node has been lost and has come back, and then five steps more. `lose_node()` kills the
# second torchrun with its ranks, as when a machine loses power.

# %%
show_diff("survive_kill", "follow_nodes")

# %%
guess = predict(
    "Two nodes with one rank each; one is lost and comes back. How many ranks does each start find?",
    choices=["2", "2, 1", "2, 1, 2"],
)

# %%
moved = launch(
    "follow_nodes",
    ranks=1,
    nodes=2,
    restarts=3,
    until_back=True,
    steps=100_000,
    pause_ms=20.0,
    wait=False,
).wait_for_step(5)
moved.lose_node()
moved.wait_for_step(moved.lanes()[0].step + 5).return_node()

# %%
guess.reveal(", ".join(map(str, moved.value("worlds"))))

# %%
alone = launch("follow_nodes", ranks=1, steps=moved.value("steps"))
differences({"two nodes, one, two": moved}, alone)

# %% [markdown]
# The weights are those of one process that took as many steps. That works because each batch is shared
# out again among the ranks that are there: fewer ranks, larger shares, **the same global batch**.
#
# **Exercise 06b.** Share out what is left of an epoch when the number of ranks has changed:
# [exercises/ex06b_share_again.py](../exercises/ex06b_share_again.py), about four lines.

# %%
check("ex06b")

# %% [markdown]
# ## Which settings does a restart need?

# %%
print(moved.command)

# %% [markdown]
# - `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`. By default the ranks meet in torchrun's own store. With Gloo, a
#   second start finds the addresses of the first one there: it hangs, or cannot connect. The course sets
#   the variable whenever you ask for restarts.
# - `keep_alive_interval` × `keep_alive_max_attempt`: a node without a sign of life for that many seconds
#   counts as lost, and nothing happens before. Too short is worse than slow: with 1 s × 2 the node that
#   came took the living one for dead, and there were *two* jobs, each with a rank 0, writing one
#   checkpoint (quoted: four of our four trials on 2 CPU cores, torch 2.14.1).
#
# And one limit: the node that HOST names cannot be lost, because all meet there.
#
# # Part 3: logs and clusters
#
# ## Where is the cause recorded?
#
# The last rank meets a broken sample, number 4711. Many scripts let only rank 0 print, so that the log
# stays readable. Here is the same failure twice: all output kept, and only rank 0's.

# %%
launch("wrong_output_kept", ranks=2)

# %%
guess = predict(
    "Only rank 0 prints. Does the number 4711 appear in what the ranks print?",
    choices=[True, False],
)

# %%
quiet = launch("wrong_output_kept", ranks=2, keep="rank_0")

# %%
guess.reveal("4711" in str(quiet.lines_of(0) + quiet.lines_of(1)))

# %% [markdown]
# What is left is rank 0's *connection closed*, which is true and no help; or not even that, if torchrun
# stopped rank 0 before it noticed. But torchrun keeps more than what is printed: with `--log-dir` and
# `--redirects=3` (the course sets both), each rank's output in a file of its own, one folder for each
# start (`attempt_0`, `attempt_1`), and an *error file* of each rank whose `main` is wrapped in `@record`
# (our `run_rank` does that).

# %%
error_files = sorted(quiet.folder.rglob("error.json"))
print(*sorted(quiet.folder.rglob("std*.log")), *error_files, sep="\n")

# %%
print(error_files[-1].read_text()[:60])

# %%
guess = predict(
    "The same without error files. Does 4711 appear anywhere in the run's output, torchrun's included?",
    choices=[True, False],
)

# %%
gone = launch("wrong_output_kept", ranks=2, keep="rank_0_no_file")

# %%
guess.reveal("4711" in str(gone.lines))

# %% [markdown]
# The cause is gone. Keep every rank's output in files, wrap `main` in
# `torch.distributed.elastic.multiprocessing.errors.record`, and filter when you *read*. Which of many
# errors came first, and what to do if a job hangs without one: [lesson 10](10_when_it_hangs.ipynb).
#
# ## How do I run it on a cluster?
#
# A cluster's scheduler gives you machines when they are free; the usual one is SLURM. It wants a *batch
# script*: what you need, then what to do. This one is ready for `sbatch`:

# %%
print(slurm_script("survive_kill", nodes=2, ranks=4, gpus=True, restarts=1))

# %% [markdown]
# Read it from the end: `srun` starts one torchrun on each node, and each starts four ranks. `scontrol show
# hostnames` expands SLURM's short form (`node[01-02]`) into names, and the first one is where they meet.
# The course's own tests submit such a script to a real SLURM with two nodes.
#
# # Appendix: ports, device numbers, other systems
#
# ## May I choose a port once and for all?

# %%
guess = predict(
    "A port that another job holds: how many of two ranks can open a store on it?",
    choices=[0, 1, 2],
)

# %%
port = launch("wrong_fixed_port", ranks=2)

# %%
guess.reveal(port.value("fixed"), note=port.value("answer"))

# %%
compare({"ranks that got a store": port}, "fixed", "free")

# %% [markdown]
# `EADDRINUSE`, and no training for as long as the other job runs. Asked for port 0 (*free*), the system
# picks one, and every rank that asked got one. On one node, `--standalone` does that for you; on
# several, derive the port from the job's number, as the script for SLURM above does.
#
# ## Is `rank % device_count` as good as `LOCAL_RANK`?
#
# Tutorials pick the GPU so. Four real ranks, on two pretended machines with two GPUs each:

# %%
guess = predict(
    "Ranks are dealt out in turn: 0 and 2 on one machine, 1 and 3 on the other. How many of the four "
    "share their GPU with another rank?",
    choices=[0, 2, 4],
)

# %%
in_turn = launch("wrong_modulo_index", ranks=4, placement="cyclic")

# %%
guess.reveal(in_turn.value("shared"), note=in_turn.value("how"))

# %%
each_rank(in_turn, "machine", "by_modulo", "by_local_rank")

# %%
in_blocks = launch("wrong_modulo_index", ranks=4)
spare = launch("wrong_modulo_index", ranks=4, gpus=4)
compare(
    {"in turn": in_turn, "in blocks": in_blocks, "in blocks, 4 GPUs": spare}, "shared", "elsewhere"
)

# %% [markdown]
# Dealt out in turn, both ranks of a machine compute the same number, and one GPU of each machine stands
# idle. In blocks, as torchrun does it, nobody shares. With more GPUs than ranks nobody shares either, but
# the second machine's ranks are *elsewhere*: they have left the GPUs that are theirs by `LOCAL_RANK` for
# two that may belong to another job. `rank % device_count` guesses where the ranks are; `LOCAL_RANK`
# says it.
#
# ## Does it work on Windows and macOS?
#
# From sources; we ran nothing of this.
#
# | | macOS | Windows |
# |---|---|---|
# | `torch.distributed` | yes, on the CPU with Gloo; NCCL is for NVIDIA GPUs under Linux | very limited, and long untested, says a maintainer (issue 139990) |
# | `torchrun` | yes; `--redirects` and `--tee` do nothing there and print a note | fails with *use_libuv was requested* (issue 139990, 2024; 148283, still open) |
# | a way | the same commands, with `GLOO_SOCKET_IFNAME=lo0` | WSL 2: that is Linux |
# | this course | made for Linux; it would launch plain torchruns | inside WSL 2 |
#
# ## What would have gone wrong?
#
# - **A checkpoint on the node's own disk** The node that takes over does not see it. Save where all can
#   read.
# - **Saved in place** A kill in the middle leaves half a file, and every restart fails on it. Write
#   beside it, then `os.replace`.
# - **A restart to fix a bug** An error that comes at every start uses up all restarts and hides the first
#   traceback under the last.
# - **The restart count ignored** `TORCHELASTIC_RESTART_COUNT` tells a script whether this is the first
#   start. Old logs stay in `attempt_0`.
# - **The time-out at its default** If a machine is lost without a word (power, network), the others wait
#   in their collective: 30 minutes with Gloo, unless `init_process_group(timeout=…)` says less.
# - **`--nproc-per-node` larger than the number of GPUs** Two ranks on one GPU: NCCL refuses.
#
# ## What should you remember?
#
# - torchrun talks to a script by environment variables only; `LOCAL_RANK` picks the device.
# - After a death it restarts *all* ranks. The script must find its checkpoint and continue.
# - Keep the output and the error file of every rank: the cause is rarely in rank 0's.
#
# **From memory:** one of eight machines loses power. What happens, in order, until the job trains again,
# and what must your script do for it?
#
# > **On your cluster.** With SLURM: the script above, `gpus=True`. Without a scheduler, on each of two
# > machines with four GPUs (HOST is the first one's name):
# >
# > `torchrun --nnodes=2 --nproc-per-node=4 --max-restarts=3 --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 --rdzv-id=42 --log-dir=logs --tee=3 script.py`
# >
# > or, static, with 1 for 0 on the second:
# >
# > `torchrun --nnodes=2 --nproc-per-node=4 --node-rank=0 --master-addr=HOST --master-port=29500 script.py`
# >
# > With Gloo, set `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` on each if you use restarts (whether NCCL needs
# > it, we do not know). In the script nothing changes: `my_place()` takes NCCL and `cuda:LOCAL_RANK` where
# > every rank has a GPU; in plain PyTorch that is
# > `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` and `init_process_group("nccl", device_id=…)`.
# > If the nodes have several networks, name the fast one: `NCCL_SOCKET_IFNAME=eth0`.
#
# **Sources.** PyTorch documentation,
# [torchrun (Elastic Launch)](https://docs.pytorch.org/docs/stable/elastic/run.html) and
# [Error propagation](https://docs.pytorch.org/docs/stable/elastic/errors.html) (October 2026) · PyTorch
# issues [135712](https://github.com/pytorch/pytorch/issues/135712) (2024, restarts and the shared store),
# [139990](https://github.com/pytorch/pytorch/issues/139990) (November 2024, libuv on Windows),
# [148283](https://github.com/pytorch/pytorch/issues/148283) (2025, the same, open) · SLURM documentation,
# [sbatch](https://slurm.schedmd.com/sbatch.html), *srun*, *scontrol* (version 22.05 in the tests) ·
# behaviour as measured in this run.
#
# **Next:** [07 Accumulate without syncing](07_no_sync.ipynb)
