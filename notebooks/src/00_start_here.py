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
# | **do** | start real multi-process jobs from this page; pause one of their processes, then kill one; run a job of your own; have an exercise checked |
# | **learn** | what a rank is, what the ranks share (nothing) and how they meet (in collectives); rank, local rank, world size |
# | **need** | you train PyTorch models on one device; no GPU, no cluster, nothing about processes |
# | **minutes** | 25 |
#
# Every figure and every number on these pages comes from a job that ran on your machine, a moment
# ago. Run the cells from top to bottom with Shift+Enter. New words are in the
# [glossary 术语表](glossary.md).

# %%
import time

from ddp_course import bars, check, doctor, explore, launch, predict, show_job

# %% [markdown]
# ## What can this machine prove?
#
# The same cells run on a laptop and on a machine with eight GPUs; what they can show differs. The
# last lines of the report say what you can conclude here, and what you cannot.

# %%
doctor()

# %% [markdown]
# ## What is a rank?
#
# A distributed job is **one script, started several times**. Each copy is a process with memory of
# its own, and gets a number: its *rank*. The script below is all there is to our first job. Read
# it. New to you are the calls of `dist.`, PyTorch's distributed package, and three helpers of this
# course: `my_place` says which device and backend the rank uses, `log` reports numbers to this page,
# and `run_rank` ends the process cleanly.

# %%
show_job("hello_ranks")

# %% [markdown]
# In each step, rank 0 holds 1, rank 1 holds 2, and so on. `all_reduce` replaces each rank's number
# by the sum over all ranks.
#
# Commit a prediction before you run: from here on, every experiment starts with one. Being wrong
# is the point; it shows you what to look at.

# %%
guess = predict(
    "Four ranks give 1, 2, 3 and 4. What does rank 0 hold after all_reduce?", choices=[1, 4, 10]
)

# %%
four = launch("hello_ranks", ranks=4)

# %%
guess.reveal(four.value("total"))

# %% [markdown]
# 1 + 2 + 3 + 4 = 10, and rank 0 cannot know that alone: it has been told. `by_rank` shows
# what each rank reported.

# %%
four.by_rank("total")

# %%
four.by_rank("pid")

# %% [markdown]
# Four process ids, so four processes. This notebook is one more: it started them,
# listens, and trains nothing itself.
#
# ## Does the script change with the number of ranks?
#
# No: only the command does. With one rank, the sum over ranks is the rank's own number.

# %%
one = launch("hello_ranks", ranks=1)

# %%
two = launch("hello_ranks", ranks=2)

# %%
one.value("total"), two.value("total"), four.value("total")

# %% [markdown]
# ## What exactly did the cell do?
#
# What you would do in a shell. Paste this into a terminal: it is the whole command, it does the
# same without this notebook, and `torch.distributed.run` is what `torchrun` is short for. In a shell
# you also see lines like `[rank 0] step=0 total=3`: they are what this page collects.

# %%
print(two.command)

# %% [markdown]
# A launch from this page is quicker than the same command in a shell. Why? A fresh torchrun is one
# Python process that imports PyTorch, and it starts more of them, one for each rank. The course
# keeps one process that has imported PyTorch already and makes each rank a copy of it (a *fork*).
# torchrun itself still starts, watches and ends the ranks. `warm=False` launches without it.

# %%
guess = predict(
    "How much longer does a plain torchrun take than a warm one, for the same two ranks?",
    unit="times as long",
    low=1,
    high=100,
)

# %%
plain = launch("hello_ranks", ranks=2, warm=False)

# %%
guess.reveal(plain.wall_s / two.wall_s)

# %% [markdown]
# The difference is starting Python and importing PyTorch, not your job. (Where a machine
# cannot fork, both launches are plain, and the ratio is about 1.)
#
# ## What do the others do while one rank stands still?
#
# In JupyterLab the panel of a live run has buttons for each rank: *pause*, *resume*, *kill*. The
# next cell presses them from code, so that the page also runs unattended.
#
# In JupyterLab `launch` returns at once and the panel lives on; what needs the result (`value`, `ok`,
# `exit_codes`) waits for it. Run unattended, `launch` itself waits for the end, unless you say
# `wait=False`, as here. `wait_for_step(5)` waits until every rank has logged step 5.

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
# Rank 0 was healthy, and still stood in `all_reduce` for about as long as rank 1 was
# paused. **A collective returns when every rank has called it**, so the slowest rank sets the pace
# of all. Lesson 03 is about that.
#
# Try it by hand: launch again with `steps=500`, press *pause* on a rank, watch the others' steps.
#
# ## And if a rank dies?
#
# Killed without a word (`kill -9`), as when a machine runs out of memory.

# %%
guess = predict(
    "Rank 1 of 3 is killed in the middle. How many ranks end without an error?", choices=[0, 1, 2]
)

# %%
run = launch("hello_ranks", ranks=3, steps=500, limit_s=40, wait=False).wait_for_step(5)
run.kill(1)

# %%
run.exit_codes

# %%
guess.reveal(list(run.exit_codes.values()).count(0))

# %%
run

# %% [markdown]
# The report names the rank that failed *first*. The others end because of it: with a long
# message about a broken connection, or stopped by torchrun before they noticed. On a cluster you
# will see the loud ones; look for the first one. Exit code −9 means: ended by signal 9, `SIGKILL`.
#
# ## Which device is mine?
#
# Two numbers are easily mixed up. The **rank** counts all processes of the job. The **local rank**
# counts those on one machine, and only that one is a device number. The next job deals its four
# real ranks out to two *pretended* machines with two GPUs each, and computes what each rank would
# ask for if it used its rank as a device number.

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
mixed_up.by_rank("by_rank"), mixed_up.by_rank("by_local_rank")

# %% [markdown]
# And the same mistake with all four ranks on one machine:

# %%
launch("wrong_device_index", ranks=4, ranks_per_machine=4).value("missing")

# %% [markdown]
# On one machine rank and local rank are equal, so the mistake does nothing. It waits for
# your first job on two machines. Write `LOCAL_RANK`, from the first script on.
#
# ## Can I run a script of my own?
#
# Yes: `%%job name` saves a cell as a script beside this notebook, and `launch` runs it by name (or
# any file, by its path). Read this one, commit a prediction, run it; then change it and run it again.

# %%
# %%job my_first_job
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
numbers = torch.arange(3) * 10**rank
print(f"rank {rank} has {numbers.tolist()}")
dist.all_reduce(numbers, op=dist.ReduceOp.MAX)
print(f"rank {rank} now has {numbers.tolist()}")
dist.destroy_process_group()

# %%
guess = predict(
    "What does rank 0 have after the maximum over the three ranks?",
    choices=["[0, 1, 2]", "[0, 100, 200]", "[200]"],
)

# %%
mine = launch("my_first_job", ranks=3)

# %%
guess.reveal(mine.lines_of(0)[-1].removeprefix("rank 0 now has "))

# %% [markdown]
# A collective works element by element, and the result is on every rank.

# %% [markdown]
# ## What does a slider do?
#
# `explore` launches the job again, for real, whenever you move one (in JupyterLab), and redraws.
# Each bar is a rank's last wait in `all_reduce`.

# %%
explore("hello_ranks", bars("waited_ms", "ms"), ranks=[2, 1, 4], pause_ms=[20.0, 1.0, 100.0])

# %% [markdown]
# ## How is an exercise checked?
#
# **Exercise 00.** Open [exercises/ex00_sum_over_ranks.py](../exercises/ex00_sum_over_ranks.py), write
# the two or three marked lines, save, and run the cell. The check starts three ranks with your file,
# gives each a number that only this rank gets, and compares what comes back with what one process
# with all the numbers gets. Until you have written something it says *not yet*. When you are stuck,
# `hint("ex00", more=True)` goes one step further each time; `restore("ex00")` starts over and keeps what
# you had, and `progress()` shows how far you are.

# %%
check("ex00")

# %% [markdown]
# ## What would have gone wrong?
#
# - **`if rank == 0: dist.all_reduce(x)`** If the others never call it, rank 0 waits until the time-out.
#   If they call another all_reduce of the same size later, the two pair up, and the sums are wrong
#   without any error (lesson 10). A collective is for *all* ranks of the group.
# - **`cuda:{RANK}`** Right on one machine, an invalid device on the second. You saw the count.
# - **Reading the loudest error** The rank that was killed said nothing at all; whatever you could
#   read came from the ranks that did nothing wrong.
# - **Printing and expecting order** Ranks run at the same time; their lines come in any order, and
#   in a shell they can even share a line. Here each line is kept with its rank.
#
# > **On your cluster.** The script stays as it is; only the command changes. On two machines with
# > four GPUs each, run on *both*:
# > `torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 --rdzv-id=JOB script.py`
# > where HOST is one of the two. Ranks are 0–7, local ranks 0–3 on each. Lesson 06 does it for real.
#
# **Sources.** PyTorch documentation, *torchrun (Elastic Launch)*,
# docs.pytorch.org/docs/stable/elastic/run.html (environment variables; page of October 2026) ·
# PyTorch documentation, *Distributed communication package*,
# docs.pytorch.org/docs/stable/distributed.html · behaviour as measured in this run.
#
# **Next:** [01 DP or DDP](01_dp_vs_ddp.ipynb)
