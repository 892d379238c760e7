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
# # 03 Uneven workloads
#
# | | |
# |---|---|
# | **do** | slow one rank down; let a rank run out of data and watch the others hang; end the hang with `Join`; weight shares of unequal size; stop all ranks in the same step |
# | **learn** | why every rank is as slow as the slowest, what a time-out tells you and what it does not, which divisor is right, how ranks decide together |
# | **need** | [02 Basic DDP](02_basic_ddp.ipynb): gradients are averaged inside `backward()` |
# | **minutes** | 60 |
# | **exercises** | 30 minutes more |
#
# DDP relies on ranks with equal work: every rank makes **the same collectives, in the same order,
# equally often, and at about the same time**. Here you break each of these rules once.
#
# - [Part 1: slow ranks](#Part-1:-slow-ranks)
# - [Part 2: unequal data](#Part-2:-unequal-data)
# - [Part 3: ranks that decide or wait alone](#Part-3:-ranks-that-decide-or-wait-alone)
#
# New words are in the [glossary](glossary.md).

# %%
import numpy as np

from ddp_course import (
    bars,
    check,
    compare,
    diagnose,
    differences,
    doctor,
    each_rank,
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
# Waiting, hanging and wrong averages are the same on CPUs and GPUs. The box at the end says what
# differs with NCCL.
#
# # Part 1: slow ranks
#
# ## How fast is a job with one slow rank?
#
# A *straggler* is a rank that needs longer: it has the longest texts, the slowest disk or the hottest
# GPU. Here the last rank sleeps before its forward.

# %%
show_job("wait_for_straggler")

# %%
guess = predict(
    "Rank 3 of 4 needs 100 ms more than the others. How long is a step of rank 0?",
    unit="ms",
    low=0,
    high=10_000,
)

# %%
straggler = launch("wait_for_straggler", ranks=4, trace=True)

# %%
guess.reveal(float(np.median(straggler.values("step_ms", rank=0))))

# %% [markdown]
# Each rank's time until it is ready for its backward, and then its time in backward, both in the last
# step:

# %%
bars("work_ms", "ms")(straggler)

# %%
bars("backward_ms", "ms")(straggler)

# %% [markdown]
# The same on one clock; hatched means waiting for another rank:

# %%
timeline(straggler)

# %% [markdown]
# A rank waits from its own entry into the all-reduce until the last rank has entered. The early ranks
# spent the straggler's 100 ms in *their* backward, and the straggler waited for nobody. So **the rank
# with the short backward is the slow one**. A profile of rank 0 alone shows a slow backward and sends
# you looking in the wrong place.
#
# **Now you.** Add a cell and launch it once more, with `slow_ms=5.0` and without `trace`. Can you still
# tell the slow rank from `bars("backward_ms", "ms")`? Which of the two figures would you log in a job that
# runs for days?
#
# The sliders do it with other numbers; with one rank there is nobody to wait for.

# %%
explore(
    "wait_for_straggler",
    bars("backward_ms", "ms"),
    ranks=[4, 2, 1],
    slow_ms=[100.0, 20.0, 0.0, 300.0],
)

# %% [markdown]
# ## What if every rank is slow only now and then?

# %%
guess = predict(
    "Four ranks take turns: each needs 100 ms more in every fourth step. How long is rank 0's mean step?",
    unit="ms",
    low=0,
    high=10_000,
)

# %%
turns = launch("wait_for_straggler", ranks=4, turns=True)

# %%
guess.reveal(
    float(np.mean(turns.values("step_ms", rank=0)[1:])),
    note=f"its own work: {np.mean(turns.values('work_ms', rank=0)[1:]):.0f} ms on average",
)

# %% [markdown]
# Rank 0 has a quarter of the delays and pays for all of them. **A step costs the maximum over ranks,
# and the mean of the maximum is larger than the maximum of the means.** With more ranks it becomes
# more likely that some rank is slow in a given step.
#
# ## How long may a rank wait?
#
# As long as the time-out of the process group allows: `init_process_group(…, timeout=…)`. PyTorch's
# default is 30 minutes with Gloo and 10 with NCCL; in this course it is seconds, so that you can watch.

# %%
guess = predict(
    "Rank 1 works for 2.5 s, and nothing is wrong with it. Rank 0 may wait for 1.5 s. Who fails first?",
    choices=["rank 0", "rank 1", "nobody"],
)

# %%
impatient = launch("wait_for_straggler", ranks=2, slow_ms=2500.0, timeout_s=1.5, steps=1)

# %%
guess.reveal("nobody" if impatient.ok else f"rank {impatient.result['deaths'][0]['rank']}")

# %%
impatient

# %% [markdown]
# Rank 0's own error (folded, above) says how long it waited, but not for whom, nor why: a dead rank, a
# lost one and a slow one look the same from there. It gives up, and torchrun stops the rank that was
# merely busy. The sentence that names rank 1 was found afterwards, from what every rank had recorded.
#
# Give the same work more time:

# %%
patient = launch("wait_for_straggler", ranks=2, slow_ms=2500.0, timeout_s=30.0, steps=1)
compare({"1.5 s": impatient, "30 s": patient}, "step_ms", rank=1)

# %% [markdown]
# Choose a time-out above the longest legitimate pause (a checkpoint, an evaluation, the first
# compilation) and below the time that you are willing to pay for a hang.
#
# # Part 2: unequal data
#
# ## What if a rank runs out of data?
#
# Files rarely have equal lengths. In the next job, rank *r* has 6 − *r* batches:
#
# | | step 0 | 1 | 2 | 3 | 4 | 5 |
# |---|---|---|---|---|---|---|
# | **rank 0** | ■ | ■ | ■ | ■ | ■ | ■ |
# | **rank 1** | ■ | ■ | ■ | ■ | ■ | · |
# | **rank 2** | ■ | ■ | ■ | ■ | · | · |
# | **rank 3** | ■ | ■ | ■ | · | · | · |

# %%
show_job("train_uneven")

# %%
guess = predict(
    "How does the job end?",
    choices=["well, after step 5", "it hangs in step 3", "it hangs in step 5"],
)

# %% [markdown]
# Watch the panel: the steps stop, no rank prints anything, and none is busy. The time-out ends it
# after 2.5 s.

# %%
hang = launch("train_uneven", ranks=4, timeout_s=2.5)

# %%
guess.reveal(
    "well, after step 5" if hang.ok else f"it hangs in step {hang.values('step', rank=0)[-1]}"
)

# %%
each_rank(hang, "step", "doing")

# %%
hang

# %% [markdown]
# Three ranks wait in the all-reduce of a step that rank 3 does not have. Rank 3 has finished, and
# waits at the end for the three. All four give up with errors (folded) that say how long they waited
# and never for which rank. **In a hang, ask where every rank is, and look at the odd one out.**
# [Lesson 10](10_when_it_hangs.ipynb) practises that.
#
# ## Can a rank without data still take part?
#
# It has no gradient to contribute, but it has to answer the others' all-reduces. `Join` does that:
# around the loop, it lets a rank that has finished answer with zeros until all have finished.
#
# ```python
# with model.join(divide_by_initial_world_size=True):
#     for x, y in mine:
#         …
# ```
#
# But what should the sum be divided by? In step 3 of the grid above, three ranks have batches: 36
# samples instead of 48. DDP can divide by the 4 ranks that began (`initial`, the default) or by the 3
# that still have data (`active`).

# %%
guess = predict(
    "Which divisor reproduces one process that averages each step over the samples it has?",
    choices=["initial", "active"],
)

# %%
initial = launch("train_uneven", ranks=4, join="initial")
active = launch("train_uneven", ranks=4, join="active")
one_active = launch("train_uneven_one_process", ranks=1, divide_by="active")

# %%
gaps = differences({"initial": initial, "active": active}, one_active)

# %%
guess.reveal("active" if gaps.values["active"] < gaps.values["initial"] else "initial")

# %%
gaps

# %% [markdown]
# `initial` matches a different one-process run: one that always divides the summed loss by the 48
# samples of a full step.

# %%
one_initial = launch("train_uneven_one_process", ranks=1, divide_by="initial")
differences({"initial": initial, "active": active}, one_initial)

# %% [markdown]
# Neither is wrong; they answer different questions. With `initial`, every sample counts the same over
# the epoch, and the last, smaller steps move the weights less. With `active`, every step is a true
# mean, and a sample counts more the fewer there are beside it: in the last step there are only 12.
#
# `Join` answers only what DDP sends. A collective of your own inside the loop, such as a loss summed
# for the log, pairs with one of Join's and gets a wrong number. It is often simpler to give all ranks
# equally many batches: `DistributedSampler` pads or drops.
#
# **Exercise 03c.** [exercises/ex03c_find_hang.py](../exercises/ex03c_find_hang.py) holds a training
# loop that hangs as soon as a rank's batch is empty. Remove its first marked line and run the cell:
# the table shows where each rank is and how many collectives it has started. Then fix the loop without
# `Join`; two lines change.

# %%
check("ex03c")

# %% [markdown]
# ## Is the mean of the means the mean?
#
# Now all ranks have equally many batches, but the batches differ in size: of each 48 samples, the four
# ranks have 4, 10, 14 and 20.

# %%
guess = predict(
    "Each rank calls backward() on its mean loss. Do they end where one process with all the data ends?",
    choices=["yes", "no"],
)

# %% [markdown]
# The next diff contains an answer to exercise 03, further down: try
# [the exercise](../exercises/ex03_weight_batches.py) first.

# %%
show_diff("train_ddp", "weight_batches")

# %%
alone = launch("weight_batches", ranks=1)
means = launch("weight_batches", ranks=4, loss="mean")
weighted = launch("weight_batches", ranks=4, loss="weighted")

# %%
guess.reveal("no" if differences({"": means}, alone).words[""] == "different" else "yes")

# %%
differences({"mean": means, "weighted": weighted}, alone)

# %% [markdown]
# DDP averages over *ranks*. With means, each rank has a quarter of the say, so a sample of rank 0, one
# of 4, counts five times as much as a sample of rank 3, one of 20. There is no error and no spread
# between ranks: they agree on the wrong gradient. The right loss of a rank is
#
# > **the sum of its losses × the world size ÷ the number of samples on all ranks.**
#
# DDP then adds these over ranks and divides by the world size, which leaves the sum of all losses ÷ the
# number of all samples. The same holds for tokens in texts of different length.
#
# **Exercise 03.** Write it in
# [exercises/ex03_weight_batches.py](../exercises/ex03_weight_batches.py), three or four lines.

# %%
check("ex03")

# %% [markdown]
# ## How do ranks gather tensors of unequal size?
#
# After an evaluation you want all predictions in one place. Rank *r* has 2 + *r* of them.

# %%
guess = predict(
    "all_gather with a list of the right sizes, 2 and 3: how does it end?",
    choices=["well", "with an error", "with a time-out"],
)

# %%
straight = launch("gather_unequal_sizes", ranks=2)

# %%
guess.reveal("well" if straight.ok else "with an error", note=straight.failure.what)

# %%
padded = launch("gather_unequal_sizes", ranks=3, way="padded")
each_rank(padded, "mine", "gathered")

# %% [markdown]
# A collective takes tensors of one shape from all ranks. So the ranks first gather the *sizes*, pad to
# the largest, gather, and cut the padding off: `show_job("gather_unequal_sizes")`. A shorter way is
# `all_gather_object`, which pickles; it is slower and goes through the CPU.
#
# # Part 3: ranks that decide or wait alone
#
# ## May a rank stop when it likes?
#
# *Early stopping* ends training as soon as the loss on validation data rises. Each rank has its own
# share of the validation data.

# %%
show_job("stop_together")

# %%
guess = predict(
    "Each of two ranks stops when the loss on its own share rises. How does the job end?",
    choices=["well", "with a time-out"],
)

# %%
parted = launch("stop_together", ranks=2, decide="alone", timeout_s=1.5)

# %%
guess.reveal("well" if parted.ok else "with a time-out")

# %%
each_rank(parted, "step", "doing")

# %% [markdown]
# This is the hang of the uneven batches again, caused by an `if`. A decision that changes which
# collectives come next must be the same on all ranks, so it must itself *be* a collective: `any` is an
# all-reduce of a flag (MAX: one wish is enough); `mean` is an all-reduce of the loss, from which all
# ranks then decide.

# %%
guess = predict(
    "Which of them stops after as many steps as one process with all the data?",
    choices=["any", "mean"],
)

# %%
any_wish = launch("stop_together", ranks=4, decide="any")
mean_loss = launch("stop_together", ranks=4, decide="mean")
one = launch("stop_together", ranks=1, decide="mean")

# %%
guess.reveal("mean" if mean_loss.value("stopped_at") == one.value("stopped_at") else "any")

# %%
compare({"any": any_wish, "mean": mean_loss, "one process": one}, "stopped_at", "valid_loss")

# %% [markdown]
# Both keep the ranks together. With `any`, the rank with the unluckiest share decides for all; with
# `mean`, the result does not depend on the number of ranks. Use a flag for what only one rank knows (a
# signal, a full disk, a NaN), and a reduced number for a metric.
#
# **Exercise 03b.** Write the flag in
# [exercises/ex03b_stop_together.py](../exercises/ex03b_stop_together.py), three lines.

# %%
check("ex03b")

# %% [markdown]
# ## May one rank wait alone?
#
# `if rank == 0:` write the results, then `dist.barrier()`: by a slip of indentation, inside the `if`.
# The other ranks go on to the next step. This time the time-out is long, and the launcher ends the run
# at its limit of 3 s; before that, it asks every rank where it is.

# %%
guess = predict(
    "Rank 0 calls barrier(), ranks 1 and 2 call all_reduce(). Who gets past it?",
    choices=["all", "rank 0", "ranks 1 and 2", "nobody"],
)

# %%
stuck = launch("wrong_barrier", ranks=3, barrier="some", limit_s=3)

# %%
guess.reveal("all" if stuck.ok else "nobody")

# %%
diagnose(stuck)

# %% [markdown]
# Every rank keeps a *ledger* of its collectives, with the lines that called them. Side by side, the
# ledgers part in one place, and that is what the sentence names. `diagnose` also works for a script of
# your own (`python -m ddp_course run train.py --ranks 4` in a shell), even while it still hangs.
# [Lesson 10](10_when_it_hangs.ipynb) shows how to read it.
#
# With Gloo, a barrier meets only barriers. (NCCL's barrier is an all-reduce underneath, and can pair
# with another all-reduce.) The time-out of a barrier names nobody. `monitored_barrier` does: the job
# gives it half of the time-out, so that it reports before the others give up.

# %%
named = launch("wrong_barrier", ranks=3, barrier="monitored", timeout_s=2.0)
print(named.failure.consequences[0])

# %% [markdown]
# Rank 0 collected the others' answers one by one, so it knows who is missing. Use it to find a hang.
# But most barriers are not needed: a collective waits by itself.
#
# ## May rank 0 evaluate alone?
#
# Only rank 0 evaluates, under `no_grad` and in eval mode, so there are no gradients to average. The
# other ranks go on to the barrier at the end, which rank 0 reaches right after its evaluation.

# %%
guess = predict(
    "Rank 0 evaluates through the DDP model, which has a BatchNorm layer. How does the job end?",
    choices=["well", "with a time-out"],
)

# %%
through_ddp = launch("wrong_evaluation", ranks=2, timeout_s=1.5)

# %%
guess.reveal("well" if through_ddp.ok else "with a time-out")

# %%
inside = launch("wrong_evaluation", ranks=2, through="module")
layer_norm = launch("wrong_evaluation", ranks=2, norm="layer")

# %%
compare(
    {"DDP, BatchNorm": through_ddp, "module, BatchNorm": inside, "DDP, LayerNorm": layer_norm},
    "buffers",
    "doing",
    "valid_loss",
)

# %% [markdown]
# The first forward after a synchronised training step broadcasts rank 0's *buffers* (BatchNorm's
# running mean, running variance and count of batches), in eval mode too; the forwards after it do not.
# Without buffers there is nothing to send, and the same line works, until somebody adds a BatchNorm.
# On one rank, evaluate `model.module`. Better: let all ranks evaluate a share, as in lesson 02. While
# rank 0 evaluates, the others wait in their next collective, and its time-out is running.
#
# ## What would have gone wrong?
#
# - **A larger time-out to fix a hang** It hangs longer. A time-out helps only with slowness.
# - **Blaming the first error** In a time-out every rank is a witness. Compare where they are.
# - **`loss.mean()` on shares of unequal size** All ranks agree and nothing warns; only a comparison
#   with one process shows it.
# - **A mean over no samples** A rank with an empty share computes 0 / 0. Sum first, divide later.
# - **Deciding by a local number** Loss, time, a signal, a random number: if it leads to a different
#   collective, reduce or broadcast it first.
# - **One rank leaves the loop by an exception** and catches it: the others hang as above (lesson 10).
#
# ## What should you remember?
#
# - Every rank is as slow as the slowest, and the rank with the *short* backward is the slow one.
# - All ranks must make the same collectives equally often. A decision that changes that is a collective.
# - DDP averages over ranks, not over samples: weight the loss when shares differ in size.
#
# **From memory:** your job hangs in step 700, and rank 0's error says that it timed out after ten
# minutes in an all-reduce. What do you look at next, and why not at rank 0?
#
# > **On your cluster.** Set the time-out where the group is made:
# > `dist.init_process_group(place.backend, timeout=timedelta(minutes=10), device_id=place.device_id)`.
# > The jobs run as they are; on two machines with four GPUs each, on *both*:
# > `torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 --rdzv-id=JOB
# > ddp_course/jobs/03_uneven_workloads/stop_together.py --decide mean`.
# > With NCCL a tensor for a collective must be on the GPU (`device=place.device`, as here). A watchdog
# > thread notices a time-out and ends the process with a text like *"Watchdog caught collective
# > operation timeout: WorkNCCL(SeqNum=…, OpType=ALLREDUCE, …)"*, instead of raising in the line that
# > waits. NCCL's barrier is an all-reduce, so a forgotten one can pair with an all-reduce of yours.
# > `monitored_barrier` needs a group of its own, `dist.new_group(backend="gloo")`.
#
# **Sources.** PyTorch documentation,
# [DistributedDataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html)
# (`join`, `forward_sync_buffers`) and
# [Distributed communication package](https://docs.pytorch.org/docs/stable/distributed.html) (`timeout`,
# `monitored_barrier`), as of torch 2.14 · A. Gu,
# [Distributed Training with Uneven Inputs Using the Join Context Manager](https://docs.pytorch.org/tutorials/advanced/generic_join.html),
# PyTorch tutorials, August 2021, updated September 2025 (still a prototype) · S. Li,
# [Getting Started with Distributed Data Parallel](https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html),
# PyTorch tutorials, section on skewed processing speeds · pytorch/pytorch issues
# [38174](https://github.com/pytorch/pytorch/issues/38174) (May 2020, uneven batches) and
# [54059](https://github.com/pytorch/pytorch/issues/54059) (March 2021, validation on rank 0) ·
# [huggingface/transformers issue 34242](https://github.com/huggingface/transformers/issues/34242)
# (October 2024, the mean of means) · behaviour as measured in this run.
#
# **Next:** [04 Checkpointing](04_checkpointing.ipynb)
