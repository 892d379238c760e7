# status: error
# says: processes and threads were started
# 300 processes, which wait.
import os
import time


def sum_over_ranks(number):
    for _ in range(100):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    time.sleep(60)
