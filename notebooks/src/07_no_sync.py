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
# # 07 Accumulate without syncing
#
# | | |
# |---|---|
# | **do** | accumulate gradients over several micro-batches, and count what is sent; place `no_sync` in the ways that people do, right and wrong; repair a demo that circulates |
# | **learn** | what `no_sync` switches off, when DDP looks at it, which micro-batch must be synchronised, and how to scale and clip |
# | **need** | [02 Basic DDP](02_basic_ddp.ipynb): buckets, the spread between ranks |
# | **minutes** | 35 |
#
# A step whose batch does not fit into memory is cut into $k$ *micro-batches*: $k$ times forward and
# backward, and then one optimizer step. DDP would average over ranks $k$ times, though only the last
# average is used. `no_sync` stops the others. New words are in the [glossary 术语表](glossary.md).

# %%
import numpy as np

from ddp_course import (
    check,
    compare,
    doctor,
    explore,
    launch,
    predict,
    show_diff,
    show_job,
    timeline,
)

# %% [markdown]
# ## What can this machine prove?
#
# The counts, the bytes and the gradients below are the same on any machine. The times are not: they
# are those of this machine's network, or, between ranks on one CPU, of its memory.

# %%
doctor(short=True)

# %% [markdown]
# ## What must be added to a DDP loop?
#
# An inner loop, and a context around **forward and backward** of all micro-batches but the last.
# `backward()` adds to `.grad`; outside the context, DDP then averages all that has piled up there.
# (The *hook* in this script counts what DDP sends. You do not need it.)

# %%
guess = predict(
    "Two ranks, four micro-batches each: are the final weights those of one process with the whole batch?",
    choices=["yes, up to rounding", "no"],
)

# %%
show_diff("train_ddp", "accumulate_gradients")

# %%
one = launch("train_one_process", ranks=1)

# %%
pieces = launch("accumulate_gradients", ranks=2, micro_batches=4)

# %%
gap = np.abs(np.subtract(pieces.value("weights"), one.value("weights"))).max()
guess.reveal("yes, up to rounding" if gap < 1e-5 else "no", note=f"largest difference {gap:.1e}")

# %%
pieces.value("all_reduces")

# %% [markdown]
# The gradient of a mean is a sum of parts, and it does not matter whether the parts are
# added up over time (micro-batches) or over ranks. So accumulation is no approximation, and one
# all-reduce a step is enough. (BatchNorm is an exception: it would see small batches.)
#
# ## What does it save?
#
# Now with eight layers of 1 MiB, one bucket each, and four micro-batches.

# %%
guess = predict(
    "Every micro-batch synchronised: how many all-reduces in one optimizer step?",
    choices=[1, 4, 8, 32],
)

# %%
every = launch("time_accumulation", ranks=2, trace=True, sync="every")
last = launch("time_accumulation", ranks=2, trace=True, sync="last")

# %%
guess.reveal(
    every.value("all_reduces"), note=f"the profiler saw {timeline(every).collectives[0]} on rank 0"
)

# %%
compare({"every": every, "last": last}, "all_reduces", "mib_sent")

# %%
timeline(last)

# %% [markdown]
# Three backwards pass without communication, and under the fourth the buckets leave as in
# lesson 02. The hook counts what the profiler counts: $k$ times fewer all-reduces, $k$ times fewer
# bytes. And the time?

# %%
guess = predict(
    "Synchronising only the last: how long does the step take, in % of synchronising every one?",
    unit="%",
    low=0,
    high=200,
)

# %%
guess.reveal(100 * min(last.values("step_ms")) / min(every.values("step_ms")))

# %% [markdown]
# This number belongs to your machine, and to this run. The saving is the *exposed* part of
# the communication that is left out, so it is large on a slow network and small where backward hid
# everything anyway. The counts are facts; measure the time on your own cluster. Move the sliders:

# %%
explore("time_accumulation", timeline, micro_batches=[4, 1, 2, 8], sync=["last", "every"], ranks=2)

# %% [markdown]
# ## Which of the two decides, forward or backward?
#
# You have met code that computes the forward first, and opens `no_sync` around `loss.backward()`
# only: it is backward that communicates, after all. The next job takes one optimizer step of four
# micro-batches, in nine ways.

# %%
show_job("compare_accumulation")

# %%
guess = predict(
    "Four micro-batches, one bucket. Only the backwards are inside no_sync: how many all-reduces?",
    choices=[1, 4],
)

# %%
right = launch("compare_accumulation", ranks=2, variant="last")
forward_outside = launch("compare_accumulation", ranks=2, variant="forward_outside")
backward_outside = launch("compare_accumulation", ranks=2, variant="backward_outside")

# %%
guess.reveal(forward_outside.value("all_reduces"))

# %%
compare(
    {"right": right, "forward outside": forward_outside, "backward outside": backward_outside},
    "all_reduces",
    "bytes_sent",
    "spread",
    "distance",
)

# %% [markdown]
# **The forward decides.** DDP's forward notes whether this backward will be averaged, and
# arms it; at backward nobody asks again. With the forward outside, nothing is saved, and since the
# result is right (spread 0; distance 0 but for rounding, about $10^{-16}$ in double precision),
# nobody notices. The other way round happens to work; keep both inside.
#
# ## May it be the first one that is synchronised?
#
# As many all-reduces, as many bytes: only a different micro-batch, the first instead of the last.

# %%
guess = predict(
    "Synchronised on the first of four micro-batches, then the step. Are the ranks' weights equal?",
    choices=["equal", "different"],
)

# %%
first = launch("compare_accumulation", ranks=2, variant="first")

# %%
guess.reveal("equal" if first.value("spread") == 0 else "different")

# %%
compare({"last": right, "first": first}, "all_reduces", "bytes_sent", "spread", "distance")

# %% [markdown]
# The average takes what is in `.grad` *at that moment*. What the later micro-batches add is
# each rank's own, so the ranks step apart, without an error, and never meet again. **Synchronise
# last, then step.**
#
# ## What if the loss is not divided by k?

# %%
guess = predict(
    "Four micro-batches, each loss a mean, never divided. How many times too long is the gradient?",
    choices=[1, 2, 4, 16],
)

# %%
unscaled = launch("compare_accumulation", ranks=2, variant="unscaled")

# %%
guess.reveal(round(1 + unscaled.value("distance")), note="1 + the distance: it points the same way")

# %% [markdown]
# A sum of four means is four times their mean. The ranks agree, the loss falls, and your
# learning rate is four times what you think. DDP divides by the number of *ranks*; dividing by the
# number of micro-batches is yours.
#
# ## When to clip?
#
# `clip_grad_norm_` shortens a gradient that is too long. The oracle clips what one process has.

# %%
guess = predict(
    "Clipped after each backward, so before the average: is it still one process's gradient?",
    choices=["yes", "no"],
)

# %%
clip_early = launch("compare_accumulation", ranks=2, variant="clip_early")
clip_late = launch("compare_accumulation", ranks=2, variant="clip_late")

# %%
guess.reveal("yes" if clip_early.value("distance") < 1e-6 else "no")

# %%
compare({"late": clip_late, "early": clip_early}, "all_reduces", "spread", "distance")

# %% [markdown]
# Early clipping shortens what has piled up so far, again and again, and on each rank by
# a different factor. The ranks still agree (spread 0), on a wrong gradient. Clip **once, after the last
# backward**: by then every rank has the same averaged gradient and computes the same norm.
#
# ## Can you repair a demo that circulates?
#
# It computes the forward before the context begins, says `if i % k == 0` where it synchronises and
# steps, and does not scale. The next job has the same faults, on ten micro-batches with $k = 4$.

# %%
show_job("repair_windows")

# %%
guess = predict(
    "Ten micro-batches, k = 4, stepping where i % 4 == 0. How many enter the first step?",
    choices=[1, 2, 4],
)

# %%
as_found = launch("repair_windows", forward="outside", step_on="first", scale="nothing")

# %%
guess.reveal(as_found.value("windows")[0])

# %%
forward_inside = launch("repair_windows", step_on="first", scale="nothing")
full_only = launch("repair_windows", step_on="full")
repaired = launch("repair_windows")

# %%
compare(
    {
        "as found": as_found,
        "forward inside": forward_inside,
        "+ steps on the k-th, scaled": full_only,
        "+ steps on the short rest": repaired,
    },
    "windows",
    "lost",
    "all_reduces",
    "distance",
)

# %% [markdown]
# Read it, line by line:
#
# - **As found**, ten all-reduces for three steps: `no_sync` without effect. `i % k == 0` is true for
#   $i = 0$, so the first step has one micro-batch, and the last micro-batch enters no step at all.
#   (Here the demo is luckier than it looks: it synchronises and steps on the *same* micro-batch, so
#   its ranks do agree. Move only one of the two conditions, and you have `first` from above.)
# - **Forward inside**: three all-reduces. The distance has not moved: the waste was one fault, the
#   wrong windows and the scale differs.
# - **`(i + 1) % k == 0`**: windows of four, but the short rest of two is lost.
# - **`… or i + 1 == n`**: the rest is a window, too, divided by *its* length. Distance 0.
#
# ## Can you write it?
#
# **Exercise 07.** Open
# [exercises/ex07_accumulate_without_syncing.py](../exercises/ex07_accumulate_without_syncing.py). The
# check runs your function on three ranks, on a window of four micro-batches and on one of two, counts
# the all-reduces, and compares with the gradient of one process.

# %%
check("ex07")

# %% [markdown]
# ## What would have gone wrong?
#
# - **Forward outside** Every micro-batch is sent, and nothing looks wrong. Count all-reduces once.
# - **Synchronised first, or never** Replicas that drift apart in silence. Log the spread.
# - **Not divided by k**, or the short window divided by k: a different learning rate in some steps.
# - **Clipped, or logged a norm, before the sync** A number that differs from rank to rank.
# - **A short rest without a step** Its gradients stay in `.grad`: lost with the next `zero_grad`, or
#   inherited by the next epoch's first window.
# - **Mixed precision** Unscale once, before clipping; all micro-batches of a window need one scale.
# - **Ranks with different numbers of micro-batches** One rank synchronises, the others do not:
#   a hang (lesson 03; lesson 10 finds the rank).
#
# > **On your cluster.** The same scripts: `python -m torch.distributed.run --nnodes=2
# > --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 --rdzv-id=JOB
# > ddp_course/jobs/07_no_sync/time_accumulation.py --sync every`, on both machines, then with `--sync last`.
# > `my_place()` chooses NCCL; nothing else changes. The slower the link between the machines, the
# > larger the difference of `step_ms`. (NCCL could not be tried where this lesson was written.)
#
# **Sources.** PyTorch documentation, *DistributedDataParallel*, `no_sync`: "the forward pass should
# be included inside the context manager, or else gradients will still be synchronized",
# docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html (October
# 2026) · S. Li et al., *PyTorch Distributed*, VLDB 2020, arXiv:2006.15704, section 3.2.4 (gradient
# accumulation) · the same mistakes in the field: huggingface/accelerate PR 1726 (July 2023),
# karpathy/build-nanogpt PR 30 (June 2024), modelscope/FunASR PR 3472 (August 2026) · behaviour as
# measured in this run.
#
# **Next:** [10 When it hangs](10_when_it_hangs.ipynb)
