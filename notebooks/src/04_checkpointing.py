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
# # 04 Checkpointing
#
# | | |
# |---|---|
# | **do** | kill a training at a random step and resume it bit for bit; leave one thing out and find the step where it shows; kill a save; resume four ranks on two and on one; save while training continues |
# | **learn** | what belongs in a checkpoint, who writes it, who may read it when, and how to prove that a resumed run is the same run |
# | **need** | [02 Basic DDP](02_basic_ddp.ipynb): `DistributedSampler`, the wrapper and its `module` |
# | **minutes** | 65 |
# | **exercise** | 25 minutes more |
#
# The proof is always the same: **a run that was killed and resumed must end exactly where an
# uninterrupted run ends**, not nearly but exactly.
#
# - [Part 1: what to save](#Part-1:-what-to-save), 30 minutes, and the exercise
# - [Part 2: a file you can trust](#Part-2:-a-file-you-can-trust), 20 minutes
# - [Part 3: other numbers of ranks, and large models](#Part-3:-other-numbers-of-ranks,-and-large-models), 15 minutes
#
# New words are in the [glossary](glossary.md).

# %%
import numpy as np

from ddp_course import (
    check,
    compare,
    differences,
    doctor,
    each_rank,
    explore,
    launch,
    parts,
    predict,
    show_diff,
    show_job,
    table,
)

# %%
doctor(short=True)

# %% [markdown]
# What is equal and what is not is proven here for any machine. How long a save takes is measured on
# your disk, and says nothing about other disks.
#
# # Part 1: what to save
#
# ## Are the weights enough?
#
# This script trains ten steps, then trains five, saves, loads into a fresh model, and trains five
# more. It is one process; the ranks come later.

# %%
# %%job my_checkpoint
import io

import torch
from torch import nn

x, y = torch.ones(8, 4), torch.ones(8, 1)


def fresh():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(model, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


whole, optimizer = fresh()
train(whole, optimizer, 10)

model, optimizer = fresh()
train(model, optimizer, 5)
file = io.BytesIO()
torch.save({"model": model.state_dict()}, file)  # save more here …
file.seek(0)
model, optimizer = fresh()
saved = torch.load(file)
model.load_state_dict(saved["model"])  # … and load it here
train(model, optimizer, 5)
print("largest difference", (model.weight - whole.weight).abs().max().item())

# %%
mine = launch("my_checkpoint", ranks=1)

# %%
print(mine.lines_of(0)[-1])

# %% [markdown]
# **Now you.** Change two lines so that the difference is exactly 0, and run both cells again. What
# remembers the earlier steps, besides the weights?
#
# ## What else does a training consist of?
#
# The next step also depends on AdamW's averages of past gradients (its *moments*), on the learning
# rate's place on its curve, on the random numbers that dropout will draw, and on which samples of the
# epoch are still to come. This is what it takes to save all of it, added to lesson 02's training:

# %%
show_diff("train_digits", "resume_training")

# %% [markdown]
# First the *oracle*, a run that is not disturbed. It saves a checkpoint after every fifth step. Then
# the same again, slowed down, and a random rank is killed at a random step.

# %%
whole = launch("resume_training", ranks=4)

# %%
killed = launch("resume_training", ranks=4, pause_ms=50.0, wait=False)
killed.wait_for_step(int(np.random.randint(8, 18)))
killed.kill(int(np.random.randint(4)))

# %% [markdown]
# Four fresh processes resume from what it left. `resume=` is the folder of the killed run.

# %%
resumed = launch("resume_training", ranks=4, resume=killed.folder)

# %%
start = resumed.values("step")[0]
after = whole.values("loss")[start:]
print(f"last step before the kill: {killed.values('step')[-1]}; resumed at step {start}")

# %%
differences({"resumed": resumed}, whole)

# %%
differences({"resumed": resumed}, whole, "moments")

# %%
compare({"never killed": whole, "resumed": resumed}, "loss", "learning_rate", "next_random", rank=3)

# %% [markdown]
# The steps since the last checkpoint were lost and computed again. From there on, every loss is the
# same number, and so are the moments and each rank's next random number. (On GPUs this also takes
# deterministic kernels: see the box at the end.)
#
# ## What if one thing is left out?
#
# The next job resumes the same checkpoint and forgets a part of it. None of these mistakes gives an
# error: each trains on to the end.

# %%
show_diff("resume_training", "wrong_resume")

# %%
guess = predict(
    "The random state is forgotten. Which is the first step after the resume whose loss differs?",
    choices=["the first", "the second", "the third"],
)

# %%
no_random = launch("wrong_resume", ranks=4, resume=killed.folder, forget="random")

# %%
guess.reveal(
    ["the first", "the second", "the third"][np.not_equal(no_random.values("loss"), after).argmax()]
)

# %%
guess = predict(
    "And when AdamW's moments are forgotten?", choices=["the first", "the second", "the third"]
)

# %%
no_optimizer = launch("wrong_resume", ranks=4, resume=killed.folder, forget="optimizer")

# %%
guess.reveal(
    ["the first", "the second", "the third"][
        np.not_equal(no_optimizer.values("loss"), after).argmax()
    ]
)

# %%
guess = predict(
    "And the scheduler, which sets the learning rate after each step?",
    choices=["the first", "the second", "the third"],
)

# %%
no_scheduler = launch("wrong_resume", ranks=4, resume=killed.folder, forget="scheduler")

# %%
guess.reveal(
    ["the first", "the second", "the third"][
        np.not_equal(no_scheduler.values("loss"), after).argmax()
    ]
)

# %% [markdown]
# Dropout acts in the first forward. Wrong moments spoil the first *step*, which the second loss shows.
# The optimizer's own state holds the learning rate of the first step, so a forgotten scheduler is
# wrong from the second step on, and the third loss shows it. **A resumed run that looks right for a
# step or two proves nothing.**
#
# ## Where in the epoch does it resume?

# %%
guess = predict(
    "The epoch begins again after the resume. How many of rank 0's 348 samples of an epoch come twice?",
    unit="samples",
    low=0,
    high=348,
)

# %%
no_position = launch("wrong_resume", ranks=4, resume=killed.folder, forget="position")

# %%
guess.reveal(
    np.intersect1d(whole.values("samples")[:start], no_position.values("samples")[:29]).size,
    note=f"{start} steps of 12 samples each were done; with the right resume 0 come twice",
)

# %% [markdown]
# `set_epoch` alone is not enough: it restores the epoch's *order*, and the script must still skip what
# is done, here by cutting the sampler's list.
#
# ## Why is there a backward that trains nothing?
#
# `resume_training` calls one backward before its first step and throws the result away. After its
# first backward, DDP regroups its buckets, and where a gradient lies in a bucket decides in which order
# the ranks' numbers are added, and so how the sum is rounded. A resumed process has its first backward
# in a later step than the run that was never killed.

# %%
guess = predict(
    "Without that backward: how do the weights at the end compare?",
    choices=["exactly equal", "equal up to rounding", "different"],
)

# %%
no_buckets = launch("wrong_resume", ranks=4, resume=killed.folder, forget="buckets")

# %%
guess.reveal(differences({"": no_buckets}, whole).words[""])

# %%
differences(
    {
        "resumed": resumed,
        "no random state": no_random,
        "no optimizer": no_optimizer,
        "no scheduler": no_scheduler,
        "epoch again": no_position,
        "no extra backward": no_buckets,
    },
    whole,
)

# %% [markdown]
# Rounding is not a mistake; but if you test a resume for *exactly equal*, as you should, you will meet
# it on three ranks or more. (On two ranks there is only one order: a + b = b + a.)
#
# **Exercise 04.** Make a training resumable in
# [exercises/ex04_resume_exactly.py](../exercises/ex04_resume_exactly.py), about nine lines. The check
# kills one of three ranks between two steps, calls your function again in fresh processes with a fresh
# model, optimizer and random state, and compares with one process that never stopped.

# %%
check("ex04")

# %% [markdown]
# # Part 2: a file you can trust
#
# ## What if it dies while it saves?
#
# It will: a job spends a good part of its time saving. In the next job, a process is killed after 0, 1,
# … 10 tenths of the bytes of a new checkpoint, and once when all is written; then the file is loaded.
# It is written in two ways: *in place*, over the old file, and *beside* it, then renamed.

# %%
show_job("interrupt_save")

# %%
guess = predict(
    "Written in place: how many of the 12 moments leave a file that cannot be loaded?",
    unit="moments",
    low=0,
    high=12,
)

# %%
interrupted = launch("interrupt_save", ranks=2)

# %%
guess.reveal(interrupted.values("broken")[0])

# %%
table(interrupted, "way", "old", "new", "broken", "errors")

# %% [markdown]
# Opening a file for writing empties it. From then on the old checkpoint is gone, and the new one is not
# there yet. Written beside it and renamed, no moment leaves a broken file: `os.replace` is atomic.
# `fsync` before it makes sure that the bytes are on the disk before the name is; a killed process does
# not need that, a power cut does.
#
# ## May the others load right away?
#
# Rank 0 saves, then all ranks load: to continue with the best weights, for example. The next job does
# it three times, with versions 1, 2 and 3.

# %%
guess = predict(
    "Nobody waits. Which versions does rank 1 load, the three times? (0: FileNotFoundError)",
    choices=["1-2-3", "0-0-0", "0-1-2"],
)

# %%
hasty = launch("wrong_no_barrier", ranks=2)

# %%
guess.reveal("-".join(map(str, hasty.values("found", rank=1))))

# %%
table(hasty, "step", "found", "error", rank=1)

# %% [markdown]
# The first time there is an error, which is the lucky case. Afterwards there is none: rank 1 loads the
# version *before*, and the ranks continue with different weights. A `dist.barrier()` between saving and
# loading, on all ranks, fixes it:

# %%
table(launch("wrong_no_barrier", ranks=2, barrier=True), "step", "found", rank=1)

# %% [markdown]
# (`resume_training` needs no barrier. It only loads at its start, and the collectives of the first step
# keep rank 0 from saving before all have loaded.)
#
# ## On which device do the tensors land?
#
# A saved tensor records its device, and `torch.load` puts it back *there*. Rank 0 saved, so the file
# says `cuda:0`. (The job writes that record without a GPU.)

# %%
show_job("load_on_device")

# %%
guess = predict(
    "Two ranks load it without map_location. On how many is the tensor not where the rank computes?",
    choices=[0, 1, 2],
)

# %%
on_device = launch("load_on_device", ranks=2)

# %%
guess.reveal(on_device.values("elsewhere")[0], note=on_device.values("error")[0])

# %%
table(on_device, "map_location", "lands_on", rank=None)

# %% [markdown]
# Without a GPU, it is an error. With as many GPUs as ranks, it is worse: every rank loads onto GPU 0,
# which then holds as many copies as there are ranks, and runs out of memory first. With
# `map_location="cpu"` the file is read into main memory, and `load_state_dict` copies it to where each
# parameter is; with `map_location=device` it goes straight to the rank's own device.
#
# ## Why does every name begin with `module.`?

# %%
guess = predict(
    "The DDP wrapper's state is loaded into the bare model with strict=False. How many of its 4 tensors are loaded?",
    choices=[0, 2, 4],
)

# %%
names = launch("wrong_names", ranks=2)

# %%
guess.reveal(names.values("loaded")[1], note="and no error at all")

# %%
table(names, "what", "names", "strict", "loaded", "error")

# %% [markdown]
# DDP keeps your model under the name `module`, so all its names change. By default that is an error
# with a list of missing keys; `strict=False` silences the error and loads *nothing*. Save
# `model.module.state_dict()`, and the file fits with and without DDP.
#
# ## What may be in the file?

# %%
guess = predict(
    "Of `args`, `vars(args)`, a NumPy loss and `float(loss)`: how many does torch.load refuse?",
    choices=[0, 1, 2, 4],
)

# %%
objects = launch("refuse_objects", ranks=1)

# %%
guess.reveal(len(set(objects.value("refused")) & {"args", "vars(args)", "a loss, by numpy"}))

# %%
table(objects, "what", "loads", "error")

# %% [markdown]
# Saving works for all of them; reading back fails, days later. Unpickling an arbitrary object can run
# arbitrary code, so `torch.load` reads only tensors and plain Python, unless you allow a class by name
# (`torch.serialization.add_safe_globals([MyClass])`) or say `weights_only=False`, which means: *I trust
# whoever wrote this file*. Save plain types.
#
# # Part 3: other numbers of ranks, and large models
#
# ## Can a checkpoint of four ranks continue on two, or on one?
#
# Weights, optimizer and scheduler are equal on all ranks, so they fit any world size. The position
# counts *global* batches of 48, so it means the same for any number of ranks. But random states differ
# from rank to rank, and two ranks cannot have those of four. When the world size changes, our script
# gives every rank a new one, made from its rank and the step, so that the run is reproducible.

# %%
guess = predict(
    "Four ranks' checkpoint, resumed on one rank: does it see the samples that the four would have seen, step by step?",
    choices=["yes", "no"],
)

# %%
on_two = launch("resume_training", ranks=2, resume=killed.folder)
on_one = launch("resume_training", ranks=1, resume=killed.folder)

# %%
guess.reveal(
    "yes"
    if np.array_equal(np.array(on_one.values("samples"))[:, ::4], whole.values("samples")[start:])
    else "no",
    note="every fourth of its samples is one of rank 0 of four",
)

# %%
compare({"four ranks": whole, "on two": on_two, "on one": on_one}, "step", "learning_rate", "loss")

# %% [markdown]
# The same number of steps, the same curve of the learning rate, the same samples; but a different loss,
# because dropout drew different numbers and rank 0's share of the batch is different. Launch all three
# with `dropout=0.0`, and only rounding is left. Keep the *global* batch: with 12 samples per rank on
# two ranks it would be a different training.
#
# ## What if the optimizer's state is in pieces?
#
# `ZeroRedundancyOptimizer` keeps on each rank the state of some parameters only, which saves memory.

# %%
guess = predict(
    "Rank 0 calls optimizer.state_dict() after a step. What does it get?",
    choices=["the whole state", "its own piece", "an error"],
)

# %%
zero = launch("consolidate_optimizer", ranks=2)

# %%
guess.reveal("its own piece" if zero.value("early") == "no error" else "an error")

# %%
each_rank(zero, "held", "early", "collected")

# %% [markdown]
# Rank 0 must collect the pieces first, with `optimizer.consolidate_state_dict(to=0)`. That call is a
# collective: **every rank must make it**, although only rank 0 gets the result. (The pieces are whole
# tensors, so one rank holds far more than the other.)
#
# ## And if no rank has the whole model?
#
# Then rank 0 cannot save it. With `torch.distributed.checkpoint` (DCP) every rank writes its pieces, and
# at loading each rank asks for the pieces that it needs now.

# %%
show_job("reshard_checkpoint")

# %%
guess = predict(
    "1210 weights, saved in pieces by four ranks, loaded by two: how do they compare?",
    choices=["exactly equal", "equal up to rounding", "different"],
)

# %%
pieces = launch("reshard_checkpoint", ranks=4)

# %%
halves = launch("reshard_checkpoint", ranks=2, resume=pieces.folder)
all_in_one = launch("reshard_checkpoint", ranks=1, resume=pieces.folder)

# %%
guess.reveal(differences({"": halves}, pieces).words[""])

# %%
compare({"saved by 4": pieces, "loaded by 2": halves, "loaded by 1": all_in_one}, "piece", "files")

# %%
differences({"loaded by 2": halves, "loaded by 1": all_in_one}, pieces, "moments")

# %% [markdown]
# `piece` is how many weights rank 0 holds. There is one file from every rank that saved, and a table of
# contents (`.metadata`) that says which piece of which tensor is where.
#
# ## Must training wait for the disk?

# %%
show_job("time_saves")

# %%
guess = predict(
    "The weights of this model take 8.4 MB. How large is its checkpoint, with AdamW's state?",
    unit="MB",
    low=0,
    high=200,
)

# %%
saves = launch("time_saves", ranks=2)

# %%
guess.reveal(saves.value("file_mb"))

# %%
guess = predict(
    "How long does training stand still for async_save, compared with save?",
    unit="% of the time of save",
    low=0,
    high=1000,
)

# %%
guess.reveal(100 * saves.values("blocked_ms")[1] / saves.values("blocked_ms")[0])

# %%
table(saves, "way", "blocked_ms", "done_ms", "steps_meanwhile")

# %% [markdown]
# `blocked_ms` is how long training stood still, `done_ms` the time until the files were complete, and
# `steps_meanwhile` the training steps in between (0 where one step takes longer than the writing). The
# file holds the weights *at the call*, because `async_save` first copies and only then returns. It costs
# memory for a second copy and, here, where ranks and writers share the same cores, time of the steps.
# The checkpoint exists when `future.result()` has returned, not before; do not start the next one
# earlier.
#
# The slider saves a smaller and a larger model: how long does training stand still?

# %%
explore("time_saves", parts("save_ms", "async_save_ms"), ranks=2, width=[1024, 256, 1536])

# %% [markdown]
# ## What would have gone wrong?
#
# - **Weights only** The optimizer starts cold, the learning rate jumps back, dropout and data repeat.
# - **Every rank writes the same file** They overwrite each other. One rank writes; or, with DCP, each
#   its own file.
# - **Rank 0's random state for all** The ranks then drop the same units: less random than before.
# - **A loader that draws from dropout's numbers** Each new `DataLoader` iterator takes one number from
#   PyTorch's global generator. Resuming in the middle of an epoch makes one more iterator than the
#   undisturbed run had, and everything after it differs. Give the loader a generator of its own. With
#   workers that augment you need more: torchdata's `StatefulDataLoader` saves their state.
# - **Random numbers of Python and NumPy** have states of their own; save those that you use.
# - **Only the newest checkpoint is kept** It may be complete and yet useless: saved after the loss
#   became NaN. Keep a few.
# - **Never tried** A resume that is not tested does not work. The test takes two minutes: kill, resume,
#   compare exactly.
#
# ## What should you remember?
#
# - A checkpoint is weights, optimizer, scheduler, the position in the data, and each rank's random state.
# - Write beside the old file, `fsync`, `os.replace`; and a barrier before other ranks load.
# - A resume is right when it ends *exactly* where the uninterrupted run ends.
#
# **From memory:** your resumed loss looks right for a step and is off from the second step on. What was
# forgotten? And what if it is off from the very first?
#
# > **On your cluster.** The script stays as it is; it chooses NCCL where every rank has a GPU. On both of
# > two machines with four GPUs, from a folder that both see (a file on one machine's own disk is no
# > checkpoint for the other): `python -m torch.distributed.run --nnodes=2 --nproc-per-node=4
# > --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 --rdzv-id=JOB
# > ddp_course/jobs/04_checkpointing/resume_training.py`, and after a failure the same with
# > `--resume runs/resume_training`. For equal bits on GPUs, add
# > `torch.use_deterministic_algorithms(True)` and set `CUBLAS_WORKSPACE_CONFIG=:4096:8`. `async_save`
# > needs a group with a CPU backend beside NCCL: `dist.new_group(backend="gloo")`, as in
# > `time_saves.py`. Lesson 06 restarts a killed job without you.
#
# **Sources.** PyTorch documentation,
# [Serialization semantics](https://docs.pytorch.org/docs/stable/notes/serialization.html)
# (`weights_only` is the default since version 2.6, January 2025),
# [Distributed Checkpoint](https://docs.pytorch.org/docs/stable/distributed.checkpoint.html) (page of
# October 2025), [Distributed optimizers](https://docs.pytorch.org/docs/stable/distributed.optim.html)
# (`consolidate_state_dict`) and
# [Reproducibility](https://docs.pytorch.org/docs/stable/notes/randomness.html) · Python documentation,
# [os.replace and os.fsync](https://docs.python.org/3/library/os.html) · the buckets rebuilt after the
# first iteration: torch/nn/parallel/distributed.py · in the field:
# [pytorch/examples issue 1078](https://github.com/pytorch/examples/issues/1078) (map_location, October
# 2022), [karpathy/nanochat PR 336](https://github.com/karpathy/nanochat/pull/336) (truncated file,
# November 2025), [wyim-pgl/transgenic issue 59](https://github.com/wyim-pgl/transgenic/issues/59)
# (samples repeated on resume, September 2026) · behaviour as measured in this run.
#
# **Next:** [05 Model parallelism](05_model_parallelism.ipynb)
