# status: error
# says: Too many open files
import os

HELD = []


def sum_over_ranks(number):
    while True:
        HELD.append(os.open("/dev/null", os.O_RDONLY))
