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
# # 09 Cheaper steps
#
# | | |
# |---|---|
# | **do** | predict what mixed precision sends; compress gradients and look at the accuracy; change the latency of a link; grow the batch; average seldom |
# | **learn** | what each way of making a step cheaper saves, what it costs, and which of the two you can measure where |
# | **need** | [02a Inside DDP](02a_inside_ddp.ipynb): buckets, overlap; [07 Accumulate without syncing](07_no_sync.ipynb) |
# | **minutes** | 40 |
# | **exercise** | 15 minutes more |
#
# - [Part 1: fewer bytes](#Part-1:-fewer-bytes)
# - [Part 2: the same bytes, hidden](#Part-2:-the-same-bytes,-hidden)
# - [Part 3: fewer steps, fewer messages](#Part-3:-fewer-steps,-fewer-messages)
#
# New words are in the [glossary](glossary.md).

# %%
from ddp_course import (
    check,
    collectives,
    compare,
    curves,
    doctor,
    explore,
    launch,
    parts,
    predict,
    show_job,
    table,
)

# %% [markdown]
# ## What can this machine prove?
#
# Bytes, accuracies and orders of events: the same everywhere. Not whether bfloat16 computes faster: of
# two CPUs that we tried, one gained a factor of two, the other lost a factor of nine. The slow link of Part 2 is **pretended**.

# %%
doctor(short=True)

# %% [markdown]
# # Part 1: fewer bytes
#
# ## Does mixed precision halve what DDP sends?
#
# Under `torch.autocast` the layers compute in bfloat16, which has half as many bytes as float32. The next
# job takes 4 steps, and its model has 1.05 MB of float32 parameters.

# %%
guess = predict(
    "float32 hands 4.2 MB of gradients to all-reduce in 4 steps. And autocast?",
    unit="MB",
    low=0,
    high=10,
)

# %%
full = launch("send_under_autocast", ranks=2, precision="float32")
mixed = launch("send_under_autocast", ranks=2, precision="autocast")

# %%
guess.reveal(collectives(mixed).bytes_handed("all_reduce") / 1e6)

# %%
pure = launch("send_under_autocast", ranks=2, precision="bfloat16")
compare({"float32": full, "autocast": mixed, "all bfloat16": pure}, "forward_in", "gradients_in")

# %%
collectives(pure).handed()

# %% [markdown]
# You may have read that autocast halves the traffic. It does not: the parameters stay in float32, so their
# gradients do, and DDP sends gradients. What sends half is a model *whose parameters* are bfloat16 (with
# the rounding that this brings to every update), or a hook that compresses only what travels.
#
# ## What does a compressed gradient cost?
#
# A *communication hook* takes the place of DDP's all-reduce. `bf16` and `fp16` round each number to 16
# bits. *PowerSGD* sends two thin matrices in place of a wide one, and adds what got lost to the next
# step's gradient.

# %%
show_job("compress_gradients")

# %%
none = launch("compress_gradients", ranks=2, hook="none")
bf16 = launch("compress_gradients", ranks=2, hook="bf16")

# %%
guess = predict(
    "float32 sends 340 kB of gradients in a step, bf16 half. PowerSGD with matrices of rank 1?",
    unit="kB",
    low=0,
    high=340,
)

# %%
power = launch("compress_gradients", ranks=2, hook="powersgd", rank=1)

# %%
guess.reveal(
    collectives(power).bytes_handed("all_reduce") / 87000,
    note="the first two of the 87 steps were sent in full",
)

# %%
curves({"float32": none, "bf16": bf16, "PowerSGD, rank 1": power}, "step", "loss")

# %%
compare({"float32": none, "bf16": bf16, "PowerSGD, rank 1": power}, "accuracy")

# %% [markdown]
# On this small task all three arrive. That says nothing about yours: compression changes the training, so
# its accuracy is a measurement, not a property of the hook. And it costs computing time: PowerSGD
# multiplies matrices and orthogonalises in each step. It pays where the link is slower than that.
#
# **Exercise 09.** Write the bf16 hook yourself:
# [exercises/ex09_compress_gradients.py](../exercises/ex09_compress_gradients.py), three to seven lines.

# %%
check("ex09")

# %% [markdown]
# ## What does a gradient scaler do on several ranks?
#
# float16 has a smaller range than bfloat16: small gradients become 0. So the loss is multiplied by a large
# *scale*, and the gradients are divided by it before the step. If one of them is infinite, the step is
# left out and the scale halved.

# %%
guess = predict(
    "In step 1 only rank 1 has an infinite loss. Which ranks leave the step out?",
    choices=["rank 1", "both", "none"],
)

# %%
infinite = launch("scale_loss", ranks=2, mistake="infinite_loss")

# %%
guess.reveal(
    "both" if infinite.values("skipped", 0)[1] and infinite.values("skipped", 1)[1] else "rank 1"
)

# %%
table(infinite, "step", "norm", "scale", "skipped", rank=None)

# %% [markdown]
# The all-reduce spreads the infinity: both see it, both leave the step out, and the models stay equal. Two
# things that people do break it:

# %%
right = launch("scale_loss", ranks=2)
clipped = launch("scale_loss", ranks=2, mistake="clip_scaled")
compare({"unscale, then clip": right, "clip, then unscale": clipped}, "norm", "spread")

# %% [markdown]
# Clipping before `scaler.unscale_(optimizer)` sees gradients that are 65,536 times too large, and shrinks
# every one of them to nothing. No error: the loss just does not fall.

# %%
guess = predict(
    "Rank 0 resumes with its scaler's old scale, rank 1 with a new one. Are their models equal later?",
    choices=["yes", "no"],
)

# %%
resumed = launch("scale_loss", ranks=2, mistake="one_scaler_resumed", clip=0.0, steps=2)

# %%
guess.reveal("yes" if resumed.value("spread") < 1e-5 else "no")

# %%
table(resumed, "step", "norm", "scale", rank=None)

# %% [markdown]
# The averaged gradient is the same on both, but each divides it by a scale of its own. The scaler's state
# belongs into the checkpoint, and is loaded on *every* rank.
#
# # Part 2: the same bytes, hidden
#
# ## How large should a bucket be on a slow link?
#
# The next job **pretends** a link: the all-reduce is real, and its result is held back for the latency
# plus bytes / bandwidth, one bucket after the other. The layers pretend as well: their backward sleeps
# for 3 ms, 48 ms in all. 4.2 MB take 42 ms on a link of 100 MB/s.

# %%
guess = predict(
    "All gradients in one bucket: backward takes 48 ms, the link 43 ms. How long is the step?",
    unit="ms",
    low=0,
    high=200,
)

# %%
one_bucket = launch("overlap_link", ranks=2, bucket_mb=25.0)

# %%
guess.reveal(one_bucket.value("step_ms"), note="over a pretended link")

# %%
several = launch("overlap_link", ranks=2, bucket_mb=1.0)
many = launch("overlap_link", ranks=2, bucket_mb=0.2)
compare(
    {"one bucket": one_bucket, "1 MB": several, "0.2 MB": many},
    "buckets",
    "step_ms",
    "pretended_link_ms",
)

# %% [markdown]
# One bucket leaves when the last gradient is ready: nothing overlaps, and the times add up. With several,
# most of the link's time passes while backward still works. Now make the latency larger:

# %%
explore(
    "overlap_link",
    parts("step_ms", "pretended_work_ms", "pretended_link_ms"),
    ranks=2,
    bucket_mb=[0.2, 1.0, 25.0],
    latency_ms=[1.0, 4.0, 8.0],
)

# %% [markdown]
# Every message pays the latency, so sixteen small buckets lose what they had gained. DDP's default of
# 25 MB is a compromise for fast links; on yours, measure two or three sizes.
#
# # Part 3: fewer steps, fewer messages
#
# ## Four ranks, four times the batch: what about the learning rate?
#
# If each rank keeps its batch of 48, four ranks take a quarter of the steps in an epoch.

# %%
alone = launch("scale_learning_rate", ranks=1, lr=0.1)

# %%
guess = predict(
    "One rank reaches an accuracy of about 80 % in 3 epochs. Four ranks, the same lr of 0.1?",
    unit="%",
    low=0,
    high=100,
)

# %%
kept = launch("scale_learning_rate", ranks=4, lr=0.1)

# %%
guess.reveal(100 * kept.value("accuracy"))

# %%
scaled = launch("scale_learning_rate", ranks=4, lr=0.4)
too_far = launch("scale_learning_rate", ranks=4, lr=1.6)
runs = {"1 rank, lr 0.1": alone, "lr 0.1": kept, "lr 0.4": scaled, "lr 1.6": too_far}
compare(runs, "global_batch", "steps", "accuracy")

# %%
curves({"lr 0.1": kept, "lr 0.4": scaled, "lr 1.6": too_far}, "step", "loss")

# %% [markdown]
# A quarter of the steps with the same step length goes a quarter of the way. Four times the learning rate
# for four times the batch (*linear scaling*) makes up for most of it, and it has an end: too large a step
# jumps about. Large runs warm the learning rate up over the first epochs. So when two world sizes are
# compared, say which of the two was kept: the local batch or the global one.
#
# ## What if ranks average their weights, and seldom?
#
# *Local SGD*: every rank takes steps of its own, and once in a while the weights are averaged.

# %%
guess = predict(
    "6 epochs on 4 ranks. Averaging once an epoch (29 steps) reaches about …",
    choices=["as much as averaging in every step", "much less", "nothing: the models drift apart"],
)

# %%
each_step = launch("average_seldom", ranks=4, every=1)
each_epoch = launch("average_seldom", ranks=4, every=29)

# %%
guess.reveal(
    "as much as averaging in every step"
    if each_epoch.value("accuracy") > each_step.value("accuracy") - 0.05
    else "much less"
)

# %%
never = launch("average_seldom", ranks=4, every=0)
compare({"every step": each_step, "every 29": each_epoch, "never": never}, "accuracy", "spread")

# %%
collectives(each_epoch).handed()

# %% [markdown]
# Six averages in place of 174 (the other two all-reduces measure the spread). Never averaging gives four
# different models, each trained on a quarter of the data. `post_localSGD_hook` and `PeriodicModelAverager` do this
# with DDP.
#
# ## What would have gone wrong?
#
# - **A hook that forgets the division** The gradients are sums: the learning rate is multiplied by the
#   number of ranks.
# - **fp16 hook and large gradients** float16 ends at 65,504: a sum above that is infinite. bfloat16 has
#   float32's range.
# - **PowerSGD with several buckets on Gloo** It did not finish here (torch 2.15.0): the hook's second
#   all-reduce starts from a callback, and the ranks' orders differed. Use one bucket.
# - **Another world size, the old learning rate** The curve is flatter, and nobody knows why.
# - **Bytes saved that nobody waited for** If communication is hidden already, compressing it saves
#   nothing. Look at the timeline first.
#
# ## What should you remember?
#
# - DDP sends gradients in the type of the parameters; autocast does not change that.
# - Buckets hide bytes behind backward, and every message pays the latency.
# - Whatever changes the numbers (compression, batch, averaging) has to be paid for in a measured accuracy.
#
# **From memory:** your step takes 300 ms, 200 of them waiting for gradients. Which three things can you
# try, and what does each of them cost?
#
# > **On your cluster.** The same hooks work with NCCL. `bf16_compress_hook` needs GPUs and an NCCL that know
# > bfloat16. Measure with `nccl-tests` what your link gives before you compress. (None of this could be
# > tried where this lesson was written.)
#
# **Sources.** PyTorch documentation,
# [DDP communication hooks](https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html) and
# [torch.amp](https://docs.pytorch.org/docs/stable/amp.html) · T. Vogels, S. P. Karimireddy, M. Jaggi,
# [PowerSGD](https://arxiv.org/abs/1905.13727), 2019 · P. Goyal et al.,
# [Accurate, Large Minibatch SGD](https://arxiv.org/abs/1706.02677), 2017 · S. U. Stich,
# [Local SGD Converges Fast and Communicates Little](https://arxiv.org/abs/1805.09767), 2018 · behaviour as
# measured in this run.
#
# **Next:** [10 When it hangs](10_when_it_hangs.ipynb)
