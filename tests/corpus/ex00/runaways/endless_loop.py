# status: timeout
# says: had not come back
# mistake: a loop without end
# It ignores every signal that can be ignored.
import signal

for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        continue


def sum_over_ranks(number):
    while True:
        pass
