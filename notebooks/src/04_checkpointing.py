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
# | **do** | kill a training at a random step and resume it bit for bit; leave one thing out and find the step that tells; kill a save; resume four ranks on two and on one; save while training goes on |
# | **learn** | what belongs in a checkpoint, who writes it, who may read it when, and how to prove that a resumed run is the same run |
# | **need** | [02 Basic DDP](02_basic_ddp.ipynb): `DistributedSampler`, the wrapper and its `module` |
# | **minutes** | 40 |
#
# The proof: **a run that was killed and resumed must end exactly where an uninterrupted run ends**, not nearly
# but exactly. New words are in the [glossary 术语表](glossary.md).

# %%
import numpy as np

from ddp_course import check, compare, doctor, explore, launch, parts, predict, show_diff, show_job

# %% [markdown]
# ## What can this machine prove?
#
# What is equal and what is not is proven here, on any machine. How long a save takes is measured on
# your disk, and says nothing about another one.

# %%
doctor(short=True)

# %% [markdown]
# ## What does a training consist of?
#
# The weights, of course. But the next step also depends on AdamW's averages of past gradients (its
# *moments*), on the learning rate's place on its curve, on the random numbers that dropout will draw,
# and on which samples of the epoch are still to come. Read what is added to lesson 02's training.

# %%
show_diff("train_digits", "resume_training")

# %%
whole = launch("resume_training", ranks=4)

# %% [markdown]
# That was the run that nobody disturbs, the *oracle*. It saved a checkpoint after every fifth step.
# Now the same again, slowed down, and a random rank is killed at a random step.

# %%
killed = launch("resume_training", ranks=4, pause_ms=50.0, wait=False)
killed.wait_for_step(int(np.random.randint(8, 18)))
killed.kill(int(np.random.randint(4)))

# %%
killed.exit_codes

# %% [markdown]
# Four fresh processes go on from what it left. `resume=` is the folder of the killed run.

# %%
guess = predict(
    "Killed, resumed: the largest difference in any of the 1210 weights at the end, to the run that was never killed?",
    choices=["exactly 0", "below 0.00001", "above 0.00001"],
)

# %%
resumed = launch("resume_training", ranks=4, resume=killed.folder)

# %%
gap = np.abs(np.subtract(resumed.value("weights"), whole.value("weights"))).max()
guess.reveal("exactly 0" if gap == 0 else "below 0.00001" if gap < 1e-5 else "above 0.00001")

# %%
start = resumed.values("step")[0]
f"the last step of the killed run was {killed.values('step')[-1]}; resumed at step {start}"

# %%
[
    np.array_equal(resumed.value("moments"), whole.value("moments")),
    resumed.by_rank("next_random") == whole.by_rank("next_random"),
    resumed.values("loss", rank=3) == whole.values("loss", rank=3)[start:],
]

# %% [markdown]
# The steps since the last checkpoint were lost, and computed again. From there on, every
# loss is the same number, and so are the moments and the next random number of every rank. (On GPUs
# this also takes deterministic kernels; see the box at the end.)
#
# ## What if one thing is left out?
#
# The next job resumes the same checkpoint, and forgets a part of it. Not one of these says a word:
# each trains on to the end. `after` is what the losses should be.

# %%
show_diff("resume_training", "wrong_resume")

# %%
after = whole.values("loss")[start:]
guess = predict(
    "The random state is forgotten. The first step after the resume whose loss differs?",
    choices=["the first", "the second", "the third"],
)

# %%
no_random = launch("wrong_resume", ranks=4, resume=killed.folder, forget="random")

# %%
first = np.not_equal(no_random.values("loss"), after).argmax()
guess.reveal(["the first", "the second", "the third"][first])

# %%
guess = predict(
    "And when AdamW's moments are forgotten?", choices=["the first", "the second", "the third"]
)

# %%
no_optimizer = launch("wrong_resume", ranks=4, resume=killed.folder, forget="optimizer")

# %%
first = np.not_equal(no_optimizer.values("loss"), after).argmax()
guess.reveal(["the first", "the second", "the third"][first])

# %%
guess = predict(
    "And the scheduler, which sets the learning rate after each step?",
    choices=["the first", "the second", "the third"],
)

# %%
no_scheduler = launch("wrong_resume", ranks=4, resume=killed.folder, forget="scheduler")

# %%
first = np.not_equal(no_scheduler.values("loss"), after).argmax()
guess.reveal(["the first", "the second", "the third"][first])

# %% [markdown]
# Dropout strikes in the first forward. Wrong moments spoil the first *step*, which the
# second loss feels. The optimizer's own state holds the learning rate of the first step, so a
# forgotten scheduler is wrong from the second step on, and the third loss tells. **A resumed run that
# looks fine for a step or two proves nothing.** And the place in the epoch?

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
before = whole.values("samples")[:start]
twice = np.intersect1d(before, no_position.values("samples")[:29]).size
guess.reveal(twice, note=f"{start} steps with 12 samples each were done")

# %%
np.intersect1d(before, resumed.values("samples")[: 29 - start]).size

# %% [markdown]
# The second number is that of the right resume. `set_epoch` alone is not enough: it brings
# back the epoch's *order*, and the script must skip what is done, here by cutting the sampler's list.
#
# One thing is no state at all, and still made a difference here. After its first backward DDP
# regroups its buckets; where a gradient lies in a bucket decides in which order the ranks' numbers
# are added, and so how the sum is rounded. A resumed process has its first backward in a different step
# than the run that was never killed. The cure in our script is to throw the first one away.

# %%
guess = predict(
    "Without that throw-away backward: the largest difference in the weights at the end?",
    choices=["exactly 0", "below 0.00001", "above 0.00001"],
)

# %%
no_buckets = launch("wrong_resume", ranks=4, resume=killed.folder, forget="buckets")

# %%
gap = np.abs(np.subtract(no_buckets.value("weights"), whole.value("weights"))).max()
guess.reveal(
    "exactly 0" if gap == 0 else "below 0.00001" if gap < 1e-5 else "above 0.00001", note=f"{gap}"
)

# %%
compare(
    {
        "never killed": whole,
        "resumed": resumed,
        "no random state": no_random,
        "no optimizer": no_optimizer,
        "no scheduler": no_scheduler,
        "epoch again": no_position,
        "no throw-away": no_buckets,
    },
    "loss",
    "learning_rate",
    "next_random",
)

# %% [markdown]
# Rounding is no fault; it is the smallest difference that there is. But if you test a resume
# by *exactly equal*, as you should, you will meet it on three ranks or more. (On two ranks there is
# only one order: a + b = b + a.)
#
# ## What if it dies while it saves?
#
# It will: a job spends a good part of its time saving. The next job has a process killed after 0, 1,
# … 10 tenths of the bytes of a new checkpoint, and once when all is done, and looks at what a load
# finds afterwards.

# %%
show_job("interrupt_save")

# %%
guess = predict(
    "The file is written in place, over the old one. How many of the 12 moments leave a file that cannot be loaded?",
    unit="moments",
    low=0,
    high=12,
)

# %%
interrupted = launch("interrupt_save", ranks=2)

# %%
in_place, beside = interrupted.values("broken")
guess.reveal(in_place, note=f"loading said: {', '.join(interrupted.values('errors')[0])}")

# %%
(
    interrupted.values("way"),
    interrupted.values("old"),
    interrupted.values("new"),
    interrupted.values("broken"),
)

# %% [markdown]
# Opening a file for writing empties it, so from the first moment on the old checkpoint is
# gone and the new one is not there yet. Written beside it and renamed, no moment leaves a broken file:
# `os.replace` is one indivisible act of the file system. `fsync` before it makes sure that the bytes
# are on the disk before the name is; a killed process does not need it, a power cut does.
#
# ## May the others load right away?
#
# Rank 0 saves, all ranks load: to continue with the best weights, say. The next job does it three
# times, with versions 1, 2 and 3.

# %%
guess = predict(
    "Nobody waits. Which versions does rank 1 find, the three times? (0: FileNotFoundError)",
    choices=["1-2-3", "0-0-0", "0-1-2"],
)

# %%
hasty = launch("wrong_no_barrier", ranks=2)

# %%
found = "-".join(map(str, hasty.values("found", rank=1)))
guess.reveal(found, note=hasty.values("error", rank=1)[0])

# %%
launch("wrong_no_barrier", ranks=2, barrier=True).values("found", rank=1)

# %% [markdown]
# The first time there is an error, and one may be glad of it. Afterwards there is none: rank
# 1 loads the version *before*, and the ranks go on with different weights. A `dist.barrier()` between
# saving and loading, on all ranks, is the cure. (`resume_training` needs none: it only loads at its
# start. There, the collectives of the first step keep rank 0 from saving before all have loaded.)
#
# ## On which device do the tensors land?
#
# A saved tensor carries a note of its device, and `torch.load` brings it back *there*. Rank 0 saved,
# so the note says `cuda:0`. (The job pretends the note, so that you can see it without a GPU.)

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
(
    on_device.values("map_location"),
    on_device.values("lands_on", rank=0),
    on_device.values("lands_on", rank=1),
)

# %% [markdown]
# Without a GPU, it is an error. With as many GPUs as ranks, it is worse: every rank loads
# onto GPU 0, which then holds as many copies as there are ranks, and runs out of memory first. With
# `map_location="cpu"` the file is read into main memory and `load_state_dict` copies it to where each
# parameter is; with `map_location=device`, straight to the rank's own.
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
names.values("names"), names.values("strict"), names.values("loaded")

# %% [markdown]
# DDP keeps your model under the name `module`, so its names are others. By default that is
# an error with a list of missing keys; `strict=False` silences the error and loads *nothing*. Save
# `model.module.state_dict()`, and the file fits with and without DDP.
#
# ## What may be in the file?

# %%
guess = predict(
    "Of `args`, `vars(args)`, a loss by numpy, `float(loss)`: how many does torch.load refuse?",
    choices=[0, 1, 2, 4],
)

# %%
objects = launch("refuse_objects", ranks=1)

# %%
guess.reveal(len(set(objects.value("refused")) & {"args", "vars(args)", "a loss, by numpy"}))

# %%
objects.value("refused")

# %% [markdown]
# Saving works for all of them; reading back is where it fails, days later. Unpickling an
# arbitrary object can run arbitrary code, so `torch.load` reads only tensors and plain Python unless
# you allow a class by name (`torch.serialization.add_safe_globals([MyClass])`) or say
# `weights_only=False`, which means: *I trust whoever wrote this file*. Save plain types.
#
# ## Can four ranks' checkpoint go on with two, or with one?
#
# Weights, optimizer and scheduler are equal on all ranks: they fit any world size. The position counts
# *global* batches of 48, so it means the same for any number of ranks. A random state, though, is a
# rank's own, and two ranks cannot have those of four. Our script's policy: if the world size is
# another, every rank draws a new one, from its rank and the step, so that the run is reproducible.

# %%
guess = predict(
    "Four ranks' checkpoint, resumed on one rank: does it see the samples that the four would have seen, step by step?",
    choices=["yes", "no"],
)

# %%
on_two = launch("resume_training", ranks=2, resume=killed.folder)
on_one = launch("resume_training", ranks=1, resume=killed.folder)

# %%
same = np.array_equal(np.array(on_one.values("samples"))[:, ::4], whole.values("samples")[start:])
guess.reveal("yes" if same else "no", note="every fourth of its samples is one of rank 0 of four")

# %%
compare({"four ranks": whole, "on two": on_two, "on one": on_one}, "step", "learning_rate", "loss")

# %% [markdown]
# The same step count, the same curve of the learning rate, the same samples; a different loss,
# because dropout drew different numbers and rank 0's share of the batch is different. Launch all three runs
# with `dropout=0.0`, and only rounding is left. Keep the *global* batch: with 12 samples per rank on
# two ranks, it would be a different training.
#
# ## And if no rank has the whole model?
#
# Then rank 0 cannot save it. `torch.distributed.checkpoint` (DCP) lets every rank write its pieces,
# and at loading each rank asks for the pieces that it needs now.

# %%
guess = predict(
    "Saved in pieces by four ranks, loaded by two: the largest difference in any weight?",
    choices=["exactly 0", "more than 0"],
)

# %%
show_job("reshard_checkpoint")

# %%
pieces = launch("reshard_checkpoint", ranks=4)

# %%
halves = launch("reshard_checkpoint", ranks=2, resume=pieces.folder)
all_in_one = launch("reshard_checkpoint", ranks=1, resume=pieces.folder)

# %%
gap = np.abs(np.subtract(halves.value("weights"), pieces.value("weights"))).max()
guess.reveal("exactly 0" if gap == 0 else "more than 0")

# %%
pieces.by_rank("piece"), halves.by_rank("piece"), all_in_one.by_rank("piece")

# %%
[
    np.array_equal(all_in_one.value("weights"), pieces.value("weights")),
    np.array_equal(all_in_one.value("moments"), pieces.value("moments")),
    pieces.value("files"),
]

# %% [markdown]
# One file from every rank, and a table of contents (`.metadata`) that says which piece of
# which tensor lies where. 1210 numbers, cut into four, two or one: the same bits.
#
# ## Must training wait for the disk?

# %%
show_job("time_saves")

# %%
guess = predict(
    "The weights of this model take 8.4 MB. Its checkpoint, with AdamW's state?",
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
save_ms, async_ms = saves.values("blocked_ms")
guess.reveal(100 * async_ms / save_ms)

# %%
saves.values("done_ms"), saves.values("steps_meanwhile"), saves.values("gap")

# %% [markdown]
# First the milliseconds until the files were whole, with `save` and with `async_save`, then
# the training steps taken in between (0 where one step takes longer than the writing), then the
# difference of the file to the weights *at the call*: 0, because `async_save` first copies, and only
# then returns. What it costs is memory for a second copy, and here, where ranks and writers share the
# same cores, time of the steps. The checkpoint exists when `future.result()` has returned, not before;
# and do not start the next one earlier.
#
# The slider saves a smaller and a larger model: how long does training stand still for each way?

# %%
explore("time_saves", parts("save_ms", "async_save_ms"), ranks=2, width=[1024, 256, 1536])

# %% [markdown]
# ## Can you write it?
#
# **Exercise 04.** Make a training resumable in
# [exercises/ex04_resume_exactly.py](../exercises/ex04_resume_exactly.py), about nine lines. The check
# kills one of three ranks between two steps, calls your function again in fresh processes, with a
# fresh model, optimizer and random state, and compares with one process that never stopped.

# %%
check("ex04")

# %% [markdown]
# ## What would have gone wrong?
#
# - **Weights only** The optimizer starts cold, the learning rate jumps back, dropout and data repeat.
# - **Every rank writes the same file** They write into each other. One rank writes; or, with DCP, each
#   its own file.
# - **Rank 0's random state for all** The ranks then drop out the same units: less random than before.
# - **A loader that draws from dropout's numbers** Each new `DataLoader` iterator takes one number from
#   PyTorch's global generator. Resuming in the middle of an epoch makes one iterator more than the
#   undisturbed run had, and everything after it differs. A generator of its own keeps it out. With
#   workers that augment, you need more: torchdata's `StatefulDataLoader` saves their state.
# - **Random numbers of Python and numpy** have states of their own; save those that you use.
# - **Only the newest checkpoint is kept** It may be whole and yet useless, saved after the loss became
#   NaN. Keep a few.
# - **Never tried** A resume that is not tested does not work. The test takes two minutes: kill, resume,
#   compare exactly.
#
# > **On your cluster.** The script stays as it is; `my_place()` chooses NCCL. On both of two machines
# > with four GPUs, from a folder that both see (a file on one machine's own disk is no checkpoint for
# > the other): `python -m torch.distributed.run --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d
# > --rdzv-endpoint=HOST:29500 --rdzv-id=JOB ddp_course/jobs/04_checkpointing/resume_training.py`, and after a failure
# > the same with `--resume runs/resume_training`. For equal bits on GPUs, add
# > `torch.use_deterministic_algorithms(True)` and set `CUBLAS_WORKSPACE_CONFIG=:4096:8`. `async_save`
# > needs a group with a CPU backend beside NCCL: `dist.new_group(backend="gloo")`, as in
# > `time_saves.py`. (NCCL could not be tried where this lesson was written.) Lesson 06 restarts a
# > killed job without you.
#
# **Sources.** PyTorch documentation, *torch.load* and *Serialization semantics*,
# docs.pytorch.org/docs/stable/notes/serialization.html (`weights_only` is the default since version
# 2.6, January 2025) · *Distributed Checkpoint*, docs.pytorch.org/docs/stable/distributed.checkpoint.html
# (page of October 2025) · *Reproducibility*, docs.pytorch.org/docs/stable/notes/randomness.html ·
# Python documentation, *os.replace* and *os.fsync*, docs.python.org/3/library/os.html · the buckets
# rebuilt after the first iteration: torch/nn/parallel/distributed.py · in the field: pytorch/examples
# issue 1078 (map_location, October 2022), karpathy/nanochat PR 336 (truncated file, November 2025),
# wyim-pgl/transgenic issue 59 (samples repeated on resume, September 2026) · behaviour as measured in
# this run.
#
# **Next:** [05 Model parallelism](05_model_parallelism.ipynb)
