"""Whatever is drawn, every known mistake is wrong, and is taken for itself and for no other.

The outputs of each mistake are made here from the inputs, as the ranks would report them: in
float32. The wrong answers in test_exercises.py show that real ranks report just these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddp_course.checks import judge
from ddp_course.checks.exercises import EXERCISES
from ddp_course.checks.manifest import PerRank, Tensors, all_close, known
from ddp_course.checks.supervisor import Gathered, Observation
from ddp_course.exercises.ex02_average_gradients import exercise as ex02
from ddp_course.exercises.ex02b_partition_data import exercise as ex02b
from ddp_course.exercises.ex02d_reduce_scatter import exercise as ex02d
from ddp_course.exercises.ex03_weight_batches import exercise as ex03
from ddp_course.exercises.ex03b_stop_together import exercise as ex03b
from ddp_course.exercises.ex03c_find_hang import exercise as ex03c
from ddp_course.exercises.ex04_resume_exactly import exercise as ex04
from ddp_course.exercises.ex05_hand_over import exercise as ex05
from ddp_course.exercises.ex06_survive_kill import exercise as ex06
from ddp_course.exercises.ex06b_share_again import exercise as ex06b
from ddp_course.exercises.ex07_accumulate_without_syncing import exercise as ex07
from ddp_course.exercises.ex08_count_once import exercise as ex08
from ddp_course.exercises.ex08b_shard_stream import exercise as ex08b
from ddp_course.exercises.ex09_compress_gradients import exercise as ex09
from ddp_course.exercises.ex10_classify_wrecks import exercise as ex10
from ddp_course.exercises.ex13_share_optimizer import exercise as ex13
from ddp_course.exercises.ex14_capstone import exercise as ex14

Acts = Iterator[tuple[str, PerRank]]
SEEDS = [30, pytest.param(300, marks=pytest.mark.nightly)]


def merged(*parts: PerRank) -> PerRank:
    """Every rank's tensors of all parts; the last part wins."""
    return [dict(pair for one in mine for pair in one.items()) for mine in zip(*parts, strict=True)]


def right(name: str, inputs: PerRank) -> PerRank:
    return merged(*(check.expected(inputs) for check in EXERCISES[name].checks))


def everywhere(inputs: PerRank, **tensors: Any) -> PerRank:
    named = {name.replace("__", "/"): np.asarray(one) for name, one in tensors.items()}
    return [dict(named) for _ in inputs]


def acts_ex00(inputs: PerRank) -> Acts:
    good, n = right("ex00", inputs), len(inputs)

    def returns(rule: Callable[[str, int], Any]) -> PerRank:
        names = {"result": "number", "bulk/result": "bulk/number"}
        mine = [{out: rule(name, r) for out, name in names.items()} for r in range(n)]
        return merged(good, mine)

    def total(name: str) -> Any:
        return np.sum([mine[name] for mine in inputs], axis=0)

    yield "nothing returned", [{"argument": one["argument"]} for one in good]
    yield "own number returned", returns(lambda name, r: inputs[r][name])
    yield "own number times the world size", returns(lambda name, r: inputs[r][name] * n)
    yield "mean instead of sum", returns(lambda name, r: total(name) / n)
    yield "rank 0's number everywhere", returns(lambda name, r: inputs[0][name])
    stacked = {name: np.stack([mine[name] for mine in inputs]) for name in inputs[0]}
    for operation in (np.max, np.min, np.prod):
        together = {name: operation(one, axis=0) for name, one in stacked.items()}
        yield "another operation than the sum", returns(lambda name, r: together[name])  # noqa: B023
    yield "counted twice", returns(lambda name, r: inputs[r][name] + total(name))
    yield "counted twice", returns(lambda name, r: n * total(name))
    yield "gathered, not added up", returns(lambda name, r: stacked[name])
    yield "gathered, not added up", returns(lambda name, r: stacked[name].reshape(-1))
    yield "one rank has the sum", returns(lambda name, r: inputs[r][name] if r else total(name))
    yield "argument overwritten", merged(good, everywhere(inputs, argument=total("number")))


def acts_ex01(inputs: PerRank) -> Acts:
    good, n = right("ex01", inputs), len(inputs)

    def pretended(rule: Callable[[int], dict[str, Any]]) -> PerRank:
        return merged(good, [{k: np.array(v) for k, v in rule(r).items()} for r in range(n)])

    local = [int(mine["gpus/local_rank"][0]) for mine in inputs]
    yield "not wrapped in DDP", [{"here/gradient": mine["here/alone"]} for mine in inputs]
    yield (
        "the rank as a device number",
        pretended(lambda r: {"gpus/device": [r], "gpus/device_ids": [r]}),
    )
    yield (
        "the first GPU for everyone",
        pretended(lambda r: {"gpus/device": [0], "gpus/device_ids": [0]}),
    )
    yield "not on the GPU when it is wrapped", pretended(lambda r: {"gpus/device": [-1]})
    yield "device_ids left out", pretended(lambda r: {"gpus/device_ids": [-1]})
    yield "all GPUs in device_ids", pretended(lambda r: {"gpus/device_ids": list(range(n + 1))})
    yield (
        "one GPU too many asked for",
        pretended(lambda r: {"enough/device": [-1], "enough/device_ids": [-1]}),
    )
    yield (
        "a GPU for some ranks only",
        pretended(
            lambda r: (
                {"few/device": [local[r]], "few/device_ids": [local[r]]} if local[r] < n - 1 else {}
            )
        ),
    )


def acts_ex02(inputs: PerRank) -> Acts:
    good, n = right("ex02", inputs), len(inputs)
    own, total = ex02._own(inputs), partial(ex02._scaled_sum, inputs)
    moved = [{name: one + 1 for name, one in mine.items()} for mine in ex02._weights(inputs)]
    yield "weights changed", merged(good, moved)
    yield "sum instead of mean", merged(good, total(1.0))
    for number in {2, 3} - {n}:
        yield "divided by a fixed number", merged(good, total(1 / number))
    yield "divided twice", merged(good, total(1 / n**2))
    yield "divided but not reduced", merged(good, ex02._own(inputs, 1 / n))
    yield "gradients unchanged", merged(good, own)
    yield "rank 0's gradients everywhere", merged(good, [own[0]] * n)
    yield "one rank has the mean", merged(good, [good[0], *own[1:]])
    yield "multiplied instead of divided", merged(good, total(float(n)))
    its_own = [total(1 / (r + 1))[r] for r in range(n)]
    yield "divided by a number of its own on each rank", merged(good, its_own)
    with_one = everywhere(inputs, **{"frozen/without gradient": 0})
    yield "a gradient for the frozen parameter", merged(good, with_one)
    others = [{k: v for k, v in mine.items() if "0.weight" not in k} for mine in own]
    yield "some parameters only", merged(good, others)


def acts_ex02b(inputs: PerRank) -> Acts:
    n, random = len(inputs), np.random.default_rng(int(inputs[0]["seed"]))

    def follow(rule: Callable[[int, int, int, int], Any]) -> PerRank:
        """rule(size, epoch, rank, which call this is) → indices"""
        outputs = []
        for rank in range(n):
            mine: Tensors = {}
            for case in ex02b.CASES:
                size = int(inputs[0][f"{case}/size"])
                shares = [
                    np.asarray(rule(size, int(epoch), rank, call), dtype=np.int64)
                    for call, epoch in enumerate(inputs[0]["epochs"])
                ]
                mine[f"{case}/counts"] = np.array([len(share) for share in shares])
                mine[f"{case}/indices"] = np.concatenate(shares)
            outputs.append(mine)
        return ex02b._derive(inputs, outputs)

    def order(size: int, seed: object) -> Any:
        return np.random.default_rng(hash(seed) % 2**32).permutation(size)

    def filled(indices: Any) -> Any:
        return np.resize(indices, -(-len(indices) // n) * n)

    def fair(size: int, epoch: int, rank: int, call: int) -> Any:
        return filled(order(size, epoch))[rank::n]

    salt = int(random.integers(1 << 30))
    assert all(all_close(follow(fair), one.expected(inputs)) for one in EXERCISES["ex02b"].checks)
    yield "no indices returned", ex02b._derive(inputs, [{} for _ in inputs])
    yield (
        "indices beyond the data",
        follow(lambda size, e, r, c: [*order(size, e), *range(size, -(-size // n) * n)][r::n]),
    )
    yield "everything on every rank", follow(lambda size, e, r, c: order(size, e))
    yield (
        "more than needed",
        follow(lambda size, e, r, c: np.resize(order(size, e), (size // n + 1) * n)[r::n]),
    )
    yield "the same share on every rank", follow(lambda size, e, r, c: fair(size, e, 0, c))
    yield "the rest left out", follow(lambda size, e, r, c: order(size, e)[: size // n * n][r::n])
    yield "unequal counts", follow(lambda size, e, r, c: order(size, e)[r::n])
    yield (
        "each rank shuffles its own way",
        follow(lambda size, e, r, c: filled(order(size, (salt, e, r)))[r::n]),
    )
    yield (
        "each rank shuffles its own way",
        follow(lambda size, e, r, c: filled(order(size, (salt, e, r, c)))[r::n]),
    )
    yield "not shuffled", follow(lambda size, e, r, c: filled(np.arange(size))[r::n])
    yield "not shuffled", follow(lambda size, e, r, c: filled((np.arange(size) + e) % size)[r::n])
    yield (
        "another order when asked again",
        follow(lambda size, e, r, c: filled(order(size, (salt, c)))[r::n]),
    )
    yield (
        "own share shuffled",
        follow(
            lambda size, e, r, c: (
                order(1 << 20, 0)[:0]
                if not size
                else np.random.default_rng(e).permutation(filled(np.arange(size))[r::n])
            )
        ),
    )
    yield (
        "the same order in every epoch",
        follow(lambda size, e, r, c: filled(order(size, salt))[r::n]),
    )


def acts_ex02d(inputs: PerRank) -> Acts:
    good, n = right("ex02d", inputs), len(inputs)

    def returns(rule: Callable[[str, int], Any]) -> PerRank:
        return merged(good, ex02d._with(inputs, rule))

    def pieces(name: str, rank: int) -> Any:
        return inputs[rank][f"pieces/{name}"]

    yield "nothing returned", [{k: v for k, v in o.items() if "result" not in k} for o in good]
    yield "all sums returned", returns(lambda name, rank: ex02d._sums(inputs, name))
    yield "mean instead of sum", returns(lambda name, rank: ex02d._sums(inputs, name)[rank] / n)
    yield (
        "the sum of another piece",
        returns(lambda name, rank: ex02d._sums(inputs, name)[(rank + 1) % n]),
    )
    yield "passed on, not added up", returns(lambda name, rank: pieces(name, rank)[rank])
    if n > 2:  # with two ranks, this is to pass on without adding up
        yield (
            "the own piece left out",
            returns(lambda name, rank: ex02d._sums(inputs, name)[rank] - pieces(name, rank)[rank]),
        )
    yield "a collective does it", merged(good, everywhere(inputs, few__sent=0, bulk__sent=0))
    yield "more sent than needed", merged(good, everywhere(inputs, few__sent=99))


def acts_ex03(inputs: PerRank) -> Acts:
    good = right("ex03", inputs)
    rules: dict[str, ex03.Factor] = {
        "mean of the means": lambda rank, counts: 1 / counts[rank],
        "world size forgotten": lambda rank, counts: 1 / sum(counts),
        "sum instead of mean": lambda rank, counts: 1.0,
        "sum over all samples": lambda rank, counts: float(len(counts)),
        "own count times the world size": lambda rank, counts: len(counts) / counts[rank],
        "rank 0's count for all": lambda rank, counts: 1 / counts[0],
        "the largest count for all": lambda rank, counts: 1 / max(counts),
    }
    yield "no loss returned", [{} for _ in inputs]
    for name, rule in rules.items():
        yield name, merged(good, ex03._gradient(inputs, "uneven", rule))
    yield "mean of no samples", merged(good, everywhere(inputs, empty__finite=0))


def acts_ex03b(inputs: PerRank) -> Acts:
    rules: dict[str, Callable[[Any], Any]] = {
        "all instead of any": lambda wishes: wishes.min(axis=0),
        "one rank decides": lambda wishes: wishes[-1],
        "the majority decides": lambda wishes: wishes.mean(axis=0) > 0.5,
        "one wish and no more": lambda wishes: wishes.sum(axis=0) == 1,
        "never yes": lambda wishes: np.zeros(wishes.shape[1]),
        "always yes": lambda wishes: np.ones(wishes.shape[1]),
    }
    own = [{f"{c}/stop": mine[f"{c}/wish"] for c in ex03b.CASES} for mine in inputs]
    yield "no answer returned", [{} for _ in inputs]
    yield "own wish returned", own
    for name, rule in rules.items():
        if len(inputs) > 2 or name != "the majority decides":  # of two: all of them
            yield name, ex03b._answers(inputs, rule)
    yield "one rank knows", [right("ex03b", inputs)[0], *own[1:]]


def acts_ex03c(inputs: PerRank) -> Acts:
    good, n = right("ex03c", inputs), len(inputs)

    def trained(*rules: ex03c.Rule) -> PerRank:
        weights = [ex03c._trained(inputs, "hole", rule)[0] for rule in rules]
        return merged(good, [{"hole/weight": one} for one in weights])

    yield "mean of no samples", merged(good, everywhere(inputs, hole__loss=np.nan))
    yield "no loss returned", [{k: v for k, v in mine.items() if "loss" not in k} for mine in good]
    rules = {
        "the step left out on all ranks": ex03c._skipped_by_all,
        "stops at the first empty batch": ex03c._stopped,
        "divided by the ranks that have samples": ex03c._by_those_with_samples,
        "sum instead of mean": ex03c._sum,
    }
    for name, rule in rules.items():
        yield name, trained(*[rule] * n)
    yield "each rank trains alone", trained(*(ex03c._alone(rank) for rank in range(n)))
    piled: list[Any] = []

    def pile(sums: ex03c.Gradients, counts: list[int]) -> Any:
        piled.append(ex03c._right(sums, counts))
        return np.sum(piled, axis=0)

    weight, _ = ex03c._trained(inputs, "hole", pile)
    yield "gradients not emptied", merged(good, everywhere(inputs, hole__weight=weight))
    loss = [{"hole/loss": mine["hole/loss"] + 1} for mine in good]
    yield "another loss than the sum", merged(good, loss)
    drifted = [{"hole/weight": mine["hole/weight"] + r / n} for r, mine in enumerate(good)]
    yield "the ranks have drifted apart", merged(good, drifted)
    yield "nothing trained", trained(*[lambda sums, counts: ex03c._nothing(sums)] * n)


def acts_ex04(inputs: PerRank) -> Acts:
    good, first, batches = right("ex04", inputs), ex04._first(inputs), ex04.BATCHES
    saved = merged(good, everywhere(inputs, saved=1))

    def ends(weight: Any, momentum: Any) -> PerRank:
        return merged(saved, everywhere(inputs, weight=weight, momentum=momentum))

    def drew(rule: Callable[[Tensors], Any]) -> PerRank:
        drawn = [rule(mine) for mine in inputs]
        return merged(saved, [{"draws": mine, "next": mine[:1]} for mine in drawn])

    weight, momentum = ex04._trained(inputs, *ex04._start(inputs), 0, first)
    fresh, zero = ex04._start(inputs, "fresh_weight")
    yield "nothing saved", merged(saved, everywhere(inputs, saved=0, steps=batches))
    yield "every batch again", merged(saved, everywhere(inputs, steps=batches))
    yield "saved before the step", merged(saved, everywhere(inputs, further=1))
    yield "one batch left out", merged(saved, everywhere(inputs, steps=batches - first - 1))
    once_more = everywhere(inputs, steps=batches - first + 1, further=1)
    yield "one batch twice", merged(saved, once_more)
    yield "the rest left out", merged(saved, everywhere(inputs, steps=0))
    yield "weights not loaded", ends(*ex04._trained(inputs, fresh, momentum, first, batches))
    yield "weights not loaded", ends(*ex04._trained(inputs, fresh, zero, first, batches))
    yield "optimizer forgotten", ends(*ex04._trained(inputs, weight, zero, first, batches))
    yield (
        "random state forgotten",
        drew(lambda mine: ex04._draws(mine["fresh_seed"], 0, batches - first)),
    )
    yield (
        "rank 0's random state everywhere",
        drew(lambda mine: ex04._draws(inputs[0]["seed"], first, batches)),
    )
    yield (
        "random state of the step before",
        drew(lambda mine: ex04._draws(mine["seed"], first - 1, batches - 1)),
    )


def acts_ex05(inputs: PerRank) -> Acts:
    good = right("ex05", inputs)

    def done(**how: Any) -> PerRank:
        steps = {when: ex05._step(inputs, when, **how) for when in (*ex05.WHEN, "bulk")}
        outputs = []
        for rank in range(2):
            first, both = steps["first"][rank], steps["both"][rank]
            total = [one + two for one, two in zip(first, both, strict=True)]
            outputs.append(
                ex05._named("first", first)
                | ex05._named("both", total)
                | ex05._named("bulk", steps["bulk"][rank])
            )
        return outputs

    def scaled(rule: Callable[[str, int], Any]) -> PerRank:
        return [{name: rule(name, rank) for name in good[rank]} for rank in range(2)]

    def mixed(factor: float) -> PerRank:
        return scaled(lambda name, rank: factor * (good[0][name] + good[1][name]))

    x = inputs[0]["data/first"].astype(np.float64)
    yield "rank 0 never goes back", [{}, good[1]]
    yield "rank 1 never goes back", [good[0], {}]
    yield "rank 0 goes back with ones", done(hand_back=np.ones_like)
    yield "rank 0 goes back with zeros", done(hand_back=np.zeros_like)
    yield "rank 1 computes with zeros", done(hand_on=np.zeros_like)
    handed = ex05._step(inputs, "first", hand_on=lambda _: x)
    yield "the inputs are handed on", merged(good, [ex05._named("first", g) for g in handed])
    yield "the ranks' gradients are mixed", mixed(1.0)
    yield "the ranks' gradients are mixed", mixed(0.5)
    size = inputs[0]["data/first"].size
    yield "sum instead of mean", scaled(lambda name, rank: good[rank][name] * size)
    yield "halved", scaled(lambda name, rank: good[rank][name] / 2)
    last = [ex05._named("both", g) for g in ex05._step(inputs, "both")]
    yield "only the last micro-batch counts", merged(good, last)
    yield "only the last micro-batch counts", [good[0] | last[0], good[1]]


def acts_ex06(inputs: PerRank) -> Acts:
    good = right("ex06", inputs)
    _, second, third = ex06.STARTS
    steps = ex06.STEPS

    def ends(*starts: Any, forwards: int = steps - third, **how: Any) -> PerRank:
        weight = ex06._trained(inputs, *starts, **how)
        return merged(good, everywhere(inputs, weight=weight, forwards=forwards))

    begun = ends(range(steps), forwards=steps)
    yield "begins again at step 0", begun
    yield "half a file passed over", merged(begun, everywhere(inputs, half=1))
    left_out = [*range(second), *range(second + 1, third + 1), *range(third + 2, steps)]
    yield "one step left out", ends(left_out, forwards=steps - third - 2)
    yield "optimizer forgotten", ends(*ex06.PARTS, forget="optimizer")
    yield "model forgotten", ends(*ex06.PARTS, forget="model")
    again = [*range(second), *range(third - second), *range(steps)]
    yield "step number forgotten", ends(again, forwards=steps)
    again = [*range(second), *range(second - 1, third - 1), *range(third - 2, steps)]
    yield "one step repeated", ends(again, forwards=steps - third + 2)
    yield "not saved after every step", merged(good, everywhere(inputs, forwards=2))
    yield "every rank writes", merged(good, everywhere(inputs, writes=1))


def acts_ex07(inputs: PerRank) -> Acts:
    good = right("ex07", inputs)
    good = merged(good, everywhere(inputs, long__quiet=3, short__quiet=1))

    def mixed(rule: ex07.Mixed) -> PerRank:
        return merged(good, ex07._outcome(inputs, rule))

    def counted(name: str, rule: Callable[[int], int], quiet: int = 0) -> PerRank:
        counts = {f"{w}__{name}": rule(k) for w, k in ex07.WINDOWS.items()}
        quiets = {f"{w}__quiet": quiet * (k - 1) for w, k in ex07.WINDOWS.items()}
        return merged(good, everywhere(inputs, **counts, **quiets))

    def last(everybody: list[ex07.Gradients], rank: int) -> Tensors:
        return ex07._mean([gradients[-1] for gradients in everybody])

    def four(everybody: list[ex07.Gradients], rank: int) -> Tensors:
        return ex07._times(ex07._right(everybody, rank), len(everybody[rank]) / 4)

    nothing = [{k: v for k, v in mine.items() if not k.endswith(ex07.NAMES)} for mine in good]
    yield "no gradients", nothing
    none = everywhere(inputs, long__all_reduces=0, short__all_reduces=0)
    yield "never synchronised", merged(mixed(ex07._alone), none)
    yield "never synchronised", merged(mixed(lambda all_, r: ex07._sum(all_[r])), none)
    yield "synchronised on the first", mixed(ex07._first_only)
    yield "the last one left out of the average", mixed(ex07._all_but_the_last)
    yield "sum instead of mean", mixed(ex07._summed)
    yield "not divided by the number of micro-batches", mixed(ex07._not_divided)
    yield "divided by the world size, too", mixed(ex07._divided_by_ranks)
    yield "only the last micro-batch counts", mixed(last)
    yield (
        "only the last micro-batch counts",
        mixed(lambda all_, r: ex07._times(last(all_, r), 1 / len(all_[r]))),
    )
    yield "the short window is not divided by its own length", mixed(four)
    yield "one backward for the whole window", counted("backwards", lambda k: 1)
    together = [{k: v * 2 if k == "single/weight" else v for k, v in o.items()} for o in good]
    yield "one backward for the whole window", together
    yield "averaged by hand", counted("all_reduces", lambda k: 0)
    yield "every micro-batch synchronised", counted("all_reduces", lambda k: k)
    yield "forward outside no_sync", counted("all_reduces", lambda k: k, quiet=1)


def acts_ex06b(inputs: PerRank) -> Acts:
    rules: dict[str, ex06b.Rule] = {
        "the epoch begins again": ex06b._from_the_beginning,
        "only its own count skipped": ex06b._own_count_skipped,
        "the short last step kept": ex06b._short_step_kept,
        "the whole step on every rank": ex06b._all_on_every_rank,
        "a global batch for each rank": ex06b._global_batch_each,
        "a piece of the rest for each rank": ex06b._pieces,
    }
    yield "nothing returned", [{} for _ in inputs]
    for name, rule in rules.items():
        yield name, ex06b._of(inputs, rule)


def acts_ex10(inputs: PerRank) -> Acts:
    rules: dict[str, ex10.Rule] = {
        "the first error blamed": ex10._first_error,
        "a short ledger blamed first": ex10._ledgers_first,
        "any signal taken for a kill": ex10._signal_blamed,
        "rank 0 taken for right": ex10._against_rank_0,
        "size taken for operation": ex10._size_not_told,
        "rank 0 always named": ex10._rank_0,
        "one answer for all": lambda evidence, which: (ex10.MISSING, 2),
    }
    yield "no answer returned", [{} for _ in inputs]
    for name, rule in rules.items():
        yield name, ex10._answers(inputs, rule)


def acts_ex08(inputs: PerRank) -> Acts:
    good = right("ex08", inputs)
    rules: dict[str, Callable[[PerRank], PerRank]] = {
        "padded samples counted": ex08._padded,
        "only this rank's samples": ex08._alone,
        "mean of the ranks' accuracies": ex08._mean_of_ranks,
        "accuracies added up": ex08._summed,
        "accuracy in place of macro-F1": ex08._micro,
        "weighted by the size of the class": ex08._weighted,
        "mean of the ranks' macro-F1": ex08._mean_f1,
    }
    yield "no two numbers", [{} for _ in inputs]
    for name, rule in rules.items():
        yield name, merged(good, rule(inputs))


def acts_ex08b(inputs: PerRank) -> Acts:
    rules: dict[str, ex08b.Owns] = {
        "everything for everybody": ex08b._everything,
        "shared among ranks only": ex08b._by_rank,
        "shared among workers only": ex08b._by_worker,
        "rank and worker added": ex08b._added,
        "ranks counted in place of workers": ex08b._ranks_for_workers,
    }
    yield "nothing returned", [{} for _ in inputs]
    for name, rule in rules.items():
        yield name, ex08b._of(inputs, rule)
    late = {"several__lazy": 0, "one__lazy": 0}
    yield "all read first", merged(ex08b._of(inputs, ex08b._right), everywhere(inputs, **late))


def acts_ex09(inputs: PerRank) -> Acts:
    good = right("ex09", inputs)
    yield "no future returned", [{} for _ in inputs]
    yield "sum instead of mean", merged(good, ex09._scaled(0)(inputs))
    yield "divided twice", merged(good, ex09._scaled(2)(inputs))
    yield "not reduced", merged(good, ex09._own(inputs))
    yield "divided but not reduced", merged(good, ex09._own_divided(inputs))
    yield "sent in full", merged(good, everywhere(inputs, halved=0))


def acts_ex13(inputs: PerRank) -> Acts:
    good, n = right("ex13", inputs), len(inputs)
    yield "every rank keeps everything", merged(good, everywhere(inputs, owners=[n] * 7))
    alone = ex13._trained(inputs, shared=False)
    yield "updates not shared", merged(good, [{"weights": weights} for weights in alone])
    yield "sent by the wrong rank", merged(good, [{"weights": i["weights"]} for i in inputs])
    yield "everything sent by one rank", merged(good, everywhere(inputs, weights=alone[0]))


def acts_ex14(inputs: PerRank) -> Acts:
    good = right("ex14", inputs)
    first, rest = ex14._parts(inputs)
    batch, tests = inputs[0]["steps"].shape[1], len(inputs[0]["test/y"])

    def told(**values: Any) -> PerRank:
        named = {name.replace("_", " "): value for name, value in values.items()}
        return merged(good, everywhere(inputs, **named))

    def counted(total: int) -> PerRank:
        return told(total=total, surplus=total - tests)

    all_ = ex14.STEPS * batch
    yield "begins again at step 0", told(forwards=ex14.STEPS, all_samples=all_)
    yield (
        "every rank takes the whole batch", told(all_samples=len(inputs) * len(rest) * batch)
    )  # fmt: skip
    again = told(forwards=len(rest) + 1, all_samples=(len(rest) + 1) * batch)
    yield "one step repeated", again
    yield "every rank writes", told(writes=1)
    yield "gradients in full", told(halved=0)
    for what in ("optimizer", "model"):
        yield f"{what} forgotten", told(weight=ex14._trained(inputs, first, rest, forget=what))
    shares = [{"total": np.array(len(range(r, tests, len(inputs))))} for r in range(len(inputs))]
    yield "only this rank's count", merged(good, shares)
    yield "all ranks count everything", counted(tests * len(inputs))
    yield "padded samples counted", counted(-(-tests // len(inputs)) * len(inputs))
    yield "the rest not counted", counted(tests // len(inputs) * len(inputs))


ACTS = {
    "ex00": acts_ex00,
    "ex01": acts_ex01,
    "ex02": acts_ex02,
    "ex02b": acts_ex02b,
    "ex02d": acts_ex02d,
    "ex03": acts_ex03,
    "ex03b": acts_ex03b,
    "ex03c": acts_ex03c,
    "ex04": acts_ex04,
    "ex05": acts_ex05,
    "ex06": acts_ex06,
    "ex06b": acts_ex06b,
    "ex07": acts_ex07,
    "ex08": acts_ex08,
    "ex08b": acts_ex08b,
    "ex09": acts_ex09,
    "ex10": acts_ex10,
    "ex13": acts_ex13,
    "ex14": acts_ex14,
}


def as_reported(outputs: PerRank) -> PerRank:
    """With the precision in which ranks report."""
    return [
        {k: v.astype(np.float32) if v.dtype.kind == "f" else v for k, v in mine.items()}
        for mine in outputs
    ]


def counts_of_ranks(name: str) -> tuple[int, ...]:
    return (2,) if name == "ex05" else (3, 2, 4)  # its model has two halves


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("name", ACTS)
def test_whatever_is_drawn_every_mistake_is_taken_for_itself(name: str, seeds: int) -> None:
    exercise = EXERCISES[name]
    named: set[str] = set()
    for seed in range(seeds):
        ranks = counts_of_ranks(name)[seed % len(counts_of_ranks(name))]
        inputs = exercise.draw(np.random.default_rng(seed), ranks)
        good = as_reported(right(name, inputs))
        for check in exercise.checks:
            assert all_close(good, check.expected(inputs), check.tolerance), check.id
        for mistake, outputs in ACTS[name](inputs):
            outputs = as_reported(outputs)
            passed = [
                all_close(outputs, check.expected(inputs), check.tolerance)
                for check in exercise.checks
            ]
            where = f"{mistake}, seed {seed}, {ranks} ranks"
            assert not all(passed), where
            found = [one.name for one in exercise.mistakes if one.recognise(inputs, outputs)]
            assert found[:1] == [mistake], f"{where}: {found}"
            named.add(mistake)
    assert named == {one.name for one in exercise.mistakes}


def test_all_exercises_are_here() -> None:
    assert ACTS.keys() == EXERCISES.keys()


@pytest.mark.parametrize("counts", [[1.5] * 5, [3] * 4, [-1] * 5, [10**6] * 5, [[3]] * 5, []])
def test_what_a_rank_claims_to_have_counted_is_no_evidence(counts: Any) -> None:
    exercise = EXERCISES["ex02b"]
    inputs = exercise.draw(np.random.default_rng(0), 3)
    claims = right("ex02b", inputs)
    for mine in claims:
        for case in ex02b.CASES:
            mine[f"{case}/counts"] = np.asarray(counts)
            mine[f"{case}/indices"] = np.arange(15)
    seen = [Observation(r, "returned", outputs=one) for r, one in enumerate(claims)]
    results = judge.assess(exercise, Gathered(inputs, seen))
    assert all(one.status != "pass" for one in results)


@pytest.mark.parametrize(
    ("texts", "names", "said"),
    [
        ({"a": '"""one\n\nhint\n"""'}, ["one", "two"], "two"),
        ({"a": '"""one\n\nhint\n"""', "b": '"""two\n\nhint\n"""'}, ["one"], "two"),
        ({"a": '"""one"""'}, ["one"], "one"),
        ({"a": '"""one\n\nhint\n"""', "b": '"""one\n\nhint\n"""'}, ["one"], "one hint"),
        ({"a": '"""one\n\nhint\n\nquestion?\n\nmore\n"""'}, ["one"], "one hint"),
        ({"a": "return 1"}, ["one"], "one"),
    ],
)
def test_texts_and_recognisers_that_do_not_fit_are_refused(
    texts: dict[str, str], names: list[str], said: str, tmp_path: Path
) -> None:
    (tmp_path / "wrong").mkdir()
    for name, text in texts.items():
        (tmp_path / "wrong" / f"{name}.py").write_text(text)
    with pytest.raises(ValueError, match=said):
        known(str(tmp_path / "exercise.py"), dict.fromkeys(names, lambda *_: True))
