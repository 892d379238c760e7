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
# # 05 Model parallelism
#
# | | |
# |---|---|
# | **do** | cut a model into two ranks and write the hand-over yourself; run pipelines, watch their stages wait, and count what they keep in memory; run pipelines side by side with DDP; put one model on two devices |
# | **learn** | when to cut a model, what a cut costs (the *bubble*), what micro-batches and their order change, how cutting and DDP go together |
# | **need** | [02 Basic DDP](02_basic_ddp.ipynb); [07](07_no_sync.ipynb) explains gradient accumulation, but is not required |
# | **minutes** | 55 |
# | **exercise** | 20 minutes more |
#
# DDP gives every rank the *whole* model. If that does not fit into one device, more ranks do not help:
# the model itself must be cut. The proof stays the same: **however it is cut, it must end where one
# process ends.**
#
# - [Part 1: a cut by hand](#Part-1:-a-cut-by-hand)
# - [Part 2: pipelines](#Part-2:-pipelines)
# - [Part 3: cutting and DDP together](#Part-3:-cutting-and-DDP-together)
#
# New words are in the [glossary](glossary.md).

# %%
from ddp_course import (
    check,
    compare,
    differences,
    doctor,
    each_rank,
    explore,
    launch,
    picture,
    predict,
    show_diff,
    show_job,
    stages,
    table,
)

# %%
doctor(short=True)

# %% [markdown]
# The pipelines below are real on any machine: one process for each stage. A model over two devices of
# *one* process needs two GPUs for each rank; elsewhere its halves share a device, and the run says so.
#
# # Part 1: a cut by hand
#
# ## Which model do we cut?
#
# Eight small layers, in 64-bit floats, so that rounding hides nothing. First one process with all the
# data: the oracle.

# %%
show_job("train_whole_model")

# %%
one = launch("train_whole_model", ranks=1)
table(one, "step", "loss")

# %% [markdown]
# ## What must two ranks hand over?
#
# Rank 0 gets the lower half of the layers, rank 1 the upper half. Between processes nothing moves by
# itself, and autograd ends at the edge of the process:
#
# - forward: the hidden tensor goes from rank 0 to rank 1;
# - backward: the derivative of the loss for each of its elements goes from rank 1 to rank 0.
#
# **Exercise 05.** Write it in [exercises/ex05_hand_over.py](../exercises/ex05_hand_over.py), about ten
# lines of `send`, `recv` and `backward`. Two ranks run it, and their gradients must be those of one
# process with the whole model.

# %%
check("ex05")

# %% [markdown]
# ## When may I reuse a buffer?
#
# `isend` returns at once, so that the next forward can begin. In the next job a rank sends four
# micro-batches, filled with 0, 1, 2 and 3, from one buffer, and overwrites it as soon as `isend`
# has returned.

# %%
guess = predict("How many of the four arrive wrong?", choices=[0, 1, 3, 4])

# %%
reused = launch("wrong_isend", ranks=2, buffer="reused")
own = launch("wrong_isend", ranks=2, buffer="own")

# %%
guess.reveal(reused.value("wrong", 1))

# %%
compare({"one buffer": reused, "a buffer for each": own}, "received", "wrong", rank=1)

# %% [markdown]
# `isend` only *begins* to send; what is sent is what the buffer holds later. Neither side gets an
# error. A buffer is yours again when `wait()` has returned; or use a new one for each send. (The job
# makes the receiver come late, so that the outcome is always the same. Without that it depends on who
# is quicker, and a test may pass for years.)
#
# # Part 2: pipelines
#
# ## How do all stages get work at once?
#
# With two halves, one rank waits while the other computes. So the batch is cut, too: while stage 1 has
# the first *micro-batch*, stage 0 has the second. `torch.distributed.pipelining` sends and receives; you
# say which layers are yours, and in which order micro-batches come: the *schedule*. (PyTorch calls this
# package *alpha*: its interface may change.)

# %%
show_job("train_pipeline")

# %% [markdown]
# The numbers are computed for real. The *time* is simulated by sleeping, as if each stage had a device
# of its own, so that the picture is the same with 2 cores and with 64.

# %%
gpipe = launch("train_pipeline", ranks=4, schedule="gpipe", micro_batches=4, trace=True)

# %%
differences({"4 stages": gpipe}, one)

# %% [markdown]
# Four processes, none of which has the whole model, trained it as one process does.
#
# ## How long do the stages stand still?
#
# Stage 3 cannot begin before a micro-batch has come through the other three; stage 0 has nothing to do
# until a gradient has come back. These gaps are called the *bubble*.

# %%
guess = predict(
    "4 stages, 4 micro-batches: which share of the time do the stages stand still?",
    unit="%",
    low=0,
    high=100,
)

# %%
drawn = stages(gpipe)

# %%
guess.reveal(100 * drawn.bubble)

# %%
drawn

# %% [markdown]
# Count the boxes. Let a stage need time 1 for one micro-batch, forward and backward together. With *m*
# micro-batches it works for *m*. The last micro-batch goes through *p* stages, so the step takes
# *m* + *p* − 1, and each stage stands still for
#
# > **bubble = (*p* − 1) / (*m* + *p* − 1)**
#
# The measured share is larger: sending, Python, and whatever else your machine was doing come on top.
# Move the sliders: more micro-batches make the bubble smaller, more stages make it larger. With one
# micro-batch there is no pipeline: one of *p* stages works at a time.

# %%
explore(
    "train_pipeline",
    stages,
    trace=True,
    ranks=[2, 1, 4],
    micro_batches=[4, 1, 2, 8, 16],
    schedule=["gpipe", "1f1b"],
)

# %% [markdown]
# Why not always 48 micro-batches? Each one costs a message and a start of every layer, and small
# matrices use a device badly. Here a micro-batch of 3 samples takes a quarter of the time of one of 12
# because we simulate it so; on a real device it takes more.
#
# ## Does a different order make the bubble smaller?
#
# *GPipe* does all forwards, then all backwards. *1F1B* goes back as soon as it can: one forward, one
# backward, in turn.

# %%
guess = predict(
    "1F1B with the same 4 stages and 4 micro-batches: what happens to the bubble?",
    choices=["smaller", "about the same", "larger"],
)

# %%
f1b = launch("train_pipeline", ranks=4, schedule="1f1b", micro_batches=4, trace=True)

# %%
change = stages(f1b).bubble - drawn.bubble

# %%
guess.reveal(
    "about the same" if abs(change) < 0.1 else "smaller" if change < 0 else "larger",
    note=f"{100 * drawn.bubble:.0f} % with GPipe, {100 * stages(f1b).bubble:.0f} % with 1F1B",
)

# %%
stages(f1b)

# %% [markdown]
# The boxes have changed places, but each stage still has as many, and the formula is the same for both.
# The busier your machine was, the further apart two runs of *either* may be. So why use 1F1B?
#
# ## What does a stage keep in memory?
#
# Its parameters; and, for each micro-batch whose backward is still to come (*in flight*), what autograd
# saved in the forward. The next job counts both, tensor by tensor.

# %%
show_job("count_pipeline_memory")

# %%
whole = launch("count_pipeline_memory", ranks=1, schedule="gpipe", micro_batches=1)
all_first = launch("count_pipeline_memory", ranks=4, schedule="gpipe", micro_batches=8)

# %%
compare(
    {"one process": whole, "4 stages, GPipe": all_first}, "parameter_kb", "saved_kb", "in_flight"
)

# %%
guess = predict(
    "What is the most that autograd keeps on rank 0 with 1F1B?", unit="KB", low=0, high=130
)

# %%
in_turn = launch("count_pipeline_memory", ranks=4, schedule="1f1b", micro_batches=8)

# %%
guess.reveal(in_turn.value("saved_kb"))

# %% [markdown]
# Micro-batches in flight and memory of each stage, with GPipe and with 1F1B:

# %%
each_rank(all_first, "in_flight", "saved_kb")

# %%
each_rank(in_turn, "in_flight", "saved_kb")

# %% [markdown]
# GPipe holds all 8 micro-batches when its first backward begins, on every stage. With 1F1B rank 0
# holds 4, as many as there are stages, and the last rank holds 1; that stays so with 16 micro-batches
# or 48. **1F1B saves memory, not time.** So it allows more micro-batches, and those make the bubble
# smaller.

# %%
picture("schedules")

# %% [markdown]
# Two different things shrink here. The *cut* leaves each rank a quarter of the parameters (and of their
# gradients and the optimizer's state, which are not counted); DDP does not do that. The
# *micro-batches* shrink what autograd saves, and one process gets that for free if it takes 8
# micro-batches in turn:

# %%
one_in_turn = launch("count_pipeline_memory", ranks=1, schedule="1f1b", micro_batches=8)
compare({"one process": whole, "one process, 8 micro-batches": one_in_turn}, "saved_kb")

# %% [markdown]
# # Part 3: cutting and DDP together
#
# ## How do pipelines and DDP go together?
#
# On a grid of ranks, a *mesh*. A row is one pipeline; a column has the same layers, and DDP averages
# its gradients. Each rank is in two process groups: its row and its column.

# %%
picture("mesh")

# %%
show_job("train_pipeline_replicas")

# %%
guess = predict(
    "2 pipelines of 2 stages, 4 micro-batches each. How often does a rank average in a step?",
    choices=[1, 2, 4, 8],
)

# %%
mesh = launch("train_pipeline_replicas", ranks=4, stages=2, micro_batches=4)

# %%
guess.reveal(mesh.value("all_reduces"), note="in the backward of the last micro-batch")

# %%
each_rank(mesh, "replica", "stage", "all_reduces")

# %% [markdown]
# Ranks 0 and 1 together have one copy of the model, ranks 2 and 3 another. The pipeline tells DDP to
# wait for the last micro-batch, as `no_sync` does in lesson 07.
#
# ## Can one process use two devices?
#
# Yes: the lower half is on the first device, the upper half on the second, and `forward` moves the
# hidden tensor from one to the other. Autograd moves the gradient back by itself. DDP around it works
# as usual, with two lines left out on purpose: `device_ids=` for DDP and `device_id=` for the process
# group. Both name *one* device for a rank, and this one may have two.

# %%
show_diff("train_whole_model", "train_two_devices")

# %%
two = launch("train_two_devices", ranks=2)

# %%
each_rank(two, "devices", "two_devices")

# %%
differences({"two devices, DDP": two, "4 stages": gpipe, "2 pipelines of 2": mesh}, one)

# %% [markdown]
# `two_devices` says whether the halves had a device each in *this* run. If not, the run proves the code
# and the numbers, and saves no memory. And even with two devices, one waits while the other computes.
#
# ## What if I tell DDP the device, as always?

# %%
guess = predict(
    "DDP(model, device_ids=[local_rank]) for such a model: what happens?",
    choices=["nothing bad", "an error when wrapping", "an error in the first step"],
)

# %%
told = launch("wrong_device_ids", ranks=2)

# %%
guess.reveal(
    "nothing bad" if "training" in told.values("state") else "an error when wrapping",
    note=told.failure.what,
)

# %% [markdown]
# `device_ids` asks DDP to move the input to that device. A model on several devices moves it by itself.
# (Without two GPUs for each rank, this run had the model on the CPU: the same test in DDP's constructor,
# and the same sentence about the devices that it lists.)
#
# ## On which device is the output?

# %%
guess = predict(
    "The target is still on the first device. How far does the step get?",
    choices=["hidden", "output", "loss"],
)

# %%
forgotten = launch("wrong_output_device", ranks=1, forgotten="target")

# %%
guess.reveal(forgotten.values("state")[-1], note=forgotten.failure.what)

# %%
table(forgotten, "state", "device")

# %% [markdown]
# The output is where the last layer is. Move the target there: `y.to(output.device)`. Without two GPUs,
# the second device of this run is `meta`, which has shapes and no numbers. (`meta` computes in Python:
# hence the long traceback. Its first frame is the job's.)
#
# ## Which cut do I take?
#
# | if | then | each rank has |
# |---|---|---|
# | the model fits into one device | DDP | all parameters, a share of the batch |
# | it does not fit | sharding with `fully_shard` (FSDP2; [lesson 13](13_beyond_ddp.ipynb)) | a piece of every layer |
# | single layers are too large or too slow, and the machine's links are fast | tensor parallelism inside the machine, sharding across | a piece of every matrix |
# | many machines with slow links, and stages that take equally long | a pipeline across machines, with DDP over replicas | its stage's parameters, all micro-batches of its row |
# | a quick try on two devices of one machine, and speed matters little | two devices in one process, DDP around it | all parameters, on two devices |

# %%
picture("memory")

# %% [markdown]
# ## What would have gone wrong?
#
# - **Stages that take unequally long** The slowest sets the pace, like the straggler of lesson 03. The
#   formula assumes equal stages.
# - **Fewer micro-batches than stages** 1F1B refuses with a `ValueError`. Micro-batches of unequal size
#   do not fit the buffers of the stages: their number must divide the batch.
# - **A gradient hook with `group=None`** That means all ranks, so it would mix the layers of different
#   stages. `allreduce_hook(column, bucket)` names the column.
# - **DDP in a stage that has to find out its shapes** With GPipe, torch 2.14.1 and 2.15.0 end in an
#   internal assert about `rebuilt_param_indices_` in the second step: the stage tries the module, and
#   DDP counts that forward. Tell the stage its shapes, as `train_pipeline_replicas` does.
# - **BatchNorm** It would normalise each micro-batch by itself, and so compute something different.
# - **The loss of rank 0** Only the last stage has one.
#
# ## What should you remember?
#
# - Cut a model only if it does not fit; DDP is simpler and faster.
# - A pipeline's bubble is (p − 1) / (m + p − 1): more micro-batches, less waiting.
# - 1F1B has the bubble of GPipe and needs less memory.
#
# **From memory:** what does a stage send forward, what does it send back, and how many micro-batches
# does the first of four stages keep in flight under 1F1B?
#
# > **On your cluster.** The jobs stay as they are: `my_place()` takes `cuda:LOCAL_RANK` and NCCL where
# > each rank has a GPU; in a script of your own that is
# > `init_process_group("nccl", device_id=torch.device("cuda", local_rank))` and
# > `init_device_mesh("cuda", …)`. Ranks count along a machine first, and so does the mesh's last
# > dimension: what stands last stays inside a machine, where links are fast. A pipeline sends one
# > activation per micro-batch, DDP all gradients once per step; put what sends more bytes last. Large
# > language models usually let the pipeline cross machines (Megatron-LM orders tensor, context, expert,
# > data, pipeline, from inside to outside); here, `pp` is last. Two machines with four GPUs each:
# > `torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 --rdzv-id=JOB train_pipeline_replicas.py --stages 4`.
# > For the model on two devices of one process, `--nproc-per-node` is *half* the number of GPUs. Over
# > NCCL the order of sends and receives matters more: two ranks that both send first may wait for ever.
#
# **Sources.** Y. Huang et al.,
# [GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism](https://arxiv.org/abs/1811.06965),
# NeurIPS 2019 (micro-batches, the bubble's formula) · D. Narayanan et al., *PipeDream: Generalized
# Pipeline Parallelism for DNN Training*, SOSP 2019 (one forward, one backward) · D. Narayanan et al.,
# [Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM](https://arxiv.org/abs/2104.04473),
# SC 2021 (1F1B's memory; pipelines with data parallelism) · PyTorch documentation,
# [Pipeline Parallelism](https://docs.pytorch.org/docs/main/distributed.pipelining.html) (alpha; page of
# October 2026) and
# [DistributedDataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html)
# (`device_ids`) · behaviour as measured in this run.
#
# **Next:** [06 torchrun](06_torchrun.ipynb)
