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
# # 13 Beyond DDP
#
# | | |
# |---|---|
# | **do** | train one model by four plans, and weigh what each rank holds and sends; split a layer over ranks; compute activations twice; keep a ledger of memory for a model of 7 billion parameters |
# | **learn** | what ZeRO, FSDP, tensor parallelism and activation checkpointing each save, and what they cost |
# | **need** | [02 Basic DDP](02_basic_ddp.ipynb), [02d Collectives by hand](02d_collectives.ipynb): all-gather and reduce-scatter |
# | **minutes** | 40 |
# | **exercise** | 15 minutes more |
#
# - [Part 1: what does a rank hold?](#Part-1:-what-does-a-rank-hold?)
# - [Part 2: split the computation](#Part-2:-split-the-computation)
# - [Part 3: a ledger of memory](#Part-3:-a-ledger-of-memory)
#
# DDP keeps a whole model, its gradients and its optimizer's state on every rank. When that no longer fits,
# something has to be shared out. New words are in the [glossary](glossary.md).

# %%
from ddp_course import (
    check,
    collectives,
    compare,
    differences,
    doctor,
    launch,
    predict,
    show_job,
    table,
)

# %% [markdown]
# ## What can this machine prove?
#
# What each rank holds, what is sent and how often, and that the results are equal. Not what is faster.

# %%
doctor(short=True)

# %% [markdown]
# # Part 1: what does a rank hold?
#
# ## What does DDP keep four times?
#
# The model has 526,336 parameters in float32: 2.1 MB. The optimizer is AdamW.

# %%
show_job("shard_model")

# %%
guess = predict(
    "Parameters 2.1 MB, gradients 2.1 MB. How much does AdamW's state take, on each of 4 ranks?",
    unit="MB",
    low=0,
    high=20,
)

# %%
ddp = launch("shard_model", ranks=4, plan="ddp")

# %%
guess.reveal(ddp.value("optimizer_mb"))

# %% [markdown]
# AdamW keeps two numbers for each parameter, and DDP keeps them on every rank. But every rank computes the
# same update from the same gradient. So one rank could do it for all: *ZeRO* (stage 1) gives each rank the
# state of its own parameters, which it updates and sends to the others. *FSDP* (`fully_shard`) goes to the
# end: parameters and gradients are cut into pieces, too.

# %%
guess = predict(
    "fully_shard on 4 ranks: how much of the parameters does a rank hold between two steps?",
    unit="MB",
    low=0,
    high=5,
)

# %%
zero = launch("shard_model", ranks=4, plan="zero")
shard = launch("shard_model", ranks=4, plan="shard")

# %%
guess.reveal(shard.value("parameters_mb"))

# %%
plans = {"DDP": ddp, "ZeRO": zero, "fully_shard": shard}
compare(plans, "parameters_mb", "gradients_mb", "optimizer_mb")

# %%
differences({"ZeRO": zero, "fully_shard": shard}, ddp, "outputs")

# %% [markdown]
# A quarter each, and the same model. You may have read that FSDP splits the *computation*: it does not.
# Every rank computes every layer for its own samples, as under DDP. Before a layer runs, its pieces are
# gathered (all-gather); after it they are let go; its gradients are summed and cut up (reduce-scatter).
#
# ## What is sent for it?

# %%
guess = predict(
    "8 layers, one step: how many all-gathers does fully_shard need for forward and backward?",
    unit="all-gathers",
    low=0,
    high=64,
)

# %%
gathers = collectives(shard).calls("all_gather")

# %%
guess.reveal((gathers - 8) / 3, note="3 steps, and a forward of 8 at the end")

# %%
keep = launch("shard_model", ranks=4, plan="shard_keep")
collectives(shard).handed()

# %%
collectives(keep).handed()

# %% [markdown]
# Each layer is gathered in forward, let go, and gathered again in backward: 16. With
# `reshard_after_forward=False` it stays until backward: 8 gathers, and more memory meanwhile. (The bytes of
# an all-gather are those of the piece that a rank hands over; it gets four times as much. Gloo has no
# reduce-scatter of its own and does it as an all-reduce; so it stands in this table.)
#
# In a ring, DDP's all-reduce sends twice the gradients' bytes, less 1/n. Two all-gathers and a
# reduce-scatter are three times as much as one of them: **1.5 times what DDP sends**. Sharding a model that
# fits is not free.
#
# ## Why did the sharded model not answer?
#
# `fully_shard` gathers when the module's `forward` is called. This model also has a method `encode`:

# %%
guess = predict(
    "model.encode(x) on a sharded model …", choices=["works", "raises an error", "hangs"]
)

# %%
method = launch("wrong_forward_method", ranks=2)

# %%
guess.reveal("raises an error" if "Error" in method.value("answer") else "works")

# %%
table(method, "answer", rank=None)

# %%
table(launch("wrong_forward_method", ranks=2, registered=True), "answer", rank=None)

# %% [markdown]
# A method beside `forward` sees the pieces. `register_fsdp_forward_method(model, "encode")` says that this
# one needs the whole, too.
#
# **Exercise 13.** ZeRO by hand: share out the optimizer's state in
# [exercises/ex13_share_optimizer.py](../exercises/ex13_share_optimizer.py), eight to ten lines.

# %%
check("ex13")

# %% [markdown]
# # Part 2: split the computation
#
# ## Can one layer be computed by four ranks?
#
# *Tensor parallelism*: all ranks have the same samples, and each a part of every layer's numbers. A block
# is a wide layer and a narrow one. Each rank computes a quarter of the wide layer's outputs, applies its
# quarter of the narrow layer to them, and the four results are added up: one all-reduce.

# %%
show_job("split_layers")

# %%
guess = predict(
    "4 blocks: one all-reduce for each in forward, and one for each block's input in backward. How many?",
    unit="all-reduces",
    low=0,
    high=32,
)

# %%
whole = launch("split_layers", ranks=1)
split = launch("split_layers", ranks=4)

# %%
guess.reveal(collectives(split).calls("all_reduce"))

# %%
compare({"one rank": whole, "four ranks": split}, "parameters_kb", "whole_kb")

# %%
differences({"four ranks": split}, whole, "outputs")

# %% [markdown]
# One less than eight: nobody asks for the gradient of the first block's input, because that is the data.
# A rank holds a quarter of the weights, plus the biases of the narrow layers. And the all-reduces stand in
# the middle of forward and backward, where nothing can hide them: tensor parallelism wants the fastest
# link there is, inside one machine.
#
# ## What if the activations are what does not fit?
#
# Parameters can be sharded; what forward keeps for backward grows with the batch. *Activation
# checkpointing* keeps the input of a block only and computes the block again in backward.

# %%
guess = predict(
    "8 blocks. How many forwards of blocks does one step take with activation checkpointing?",
    unit="forwards",
    low=0,
    high=64,
)

# %%
kept = launch("recompute_activations", ranks=1)
again = launch("recompute_activations", ranks=1, recompute=True)

# %%
guess.reveal(again.value("forwards"))

# %%
compare({"kept": kept, "computed again": again}, "saved_kb", "forwards")

# %%
differences({"computed again": again}, kept, "gradient")

# %% [markdown]
# The same gradient from a fifth of the memory, for one more forward: about a third more computing.
#
# # Part 3: a ledger of memory
#
# ## Where do 7 billion parameters fit?
#
# **This is arithmetic, not a measurement.** Mixed-precision training with Adam keeps for each parameter,
# in bytes (S. Rajbhandari et al., below): 2 for the parameter and 2 for its gradient in 16 bits, 4 for
# the parameter in 32 bits, 4 + 4 for Adam: **16**. For 7 billion parameters on 8 GPUs, in GB for each
# GPU, without activations:
#
# | plan | parameters | gradients | optimizer | together | sends, in multiples of the parameters |
# |---|---|---|---|---|---|
# | DDP | 14 | 14 | 84 | 112 | 2 |
# | ZeRO, stage 1 | 14 | 14 | 10.5 | 38.5 | 2 |
# | fully_shard | 1.75 | 1.75 | 10.5 | 14 | 3 |
# | fully_shard, parameters kept in forward | 14 | 1.75 | 10.5 | 26 | 2 |
#
# On GPUs of 80 GB, DDP does not fit; the others do. What is left is for activations, which depend on the
# batch. So the order in which one tries things:
#
# 1. It fits: **DDP**. Nothing is simpler, and nothing sends less.
# 2. The optimizer's state does not fit: **ZeRO**, or `fully_shard`.
# 3. The model does not fit: **`fully_shard`**; with several machines, sharded inside a machine and
#    replicated across (*HSDP*).
# 4. The activations do not fit: a smaller local batch with accumulation ([07](07_no_sync.ipynb)), then
#    **activation checkpointing**.
# 5. One layer does not fit, or the batch must not grow with the ranks: **tensor parallelism** inside a
#    machine, **a pipeline** ([05](05_model_parallelism.ipynb)) across machines.
#
# ## What would have gone wrong?
#
# - **`fully_shard` on the whole model only** All parameters are gathered at once: no memory is saved
#   while it computes. Shard each layer, then the root.
# - **The optimizer made before sharding** It holds the old parameters, and updates nothing that is used.
# - **`clip_grad_norm_` by hand** A rank sees its pieces only. `torch.nn.utils.clip_grad_norm_` knows
#   DTensors and sums over ranks.
# - **A checkpoint of rank 0** It has a quarter of the model. `torch.distributed.checkpoint`
#   ([04](04_checkpointing.ipynb)) saves the pieces and loads them at another world size.
# - **One rank alone runs the model** An evaluation on rank 0 only waits in an all-gather for ever.
#
# ## What should you remember?
#
# - DDP holds everything everywhere; ZeRO shares out the optimizer, FSDP everything, for 1.5 times the bytes.
# - FSDP splits what is held; tensor parallelism and pipelines split what is computed.
# - Activations are the other half of memory: computing them again costs a third more time.
#
# **From memory:** a model of 3 billion parameters on 4 GPUs of 24 GB: which plan, and why?
#
# > **On your cluster.** `fully_shard` with NCCL overlaps the gathering of the next layer with computing, and
# > has a real reduce-scatter. Use a 2-D mesh for HSDP or for tensor parallelism inside a machine. (GPUs
# > were not at hand where this lesson was written: it measures bytes and equality only.)
#
# **Sources.** S. Rajbhandari, J. Rasley, O. Ruwase, Y. He, [ZeRO](https://arxiv.org/abs/1910.02054), 2020
# (16 bytes a parameter: section 3) · Y. Zhao et al., [PyTorch FSDP](https://arxiv.org/abs/2304.11277), 2023
# · M. Shoeybi et al., [Megatron-LM](https://arxiv.org/abs/1909.08053), 2019 (tensor parallelism) · PyTorch
# documentation, [fully_shard](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html),
# [tensor parallelism](https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html) and
# [torch.utils.checkpoint](https://docs.pytorch.org/docs/stable/checkpoint.html) · behaviour as measured in
# this run.
#
# **Next:** [14 A project of your own](14_capstone.ipynb)
