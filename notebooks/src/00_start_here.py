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
# # 00 Start here
#
# | | |
# |---|---|
# | **do** | write a distributed script and run it; pause one of its processes, then kill one; have an exercise checked |
# | **learn** | what a rank is, what ranks share (nothing) and how they meet (in collectives); rank, local rank, world size |
# | **need** | you train PyTorch models on one device; no GPU, no cluster, nothing about processes |
# | **minutes** | 30 |
# | **exercise** | 5 minutes more |
#
# Every figure and every number in these lessons comes from a job that ran on your machine a moment
# ago. Run the cells from top to bottom with Shift+Enter. Words that are new to you are in the
# [glossary](glossary.md).

# %%
import time

from ddp_course import bars, check, doctor, each_rank, explore, launch, picture, predict, show_job

# %% [markdown]
# ## What can this machine prove?
#
# The same cells run on a laptop and on a machine with eight GPUs, but they cannot show the same
# things. The last lines of the report say what you can conclude here and what you cannot.

# %%
doctor()

# %% [markdown]
# ## What is a rank?
#
# A distributed job is **one script, started several times**. Each copy is a process with its own
# memory, and has a number: its *rank*. Run the next cell: it saves a script beside this notebook.

# %%
# %%job my_first_job
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
number = torch.tensor([rank + 1])
dist.all_reduce(number)
print(f"rank {rank} of {dist.get_world_size()}: gave {rank + 1}, got {number.item()}")
dist.destroy_process_group()

# %% [markdown]
# Rank 0 gives 1, rank 1 gives 2, and so on. `all_reduce` combines the numbers of all ranks.
#
# Every experiment starts with a prediction: commit yours before you run the cell. A wrong one is
# welcome: it shows you what to look at.

# %%
guess = predict("Four ranks give 1, 2, 3 and 4. What does rank 0 get?", choices=[1, 4, 10])

# %%
mine = launch("my_first_job", ranks=4)

# %%
guess.reveal(int(mine.lines_of(0)[-1].split()[-1]))

# %% [markdown]
# `all_reduce` adds, and **every rank gets the result**. Rank 0 cannot know 1 + 2 + 3 + 4 alone: the
# others have told it.

# %%
picture("ranks")

# %% [markdown]
# ## Can you change it?
#
# Go back to the script and change three things, one after the other. Before each run, say what rank 0
# will get; run the cell of the script, then the cell that launches it.
#
# 1. Ask for the largest number: `dist.all_reduce(number, op=dist.ReduceOp.MAX)`.
# 2. Give three numbers instead of one: `torch.arange(3) * 10**rank`, and print `number.tolist()`.
# 3. Launch it with 2 ranks. The script does not change, only the command does.
#
# The second change shows that a collective works element by element.
#
# ## What exactly did the cell do?
#
# It ran one command. You can paste it into a terminal, and it does the same without this notebook.
# (`python -m torch.distributed.run` is what `torchrun` is short for.)

# %%
print(mine.command)

# %% [markdown]
# ## What do the course's own jobs look like?
#
# Like yours, with three helpers: `my_place` says which device and backend a rank uses, `log` reports
# numbers to this page, and `run_rank` ends the process cleanly.

# %%
show_job("hello_ranks")

# %%
four = launch("hello_ranks", ranks=4)

# %% [markdown]
# What each rank reported last:

# %%
each_rank(four, "pid", "world_size", "total")

# %% [markdown]
# Four process ids, so four processes. This notebook is one more: it started them and listens, and it
# trains nothing itself.
#
# ## Why does a launch take only a second?
#
# torchrun is a Python process that imports PyTorch and starts one more for each rank. The course
# keeps a process that has already imported PyTorch, and makes each rank a copy of it (a *fork*).
# torchrun itself still starts, watches and ends the ranks. `warm=False` launches without the trick.

# %%
guess = predict(
    "How much longer does a plain torchrun take, for the same job with two ranks?",
    unit="times as long",
    low=1,
    high=100,
)

# %%
two = launch("hello_ranks", ranks=2)
plain = launch("hello_ranks", ranks=2, warm=False)  # takes 10 to 40 seconds

# %%
guess.reveal(plain.wall_s / two.wall_s)

# %% [markdown]
# The difference is starting Python and importing PyTorch, not your job. (Where a machine
# cannot fork, both launches are plain, and the ratio is about 1.)
#
# ## What do the others do while one rank stands still?
#
# In JupyterLab, the panel of a live run has buttons for each rank: *pause*, *resume*, *kill*. The
# next cell presses them from code, so that the page also runs unattended: `wait=False` returns while
# the job still runs, and `wait_for_step(5)` waits until every rank has logged step 5.

# %%
guess = predict(
    "Rank 1 of 3 is paused for one second. How long is rank 0's longest wait in all_reduce?",
    unit="ms",
    low=0,
    high=10_000,
)

# %%
run = launch("hello_ranks", ranks=3, steps=40, pause_ms=20.0, wait=False).wait_for_step(5)
run.pause(1)
time.sleep(1)
run.resume(1)

# %%
guess.reveal(max(run.values("waited_ms")))

# %% [markdown]
# Nothing was wrong with rank 0, and yet it waited in `all_reduce` for about as long as rank 1 was
# paused. **A collective returns only when every rank has called it**, so the slowest rank sets the
# pace. Lesson 03 is about that.
#
# Try it by hand: launch again with `steps=500`, press *pause* on a rank, and watch the others' steps.
#
# ## And if a rank dies?
#
# The next cell kills one without warning (`kill -9`), as the system does when memory runs out.

# %%
guess = predict(
    "Rank 1 of 3 is killed in the middle. How many ranks end without an error?", choices=[0, 1, 2]
)

# %%
run = launch("hello_ranks", ranks=3, steps=500, limit_s=40, wait=False).wait_for_step(5)
run.kill(1)

# %%
guess.reveal(list(run.exit_codes.values()).count(0))

# %%
run

# %% [markdown]
# The report names the rank that failed *first*. The others ended because of it: with a long message
# about a broken connection, or stopped by torchrun before they noticed. Exit code −9 means "ended by
# signal 9", `SIGKILL`. On a cluster the loud messages come from the others; look for the first one.
#
# ## Which device is mine?
#
# Two numbers are easily confused. The **rank** counts all processes of the job. The **local rank**
# counts those on one machine, and only the local rank is a device number. The next job spreads its
# four real ranks over two *pretended* machines with two GPUs each, and computes which GPU each rank
# would ask for if it used its rank as a device number.

# %%
guess = predict(
    "Four ranks on two machines, two GPUs each. How many ask for a GPU that is not there?",
    choices=[0, 1, 2, 4],
)

# %%
mixed_up = launch("wrong_device_index", ranks=4, ranks_per_machine=2)

# %%
guess.reveal(mixed_up.value("missing"), note=mixed_up.value("how"))

# %%
each_rank(mixed_up, "machine", "by_rank", "by_local_rank")

# %% [markdown]
# With all four ranks on one machine, rank and local rank are equal and the mistake does no harm. It
# waits for your first job on two machines. Use `LOCAL_RANK` from the first script on.
#
# ## What does a slider do?
#
# Whenever you move one, `explore` launches the job again and redraws (in JupyterLab). Each bar
# is what a rank got from `all_reduce`.

# %%
explore("hello_ranks", bars("total"), ranks=[2, 1, 4])

# %% [markdown]
# ## How is an exercise checked?
#
# **Exercise 00.** Open [exercises/ex00_sum_over_ranks.py](../exercises/ex00_sum_over_ranks.py), write
# the two or three marked lines, save, and run the cell. The check starts three ranks with your file,
# gives each a number that only this rank knows, and compares the result with one process that has all
# the numbers. Until you have written something it says *not yet*. If you are stuck,
# `hint("ex00", more=True)` goes one step further each time; `restore("ex00")` starts over and keeps
# what you had; `progress()` shows how far you are.

# %%
check("ex00")

# %% [markdown]
# ## What would have gone wrong?
#
# - **`if rank == 0: dist.all_reduce(x)`** If the others never call it, rank 0 waits until the time-out.
#   If they call another all_reduce of the same size later, the two pair up, and the sums are wrong
#   without any error (lesson 10). A collective is for *all* ranks of the group.
# - **`cuda:{RANK}`** Right on one machine, an invalid device on the second. You saw how many.
# - **Reading the loudest error** The rank that was killed said nothing. Everything you could read came
#   from ranks that did nothing wrong.
# - **Expecting `print` in order** Ranks run at the same time, so their lines come in any order, and in
#   a shell two can share a line. Here each line is kept with its rank.
#
# ## What should you remember?
#
# - A distributed job is one script in several processes. They share no memory.
# - Ranks meet in collectives, and a collective returns only when every rank has called it.
# - The rank counts all processes; the local rank picks the device.
#
# **From memory:** one of your four ranks is slow and one is dead. What does a healthy rank see in each
# case?
#
# > **On your cluster.** The script stays as it is; only the command changes. On two machines with
# > four GPUs each, run on *both*:
# > `torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 --rdzv-id=JOB script.py`
# > where HOST is one of the two. Ranks are 0–7, local ranks 0–3 on each. Lesson 06 explains it.
# >
# > Each lesson ends with such a box. The course was written on machines without a GPU: what the boxes
# > say about GPUs and NCCL comes from PyTorch's documentation and source, and was not run.
#
# **Sources.** PyTorch documentation,
# [torchrun (Elastic Launch)](https://docs.pytorch.org/docs/stable/elastic/run.html) (environment
# variables; page of October 2026) and
# [Distributed communication package](https://docs.pytorch.org/docs/stable/distributed.html) ·
# behaviour as measured in this run.
#
# **Next:** [01 DP or DDP](01_dp_vs_ddp.ipynb)
