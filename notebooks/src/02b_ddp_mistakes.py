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
# # 02b DDP mistakes
#
# | | |
# |---|---|
# | **do** | break DDP in nine ways, and see which of them say so |
# | **learn** | which mistakes raise, when, and which train on silently; what to log so that you notice |
# | **need** | [02 Basic DDP](02_basic_ddp.ipynb): the spread between ranks, `DistributedSampler` |
# | **minutes** | 30 |
# | **exercise** | 15 minutes more |
#
# New words are in the [glossary](glossary.md).

# %%
from ddp_course import check, compare, doctor, launch, predict, table

# %% [markdown]
# ## What can this machine prove?
#
# All of it: these mistakes are about order and equality, not about speed.

# %%
doctor(short=True)

# %% [markdown]
# ## Can I step around DDP without noticing?
#
# Three scripts train for five steps. One calls `model.module(x)`, "to get at my own model". One wraps
# the model while a layer is frozen, and unfreezes it afterwards. One replaces a layer after wrapping.

# %%
guess = predict(
    "Which of the three ends in an error?",
    choices=["forward through model.module", "unfrozen after wrapping", "replaced after wrapping"],
)

# %%
module = launch("wrong_wrapping", ranks=2, mistake="module")
unfrozen = launch("wrong_wrapping", ranks=2, mistake="unfrozen")
replaced = launch("wrong_wrapping", ranks=2, mistake="replaced")
right = launch("wrong_wrapping", ranks=2, mistake="none")

# %%
guess.reveal("replaced after wrapping" if not replaced.ok else "forward through model.module")

# %%
compare(
    {"right": right, "model.module": module, "unfrozen": unfrozen, "replaced": replaced},
    "step",
    "spread",
)

# %% [markdown]
# The *spread*, the largest difference between the ranks' parameters, must be 0 after every step. Two of
# the mistakes train two different models to the end, without a word:
#
# - DDP prepares the averaging in *its* forward. If you call the inner module, nothing is sent. (For an
#   evaluation that is right.)
# - DDP lists the trainable parameters when it wraps. **Build, freeze and replace first, wrap last.**
#
# The third was stopped, but after a step with gradients that were not averaged. The replaced layer's old
# parameters never get a gradient, so their bucket is never complete, and DDP notices when the next
# forward begins.
#
# ## What does "expected to have finished reduction" mean?
#
# The same: a parameter got no gradient. Usually a part of the model is not used in the forward. With
# `TORCH_DISTRIBUTED_DEBUG=INFO` the error names the parameters.

# %%
unused = launch("wrong_unused_parameters", ranks=2, env={"TORCH_DISTRIBUTED_DEBUG": "INFO"})

# %%
unused

# %% [markdown]
# Look for *"Parameters which did not receive grad"*. The cure is to leave the layer out, or
# `find_unused_parameters=True`, which searches the graph in every step and never reorders the buckets
# (lesson 02a):

# %%
table(launch("wrong_unused_parameters", ranks=2, find_unused=True), "step", "spread")

# %% [markdown]
# ## Why `set_epoch`?

# %%
guess = predict(
    "set_epoch is forgotten. How many of an epoch's 6 batches on rank 0 repeat the epoch before?",
    choices=[0, 1, 6],
)

# %%
no_set_epoch = launch("wrong_epoch_order", ranks=2)

# %%
guess.reveal(no_set_epoch.value("repeated"))

# %%
compare(
    {
        "forgotten": no_set_epoch,
        "set_epoch(epoch)": launch("wrong_epoch_order", ranks=2, set_epoch=True),
    },
    "batches",
    "repeated",
)

# %% [markdown]
# The sampler's order comes from seed + epoch, and only you tell it the epoch. Without it, the data is
# shuffled once for the whole training. The spread stays 0: the replicas are equal, only the data
# repeats.
#
# **Exercise 02b.** Do the sampler's work yourself, four or five lines, in
# [exercises/ex02b_partition_data.py](../exercises/ex02b_partition_data.py): each rank's share of an
# epoch, shuffled alike on all ranks, and equally long although the data does not divide.

# %%
check("ex02b")

# %% [markdown]
# ## Does a forgotten `set_epoch` overfit?
#
# Another common claim. Test it: three trainings with `set_epoch` and three without, on the digits.

# %%
guess = predict(
    "On the test digits, is the difference between the ways larger than that between seeds?",
    choices=["larger", "not larger"],
)

# %%
orders = launch("compare_epoch_orders", ranks=2)

# %%
with_it, without = orders.values("on_test")
guess.reveal("larger" if abs(with_it - without) > max(orders.values("spread")) else "not larger")

# %%
table(orders, "set_epoch", "on_train", "on_test", "spread")

# %% [markdown]
# A training that overfits does better on its training data and worse on the test data. Three seeds
# and one small data set prove no rule; but they do not support the claim. What is certain is that the same
# batches come back in every epoch, which is not what you meant. Call `set_epoch`.
#
# ## Does `shuffle=True` beside a sampler slow training down?

# %%
guess = predict(
    "DataLoader(dataset, sampler=sampler, shuffle=True): what happens?",
    choices=["it trains more slowly", "it does not run"],
)

# %%
shuffled = launch("wrong_shuffle", ranks=2)

# %%
guess.reveal("it trains more slowly" if shuffled.ok else "it does not run")

# %%
shuffled

# %% [markdown]
# A `ValueError` before the first batch. If a training converges slowly, the cause is something else.
# `DistributedSampler` shuffles by itself unless you say `shuffle=False` *to it*.
#
# ## What if each rank makes its own data?
#
# A sampler deals out *indices*. It relies on every rank having the same data set in the same order. Two
# ranks draw 480 samples and keep 80 of them for the test; once each draws its *data* without a common
# seed, once its *split*.

# %%
guess = predict(
    "Own splits: how many of rank 0's 80 test samples does some rank train on?",
    unit="samples",
    low=0,
    high=80,
)

# %%
same = launch("wrong_data_seed", ranks=2, own="nothing")
own_data = launch("wrong_data_seed", ranks=2, own="data")
own_split = launch("wrong_data_seed", ranks=2, own="split")

# %%
guess.reveal(own_split.value("leaked"))

# %%
compare({"one seed": same, "own data": own_data, "own split": own_split}, "trained_on", "leaked")

# %% [markdown]
# With its own data, a rank deals out a set that nobody else has: half of its 400 samples are never
# used. With its own split, the test is no test, and the accuracy looks better than it is. Nothing
# raises. Give everything that all ranks must agree on one seed, or draw it on rank 0 and broadcast it.
#
# ## May every rank download the data?
#
# `if not path.exists(): download(path)` is in many tutorials. Here four ranks run it against a small web
# server on this machine that counts. First they all look at once; then three look while rank 0 is
# still writing.

# %%
guess = predict(
    "Three ranks look while rank 0 is writing. How many read half a file?", choices=[0, 1, 3]
)

# %%
downloads = launch("wrong_download", ranks=4)

# %%
guess.reveal(downloads.values("broken")[1])

# %%
table(downloads, "how", "downloads", "broken")

# %% [markdown]
# *Prepared* is the cure: one rank downloads to another name and renames, which is done as a whole or
# not at all; the others wait at a barrier. Better still, download before the job starts, as
# `python -m ddp_course prepare` does. On several machines without a shared disk, one rank of each
# machine (`LOCAL_RANK == 0`) downloads.
#
# ## What would have gone wrong?
#
# - **Weights that drift apart** Most of these mistakes train silently for at least one step. Log the
#   spread once in a while: it must be exactly 0.
# - **Data that repeats, overlaps or leaks** The spread does not see it. Log the indices of a batch once.
# - **An error one step late** "Expected to have finished reduction in the *prior* iteration": look at the
#   step before.
#
# ## What should you remember?
#
# - Finish the model before you wrap it, and call the wrapped one.
# - Sampler, split and data must be drawn alike on all ranks.
# - One rank prepares files; the others wait.
#
# **From memory:** which of today's mistakes would the spread have shown, and which not?
#
# > **On your cluster.** Test these with two ranks on a laptop first: each shows there. Set
# > `TORCH_DISTRIBUTED_DEBUG=INFO` in the job script of a first run.
#
# **Sources.** PyTorch documentation,
# [DistributedDataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html)
# and [torch.utils.data](https://docs.pytorch.org/docs/stable/data.html) · behaviour as measured in this
# run.
#
# **Next:** [02c How ranks meet](02c_how_ranks_meet.ipynb)
