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
# | **do** | turn a one-process training script into a distributed one, in small steps; train on handwritten digits; watch gradients travel; break it in six ways |
# | **learn** | what `DistributedDataParallel` (DDP) adds to your loop, what it does not, and how to prove that the ranks train one model |
# | **need** | [00 Start here](00_start_here.ipynb): rank, world size, `all_reduce` |
# | **minutes** | 60 |
#
# The proof is the same all along: **N ranks must end where one process with all the data ends.** New
# words are in the [glossary 术语表](glossary.md).

# %%
import numpy as np

from ddp_course import check, doctor, explore, launch, predict, show_diff, show_job, timeline

# %% [markdown]
# ## What can this machine prove?

# %%
doctor(short=True)

# %% [markdown]
# ## Where do we start?
#
# With the loop that you know. It logs its loss in each step, and all of its weights at the end: the
# *oracle* that every later script must reproduce. The scripts are a ladder: each *rung* is a small
# change of the one below.

# %%
show_job("train_one_process")

# %%
one = launch("train_one_process", ranks=1)

# %%
one.values("loss")[0], one.values("loss")[-1]

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
# Two processes did the same work twice. torchrun starts processes; it does not share out
# data and does not connect models. Two things are missing: **each rank takes a share of the batch**,
# and **the ranks agree on one gradient**.
#
# ## What must the ranks exchange?
#
# Only gradients. The gradient of a mean loss over a batch is the mean of the gradients over equal
# shares of it: with shares $B_0, …, B_{N-1}$ of equal size,
#
# $$\nabla L_B = \frac{1}{N} \sum_{r=0}^{N-1} \nabla L_{B_r}.$$
#
# So if all ranks start from equal weights, compute the gradient of their share, and average it over
# ranks, they all take the step that one process with the whole batch would take.
#
# **Exercise 02.** Write that average in
# [exercises/ex02_average_gradients.py](../exercises/ex02_average_gradients.py), about five lines, and
# have it checked on three ranks. The next section shows one way to do it.

# %%
check("ex02")

# %% [markdown]
# ## How much must be added to train on several ranks?
#
# The next diff shows an answer to exercise 02: try the exercise first.

# %%
guess = predict(
    "How many lines must be added to the one-process script?", unit="lines", low=0, high=200
)

# %%
by_hand_diff = show_diff("train_one_process", "average_by_hand")
guess.reveal(by_hand_diff.added, note="Docstrings and empty lines are not counted.")

# %% [markdown]
# And does it end where one process ends? Each rank sees 12 of the 48 samples of each step.

# %%
guess = predict(
    "The largest difference in any of the 1210 weights, four ranks against one process?",
    choices=["exactly 0", "below 0.00001", "above 0.00001"],
)

# %%
by_hand_diff

# %%
by_hand = launch("average_by_hand", ranks=4)

# %%
gap = np.abs(np.subtract(by_hand.value("weights"), one.value("weights"))).max()
guess.reveal("exactly 0" if gap == 0 else "below 0.00001" if gap < 1e-5 else "above 0.00001")

# %%
float(gap)

# %% [markdown]
# The same weights up to rounding. Four partial sums, added up, round differently from one
# long sum; 32-bit floats carry about seven digits.
#
# ## What does DDP do for me?
#
# The averaging. You wrap the model once, and the average happens inside `loss.backward()`.

# %%
guess = predict(
    "With DDP on four ranks, are the final weights those of one process?",
    choices=["yes, up to rounding", "no"],
)

# %%
show_diff("average_by_hand", "train_ddp")

# %%
ddp = launch("train_ddp", ranks=4)

# %%
gap = np.abs(np.subtract(ddp.value("weights"), one.value("weights"))).max()
guess.reveal("yes, up to rounding" if gap < 1e-5 else "no", note=f"largest difference {gap:.1e}")

# %% [markdown]
# DDP is not a different kind of training. It is the same average, done earlier and faster, as you
# will see on the timeline. **It does not share out your data**: the line `x[rank::world_size]` is
# still ours.
#
# ## Since when are the ranks' models equal?
#
# In the next job every rank uses a seed of its own, so that the models start out different. The *spread*
# is the largest difference between two ranks in any parameter, measured across all ranks.

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
replicas.values("spread")

# %% [markdown]
# The constructor sends rank 0's weights to everyone, and from then on equal gradients make
# equal steps. Not *nearly* equal: the spread is exactly 0, because every rank receives the same
# averaged bits. That is why nobody ever sends weights again. (The exception is *buffers*, such as
# BatchNorm's running means: DDP copies rank 0's at the first forward after each synchronised step.)
#
# ## Does it hold for real data?
#
# Handwritten digits, 8 × 8 pixels: 1437 to train on, 360 kept back for the test. A
# `DistributedSampler` shares them out: it shuffles all indices with a seed that is equal on all
# ranks, and rank *r* takes numbers *r, r + N, r + 2N, …*. So the ranks' local batches together are
# one global batch, for every N that divides 48. (Five ranks would take 9 each and train on 45.)

# %%
show_diff("train_ddp", "train_digits")

# %%
guess = predict("Accuracy on the 360 test digits, after 8 epochs?", unit="%", low=0, high=100)

# %%
digits = launch("train_digits", ranks=2)

# %%
guess.reveal(100 * digits.value("accuracy"))

# %%
guess = predict(
    "One process instead of two ranks: the same accuracy?", choices=["the same", "different"]
)

# %%
digits_alone = launch("train_digits", ranks=1)

# %%
same = digits_alone.value("accuracy") == digits.value("accuracy")
guess.reveal("the same" if same else "different")

# %%
float(np.abs(np.subtract(digits.value("weights"), digits_alone.value("weights"))).max())

# %% [markdown]
# The weights agree up to rounding, which has grown a little over 232 steps, and each test
# image was counted on exactly one rank. (If rounding ever tips a single image, the accuracies differ
# by 1/360; the weights tell you that nothing else happened.)
#
# ## When does the averaging happen?
#
# Not after backward: *during* it. Gradients become ready from the last layer to the first. A hook
# on each parameter tells DDP that its gradient is there. DDP collects gradients in *buckets*: when the
# last gradient of a bucket is ready, the bucket's all-reduce starts, while backward continues with the
# layers before. Buckets leave in a fixed order, and a full one waits for those before it, so that all
# ranks issue the same all-reduces in the same order. The next job has eight layers of 1 MiB, large enough to watch.

# %%
show_diff("train_ddp", "overlap_buckets")

# %%
guess = predict(
    "Eight layers of 1 MiB, buckets of 1 MiB: how many all-reduces in one step?", choices=[1, 8, 16]
)

# %% [markdown]
# Move the sliders: each position is a new run. Rows are ranks on one clock; above is computing,
# below each bucket's all-reduce.

# %%
explore("overlap_buckets", timeline, ranks=[2, 1, 4], bucket_mb=[1.0, 4.0, 100.0], batch=[128, 32])

# %%
small = launch("overlap_buckets", ranks=2, trace=True, bucket_mb=1)
large = launch("overlap_buckets", ranks=2, trace=True, bucket_mb=100)

# %%
guess.reveal(timeline(small).collectives[0])

# %%
timeline(large)

# %%
timeline(small).hidden_share, timeline(large).hidden_share

# %% [markdown]
# The two numbers are the share of communication time during which the rank also computed,
# with small buckets and with one large one. With one bucket, the only all-reduce starts when the
# last gradient is ready, and little is left to hide it behind. With eight, seven can start
# earlier. Hatched parts of a collective are waiting for the other rank, not moving data. The shares
# vary from run to run.
#
# What these numbers do *not* say: that small buckets are faster. Each all-reduce costs something by
# itself; and on a CPU the ranks' communication runs on the same cores as their computing, so hiding
# it saves little. On GPUs with a network between them, hiding is what makes DDP scale. By
# default DDP closes the first bucket at 1 MiB and the others at 25 MiB; a bucket closes once it has
# *passed* its limit, so one can be larger. Very small buckets lose what they hide. (The first step
# uses one bucket, because DDP first has to see in which order gradients become ready. With
# `find_unused_parameters=True` it does not rebuild the buckets after that.)
#
# ## Can I step around DDP without noticing?
#
# Easily. In each of these, the spread should be 0 after every step.

# %%
guess = predict(
    "The forward goes through model.module, 'to get at my own model'. The spread after 5 steps?",
    choices=["0", "more than 0"],
)

# %%
module = launch("wrong_wrapping", ranks=2, mistake="module")

# %%
guess.reveal("more than 0" if module.value("spread") > 0 else "0", note="and no error at all")

# %% [markdown]
# DDP prepares the averaging in *its* forward. If you call the inner module, backward runs, and
# nothing is sent. For evaluation on one rank that is right; for training it is two models.

# %%
guess = predict(
    "A layer is frozen, the model is wrapped, the layer is unfrozen. The spread after 5 steps?",
    choices=["0", "more than 0"],
)

# %%
unfrozen = launch("wrong_wrapping", ranks=2, mistake="unfrozen")

# %%
guess.reveal("more than 0" if unfrozen.value("spread") > 0 else "0", note="again without an error")

# %% [markdown]
# DDP makes its list of trainable parameters when it wraps. **Build, freeze and replace first, wrap
# last.** Replacing a layer after wrapping at least ends in an error, but when?

# %%
guess = predict(
    "A layer is replaced after wrapping. How many steps pass before the error?", choices=[0, 1, 5]
)

# %%
replaced = launch("wrong_wrapping", ranks=2, mistake="replaced")

# %%
guess.reveal(len(replaced.values("spread")), note=f"spread by then: {replaced.values('spread')}")

# %% [markdown]
# One step was taken, with gradients that were not averaged, and *then* came the error. The
# replaced layer never gets a gradient, so its bucket is never complete, and DDP notices when the
# next forward begins.
#
# ## What does "expected to have finished reduction" mean?
#
# The same error usually appears when a part of the model is not used in the forward. With
# `TORCH_DISTRIBUTED_DEBUG=INFO` it names the parameters.

# %%
guess = predict(
    "The model has a spare layer that forward never uses. In which step does the error come?",
    choices=["step 0", "step 1", "never"],
)

# %%
unused = launch("wrong_unused_parameters", ranks=2, env={"TORCH_DISTRIBUTED_DEBUG": "INFO"})

# %%
when = "never" if unused.ok else f"step {len(unused.values('loss'))}"
guess.reveal(when, note=f"gradients differed by {unused.value('spread'):.2f} after step 0")

# %%
unused

# %% [markdown]
# Look for *"Parameters which did not receive grad"*. The cure is to leave the layer out, or
# `find_unused_parameters=True`, which searches the graph in every step and never rebuilds the buckets:

# %%
launch("wrong_unused_parameters", ranks=2, find_unused=True).values("spread")

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
launch("wrong_epoch_order", ranks=2, set_epoch=True).values("repeated")

# %% [markdown]
# The sampler's order comes from seed + epoch, and nobody but you tells it the epoch. Without
# it, the data is shuffled once for the whole training.
#
# **Exercise 02b.** Do the sampler's work yourself, four lines or five, in
# [exercises/ex02b_partition_data.py](../exercises/ex02b_partition_data.py): each rank's share of an
# epoch, shuffled alike on all ranks, and equally long although the data does not divide.

# %%
check("ex02b")

# %% [markdown]
# ## Does `shuffle=True` beside a sampler slow training down?
#
# You may have read that in tutorials. You can test it in a second.

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
# A `ValueError` before the first batch. If training converged slowly, the cause was something else.
# `DistributedSampler` shuffles by itself unless you say `shuffle=False` *to it*.
#
# ## How do the ranks find each other?
#
# `init_process_group` needs to know where to meet, how many are expected, and which one this is.
# There are three ways; torchrun uses the first: environment variables (`env://`), an address
# (`tcp://`), a file that all can reach (`file://`).

# %%
guess = predict(
    "Which way knows rank and world size without being told in the call?",
    choices=["env://", "tcp://", "file://"],
)

# %%
show_job("join_group")

# %%
by_env = launch("join_group", ranks=2, method="env")
by_tcp = launch("join_group", ranks=2, method="tcp")
by_file = launch("join_group", ranks=2, method="file")

# %%
guess.reveal(
    by_env.value("url"), note="torchrun sets MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE"
)

# %%
by_env.value("total"), by_tcp.value("total"), by_file.value("total")

# %%
by_tcp.value("url"), by_file.value("url")

# %% [markdown]
# The same group, whichever way. Once the ranks have met, the meeting place carries no
# gradients: those go from rank to rank.
#
# ## Who carries the bytes?
#
# The *backend*. This asks each one for an `all_reduce`, and reports what it answers.

# %%
guess = predict("Can NCCL carry an all_reduce of these two ranks, here?", choices=[True, False])

# %%
backends = launch("list_backends", ranks=2)

# %%
guess.reveal(backends.values("works")[1], note=backends.values("answer")[1])

# %%
print(*backends.values("name"), *backends.values("answer"), backends.value("why"), sep="\n")

# %% [markdown]
# A backend that is built in need not be usable. NCCL needs a GPU for every rank on the machine; Gloo works on
# any CPU, which is how this course runs everywhere; MPI is there only if you compile PyTorch against
# your cluster's MPI. The job's line `init_process_group(place.backend, …)` takes NCCL where it can,
# and `why` says what it took. Two ranks on one GPU do not help: NCCL refuses them.
#
# ## What would have gone wrong?
#
# - **Weights that drift apart** Most mistakes above train silently for at least one step. Log the spread
#   once in a while: it must be exactly 0. (It does not catch a forgotten `set_epoch`: the replicas stay
#   equal, only the order of the data repeats.)
# - **The loss of rank 0 as *the* loss** Each rank logs the loss of its share. Average it over ranks if
#   you report it (lesson 08, to come).
# - **The learning rate** Twice the ranks with the same *local* batch is twice the global batch: a
#   different training. Here the global batch stays 48, and so the weights stay the same.
# - **A world size that does not divide the batch** Shares of unequal size make the mean of the means
#   differ from the mean (lesson 03).
# - **Saving `model.state_dict()` of the wrapped model** Its names begin with `module.` (lesson 04).
#
# **Take it home.** `copy_job("train_digits", "my_digits.py")` writes the script of this lesson into the
# folder that you are in, without any import of the course: some 90 lines that plain torchrun runs.
# Put your own data and model in, and start it from here with `launch("my_digits.py", ranks=2)`.
#
# > **On your cluster.** `train_digits.py` is ready: nothing in it knows how many machines there are.
# > Copy the command of any run above (`print(digits.command)`), say `--nproc-per-node` = GPUs per
# > machine, and replace `--standalone` by the rendezvous of lesson 00's box. Prepare downloads before
# > the ranks start, never inside them.
#
# **Sources.** S. Li et al., *PyTorch Distributed: Experiences on Accelerating Data Parallel
# Training*, VLDB 2020, arXiv:2006.15704 (buckets, overlap) · PyTorch documentation, *Distributed Data
# Parallel* (design note, as of version 1.4), docs.pytorch.org/docs/stable/notes/ddp.html, and
# *DistributedDataParallel*, same site · E. Alpaydin, C. Kaynak, *Optical Recognition of Handwritten
# Digits*, UCI 1998 · behaviour as measured in this run.
#
# **Next:** [03 Uneven workloads](03_uneven_workloads.ipynb)
