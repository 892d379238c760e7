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
# # 02a Inside DDP
#
# | | |
# |---|---|
# | **do** | average gradients from autograd hooks; watch buckets fill and leave; see all-reduces run while backward still computes |
# | **learn** | how DDP works: a hook on each parameter, buckets, and communication that overlaps with backward |
# | **need** | [02 Basic DDP](02_basic_ddp.ipynb) |
# | **minutes** | 25 |
# | **exercise** | none; you change a script |
#
# New words are in the [glossary](glossary.md).

# %%
import numpy as np

from ddp_course import (
    compare,
    doctor,
    explore,
    launch,
    picture,
    predict,
    show_diff,
    table,
    timeline,
)

# %% [markdown]
# ## What can this machine prove?
#
# The order of events, which is the same on every machine. How much time overlap saves depends on
# where the communication runs: on GPUs beside the computing, here on the same cores.

# %%
doctor(short=True)

# %% [markdown]
# ## How does DDP know that a gradient is ready?
#
# Autograd tells it. You can ask for the same: a function registered with
# `register_post_accumulate_grad_hook` is called *during* backward, each time a parameter's gradient is
# complete. Run the next cell: it saves a script with such hooks, and no DDP.

# %%
# %%job my_hooks
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
for name, parameter in model.named_parameters():
    parameter.register_post_accumulate_grad_hook(lambda _, name=name: print("ready:", name))
model(torch.randn(2, 4)).sum().backward()
print("backward is done")

# %%
guess = predict(
    "Layer 0 is used first, layer 2 last. Whose gradients are ready first?",
    choices=["layer 0", "layer 2", "all at once, when backward is done"],
)

# %%
hooks = launch("my_hooks", ranks=1)

# %%
guess.reveal("layer 2" if "ready: 2" in hooks.lines_of(0)[0] else "layer 0")

# %% [markdown]
# Backward goes from the last layer to the first, and each gradient is announced at once. Change the
# cell: add a third layer, or use a layer twice. How often is the layer that is used twice announced?
#
# ## Can the averaging start before backward ends?
#
# Yes: let the hook start the all-reduce. With `async_op=True` it begins and does not wait; the waiting
# comes after backward, when it has mostly been done.

# %%
show_diff("average_by_hand", "average_by_hooks")

# %%
by_hooks = launch("average_by_hooks", ranks=2)
one = launch("train_one_process", ranks=1)

# %%
gap = np.abs(np.subtract(by_hooks.value("weights"), one.value("weights"))).max()
print(f"largest difference to one process: {gap:.1e}")

# %% [markdown]
# The weights are those of one process, and `in_flight` was 4 in each step: all four all-reduces had
# begun when backward returned. That is DDP in ten lines. What DDP adds is the next section.
#
# ## When does a bucket leave?
#
# A message for each of a thousand parameters would be slow, so DDP collects gradients in *buckets*. Its
# hook marks a gradient as ready; when the last one of a bucket is ready, the bucket's all-reduce can
# start. The next job has four layers a, b, c, d of 1 MiB, used in that order, each with a weight and a
# bias: 8 gradients. Buckets are 1 MiB.

# %%
guess = predict(
    "In the second step: after how many of the 8 ready gradients does the first bucket leave?",
    unit="gradients",
    low=1,
    high=8,
)

# %%
buckets = launch("watch_buckets", ranks=2)

# %%
guess.reveal(buckets.values("left_after")[1])

# %%
table(buckets, "step", "bucket", "holds", "left_after")

# %% [markdown]
# The first step used one bucket, which left last: DDP first has to see in which order gradients become
# ready. Then it cut buckets in that order, and from the second step on each leaves as soon as its layer
# is done, while backward computes the layers before.

# %%
picture("buckets")

# %% [markdown]
# ## Why would a full bucket wait?
#
# All ranks must issue the same all-reduces in the same order, so buckets leave in a fixed order, and a
# full one waits for those before it. Usually nobody waits, because the order is the one observed. With
# `find_unused_parameters=True` DDP does not observe it: buckets keep the reverse order of registration.
# Here the model's layers are registered as d, c, b, a.

# %%
guess = predict(
    "After how many of the 8 gradients does the first bucket leave now, in the second step?",
    unit="gradients",
    low=1,
    high=8,
)

# %%
waiting = launch("watch_buckets", ranks=2, registered="reversed", find_unused=True)

# %%
guess.reveal(waiting.values("left_after")[-5])

# %%
table(waiting, "step", "bucket", "holds", "left_after")

# %% [markdown]
# The bucket that goes first holds gradients that become ready last, so the full ones behind it waited,
# and nothing was hidden behind backward. That is a price of `find_unused_parameters=True` beside the
# search for unused parameters itself.
#
# ## When does the averaging happen?
#
# During backward, if buckets are small enough to leave early. The next job has eight layers of 1 MiB,
# large enough to watch.

# %%
guess = predict(
    "Eight layers of 1 MiB, buckets of 3 MiB: how many all-reduces in one step?", choices=[2, 3, 8]
)

# %%
middle = launch("overlap_buckets", ranks=2, trace=True, bucket_mb=3)

# %%
guess.reveal(timeline(middle).collectives[0])

# %% [markdown]
# A bucket closes when it has *reached* its limit, so it may be larger. (By default the limit is 1 MiB for
# the first bucket and 25 MiB for the others.) Now small buckets against a single one, on the timeline:
# rows are ranks on one clock; above is computing, below each bucket's all-reduce.

# %%
small = launch("overlap_buckets", ranks=2, trace=True, bucket_mb=1)
large = launch("overlap_buckets", ranks=2, trace=True, bucket_mb=100)

# %%
timeline(small)

# %%
timeline(large)

# %%
few, one_bucket = timeline(small).hidden_share, timeline(large).hidden_share
print(
    f"communication hidden behind computing: {few:.0%} with small buckets, {one_bucket:.0%} with one"
)

# %% [markdown]
# You may have read that overlap means "another GPU communicates meanwhile". The timeline shows what
# it is: *the same rank* computes and communicates at once, in two threads here, in two streams on a
# GPU. With a single bucket, the only all-reduce starts when the last gradient is ready, so little is
# left to hide it behind. Hatched parts are waiting for the other rank, not moving data.
#
# Move the sliders: each position is a new run.

# %%
explore("overlap_buckets", timeline, ranks=[2, 1, 4], bucket_mb=[1.0, 4.0, 100.0], batch=[128, 32])

# %% [markdown]
# ## Are small buckets faster?

# %%
compare({"1 MiB": small, "3 MiB": middle, "100 MiB": large}, "buckets", "buckets_mb", "step_ms")

# %% [markdown]
# Not here: a CPU's communication runs on the cores that compute, so hiding it saves little, and each
# all-reduce has a cost of its own. On GPUs with a network between them hiding is what makes DDP scale.
# Very small buckets lose what they hide. The default is a good start; measure before you change it.
#
# ## What would have gone wrong?
#
# - **Averaging after backward** Correct, and never overlapped: that was `average_by_hand`.
# - **Collectives from hooks in a different order on each rank** They pair wrongly or hang. DDP fixes the
#   order; a hook of your own must, too.
# - **`find_unused_parameters=True` "to be safe"** A search of the graph in each step, and buckets that
#   are never put into the order of backward.
# - **Reading `.grad` inside backward** Until backward returns it is this rank's own, or half averaged.
#
# ## What should you remember?
#
# - Autograd calls a hook for each gradient; DDP counts them, and a full bucket starts its all-reduce.
# - Buckets leave in one fixed order on all ranks; after the first step it is the order of backward.
# - Overlap is one rank computing and communicating at once.
#
# **From memory:** why does DDP send one bucket in the first step and several in the second?
#
# > **On your cluster.** The same hooks and buckets drive NCCL. `torch.profiler` shows NCCL's kernels on
# > a stream of their own: look for all-reduces that start only when backward has ended.
#
# **Sources.** S. Li et al.,
# [PyTorch Distributed](https://arxiv.org/abs/2006.15704), VLDB 2020, sections 3 and 4 · PyTorch
# documentation, [Distributed Data Parallel](https://docs.pytorch.org/docs/stable/notes/ddp.html), internal
# design · torch 2.15.0, `torch/nn/parallel/distributed.py` and `reducer.cpp` · behaviour as measured in
# this run.
#
# **Next:** [02b DDP mistakes](02b_ddp_mistakes.ipynb)
