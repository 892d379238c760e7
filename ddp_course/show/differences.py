"""differences({…}, oracle): how far what runs end with is from what one process ends with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddp_course.errors import BadArgument
from ddp_course.run.run import check_run
from ddp_course.show.document import Document, Shown, Table

if TYPE_CHECKING:
    from ddp_course.run.run import Run

ROUNDING = 1e-5  # float32 has 7 digits, and the weights of our models are of order 1


def differences(runs: Mapping[str, Run], oracle: Run, name: str = "weights") -> Differences:
    """The largest difference between what each run reported under `name` and what the oracle did.

    runs: what to call a run → the run. Ranks that hold the whole are each compared; ranks that hold
    pieces of it, in the order of ranks, are put together first.
    Raises NoEvidence if a run did not report `name`, and BadArgument if its numbers cannot be those
    of the oracle's model.
    """
    check_run(oracle)
    wanted = np.ravel(oracle.value(name)).astype(np.float64)
    values = {}
    for label, run in runs.items():
        check_run(run)
        run.value(name)  # says what there is, if there is nothing
        told = np.concatenate([np.ravel(one) for one in run.by_rank(name).values()])
        if not wanted.size or told.size % wanted.size:
            raise BadArgument(
                f"{label} reported {told.size} numbers as {name!r}, the oracle {wanted.size}.",
                action="compare runs of one model",
            )
        values[label] = float(np.abs(told.reshape(-1, wanted.size) - wanted).max())
    return Differences(name, oracle.job, values)


@dataclass(frozen=True, repr=False)
class Differences(Shown):
    """The largest difference of each run, as a number and in words."""

    name: str
    oracle: str
    values: Mapping[str, float]

    @property
    def words(self) -> dict[str, str]:
        """For each run: "exactly equal", "equal up to rounding" or "different"."""
        return {label: _in_words(value) for label, value in self.values.items()}

    def document(self) -> Document:
        head = ["", f"largest difference in {self.name}", f"compared with {self.oracle}"]
        rows = [[label, f"{v:.1e}" if v else "0", _in_words(v)] for label, v in self.values.items()]
        return Document(Table(head, rows))


def _in_words(difference: float) -> str:
    if difference == 0:
        return "exactly equal"
    return "equal up to rounding" if difference < ROUNDING else "different"
