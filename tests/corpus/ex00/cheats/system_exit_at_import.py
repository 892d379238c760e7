# status: error
# says: SystemExit
raise SystemExit(0)


def sum_over_ranks(number):
    return number
