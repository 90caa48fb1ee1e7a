"""A rank that asks the job's store for its revision, as often as each line of its input says, and prints the
median time of a request in µs. It ends with its input.
"""

import statistics
import sys
import time

from horovod.runner._store import Store

store = Store.of_environment()
for line in sys.stdin:
    times = []
    for _ in range(int(line)):
        start = time.perf_counter()
        store.revision()  # one request; a get takes two
        times.append(time.perf_counter() - start)
    print(f"{1e6 * statistics.median(times):.2f}", flush=True)
store.close()
