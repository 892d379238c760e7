# status: fail
# says:
# points: 0
# Answers with tensors of odd names, shapes and values instead of a result.
import numpy as np

from ddp_course.exercises.ex00_sum_over_ranks import drive as driver


def drive(function, inputs, device):
    return {
        "result": np.full((3, 0, 7), np.nan, dtype=np.float64),
        "argument": np.full(3, np.inf, dtype=np.float32),
        "bulk/result": np.array(-(2**63), dtype=np.int64),
        "\u202e" * 50: np.zeros(1, dtype=np.int64),
    }


driver.drive = drive


def sum_over_ranks(number):
    return number
