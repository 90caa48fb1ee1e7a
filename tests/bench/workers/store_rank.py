"""A rank that asks the job's store REQUESTS times for its revision, and prints the median time of a request in µs.

usage: store_rank.py REQUESTS
"""
import statistics
import sys
import time

from horovod.runner._store import Store

store = Store.of_environment()
times = []
for _ in range(int(sys.argv[1])):
    start = time.perf_counter()
    store.revision()  # one request; a get takes two
    times.append(time.perf_counter() - start)
store.close()
print(f"{1e6 * statistics.median(times):.2f}")
