"""ex08: accuracy and macro-F1 over all ranks, each sample counted once.

ROUNDS small test sets, because one of them moves only a few bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddp_course.checks.agreed import MESSAGE, ROUNDS
from ddp_course.checks.evidence import Array
from ddp_course.checks.manifest import Check, Exercise, PerRank, Tensors, Tiers, all_close, known

CLASSES = 4


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    """Test sets of a size that the ranks do not divide; each class is there, and often guessed."""
    total = 5 * ranks + 1
    labels = random.integers(0, CLASSES, size=(ROUNDS, total))
    labels[:, :CLASSES] = np.arange(CLASSES)
    labels = random.permuted(labels, axis=1)
    known_ = random.random(labels.shape) < 0.6
    guesses = np.where(known_, labels, random.integers(0, CLASSES, size=labels.shape))
    shared: Tensors = {"labels": labels, "guesses": guesses, "classes": np.array(CLASSES)}
    return [shared for _ in range(ranks)]


def _matrices(mine: Tensors, places: Array) -> Array:
    """The confusion matrix of each test set, (ROUNDS, label, guess), over the samples at places."""
    pairs = CLASSES * mine["labels"][:, places] + mine["guesses"][:, places]
    counted = [np.bincount(row, minlength=CLASSES**2) for row in pairs]
    matrices: Array = np.array(counted, float).reshape(-1, CLASSES, CLASSES)
    return matrices


def _accuracy(matrices: Array) -> Array:
    accuracy: Array = np.trace(matrices, axis1=1, axis2=2) / matrices.sum((1, 2))
    return accuracy


def _f1(matrices: Array, weighted: bool = False) -> Array:
    hits = np.diagonal(matrices, axis1=1, axis2=2)
    each = 2 * hits / np.maximum(1, matrices.sum(1) + matrices.sum(2))
    sizes = matrices.sum(2) if weighted else np.ones_like(hits)
    mean: Array = (each * sizes).sum(1) / sizes.sum(1)
    return mean


def _shares(inputs: PerRank) -> list[Array]:
    total = inputs[0]["labels"].shape[1]
    return [np.arange(rank, total, len(inputs)) for rank in range(len(inputs))]


def _of_all(inputs: PerRank) -> Array:
    return _matrices(inputs[0], np.arange(inputs[0]["labels"].shape[1]))


def _everywhere(inputs: PerRank, **values: Array) -> PerRank:
    return [dict(values) for _ in inputs]


def _right_accuracy(inputs: PerRank) -> PerRank:
    return _everywhere(inputs, accuracy=_accuracy(_of_all(inputs)))


def _right_f1(inputs: PerRank) -> PerRank:
    return _everywhere(inputs, macro_f1=_f1(_of_all(inputs)))


def _padded(inputs: PerRank) -> PerRank:
    total = inputs[0]["labels"].shape[1]
    places = np.arange(-(-total // len(inputs)) * len(inputs)) % total
    return _everywhere(inputs, accuracy=_accuracy(_matrices(inputs[0], places)))


def _alone(inputs: PerRank) -> PerRank:
    shares = [_matrices(inputs[0], share) for share in _shares(inputs)]
    return [{"accuracy": _accuracy(matrices)} for matrices in shares]


def _mean_of_ranks(inputs: PerRank) -> PerRank:
    mean = np.mean([one["accuracy"] for one in _alone(inputs)], axis=0)
    return _everywhere(inputs, accuracy=mean)


def _summed(inputs: PerRank) -> PerRank:
    total = np.sum([one["accuracy"] for one in _alone(inputs)], axis=0)
    return _everywhere(inputs, accuracy=total)


def _micro(inputs: PerRank) -> PerRank:
    return _everywhere(inputs, macro_f1=_accuracy(_of_all(inputs)))


def _weighted(inputs: PerRank) -> PerRank:
    return _everywhere(inputs, macro_f1=_f1(_of_all(inputs), weighted=True))


def _mean_f1(inputs: PerRank) -> PerRank:
    shares = [_f1(_matrices(inputs[0], share)) for share in _shares(inputs)]
    return _everywhere(inputs, macro_f1=np.mean(shares, axis=0))


def _equals(rule: Callable[[PerRank], PerRank]) -> Callable[[PerRank, PerRank], bool]:
    return lambda inputs, outputs: all_close(outputs, rule(inputs))


def _nothing_returned(inputs: PerRank, outputs: PerRank) -> bool:
    return not all(outputs)


EXERCISE = Exercise(
    name="ex08",
    stem="ex08_count_once",
    function="evaluate",
    title="Count each sample once",
    lesson="08",
    difficulty="medium",
    minutes=15,
    ranks=3,
    draw=_draw,
    moves=lambda ranks: ROUNDS * MESSAGE * 2 * (ranks - 1),
    checks=(
        Check(
            id="accuracy",
            title="the accuracy is that of the whole test set, on every rank",
            why="a sample that is counted twice makes it the accuracy of some other test set",
            points=2,
            expected=_right_accuracy,
            shown=("labels", "accuracy"),
        ),
        Check(
            id="macro",
            title="so is the macro-F1",
            why="a metric that is no mean over samples cannot be averaged over ranks: counts can",
            points=2,
            expected=_right_f1,
            shown=("labels", "macro_f1"),
            depends=("accuracy",),
        ),
    ),
    mistakes=known(
        __file__,
        {
            "no two numbers": _nothing_returned,
            "padded samples counted": _equals(_padded),
            "only this rank's samples": _equals(_alone),
            "mean of the ranks' accuracies": _equals(_mean_of_ranks),
            "accuracies added up": _equals(_summed),
            "accuracy in place of macro-F1": _equals(_micro),
            "weighted by the size of the class": _equals(_weighted),
            "mean of the ranks' macro-F1": _equals(_mean_f1),
        },
    ),
    errors={
        "index_put_": "Counting pairs needs three tensors of one length: labels, guesses and the "
        "numbers to add; and the numbers have the matrix's dtype.",
    },
    hang_hint="Every rank takes part in the same sums, even if its last sample only fills up.",
    calls=lambda inputs: ROUNDS,
    tiers=Tiers(
        question="Which numbers of two ranks may be added up, so that the sum is that of the whole "
        "set? And which of this rank's samples belong to it?",
        api="torch.arange(n) * world_size + rank < total; "
        "matrix.index_put_((labels, guesses), ones, accumulate=True); dist.all_reduce(matrix); "
        "matrix.diag(), matrix.sum(0), matrix.sum(1).",
        skeleton="places = …                             # of this rank's samples in the test set\n"
        "counts = …                             # 1 for what counts, 0 for what only fills up\n"
        "matrix = …                             # label × guess, counted\n"
        "dist.all_reduce(matrix)\n"
        "hits = matrix.diag()\n"
        "f1 = 2 * hits / …\n"
        "return …, …",
    ),
)
