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
# # 02 Basic DDP
#
# | | |
# |---|---|
# | **do** | turn a one-process training script into a distributed one, in small steps; train on handwritten digits; take a template home |
# | **learn** | what `DistributedDataParallel` (DDP) adds to your loop, what it does not, and how to prove that the ranks train one model |
# | **need** | [00 Start here](00_start_here.ipynb): rank, world size, `all_reduce` |
# | **minutes** | 30 |
# | **exercise** | 10 minutes more |
#
# Lesson 02 has five parts: **basic DDP** (this one), [02a Inside DDP](02a_inside_ddp.ipynb),
# [02b DDP mistakes](02b_ddp_mistakes.ipynb), [02c How ranks meet](02c_how_ranks_meet.ipynb) and
# [02d Collectives by hand](02d_collectives.ipynb). New words are in the [glossary](glossary.md).

# %%
import numpy as np

from ddp_course import check, copy_job, doctor, launch, picture, predict, show_diff, show_job, table

# %% [markdown]
# ## What can this machine prove?
#
# Correctness, on any machine: **N ranks must end with the weights that one process gets from all the
# data.** Every script below is held against that.

# %%
doctor(short=True)

# %% [markdown]
# ## Where do we start?
#
# With the loop that you know. It logs the loss of each step, and all weights at the end: the *oracle*
# that every later script must reproduce. The scripts form a ladder: each *rung* changes a little of
# the one below.

# %%
show_job("train_one_process")

# %%
one = launch("train_one_process", ranks=1)

# %% [markdown]
# ## Is it enough to start the script twice?

# %%
guess = predict(
    "Two ranks run this very script, unchanged. How many different samples does the job see in a step?",
    choices=[24, 48, 96],
)

# %%
copies = launch("train_one_process", ranks=2)

# %%
same_loss = copies.values("loss", rank=0) == copies.values("loss", rank=1)
guess.reveal(48 if same_loss else 96, note="Both ranks logged the same losses, step for step.")

# %% [markdown]
# Two processes did the same work twice. torchrun starts processes; it does not share out data and
# does not connect models. Two things are missing: **each rank takes a share of the batch**, and **the
# ranks agree on one gradient**.
#
# ## What must the ranks exchange?
#
# Only gradients. The gradient of a mean loss over a batch is the mean of the gradients over equal
# shares of it. So if all ranks start with equal weights, compute the gradient of their own share, and
# average it over the ranks, each takes the step that one process would take with the whole batch. The
# collective for that is `all_reduce`:

# %%
picture("collectives")

# %% [markdown]
# **Exercise 02.** Write that average in
# [exercises/ex02_average_gradients.py](../exercises/ex02_average_gradients.py), about five lines, and
# have it checked on three ranks. The next section shows one way to do it.

# %%
check("ex02")

# %% [markdown]
# ## How much must be added to train on several ranks?
#
# The next diff contains an answer to exercise 02: try the exercise first.

# %%
guess = predict(
    "How many lines must be added to the one-process script?", unit="lines", low=0, high=200
)

# %%
by_hand_diff = show_diff("train_one_process", "average_by_hand")
guess.reveal(by_hand_diff.added, note="Docstrings and empty lines are not counted.")

# %%
by_hand_diff

# %% [markdown]
# Each of four ranks sees 12 of the 48 samples of a step. Does it end where one process ends?

# %%
guess = predict(
    "The largest difference in any of the 1210 weights, four ranks against one process?",
    choices=["exactly 0", "below 0.00001", "above 0.00001"],
)

# %%
by_hand = launch("average_by_hand", ranks=4)

# %%
gap = float(np.abs(np.subtract(by_hand.value("weights"), one.value("weights"))).max())
found = "exactly 0" if gap == 0 else "below 0.00001" if gap < 1e-5 else "above 0.00001"
guess.reveal(found, note=f"The largest difference is {gap:.1e}.")

# %% [markdown]
# The same weights, up to rounding: four partial sums, added up, round differently from one long sum,
# and 32-bit floats carry about seven digits.
#
# ## What does DDP do for me?
#
# The averaging. You wrap the model once, and the average happens inside `loss.backward()`.

# %%
show_diff("average_by_hand", "train_ddp")

# %%
ddp = launch("train_ddp", ranks=4)

# %%
gap = np.abs(np.subtract(ddp.value("weights"), one.value("weights"))).max()
print(f"largest difference to one process: {gap:.1e}")

# %% [markdown]
# DDP is not a different kind of training. It is the same average, made earlier and faster (lesson
# 02a). **It does not share out your data**: the line `x[rank::world_size]` is still ours.
#
# ## Since when are the ranks' models equal?
#
# In the next job every rank has its own seed, so the models start out different. The *spread* is the
# largest difference between two ranks in any parameter.

# %%
guess = predict(
    "When is the spread 0 for the first time?",
    choices=["before DDP", "after DDP(model)", "after step 0", "never"],
)

# %%
replicas = launch("compare_replicas", ranks=4)

# %%
guess.reveal(replicas.values("when")[replicas.values("spread").index(0.0)])

# %%
table(replicas, "when", "spread")

# %% [markdown]
# The constructor sends rank 0's weights to all ranks, and from then on equal gradients make equal
# steps. The spread is exactly 0, because every rank receives the same averaged bits. That is why
# nobody ever sends weights again. (The exception is *buffers*, such as BatchNorm's running means: DDP
# copies rank 0's at the first forward after each synchronised step.)
#
# ## Does it hold for real data?
#
# Handwritten digits, 8 × 8 pixels: 1437 to train on, 360 kept back for the test. A
# `DistributedSampler` shares them out: it shuffles all indices with a seed that is the same on all
# ranks, and rank *r* takes numbers *r, r + N, r + 2N, …*. Together, the ranks' local batches are one
# global batch of 48, for every N that divides 48.

# %%
show_diff("train_ddp", "train_digits")

# %%
guess = predict("Accuracy on the 360 test digits, after 8 epochs?", unit="%", low=0, high=100)

# %%
digits = launch("train_digits", ranks=2)

# %%
guess.reveal(100 * digits.value("accuracy"))

# %%
digits_alone = launch("train_digits", ranks=1)
gap = np.abs(np.subtract(digits.value("weights"), digits_alone.value("weights"))).max()
print(f"largest difference to one process: {gap:.1e}")

# %% [markdown]
# Equal up to rounding, which has grown a little over 232 steps. Each test image was counted on exactly
# one rank, and the counts were added up.
#
# ## What do I take home?
#
# A script of your own. The template has what a real training needs and nothing of this course:
# device, process group, sampler, loop, metric, checkpoint, resume. The lines for GPUs are in it.

# %%
script = copy_job("template", "my_training.py")
show_job(script)

# %%
first = launch(script, ranks=2, epochs=2)

# %%
again = launch(script, ranks=4, epochs=4)

# %% [markdown]
# Look at what they printed: the second launch found `checkpoint.pt` and began with epoch 2, on twice
# as many ranks. (If you run these cells again, everything is done already: delete `checkpoint.pt`.)
# Now replace the data and the model in `my_training.py`. In a terminal its docstring's command runs
# it, and here `launch("my_training.py", ranks=2)` does. When something goes wrong, the
# [cheat sheet](cheat_sheet.md) leads from the symptom to the lesson.
#
# ## What would have gone wrong?
#
# - **The loss of rank 0 taken for *the* loss** Each rank logs the loss of its own share. Average it over
#   the ranks if you report it.
# - **The learning rate** Twice as many ranks with the same *local* batch make twice the global batch: a
#   different training. Here the global batch stays 48, so the weights stay the same.
# - **A world size that does not divide the batch** Five ranks take 9 samples each: they silently train
#   on 45. Shares of unequal size need weights (lesson 03).
# - **Saving `model.state_dict()` of the wrapped model** Its names begin with `module.` (lesson 04).
#
# ## What should you remember?
#
# - DDP averages gradients in `backward()`; equal weights and equal gradients keep the replicas equal.
# - Sharing out the data is your job: a `DistributedSampler`, and `set_epoch` in every epoch.
# - The proof is always the same: N ranks end where one process ends.
#
# **From memory:** which four lines turn a one-process script into a DDP script?
#
# > **On your cluster.** Start `my_training.py` on each machine, with the rendezvous options of its
# > docstring and `--nproc-per-node` = GPUs per machine. Nothing in it knows how many machines there
# > are. Download data before the ranks start, never inside them (lesson 02b shows why).
#
# **Sources.** S. Li et al.,
# [PyTorch Distributed: Experiences on Accelerating Data Parallel Training](https://arxiv.org/abs/2006.15704),
# VLDB 2020 · PyTorch documentation,
# [Distributed Data Parallel](https://docs.pytorch.org/docs/stable/notes/ddp.html) · E. Alpaydin, C. Kaynak,
# [Optical Recognition of Handwritten Digits](https://archive.ics.uci.edu/dataset/80), UCI 1998 · behaviour
# as measured in this run.
#
# **Next:** [02a Inside DDP](02a_inside_ddp.ipynb)
