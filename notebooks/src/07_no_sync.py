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
# | **do** | accumulate gradients over several micro-batches, and count what is sent; place `no_sync` in the ways that people do, right and wrong; repair a loop that many copy |
# | **learn** | what `no_sync` switches off, when DDP looks at it, which micro-batch must be synchronised, and how to scale and clip |
# | **need** | [02 Basic DDP](02_basic_ddp.ipynb): the spread between ranks; [02a Inside DDP](02a_inside_ddp.ipynb): buckets |
# | **minutes** | 45 |
# | **exercise** | 15 minutes more |
#
# A step whose batch does not fit into memory is cut into *k micro-batches*: *k* forwards and backwards,
# then one optimizer step. DDP would average over ranks *k* times, though only the last average is used.
# `no_sync` stops the others. New words are in the [glossary](glossary.md).

# %%
from ddp_course import (
    check,
    compare,
    differences,
    doctor,
    explore,
    launch,
    predict,
    show_diff,
    show_job,
    timeline,
)

# %%
doctor(short=True)

# %% [markdown]
# The counts, bytes and gradients below are the same on any machine. The times are those of this
# machine's network, or, between ranks on one CPU, of its memory.
#
# ## When does a backward communicate?
#
# This cell is a script. Every rank's gradient starts as `rank + 1`; after the average over two ranks it
# is 1.5.

# %%
# %%job my_no_sync
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(nn.Linear(1, 1, bias=False))
x = torch.full((1, 1), float(dist.get_rank() + 1))
for micro_batch in range(3):
    model(x).sum().backward()
    print(f"micro-batch {micro_batch}: gradient {model.module.weight.grad.item()}")
dist.destroy_process_group()

# %%
mine = launch("my_no_sync", ranks=2)

# %%
print(*mine.lines_of(0), "", *mine.lines_of(1), sep="\n")

# %% [markdown]
# **Now you.** Put `with model.no_sync():` around the line with `backward()`, and run both cells again:
# now each rank has its own gradient. Then let the *last* micro-batch run outside. Which number do both
# ranks end with, and why is it not 1.5?
#
# ## What must be added to a DDP loop?
#
# An inner loop, and a context around **forward and backward** of all micro-batches but the last.
# `backward()` adds to `.grad`; outside the context, DDP then averages all that has accumulated there.
# (The *hook* in this script counts what DDP sends. You do not need it.)

# %%
show_diff("train_ddp", "accumulate_gradients")

# %%
guess = predict(
    "Two ranks, four micro-batches each. How do the final weights compare with one process that has the whole batch?",
    choices=["exactly equal", "equal up to rounding", "different"],
)

# %%
one = launch("train_one_process", ranks=1)
pieces = launch("accumulate_gradients", ranks=2, micro_batches=4)

# %%
guess.reveal(differences({"": pieces}, one).words[""])

# %%
differences({"2 ranks, 4 micro-batches": pieces}, one)

# %%
print("all-reduces in a step:", pieces.value("all_reduces"))

# %% [markdown]
# The gradient of a mean is a sum of parts, and it does not matter whether the parts are added over time
# (micro-batches) or over ranks. So accumulation is not an approximation, and one all-reduce for each step
# is enough. (BatchNorm is an exception: it would see small batches.)
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
# Three backwards pass without communication, and under the fourth the buckets leave as in lesson 02a:
# *k* times fewer all-reduces, *k* times fewer bytes. And the time?

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
# This number belongs to your machine and to this run. What you save is the *exposed* part of the
# communication, so it is large on a slow network and small where backward hid everything anyway. The
# counts hold everywhere; measure the time on your own cluster. Move the sliders:

# %%
explore("time_accumulation", timeline, micro_batches=[4, 1, 2, 8], sync=["last", "every"], ranks=2)

# %% [markdown]
# ## Which of the two decides, forward or backward?
#
# You may have seen code that computes the forward first and opens `no_sync` around `loss.backward()`
# only, because it is backward that communicates. The next job takes one optimizer step of four
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
# `spread` is how far the ranks' gradients are apart, `distance` how far they are from one process's,
# relative to its length (about 1e-16 is rounding in double precision).
#
# **The forward decides.** It records whether this backward will be averaged; backward does not ask
# again. With the forward outside nothing is saved, and because the result is right, nobody notices. The
# other way round happens to work; keep both inside.
#
# ## May it be the first one that is synchronised?
#
# Just as many all-reduces and bytes, but the first micro-batch is synchronised instead of the last.

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
# The average takes what is in `.grad` *at that moment*. What the later micro-batches add stays on each
# rank, so the ranks step apart, without an error, and never come together again. **Synchronise last,
# then step.**
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
# A sum of four means is four times their mean. The ranks agree, the loss falls, and your learning rate
# is four times what you think. DDP divides by the number of *ranks*; you divide by the number of
# micro-batches.
#
# ## When should I clip?
#
# `clip_grad_norm_` shortens a gradient that is too long. The oracle clips the gradient of one process.

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
# Early clipping shortens what has accumulated so far, again and again, and by a different factor on each
# rank. The ranks still agree (spread 0), on a wrong gradient. Clip **once, after the last backward**: by
# then every rank has the same averaged gradient and computes the same norm.
#
# ## Does DDP average a gradient of a gradient?
#
# Some losses contain a gradient, computed by `torch.autograd.grad(…, create_graph=True)`: a penalty on
# the slope of the output for the *inputs*, or on the length of the gradient of the *weights*.

# %%
show_job("differentiate_twice")

# %%
guess = predict(
    "Which penalty gives two ranks the gradient of one process?",
    choices=["inputs", "weights", "both", "neither"],
)

# %%
inputs = launch("differentiate_twice", ranks=2, penalty="inputs")
weights = launch("differentiate_twice", ranks=2, penalty="weights")

# %%
guess.reveal(
    {(True, True): "both", (True, False): "inputs", (False, True): "weights"}.get(
        (inputs.value("distance") < 1e-9, weights.value("distance") < 1e-9), "neither"
    )
)

# %%
compare({"inputs": inputs, "weights": weights}, "spread", "distance")

# %% [markdown]
# DDP averages what `backward` leaves in `.grad`, and nothing else. `torch.autograd.grad` returns each
# rank's own gradient (that is the `spread`). A penalty on inputs is a mean over samples, like any loss,
# so the averages are right. A penalty on the gradient of the weights needs the gradient of *all* data
# before it is squared, and no rank has that.
#
# ## Can you repair a loop that many copy?
#
# It computes the forward before the context begins, synchronises and steps where `i % k == 0`, and does
# not scale. The next job has the same faults, with ten micro-batches and *k* = 4.

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
# - **As found**: ten all-reduces for three steps, because `no_sync` has no effect. `i % k == 0` is true
#   for *i* = 0, so the first step has one micro-batch, and the last one enters no step at all. (By luck
#   it synchronises and steps on the *same* micro-batch, so its ranks agree. Move only one of the two
#   conditions, and you get `first` from above.)
# - **Forward inside**: three all-reduces. The distance has not moved: the waste was one fault, the wrong
#   windows and the scale are two more.
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
# - **Synchronised first, or never** Replicas drift apart in silence. Log the spread.
# - **Not divided by k**, or the short window divided by k: a different learning rate in some steps.
# - **Clipped, or a norm logged, before the sync** A number that differs from rank to rank.
# - **A short rest without a step** Its gradients stay in `.grad`: lost with the next `zero_grad`, or
#   inherited by the next epoch's first window.
# - **Mixed precision** Unscale once, before clipping; all micro-batches of a window need one scale.
# - **Ranks with different numbers of micro-batches** One rank synchronises, the others do not: a hang
#   (lessons 03 and 10).
#
# ## What should you remember?
#
# - `no_sync` goes around forward *and* backward; the forward decides.
# - Synchronise the last micro-batch, then clip, then step.
# - Divide each loss by the number of micro-batches in *its* window. DDP does not do it.
#
# **From memory:** name two faults of accumulation after which the ranks still agree, and one after which
# they do not. Which of the three could a comparison between ranks find?
#
# > **On your cluster.** The same scripts, on both machines: `python -m torch.distributed.run --nnodes=2
# > --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 --rdzv-id=JOB
# > ddp_course/jobs/07_no_sync/time_accumulation.py --sync every`, then with `--sync last`.
# > `my_place()` chooses NCCL; nothing else changes. The slower the link between the machines, the
# > larger the difference in `step_ms`.
#
# **Sources.** PyTorch documentation,
# [DistributedDataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html),
# `no_sync`: "the forward pass should be included inside the context manager, or else gradients will
# still be synchronized"; and on `torch.autograd.grad` (October 2026) · S. Li et al.,
# [PyTorch Distributed](https://arxiv.org/abs/2006.15704), VLDB 2020, section 3.2.4 (gradient
# accumulation) · the same mistakes in the field:
# [huggingface/accelerate PR 1726](https://github.com/huggingface/accelerate/pull/1726) (July 2023),
# [karpathy/build-nanogpt PR 30](https://github.com/karpathy/build-nanogpt/pull/30) (June 2024),
# [modelscope/FunASR PR 3472](https://github.com/modelscope/FunASR/pull/3472) (August 2026) · behaviour as
# measured in this run.
#
# **Next:** [08 Data and metrics](08_data_and_metrics.ipynb)
