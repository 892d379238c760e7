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
# # 08 Data and metrics
#
# | | |
# |---|---|
# | **do** | look at who gets which sample; count padded samples; watch four ranks draw the same random numbers; share BatchNorm's statistics; share out a stream |
# | **learn** | where distributed data loading goes wrong without an error, and how to report a number that is true |
# | **need** | [02 Basic DDP](02_basic_ddp.ipynb): the sampler; [03 Uneven workloads](03_uneven_workloads.ipynb): mean of means |
# | **minutes** | 40 |
# | **exercises** | 25 minutes more |
#
# - [Part 1: who gets which sample](#Part-1:-who-gets-which-sample)
# - [Part 2: what a rank does with its samples](#Part-2:-what-a-rank-does-with-its-samples)
# - [Part 3: which number to report](#Part-3:-which-number-to-report)
#
# None of the mistakes below raises an error. New words are in the [glossary](glossary.md).

# %%
from ddp_course import (
    bars,
    check,
    compare,
    differences,
    doctor,
    each_rank,
    launch,
    predict,
    show_job,
    table,
)

# %%
doctor(short=True)

# %% [markdown]
# # Part 1: who gets which sample
#
# ## Ten samples, four ranks: who gets what?
#
# `DistributedSampler` gives every rank the same number of samples, whatever the data set's size.

# %%
guess = predict(
    "10 samples, 4 ranks, no shuffling. How many samples do the ranks work on, all together?",
    unit="samples",
    low=0,
    high=40,
)

# %%
shares = launch("share_samples", ranks=4, samples=10)

# %%
guess.reveal(shares.value("given"))

# %%
each_rank(shares, "indices", "twice", "never")

# %% [markdown]
# Rank *r* takes samples *r*, *r* + 4, *r* + 8 … The last places are filled up with the first samples, so
# that no rank runs out before the others. With `drop_last=True` the rest is left out instead:

# %%
each_rank(launch("share_samples", ranks=4, samples=10, drop_last=True), "indices", "twice", "never")

# %% [markdown]
# In training either is fine: with shuffling, different samples are repeated or left out in every epoch. In
# an evaluation neither is; see Part 3.
#
# ## And a data set without a length?
#
# A stream (`IterableDataset`) has no sampler, because nobody can jump to its 8th sample. Four ranks read
# a stream of 120 samples, each with two loader workers:

# %%
show_job("read_stream")

# %%
guess = predict(
    "How often is each sample of the stream read, by all ranks together?", choices=[1, 2, 4, 8]
)

# %%
stream = launch("read_stream", ranks=4, samples=120, workers=2)

# %%
guess.reveal(stream.value("times")[0])

# %%
each_rank(stream, "read", "times")

# %% [markdown]
# Each worker is a process with its own copy of the data set object, and iterates over all of it. An epoch
# takes eight times as long as it should, and the loss looks wonderful.
#
# **Exercise 08b.** Share the stream out among all readers:
# [exercises/ex08b_shard_stream.py](../exercises/ex08b_shard_stream.py), one to five lines.

# %%
check("ex08b")

# %% [markdown]
# ## Does each rank hold only its share in memory?
#
# You may have read that splitting the data over ranks divides the memory that it takes. The next job has
# a data set of 64 MiB in one file. Each rank reads it into a tensor, and its sampler picks the indices.

# %%
guess = predict(
    "How much memory does the data set take on each of 4 ranks?", unit="MiB", low=0, high=300
)

# %%
read = launch("hold_data", ranks=4, how="read")

# %%
guess.reveal(read.value("own_mib"))

# %%
mapped = launch("hold_data", ranks=4, how="map")
compare({"read": read, "mapped": mapped}, "own_mib", "samples")

# %% [markdown]
# The sampler splits the *indices*; the data set is there once for every rank. Keeping only today's share
# does not help either: the next epoch's share is a different one. A *mapped* file (`torch.from_file(…, shared=True)`, `numpy.memmap`) is in memory once
# for the whole machine, and a rank only reads the pages that it needs.
#
# # Part 2: what a rank does with its samples
#
# ## Whose random numbers are these?
#
# `torch.manual_seed(0)` on every rank lets all of them build the same model. Then the loader's workers
# rotate images at random.

# %%
guess = predict(
    "How many of rank 3's random rotations are the same as rank 0's?", unit="%", low=0, high=100
)

# %%
same_seed = launch("augment_samples", ranks=4)

# %%
guess.reveal(same_seed.value("same_percent", 3))

# %%
each_rank(same_seed, "first", "same_percent")

# %%
each_rank(launch("augment_samples", ranks=4, seed_by_rank=True), "first", "same_percent")

# %% [markdown]
# A worker's seed is the rank's random state plus the worker's number, so equal ranks have equal workers.
# The images still differ, and no error says that only a quarter of the augmentations was used. Seed the
# model with one number, then call `torch.manual_seed(seed + rank)`; DDP sends rank 0's weights anyway.
#
# ## Is BatchNorm still the same layer?
#
# BatchNorm divides by the standard deviation of *its* batch. On four ranks a global batch of 48 is four
# batches of 12.

# %%
guess = predict(
    "After 10 steps: how do the weights compare with one process that has the batches of 48?",
    choices=["equal up to rounding", "different"],
)

# %%
one = launch("normalise_batches", ranks=1)
local = launch("normalise_batches", ranks=4)

# %%
guess.reveal(differences({"": local}, one).words[""])

# %%
shared = launch("normalise_batches", ranks=4, shared=True)
differences({"each rank's own batch": local, "statistics summed over ranks": shared}, one)

# %% [markdown]
# This is the first model of the course whose result depends on how the batch is cut. With an `all_reduce`
# of the batch's mean and mean square, which autograd can go back through, it is one process's model again
# (the job computes in float64). `nn.SyncBatchNorm.convert_sync_batchnorm(model)` does that on GPUs; in a
# job on CPUs its forward raises an error. Other layers that look across a batch have the same trouble; LayerNorm
# and GroupNorm look at one sample only, and have none.

# %%
show_job("normalise_batches")

# %% [markdown]
# # Part 3: which number to report
#
# ## What does a padded sample do to the accuracy?

# %%
guess = predict(
    "13 test samples on 4 ranks, 10 of them right. Which accuracy do 16 padded samples show, at most?",
    unit="%",
    low=0,
    high=100,
)

# %%
padding = launch("count_padding", ranks=4)

# %%
guess.reveal(100 * padding.values("padded")[1], note="this run's first three samples are all right")

# %%
table(padding, "size", "samples_counted", "once", "padded", "mean")

# %% [markdown]
# `once` counts each sample on one rank and adds up right answers and samples. `padded` counts the first
# samples twice. `mean` averages the ranks' accuracies, and gives samples of the smaller shares more weight.
# With hundreds of samples the three agree in two digits, so nobody notices; but a benchmark is decided
# in the third.
#
# **Exercise 08.** Accuracy and macro-F1, each sample counted once:
# [exercises/ex08_count_once.py](../exercises/ex08_count_once.py), six to ten lines.

# %%
check("ex08")

# %% [markdown]
# ## Whose loss is on the curve?
#
# Most scripts print on rank 0 only: `if rank == 0: print(loss.item())`. Here is the validation loss of
# each rank's share, beside that of the whole validation set:

# %%
metrics = launch("report_metric", ranks=4)
table(metrics, "epoch", "own", "mean")

# %%
bars("own")(metrics)

# %% [markdown]
# The weights are the same on all ranks, the samples are not. Rank 0's number is one quarter of the truth:
# noisier, and here much too good.

# %%
guess = predict(
    "You keep the checkpoint of the best epoch. Do all ranks choose the same one by their own loss?",
    choices=["yes", "no"],
)

# %%
guess.reveal("yes" if len(set(metrics.by_rank("best_by_own").values())) == 1 else "no")

# %%
each_rank(metrics, "best_by_own", "best_by_all")

# %% [markdown]
# So a decision needs the number of all: which epoch is the best, when to stop early, when to lower the
# learning rate (`ReduceLROnPlateau`). If each rank decides by its own loss, they stop at different steps,
# and the job hangs (lesson 03). Sum the losses and the samples over all ranks, divide, and decide by
# that: every rank has the same number, so every rank decides the same.
#
# ## What would have gone wrong?
#
# - **Every rank downloads the data set** They write the same files at the same time; see
#   [02b](02b_ddp_mistakes.ipynb). Prepare it before the job, or on rank 0 and a barrier.
# - **A random split without a seed** Each rank holds out other samples, so all of the test set is trained
#   on by somebody ([02b](02b_ddp_mistakes.ipynb)).
# - **`set_epoch` forgotten** The same order in every epoch ([02b](02b_ddp_mistakes.ipynb)).
# - **`drop_last=True` in an evaluation** Up to N − 1 samples are never looked at.
# - **A stream with unequal shares** The rank with fewer samples ends first, and the others wait in an
#   all-reduce: use `Join`, or agree to stop together (lesson 03).
# - **A metric averaged over batches** F1, AUC and perplexity are no means over samples. Sum what they are
#   made of, and compute them once.
#
# ## What should you remember?
#
# - The sampler splits indices and fills up; it does not split memory, and knows nothing of streams.
# - What looks at a whole batch, BatchNorm or a metric, has to look at the batches of all ranks.
# - Add up counts over ranks, divide once, and decide by that number on every rank.
#
# **From memory:** an evaluation on 8 GPUs gives 91.3 %, the same checkpoint on one GPU 90.9 %. Which
# three places do you look at?
#
# > **On your cluster.** The same samplers and sums. On GPUs use `SyncBatchNorm` if a rank's batch is small,
# > and keep the counts on the GPU until the epoch ends: each `.item()` waits for it. Put data that many
# > nodes read on a local disk first. (What concerns GPUs here was not tried where this lesson was written.)
#
# **Sources.** PyTorch documentation,
# [torch.utils.data](https://docs.pytorch.org/docs/stable/data.html) (samplers, worker seeds, iterable data
# sets) and [SyncBatchNorm](https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html) · S.
# Ioffe, C. Szegedy, [Batch Normalization](https://arxiv.org/abs/1502.03167), 2015 · behaviour as measured
# in this run.
#
# **Next:** [09 Cheaper steps](09_cheaper_steps.ipynb)
