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
# # 14 A project of your own
#
# | | |
# |---|---|
# | **do** | train a convolutional network on two nodes; predict, then measure; lose a node; halve the bytes; write the loop yourself and hand in a report |
# | **learn** | how the parts of the course work together in one script, and how to show that it works |
# | **need** | [02 Basic DDP](02_basic_ddp.ipynb), [04 Checkpointing](04_checkpointing.ipynb), [06 torchrun](06_torchrun.ipynb), [07 Accumulate without syncing](07_no_sync.ipynb) |
# | **minutes** | 30 |
# | **exercise** | 30 minutes more |
#
# - [Part 1: predict, then train](#Part-1:-predict,-then-train)
# - [Part 2: lose a node](#Part-2:-lose-a-node)
# - [Part 3: send less](#Part-3:-send-less)
# - [Part 4: your turn](#Part-4:-your-turn)
#
# The project: train on 1,437 images of handwritten digits, on two *nodes* with two ranks each. It must
# reach what one process reaches, survive the loss of a node, go on with fewer ranks, and count each of
# the 360 test images once. You say beforehand what you expect. New words are in the
# [glossary](glossary.md).

# %%
from ddp_course import (
    attempts,
    check,
    collectives,
    compare,
    differences,
    doctor,
    launch,
    predict,
    show_job,
    timeline,
    write_page,
)

# %% [markdown]
# ## What can this machine prove?
#
# That the training is right, what it sends, and how it survives. The two nodes are two torchruns on this
# host, so nothing here shows the speed of a real cluster.

# %%
doctor(short=True)

# %% [markdown]
# # Part 1: predict, then train
#
# ## What does one process reach?

# %%
show_job("train_convnet")

# %%
alone = launch("train_convnet", ranks=1)
compare({"one process": alone}, "accuracy", "step_ms")

# %% [markdown]
# That is the oracle: whatever you distribute has to end there.
#
# ## What do two nodes reach?

# %%
same = predict(
    "Four ranks on two nodes, the same global batch. How do the weights compare with one process?",
    choices=["exactly equal", "equal up to rounding", "different"],
)

# %%
faster = predict(
    "One step of one process takes 1. How long does a step of the four ranks take?",
    unit="times",
    low=0,
    high=100,
)

# %%
team = launch("train_convnet", ranks=2, nodes=2, trace=True)

# %%
same_said = same.reveal(differences({"": team}, alone).words[""])
same_said

# %% [markdown]
# `differences` takes the largest difference of any weight, on any rank. The network is smooth on purpose
# (tanh, average pooling). With ReLU and max pooling a rounding may flip a switch, and 87 steps later two
# healthy runs differ in the second digit: then compare the first steps, or compute in float64.

# %%
faster_said = faster.reveal(team.value("step_ms") / alone.value("step_ms"))
faster_said

# %% [markdown]
# *Efficiency* is how much of the ideal speed-up is left: with four ranks a step would take 1/4. A model
# this small computes for a few milliseconds, and the rest is communication and waiting for a core:

# %%
picture_of_a_step = timeline(team)
picture_of_a_step

# %% [markdown]
# If the step of four ranks took longer, a report says so: *on this machine four ranks are correct, and
# they are not faster.* On a cluster you would grow the model or the batch until computing takes most of
# the step.
#
# ## Does it carry over to other images?
#
# MNIST has 28 × 28 pixels. 5,000 of its images come with the packages of this course; for all 70,000 run
# `python -m ddp_course prepare mnist` once, and say `data="mnist"`.

# %%
mnist = launch("train_convnet", ranks=2, data="mnist_5k", epochs=1)
compare({"digits": team, "MNIST": mnist}, "accuracy", "test_images", "step_ms")

# %% [markdown]
# The same script, twelve times as many pixels, and one epoch instead of three: the accuracies are those
# of two different tasks. Compare the steps: now computing takes its share.
#
# # Part 2: lose a node
#
# ## How long until it trains again?
#
# After step 30 the second node loses power. One node may be enough: the command says `--nnodes=1:2`.

# %%
recovery = predict(
    "How many seconds pass from the loss to the next step?", unit="seconds", low=0, high=120
)

# %%
survivor = launch(
    "train_convnet", ranks=2, nodes=2, restarts=3, pause_ms=20.0, wait=False
).wait_for_step(30)
survivor.lose_node()
starts = attempts(survivor)
starts

# %%
recovery_said = recovery.reveal(starts.recovery_s)
recovery_said

# %% [markdown]
# Most of it is torchrun waiting to hear from the lost node (`keep_alive_interval` and
# `keep_alive_max_attempt` in the command), not your script. What your script costs is the number of steps
# done twice: those since the last checkpoint.
#
# ## Is it still the same training?

# %%
kept = predict(
    "Two ranks less from step 31 on. How do the weights at the end compare with one process?",
    choices=["exactly equal", "equal up to rounding", "different"],
)

# %%
kept_said = kept.reveal(differences({"": survivor}, alone).words[""])
kept_said

# %%
compare({"one process": alone, "two nodes": team, "a node lost": survivor}, "accuracy", "worlds")

# %% [markdown]
# Two lines of the script do this: the order of the samples depends on the epoch only, and a
# rank's share is `batch[rank::world_size]` for any world size. The global batch never changes.
#
# # Part 3: send less
#
# ## How many bytes does a step send?
#
# This is what rank 0 handed to its collectives in 87 steps:

# %%
in_full = collectives(team).handed()
in_full

# %%
bytes_left = predict(
    "With bfloat16 in place of float32, how many bytes of gradients does rank 0 hand over?",
    unit="bytes",
    low=0,
    high=10_000_000,
)

# %%
small = launch("train_convnet", ranks=2, nodes=2, compress=True)
in_half = collectives(small).handed()
in_half

# %%
bytes_said = bytes_left.reveal(collectives(small).bytes_handed("bfloat16"))
bytes_said

# %%
saving = differences({"bfloat16": small}, alone)
saving

# %%
compare({"float32": team, "bfloat16": small}, "accuracy", "step_ms")

# %% [markdown]
# Half the bytes, and a *different* model: bfloat16 keeps 8 binary digits. Whether the accuracy suffers is
# a matter of measuring, not of opinion. Whether the step gets faster depends on the link: on one machine
# do not expect it.
#
# # Part 4: your turn
#
# ## Can you write the loop?
#
# **Exercise 14.** In [exercises/ex14_capstone.py](../exercises/ex14_capstone.py) write `train`, 16 to 20
# lines. The check starts three ranks, lets two of them train, kills one at a step that you do not know,
# and starts all three: your function continues with one rank more. It compares the end with one
# undisturbed process, and counts samples, bytes and test images.

# %%
check("ex14")

# %% [markdown]
# ## What do you hand in?
#
# A page that says what you expected, what you measured, and what it means. Change the sentences, and add
# your own runs: `launch` takes any script of yours, with `ranks=` and `nodes=`.

# %%
write_page(
    "my_report.html",
    "A network that survives",
    "# What I expected, and what I measured",
    same.question,
    same_said,
    faster.question,
    faster_said,
    recovery.question,
    recovery_said,
    kept.question,
    kept_said,
    bytes_left.question,
    bytes_said,
    "# One step on four ranks",
    picture_of_a_step,
    "# The loss of a node",
    starts,
    "# What is sent",
    in_full,
    in_half,
    saving,
    "# My own loop",
    check("ex14"),
)

# %% [markdown]
# A good report answers five questions. Is the result that of one process, and how do you know? What
# happens when a rank or a node is lost, and what did that cost? Is every test image counted once? What
# is sent, and what did the saving change? What did you predict wrongly, and why?
#
# ## What would have gone wrong?
#
# - **An order that depends on the rank or the world size** After the restart some samples come twice and
#   others never, and no error says so.
# - **`global_batch` divided by the old world size** With fewer ranks the batch shrinks, and the same
#   learning rate is another training.
# - **A checkpoint that only rank 0's node can read** The node that is left cannot resume.
# - **A mean of the ranks' accuracies** Shares of the test set differ in size: add up counts.
# - **A prediction after the measurement** It is always right, and teaches nothing.
#
# ## What should you remember?
#
# - Compare every distributed run with one process that has all the data.
# - Keep the global batch and the order of the samples independent of the world size.
# - Predict before you measure, and report what this machine cannot prove.
#
# **From memory:** a job of 8 ranks loses one machine with 4 of them. What do torchrun and your script do,
# in order, until the next step?
#
# > **On your cluster.** `slurm_script("train_convnet", nodes=2, ranks=4, gpus=True, restarts=1)` writes the
# > batch script. The checkpoint must be on a disk that all nodes share. With GPUs and NCCL nothing in the
# > script changes. (Neither GPUs nor a real second machine were at hand where this lesson was written.)
#
# **Sources.** PyTorch documentation,
# [torchrun (Elastic Launch)](https://docs.pytorch.org/docs/stable/elastic/run.html) and
# [DDP communication hooks](https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html) · the images: E.
# Alpaydin, C. Kaynak,
# [Optical recognition of handwritten digits](https://doi.org/10.24432/C50P49), UCI Machine Learning
# Repository, 1998, as scikit-learn ships them · behaviour as measured in this run.
#
# This is the last lesson for now.
