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
# # 02d Collectives by hand
#
# | | |
# |---|---|
# | **do** | run five collectives on three numbers; sum a tensor over ranks in four ways and count what each rank sends; let a ring stand still |
# | **learn** | all-gather, reduce-scatter and all-to-all; why an all-reduce goes around a ring; what it costs |
# | **need** | [02 Basic DDP](02_basic_ddp.ipynb) |
# | **minutes** | 25 |
# | **exercise** | 15 minutes more |
#
# DDP needs one collective, the all-reduce. Sharded training (FSDP), tensor parallelism and mixtures of
# experts are built from the others. New words are in the [glossary](glossary.md).

# %%
from ddp_course import (
    check,
    collectives,
    compare,
    diagnose,
    doctor,
    launch,
    picture,
    predict,
    show_job,
)

# %% [markdown]
# ## What can this machine prove?
#
# Who sends what to whom, and how many bytes: the same on any machine. Times are not measured here,
# because all ranks share one memory.

# %%
doctor(short=True)

# %% [markdown]
# ## Which collectives are there?
#
# Each rank has a few numbers: rank 0 has 1 2 3, rank 1 has 10 20 30, rank 2 has 100 200 300. The digits
# of a sum show who is in it.

# %%
show_job("show_collectives")

# %%
guess = predict(
    "all_reduce gives every rank 111 222 333. What does reduce_scatter leave on rank 1?",
    choices=["111 222 333", "222", "20"],
)

# %%
five = launch("show_collectives", ranks=3)

# %%
guess.reveal(str(five.value("reduce_scatter", 1)[0]))

# %%
picture("collectives")

# %% [markdown]
# These are the numbers that the job printed. With `broadcast`, `all_reduce` and `all_gather` all ranks
# end with the same. With `reduce_scatter` and `all_to_all` each ends with something of its own, which
# is why no rank has to hold everything.
#
# ## What are reduce-scatter and all-gather together?
#
# The job's last lines gather what `reduce_scatter` left on each rank.

# %%
guess = predict(
    "reduce_scatter, then all_gather of the results. Which collective does the same at once?",
    choices=["broadcast", "all_reduce", "all_to_all"],
)

# %%
same = five.by_rank("scattered_then_gathered") == five.by_rank("all_reduce")
guess.reveal("all_reduce" if same else "none of them")

# %% [markdown]
# **All-reduce = reduce-scatter + all-gather.** FSDP takes the two apart: it leaves each rank one piece of
# the gradients and of the optimizer's state, and gathers a layer's weights when they are needed.
#
# ## How would you sum over ranks yourself?
#
# The next job does it in four ways, with messages from one rank to one other (`send`, `recv`). Each
# rank has 1 MiB.

# %%
show_job("sum_by_hand")

# %%
guess = predict(
    "4 ranks, 1 MiB each, way `root`: how many MiB does rank 0 send?",
    unit="MiB",
    low=0,
    high=8,
)

# %%
root = launch("sum_by_hand", ranks=4, way="root")

# %%
guess.reveal(collectives(root).sent[0][1] / 2**20)

# %% [markdown]
# Three, and it receives three, while each of the others sends one. With 64 ranks it would be 63, and
# all others wait for rank 0's cable. Now the ring:

# %%
picture("ring")

# %%
guess = predict(
    "4 ranks, 1 MiB each, way `ring`: how many MiB does the busiest rank send?",
    unit="MiB",
    low=0,
    high=8,
)

# %%
ring = launch("sum_by_hand", ranks=4, way="ring")

# %%
guess.reveal(max(collectives(ring).sent.values())[1] / 2**20)

# %% [markdown]
# For each rank, the messages it sent and their bytes, as the course's recorder counted them:

# %%
collectives(root).traffic

# %%
collectives(ring).traffic

# %% [markdown]
# Together they send the same 6 MiB. But the ring's load is even: with n ranks, each sends 2(n − 1)
# messages of 1/n of the tensor. That is 2(n − 1)/n times the tensor: 1.5 with 4 ranks, and less than 2
# with any number. So the bytes that a rank sends hardly limit how many ranks can average. The number
# of steps does grow, and small tensors are slow on a long ring; NCCL also knows trees, and chooses.
#
# ## Does it matter who adds up?
#
# The simplest way of all: everybody sends everything to everybody, and adds up. It costs each rank
# three times the tensor. Its result is right, up to rounding.

# %%
guess = predict(
    "Way `gather`: each rank adds up all tensors, its own first. Do all ranks get the same bits?",
    choices=["yes", "no"],
)

# %%
everybody = launch("sum_by_hand", ranks=4, way="gather")
built_in = launch("sum_by_hand", ranks=4, way="built_in")

# %%
guess.reveal("no" if max(everybody.by_rank("differing").values()) else "yes")

# %%
ways = {"root": root, "gather": everybody, "ring": ring, "built_in": built_in}
compare(ways, "numbers", "distance", "differing", rank=1)

# %% [markdown]
# Rank 1's numbers: their distance from the sum in double precision (each way is right, up to rounding),
# and how many of them are not rank 0's, bit for bit. Floating-point addition depends on its order, so with `gather` each rank has rounded in its own way.
# Replicas that take such steps drift apart, and no error says so. In the ring each piece is summed up
# once and then *copied*. **Let every number be summed in one place.**
#
# ## May all ranks send first?
#
# In the ring above, `isend` begins to send and returns at once. Would `send`, which waits, do as well?

# %%
guess = predict(
    "Four ranks in a ring, each calls `send` and then `recv`. What happens?",
    choices=["it works", "it stands still"],
)

# %%
stuck = launch("wrong_ring_order", ranks=4, first="send")

# %%
guess.reveal("it works" if stuck.ok else "it stands still")

# %%
diagnose(stuck)

# %%
launch("wrong_ring_order", ranks=4, first="turns").by_rank("received")

# %% [markdown]
# `send` returns when the other side has taken the message, and nobody takes one: all are sending. Two
# ways out: even ranks send first and odd ranks receive first (`turns`, just run), or `isend`, which
# needs a `wait()` before the tensor is written to again.
#
# ## Can you write half of it?
#
# **Exercise 02d.** Open
# [exercises/ex02d_reduce_scatter.py](../exercises/ex02d_reduce_scatter.py) and write a reduce-scatter
# from `isend` and `recv`. The check compares with the sums of one process, and counts what each rank
# sends.

# %%
check("ex02d")

# %% [markdown]
# ## What would have gone wrong?
#
# - **One rank collects** With n ranks it sends and receives n − 1 times the tensor, and all wait.
# - **Each rank adds up by itself** Replicas that differ in their last bits, and drift.
# - **All send first** A hang; with Gloo for small messages, too.
# - **A piece written to before `wait()`** The receiver may get the new numbers (lesson 05 shows it).
# - **Tensors that do not divide by the number of ranks** `reduce_scatter` and `all_gather` want equal
#   pieces on all ranks: pad the last one.
#
# ## What should you remember?
#
# - All-reduce = reduce-scatter + all-gather.
# - In a ring all-reduce each of n ranks sends 2(n − 1)/n times the tensor: less than twice.
# - Every sum is computed in one place and copied, so all ranks have the same bits.
#
# **From memory:** 8 ranks, 1 GiB of gradients. How much does each rank send in one step of DDP?
#
# > **On your cluster.** The same scripts run with NCCL, where `isend` and `recv` of a ring belong into
# > one `dist.batch_isend_irecv`. (NCCL could not be tried where this lesson was written.)
#
# **Sources.** P. Patarasuk, X. Yuan,
# [Bandwidth optimal all-reduce algorithms](https://doi.org/10.1016/j.jpdc.2008.09.002), 2009 · PyTorch
# documentation, [torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html) ·
# [NCCL: collective operations](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/collectives.html) ·
# behaviour as measured in this run.
#
# **Next:** [03 Uneven workloads](03_uneven_workloads.ipynb)
