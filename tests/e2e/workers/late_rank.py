"""Steps of a sleep and an allreduce; one rank sleeps longer. Usage: late_rank.py STEPS SECONDS [RANK SHARE]"""

import sys
import time

import numpy

import horovod.numpy as hvd

steps, seconds = int(sys.argv[1]), float(sys.argv[2])
late, share = (int(sys.argv[3]), float(sys.argv[4])) if len(sys.argv) > 3 else (-1, 0)


def read_shard(extra):
    time.sleep(extra)


hvd.init()
gradient = numpy.ones(64, "f4")
for _ in range(steps):
    if hvd.rank() == late:
        read_shard(seconds * share)
    time.sleep(seconds)
    hvd.allreduce(gradient, name="layer1.bias")
    hvd.allreduce(gradient, name="layer4.weight")
print(f"rank {hvd.rank()} is {hvd.metrics('step').get('late_ms', -1):.1f} ms late", flush=True)
