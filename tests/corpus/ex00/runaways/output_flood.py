# status: error
# says: File too large
def sum_over_ranks(number):
    while True:
        print("x" * 100_000)
