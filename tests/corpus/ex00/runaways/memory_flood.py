# status: error
# says:
HELD = []


def sum_over_ranks(number):
    while True:
        HELD.append(bytearray(b"x") * (64 << 20))
