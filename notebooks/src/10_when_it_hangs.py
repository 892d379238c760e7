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
# # 10 When it hangs
#
# | | |
# |---|---|
# | **do** | write a job that hangs and ask it why; break jobs in ten ways and have each diagnosed; get a wrong sum that nothing notices; classify five wrecks yourself |
# | **learn** | why a waiting rank knows so little, how to find the first cause among loud consequences, where ranks part, and what no diagnosis can see |
# | **need** | [03 Uneven workloads](03_uneven_workloads.ipynb): hangs and time-outs; [06 torchrun](06_torchrun.ipynb): signals and exit codes |
# | **minutes** | 50 |
# | **exercise** | 20 minutes more |
#
# In lesson 03 you broke the rules one by one. Here you get the wreck and look for the cause. The jobs
# are short; the mistakes are those of real trainings.
#
# - [Part 1: who is missing](#Part-1:-who-is-missing)
# - [Part 2: who differs](#Part-2:-who-differs)
# - [Part 3: what the ledgers do not show](#Part-3:-what-the-ledgers-do-not-show)
#
# New words are in the [glossary](glossary.md).

# %%
import time

from ddp_course import (
    check,
    collectives,
    compare,
    diagnose,
    doctor,
    each_rank,
    launch,
    predict,
    show_job,
)

# %%
doctor(short=True)

# %% [markdown]
# The pattern of waiting does not depend on the device. What a rank *says* about it does: the texts below
# are Gloo's where the ranks run on the CPU. For NCCL, see the box at the end.
#
# # Part 1: who is missing
#
# ## What does a waiting rank know?
#
# Time-outs are seconds on these pages, and minutes elsewhere.

# %%
show_job("hang_missing_rank")

# %%
guess = predict(
    "Rank 1 of 4 never comes to step 3. The others give up. Does one of them name rank 1?",
    choices=["yes", "no"],
)

# %%
missing = launch("hang_missing_rank", ranks=4, timeout_s=1.5)

# %%
guess.reveal("yes" if "rank 1" in str(missing.failure.consequences).lower() else "no")

# %% [markdown]
# These are the errors as the ranks gave them:

# %%
print(*missing.failure.consequences.values(), sep="\n\n")

# %% [markdown]
# And this is what all ranks together show:

# %%
diagnose(missing)

# %%
collectives(missing)

# %% [markdown]
# A waiting rank knows that it waits, and for how long. Which rank is missing can only be seen from
# outside. Each rank keeps a list of its collectives, its *ledger*, with the line that made each call. Lay
# **the ledgers of all ranks side by side**. Look at the first row that is not the same on all ranks,
# and at the rank that lacks it. Counting starts at 1: the all-reduce of step 3 is #4.
# (`monitored_barrier` of lesson 03 names the missing rank, too, if you had one in the right place.)
#
# ## Can I ask a job that still hangs?
#
# This is a script as you might write it, with PyTorch's own time-out of half an hour. It knows nothing
# of this course. The launcher gives it 6 s.

# %%
# %%job my_hang
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(10):
    loss = torch.tensor(1.0 / (step + 1))
    if rank == 0 and step == 4:
        dist.barrier()  # "so that all see the half-time report"
    dist.all_reduce(loss)
    print("step", step, "loss", loss.item())
dist.destroy_process_group()

# %%
guess = predict(
    "It hangs; nothing has failed, and nothing is stopped. Can diagnose name the rank at fault?",
    choices=["yes", "no"],
)

# %%
live = launch("my_hang", ranks=3, limit_s=6, wait=False)
time.sleep(4)
found = diagnose(live)

# %%
guess.reveal("yes" if found.rank == 0 else "no")

# %%
found

# %%
live.wait()

# %%
collectives(live)

# %% [markdown]
# Every rank was asked where it is, and answered from beside the thread that waits; the job went on hanging
# until the launcher ended it at its limit. (It takes some seconds of silence until a wait is called a
# hang. If the answer was that nothing is wrong so far, the machine was busy: run these cells again from
# `launch` on.)
#
# **Now you.** Move the barrier to rank 2 and step 6, say what the sentence will be, and run it again. In a
# shell the same is
#
# ```sh
# python -m ddp_course run my_script.py --ranks 4   # says at its end what happened
# python -m ddp_course diagnose                     # the newest run, with its evidence
# ```
#
# ## Which rank failed first, and which is the loudest?
#
# Now a rank ends while the others wait for it. First it is killed (−9), as when a machine runs out of
# memory.

# %%
guess = predict(
    "How many lines does the killed rank write about its end?", unit="lines", low=0, high=1000
)

# %%
killed = launch("crash_one_rank", ranks=3, how="killed", timeout_s=10.0)

# %%
guess.reveal(
    len(killed.lines_of(2, "stderr")),
    note=f"ranks 0 and 1: {len(killed.lines_of(0, 'stderr') + killed.lines_of(1, 'stderr'))}",
)

# %%
diagnose(killed)

# %% [markdown]
# A killed rank says nothing. All you can read comes from ranks that did nothing wrong (or not even from
# them, if torchrun ended them before they noticed). Next, rank 2 raises a `ValueError`, so it has a
# chance to speak.

# %%
guess = predict(
    "Rank 2 raises a ValueError; ranks 0 and 1 wait for it. Whose process ends first?",
    choices=["rank 0", "rank 1", "rank 2"],
)

# %%
raised = launch("crash_one_rank", ranks=3, how="raises", timeout_s=10.0)

# %%
guess.reveal(f"rank {raised.result['deaths'][0]['rank']}")

# %%
diagnose(raised)

# %% [markdown]
# It is a race, and the next run may end differently: rank 2 closes its connections as it exits, and the
# others, who notice at once, can be gone before it. torchrun reports as *root cause* what it saw end
# first, which may be a rank that merely waited. The diagnosis goes by the *kind* of the words:
# "connection closed by peer" is something that happened **to** a rank, so look at the peer; a
# `ValueError` is something that it **did**.
#
# # Part 2: who differs
#
# ## Must all ranks bring the same?

# %%
show_job("hang_different_collectives")

# %%
guess = predict(
    "Rank 1 calls broadcast where rank 0 calls all_reduce. How does it end?",
    choices=["well", "with an error that names both calls", "with an error that does not"],
)

# %%
operation = launch("hang_different_collectives", ranks=2, differ="operation", timeout_s=1.5)

# %%
guess.reveal(
    "well"
    if operation.ok
    else "with an error that names both calls"
    if "broadcast" in str(operation.failure.consequences).lower()
    else "with an error that does not"
)

# %%
collectives(operation)

# %% [markdown]
# The first collective is the same on both ranks, the second is not. A collective has no name that could
# be compared; **one rank's second call is matched with the other rank's second call**. On request, torch
# compares before each collective. That takes extra messages, so it is for debugging:

# %%
spoken = launch(
    "hang_different_collectives",
    ranks=2,
    differ="operation",
    timeout_s=10.0,
    env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
)

# %%
print(*spoken.failure.consequences.values(), sep="\n\n")

# %% [markdown]
# (In torch 2.14.1 and 2.15.0 with Gloo, that variable crashes DDP's constructor. With DDP, call
# `dist.set_debug_level(dist.DebugLevel.DETAIL)` after `init_process_group` instead.)
#
# And with the same operation, but five numbers where the other rank brings four?

# %%
guess = predict(
    "Rank 1 brings five numbers, rank 0 brings four, as it should. Which rank ends first?",
    choices=["rank 0", "rank 1", "neither: it ends well"],
)

# %%
size = launch("hang_different_collectives", ranks=2, differ="size", timeout_s=10.0)

# %%
guess.reveal(
    "neither: it ends well" if size.ok else f"rank {size.result['deaths'][0]['rank']}",
    note=f"exit codes {size.exit_codes}",
)

# %%
diagnose(size)

# %% [markdown]
# With Gloo, the rank that receives more than it expects is aborted (−6, `SIGABRT`), and that is the one
# with the right size. The exit code tells where it hurt; the ledgers tell what differs. (To *gather*
# tensors of unequal size on purpose: lesson 03.)
#
# ## What if two ranks wait for each other?
#
# A message to one other rank (lesson 05) has a partner, not a place in a common list.

# %%
guess = predict(
    "Two ranks: each first receives from the other, then sends. How many get their message?",
    choices=[0, 1, 2],
)

# %%
crossed = launch("hang_crossed_pairs", ranks=2, order="both-receive", timeout_s=1.5)
in_turn = launch("hang_crossed_pairs", ranks=2, order="right", timeout_s=10.0)

# %%
guess.reveal(list(crossed.by_rank("doing").values()).count("done"))

# %%
diagnose(crossed)

# %% [markdown]
# A circle. Neither rank is late, and neither is at fault alone; the order is wrong. If one rank sends
# first and the other receives first, both get their message:

# %%
each_rank(in_turn, "doing", "received")

# %% [markdown]
# `isend`, `irecv` and `batch_isend_irecv` begin both at once, so that no order can be wrong.
#
# ## What if the ranks build different models?
#
# The vocabulary was counted on each rank's own share of the texts, and rank 1 has one word more.

# %%
guess = predict(
    "Rank 1's first layer is wider than rank 0's. Where is that noticed?",
    choices=["in DDP's constructor", "in the first backward", "never"],
)

# %%
models = launch("crash_different_models", ranks=2, differ="shape", timeout_s=10.0)

# %%
guess.reveal(
    "never"
    if models.ok
    else "in DDP's constructor"
    if models.value("doing", rank=1) == "DDP(model)"
    else "in the first backward"
)

# %%
diagnose(models)

# %%
collectives(models)

# %% [markdown]
# You wrote no collective, and the table has some. DDP's constructor compares the number of parameters and
# their shapes, and then broadcasts rank 0's weights; each row says what it is for.
#
# ## And if they only register their layers in different orders?
#
# Two layers of equal shape, `first` and `second`. Rank 1 registers `second` first, as happens when names
# come from a set or from files as the disk lists them.

# %%
show_job("wrong_registration_order")

# %%
guess = predict(
    "Right after DDP's constructor: do both ranks compute the same output for the same input?",
    choices=["yes", "no", "the constructor raises an error"],
)

# %%
swapped_layers = launch("wrong_registration_order", ranks=2)

# %%
guess.reveal(
    "the constructor raises an error"
    if not swapped_layers.ok
    else "yes"
    if swapped_layers.values("output", 0)[0] == swapped_layers.values("output", 1)[0]
    else "no"
)

# %%
each_rank(swapped_layers, "registered", "output", "spread")

# %% [markdown]
# DDP matches parameters **by position, never by name**. Both ranks hold the same numbers position by
# position (spread 0), but in rank 1's model they sit in the wrong layers. So a comparison of weights
# finds nothing; compare outputs for one input, or names.
#
# # Part 3: what the ledgers do not show
#
# ## What if the rank at fault waits, too?
#
# Not for a rank, but for one of its own workers.

# %%
show_job("hang_data_worker")

# %%
guess = predict(
    "The DataLoader's worker of rank 1 is stuck. Which rank reports an error?",
    choices=["rank 0", "rank 1"],
)

# %%
worker = launch("hang_data_worker", ranks=2, timeout_s=2.5)

# %%
guess.reveal(f"rank {worker.result['deaths'][0]['rank']}")

# %%
diagnose(worker)

# %% [markdown]
# The healthy rank reports, because it waits in a collective, which has a time-out. Rank 1 waits in its
# loader, which has none unless you give it one (`DataLoader(timeout=…)`), and would wait for ever. The
# ledgers show *that* rank 1 did not come; its *stack*, the calls that it was in, shows why. The same goes
# for locks, queues, downloads and file systems.
#
# ## Can it hang before the first collective?

# %%
guess = predict(
    "Two ranks are started and told that there are three. Where do they stop?",
    choices=["init_process_group", "the first barrier", "nowhere: they end well"],
)

# %%
absent = launch("hang_at_start", ranks=2, mistake="absent", timeout_s=1.5)

# %%
guess.reveal(
    "nowhere: they end well"
    if absent.ok
    else "init_process_group"
    if diagnose(absent).collective == "init_process_group"
    else "the first barrier"
)

# %%
diagnose(absent)

# %% [markdown]
# Before there is a group there are no collectives, and the ledgers are empty. The ranks meet in a *store*
# (lesson 02c), where each leaves its address. Gloo's error names the key that it missed there, and the key
# ends with a rank. With a wrong host name not even the store is found:

# %%
name = launch("hang_at_start", ranks=2, mistake="name", timeout_s=1.5)
print(name.failure.what)

# %% [markdown]
# `mistake="address"`, `"port"` and `"late"` are three more; try them.
#
# ## What can the diagnosis not see?
#
# Once more the job with different collectives. Both ranks all-reduce `a` and `b`, of equal size, but
# rank 1 takes them in the other order.

# %%
guess = predict(
    "Rank 0 reduces b and then a, rank 1 a and then b. How does it end?",
    choices=["with the right sums", "with wrong sums", "with a time-out"],
)

# %%
alike = launch("hang_different_collectives", ranks=2, differ="none", timeout_s=10.0)
swapped = launch("hang_different_collectives", ranks=2, differ="order", timeout_s=10.0)

# %%
guess.reveal(
    "with a time-out"
    if not swapped.ok
    else "with the right sums"
    if swapped.value("total") == alike.value("total")
    else "with wrong sums"
)

# %%
compare({"alike": alike, "swapped": swapped}, "total")

# %%
diagnose(swapped)

# %% [markdown]
# Operation, size, type and even the line of code are the same; only the contents are mixed up, and
# nothing compares contents. Nothing fails, so there is nothing to diagnose. Dictionaries in a different
# order, sets of names, files as the disk lists them: **sort before you communicate**, and compare with
# one process now and then (lesson 02).
#
# Nor can it see whether a busy rank will ever finish; what a rank had done that was killed by −9, which
# leaves no ledger (the table says *no word*); and jobs that neither `launch` nor
# `python -m ddp_course run` has started.
#
# ## Can you classify five wrecks?
#
# **Exercise 10.** In [exercises/ex10_classify_wrecks.py](../exercises/ex10_classify_wrecks.py) there are
# five wrecks without labels: exit codes, last error lines and ledgers of four ranks. Classify them by
# eye; then write a function that does it. The check gives it five others.

# %%
check("ex10")

# %% [markdown]
# (**Exercise 03c**, from lesson 03, is a hang to be found by such a table and fixed. If you have not done
# it, now is the time: `check("ex03c")`.)
#
# ## What would have gone wrong?
#
# - **Reading the longest traceback first** It belongs to a rank that has lost another one. Ask for the
#   first fault: which rank ended by itself, which one did not come.
# - **The last line of rank 0's log** Rank 0 is one witness of many. Keep the logs of all ranks (lesson 06).
# - **A larger time-out for each of these** None of them ends well with more patience.
# - **A restart without a diagnosis** What made the ranks part is in the code or in the data, and comes
#   back at the same step.
# - **`print` in all ranks until it shows** Output is buffered, and a rank that is ended loses what it had
#   not written. Where a rank *is* tells more than what it said last.
# - **An exception that is caught on one rank** (`except: continue`): that rank skips a collective, and the
#   others wait. If all catch theirs, the job ends well, and only the ledgers differ.
# - **A barrier in `finally`** The rank waits there before its own error is printed. Print first.
#
# ## What should you remember?
#
# - The rank that complains waited. Look for the one that did not come, or did something different.
# - Collectives are matched by position, and so are DDP's parameters. Names and contents are never compared.
# - Lay all ranks' ledgers side by side: the first row that differs is the place to look at.
#
# **From memory:** exit codes 1, 1, −6, 1. Is rank 2 at fault? What do you look at to decide?
#
# > **On your cluster.** Torch itself keeps a list of each rank's collectives, its *flight recorder* (with
# > Gloo too; only NCCL writes it out by itself). Set, on all nodes, `TORCH_FR_DUMP_ON_TIMEOUT=1
# > TORCH_FR_BUFFER_SIZE=20000 TORCH_FR_DUMP_TEMP_FILE=/shared/fr/rank_`; at a time-out each rank writes
# > `/shared/fr/rank_` and its number, and `torchfrtrace /shared/fr -p rank_` compares them. (torch 2.14.1
# > accepts the older names `TORCH_NCCL_TRACE_BUFFER_SIZE` and `TORCH_NCCL_DEBUG_INFO_TEMP_FILE` too. The
# > files are pickles: open only your own.) For a rank that did not come, `py-spy dump --pid PID` on its
# > node prints its stack while it hangs; in a container that needs the right to trace (`SYS_PTRACE`). In a
# > script of your own, `faulthandler.dump_traceback_later(600, repeat=True)` writes the stacks every ten
# > minutes without any tool. A `CUDA error` is often reported at a later line than its cause: run again
# > with `CUDA_LAUNCH_BLOCKING=1`.
#
# **Sources.** PyTorch documentation,
# [ProcessGroupNCCL Environment Variables](https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html)
# and [Distributed communication package](https://docs.pytorch.org/docs/stable/distributed.html), section
# on debugging (`TORCH_DISTRIBUTED_DEBUG`, `monitored_barrier`), pages of October 2026 · C. Pandya, J. Wang,
# [Flight Recorder for Debugging Stuck Jobs](https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html),
# PyTorch tutorials (prototype), September 2024, updated December 2024 · names of the flight recorder's
# variables: `FlightRecorder.hpp` and `ProcessGroupNCCL.hpp` of torch 2.14.1 · Python documentation,
# [faulthandler](https://docs.python.org/3/library/faulthandler.html) ·
# [py-spy](https://github.com/benfred/py-spy) · behaviour as measured in this run.
#
# **Next:** [13 Beyond DDP](13_beyond_ddp.ipynb)
