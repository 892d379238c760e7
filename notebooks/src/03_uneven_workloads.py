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
# | **do** | slow one rank down; let a rank run out of data, and see the others hang; end it with `Join`; weight shares of unequal size; stop all ranks in the same step |
# | **learn** | why every rank is as slow as the slowest, what a time-out tells you and what not, which divisor is right, how ranks decide together |
# | **need** | [02 Basic DDP](02_basic_ddp.ipynb): gradients are averaged inside `backward()` |
# | **minutes** | 40 |
#
# In lesson 02 all ranks had the same work. DDP relies on that: every rank makes **the same
# collectives, in the same order, as often as the others, and at about the same time**. Here each of
# these is broken once. New words are in the [glossary 术语表](glossary.md).

# %%
import numpy as np

from ddp_course import (
    bars,
    check,
    compare,
    diagnose,
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

# %%
doctor(short=True)

# %% [markdown]
# Nothing in this lesson is about the speed of a device. Waiting, hanging and wrong averages are the
# same on CPUs and GPUs; what differs with NCCL is said in the box at the end.
#
# ## How fast is a job with one slow rank?
#
# A *straggler* is a rank that needs longer: it got the longest texts, the slowest disk, the hottest
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

# %%
bars("work_ms", "ms")(straggler)

# %%
bars("backward_ms", "ms")(straggler)

# %% [markdown]
# The first figure is each rank's time until it is ready for its backward, the second the time in
# backward, both in the last step. Now the same step on one clock; hatched means waiting for another
# rank:

# %%
timeline(straggler)

# %%
timeline(straggler).waiting_ms

# %% [markdown]
# `waiting_ms` is the time from a rank's entry into the all-reduce until the last rank has
# entered it. The ranks that were ready early spent the straggler's 100 ms in *their* backward, and
# the straggler waited for nobody. So **the rank with the short backward is the slow one**: a
# profile of rank 0 alone shows a slow backward, and sends you looking in the wrong place.
#
# Move the sliders; with one rank there is nobody to wait for.

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
    "Four ranks take turns: each needs 100 ms more in every fourth step. The mean step of rank 0?",
    unit="ms",
    low=0,
    high=10_000,
)

# %%
turns = launch("wait_for_straggler", ranks=4, turns=True)

# %%
guess.reveal(float(np.mean(turns.values("step_ms", rank=0)[1:])))

# %%
float(np.mean(turns.values("work_ms", rank=0)[1:]))

# %% [markdown]
# The last number is rank 0's own work in a step, on average. It has a quarter of the
# delays, and yet it pays for all of them: **a step costs the maximum over ranks, and the mean of the
# maximum is not the maximum of the means**. With more ranks, it becomes more likely that some rank
# is slow in a given step.
#
# ## How long may a rank wait?
#
# As long as the time-out of the process group allows: `init_process_group(…, timeout=…)`. PyTorch's
# own is 30 minutes with Gloo and 10 with NCCL; on these pages it is seconds, so that you can watch.

# %%
guess = predict(
    "Rank 1 works for 2.5 s, and all is well with it. Rank 0 may wait for 1.5 s. Who fails first?",
    choices=["rank 0", "rank 1", "nobody"],
)

# %%
impatient = launch("wait_for_straggler", ranks=2, slow_ms=2500.0, timeout_s=1.5, steps=1)

# %%
guess.reveal("nobody" if impatient.ok else f"rank {impatient.result['deaths'][0]['rank']}")

# %%
impatient

# %%
patient = launch("wait_for_straggler", ranks=2, slow_ms=2500.0, timeout_s=30.0, steps=1)
patient.ok

# %% [markdown]
# Rank 0's own error (folded, above) can say how long it has waited, but not for whom, nor
# why: a dead rank, a lost one and a slow one look the same from there. It gives up, and with it the
# job: torchrun stops the rank that was merely at work. The sentence that names rank 1 was found
# afterwards, from what every rank had noted. The same work passes with a larger time-out. Choose one above the longest
# pause that is legitimate (a checkpoint, an evaluation, the first compilation) and below the time
# that you want to pay for a hang.
#
# ## What if a rank runs out of data?
#
# Files are seldom of equal length. In the next job rank *r* has 6 − *r* batches.

# %%
show_job("train_uneven")

# %%
guess = predict(
    "Four ranks with 6, 5, 4 and 3 batches. In which step, counted from 0, do they stand still?",
    choices=["step 2", "step 3", "step 5", "none: they end well"],
)

# %% [markdown]
# Watch the panel: the steps stand still, no rank says a word, and none is busy. After 2.5 s
# the time-out ends it.

# %%
hang = launch("train_uneven", ranks=4, timeout_s=2.5)

# %%
guess.reveal("none: they end well" if hang.ok else f"step {hang.values('step', rank=0)[-1]}")

# %%
hang.by_rank("doing")

# %%
hang

# %% [markdown]
# Each rank noted what it was about to do. Three ranks wait in the all-reduce of a step that
# rank 3 does not have; rank 3 is done, and waits at the end for the three. All four give up, with
# texts (folded) that say how long they waited, and never for which rank. The sentence below them
# comes from all four ledgers together. **In a hang, ask where every rank is, and look at the odd one
# out.** [Lesson 10](10_when_it_hangs.ipynb) makes a practice of that.
#
# ## Can a rank without data still take part?
#
# It need not have a gradient, but somebody has to answer for it. `Join` does: around the loop, it
# lets a rank that is done answer the others' all-reduces with zeros, until all are done.
#
# ```python
# with model.join(divide_by_initial_world_size=True):
#     for x, y in mine:
#         …
# ```
#
# But what is the sum to be divided by? In step 3, three ranks have batches: 36 samples instead of 48.
# DDP can divide by the 4 ranks that began (`initial`, which is its default) or by the 3 that still
# have data (`active`).

# %%
guess = predict(
    "Which divisor reproduces the weights of one process that averages each step over the samples it has?",
    choices=["initial", "active"],
)

# %%
initial = launch("train_uneven", ranks=4, join="initial")
active = launch("train_uneven", ranks=4, join="active")

# %%
one_active = launch("train_uneven_one_process", ranks=1, divide_by="active")
one_initial = launch("train_uneven_one_process", ranks=1, divide_by="initial")

# %%
gap_initial = np.abs(np.subtract(initial.value("weights"), one_active.value("weights"))).max()
gap_active = np.abs(np.subtract(active.value("weights"), one_active.value("weights"))).max()

# %%
guess.reveal("active" if gap_active < gap_initial else "initial")

# %%
float(gap_initial), float(gap_active)

# %% [markdown]
# And `initial`? It matches a different one-process run: one that always divides the summed loss by the 48
# samples of a full step.

# %%
float(np.abs(np.subtract(initial.value("weights"), one_initial.value("weights"))).max())

# %%
one_active.values("samples")

# %% [markdown]
# Neither is wrong; they answer different questions. With `initial` every sample counts the
# same over the epoch, and the last, smaller steps are smaller moves. With `active` every step is an
# honest mean, and a sample counts for more the fewer there are beside it: in the last step of this
# run there were 12.
#
# `Join` answers only for what DDP sends. A collective of your own inside the loop, such as a loss
# summed over ranks for the log, meets one of Join's and gets a wrong number. Often it is simpler to
# give all ranks equally many batches: `DistributedSampler` pads or drops (lesson 08,
# to come).
#
# **Exercise 03c.** [exercises/ex03c_find_hang.py](../exercises/ex03c_find_hang.py) holds a training
# loop that hangs as soon as a rank's batch is empty. Take its first marked line away and run the
# cell: the table shows where each rank is, and how many collectives it has started. Then repair the
# loop, without `Join`: two lines change.

# %%
check("ex03c")

# %% [markdown]
# ## Is the mean of the means the mean?
#
# Now all ranks have equally many batches, but of unequal size.

# %%
guess = predict(
    "Four ranks have 4, 10, 14 and 20 of each 48 samples. Each calls backward() on its mean loss. "
    "Do they end where one process with all the data ends?",
    choices=["yes, up to rounding", "no"],
)

# %% [markdown]
# The next diff shows an answer to exercise 03, further down: try
# [the exercise](../exercises/ex03_weight_batches.py) first.

# %%
show_diff("train_ddp", "weight_batches")

# %%
alone = launch("weight_batches", ranks=1)
means = launch("weight_batches", ranks=4, loss="mean")

# %%
gap = np.abs(np.subtract(means.value("weights"), alone.value("weights"))).max()
guess.reveal("yes, up to rounding" if gap < 1e-5 else "no", note=f"largest difference {gap:.2g}")

# %%
weighted = launch("weight_batches", ranks=4, loss="weighted")
float(np.abs(np.subtract(weighted.value("weights"), alone.value("weights"))).max())

# %% [markdown]
# DDP averages over *ranks*. With means, each rank has a quarter of the say, so that a
# sample of rank 0, one of 4, counts five times as much as one of rank 3, one of 20. No error, no
# spread between ranks: they agree, on the wrong gradient. With shares of $n_r$ samples and $W$ ranks,
#
# $$\frac{1}{W} \sum_r \; \underbrace{\frac{W}{\sum_q n_q} \sum_{i \in r} \ell_i}_{\text{the loss of
# rank } r} \; = \; \frac{\sum_i \ell_i}{\sum_q n_q},$$
#
# the mean over all samples: **the sum of the losses, times the world size, by the number of samples
# on all ranks**. The same holds for tokens in texts of different length.
#
# **Exercise 03.** Write it in
# [exercises/ex03_weight_batches.py](../exercises/ex03_weight_batches.py), three lines or four.

# %%
check("ex03")

# %% [markdown]
# ## May a rank stop when it likes?
#
# *Early stopping*: training ends as soon as the loss on validation data rises. Each rank has its own
# share of the validation data.

# %%
guess = predict(
    "Each of two ranks stops when the loss on its own share rises. How does the job end?",
    choices=["well", "with a time-out"],
)

# %%
show_job("stop_together")

# %%
parted = launch("stop_together", ranks=2, decide="alone", timeout_s=1.5)

# %%
guess.reveal("well" if parted.ok else "with a time-out")

# %%
parted.by_rank("doing")

# %% [markdown]
# The hang of the uneven batches again, made by an `if`. A decision that changes which
# collectives come next has to be the same on all ranks, so it has to *be* a collective: `any` is an
# all-reduce of a flag (MAX: one wish is enough), `mean` an all-reduce of the loss, by which all then
# decide.

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
# Both keep the ranks together. With `any`, the rank with the unluckiest share decides for
# all; with `mean` nobody can tell how many ranks there were. Use a flag for what one rank knows
# alone (a signal, a full disk, a NaN), and a reduced number for a metric.
#
# **Exercise 03b.** Write the flag in
# [exercises/ex03b_stop_together.py](../exercises/ex03b_stop_together.py), three lines.

# %%
check("ex03b")

# %% [markdown]
# ## May one rank wait alone?
#
# `if rank == 0:` write the results, then `dist.barrier()`: inside the `if`, by a slip of
# indentation. The others go on to the next step. This time the ranks are patient, and the launcher
# ends the run at its limit of 3 s; it asks every rank where it stands.

# %%
guess = predict(
    "Rank 0 calls barrier(), ranks 1 and 2 call all_reduce(). Who passes?",
    choices=["all", "rank 0", "ranks 1 and 2", "nobody"],
)

# %%
stuck = launch("wrong_barrier", ranks=3, barrier="some", limit_s=3)

# %%
guess.reveal("all" if stuck.ok else "nobody", note=str(stuck.by_rank("doing")))

# %%
stuck

# %% [markdown]
# Every rank keeps a *ledger* of its collectives, with the lines that called them. Laid side by side,
# they part in one place, and that is what the sentence names. `diagnose` shows what it went by; it
# works for a script of your own as well (`python -m ddp_course run train.py --ranks 4` in a shell),
# also while that is still hanging. How to read what it shows, and ten more wrecks:
# [lesson 10](10_when_it_hangs.ipynb).

# %%
diagnose(stuck)

# %% [markdown]
# With Gloo a barrier is an operation of its own and meets only barriers. (NCCL's barrier is an all-reduce
# underneath, and can pair with somebody else's.) Its time-out names nobody; Gloo has a barrier that
# does. The job gives it half of the time-out, so that it speaks before the others give up:

# %%
named = launch("wrong_barrier", ranks=3, barrier="monitored", timeout_s=2.0)
named.failure.consequences[0]

# %% [markdown]
# Rank 0 collected the others' answers one by one, and knows who has not come. Use it to
# find a hang. And mind that most barriers are not needed: a collective waits by itself.
#
# ## May rank 0 evaluate alone?
#
# Only rank 0 evaluates, under `no_grad` and in eval mode, so there are no gradients to average. The
# others go on to the barrier at the end, which rank 0 reaches as well, right afterwards.

# %%
guess = predict(
    "Rank 0 evaluates through the DDP model, which holds a BatchNorm layer. How does the job end?",
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
# The first forward after a synchronised training step broadcasts rank 0's *buffers* (BatchNorm's running
# mean, running variance and count of batches), in eval mode too; the forwards after it do not. Without buffers there is nothing to send, and
# the very same line works: until somebody adds a BatchNorm. On one rank, evaluate `model.module`;
# better, let all ranks evaluate a share, as in lesson 02. While rank 0 evaluates, the others wait in
# their next collective, and the clock of its time-out runs.
#
# ## What would have gone wrong?
#
# - **A larger time-out as a cure for a hang** It hangs longer. A time-out cures slowness only.
# - **The first error as the culprit** In a time-out every rank is a witness. Compare where they are.
# - **`loss.mean()` on shares of unequal size** All ranks agree, nothing warns; only an oracle, one
#   process with all the data, shows it.
# - **A mean over no samples** A rank whose share is empty computes 0 / 0. Sum first, divide later.
# - **Decisions by a local number** Loss, time, a signal, a random number: if they lead to another
#   collective, reduce or broadcast them first.
# - **One rank leaves the loop by an exception** and catches it: to the others that is the same hang
#   (lesson 10).
#
# > **On your cluster.** Set the time-out where the group is made:
# > `dist.init_process_group(place.backend, timeout=timedelta(minutes=10), device_id=place.device_id)`.
# > The jobs run as they are; on two machines with four GPUs each, on *both*:
# > `torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 --rdzv-id=JOB
# > ddp_course/jobs/03_uneven_workloads/stop_together.py --decide mean`.
# > With NCCL a tensor for a collective must lie on the GPU (`device=place.device`, as here); a
# > time-out is noticed by a watchdog thread, which ends the process with a text like *"Watchdog
# > caught collective operation timeout: WorkNCCL(SeqNum=…, OpType=ALLREDUCE, …)"* instead of raising
# > in the line that waits; and `monitored_barrier` needs a group of its own,
# > `dist.new_group(backend="gloo")`. (Quoted: no GPU was at hand for this lesson.)
#
# **Sources.** PyTorch documentation, *DistributedDataParallel* (`join`, `forward_sync_buffers`) and
# *Distributed communication package* (`timeout`, `monitored_barrier`), docs.pytorch.org/docs/stable,
# as of torch 2.14 · A. Gu, *Distributed Training with Uneven Inputs Using the Join Context Manager*,
# PyTorch tutorials, August 2021, updated September 2025 (still a prototype) · S. Li, *Getting Started
# with Distributed Data Parallel*, PyTorch tutorials, section on skewed processing speeds ·
# pytorch/pytorch issues 38174 (May 2020, uneven batches) and 54059 (March 2021, validation on rank 0)
# · huggingface/transformers issue 34242 (October 2024, the mean of means) · behaviour as measured in
# this run.
#
# **Next:** [04 Checkpointing](04_checkpointing.ipynb)
