# status: timeout
# says: had not come back
# Threads that never end; the main thread waits for one of them.
import threading
import time


def sum_over_ranks(number):
    threads = [threading.Thread(target=time.sleep, args=(3600,)) for _ in range(50)]
    for thread in threads:
        thread.start()
    threads[0].join()
