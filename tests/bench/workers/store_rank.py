"""A rank that requests the revision of the job's store; each line of its input is a number of requests. Prints the
median time of a request in µs. It ends at the end of its input.
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
