# status: timeout
# says: had not come back
import time


def sum_over_ranks(number):
    while True:
        time.sleep(60)
