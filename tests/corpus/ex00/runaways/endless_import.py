# status: timeout
# says: had not imported your file
import time

while True:
    time.sleep(60)


def sum_over_ranks(number):
    return number
