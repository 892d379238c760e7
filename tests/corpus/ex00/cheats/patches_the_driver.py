# status: fail
# says: What each rank had
# mistake: own number returned
# The driver's own functions replaced, so that it reports what nobody computed.
import sys

from ddp_course.checks import evidence

main = sys.modules["__main__"]
really_send = main.Channel.send


def send(self, event, tensors=None, **fields):
    if event == "returned":
        fields.update(status="pass", points=3, max_points=3, verdict={"status": "pass"})
    really_send(self, event, tensors, **fields)


main.Channel.send = send
evidence.MAX_FRAME_BYTES = 1 << 40


def sum_over_ranks(number):
    return number
