"""A rank that reads a key of the job's store REQUESTS times, and prints the median time of a request in µs.

usage: store_rank.py REQUESTS
"""
import statistics
import sys
import time

from horovod.runner._store import Store

store = Store.of_environment()
store.put("bench/value", b"12345678")
times = []
for _ in range(int(sys.argv[1])):
    start = time.perf_counter()
    store.get("bench/value")
    times.append(time.perf_counter() - start)
store.close()
print(f"{1e6 * statistics.median(times):.2f}")
