#!/usr/bin/python3 -B
"""A rank of an elastic job that trains until a file appears, with the same weights as one process alone.

usage: churn_rank.py FILE

Prints "generation G: rank R/S on HOST at STEP" when a generation begins, and "ends after STEP steps with CHECKSUM".
"""

import os
import socket
import sys
import time
import zlib

import numpy

SIZE = 1000


def gradient(step):
    """Returns equal gradients on all ranks, so that their average does not depend on the number of ranks."""
    return numpy.arange(SIZE, dtype=numpy.float64) * (step % 7) - step


def checksum(weights):
    return f"{zlib.crc32(weights.tobytes()):08x}"


def main(stop):
    import horovod.numpy as hvd
    from horovod import _elastic
    from horovod.common import elastic

    hvd.init()
    state = elastic.ObjectState(step=0, weights=numpy.zeros(SIZE))

    @_elastic.run
    def train(state):
        print(
            f"generation {os.environ['HOROVOD_GENERATION']}: rank {hvd.rank()}/{hvd.size()} "
            f"on {socket.gethostname()} at {state.step}",
            flush=True,
        )
        while True:
            is_stopped = hvd.allreduce(numpy.array([float(os.path.exists(stop))]), op=hvd.Max, name="stop")
            if is_stopped[0]:
                return
            state.weights = state.weights + hvd.allreduce(gradient(state.step), op=hvd.Average, name="gradient")
            state.step += 1
            time.sleep(0.02)
            state.commit()

    train(state)
    print(f"ends after {state.step} steps with {checksum(state.weights)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
