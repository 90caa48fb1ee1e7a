"""A rank of random_faults.py, whose weights depend only on the number of steps.

usage: chaos_rank.py plain|elastic STEPS FOLDER [SECONDS]

Prints a line "PHASE HOST/PID" at the beginning of each phase: imports, inits, trains, halfway, returned (from the
training), saves (rank 0), ends and left. While it is rank 0, a thread writes the time to a file of this process in
FOLDER, like a program that saves. With SECONDS, a process that was rank 0 last does so until its end, like a thread
that still saves, and its handler of SIGTERM takes SECONDS.
"""

import os
import pathlib
import signal
import sys
import threading
import time

ME = f"{os.uname().nodename}/{os.getpid()}"


def say(phase):
    os.write(1, f"{phase} {ME}\n".encode())


say("imports")
import numpy

import horovod.numpy as hvd
from horovod import _elastic

is_elastic, steps, folder = sys.argv[1] == "elastic", int(sys.argv[2]), pathlib.Path(sys.argv[3])
SHARES = numpy.arange(60.0)
is_over = threading.Event()


def write():
    rank = -1
    with open(folder / f"writer-{ME.replace('/', '-')}", "w") as file:
        while not is_over.wait(0.02):
            try:
                rank = hvd.rank()
            except ValueError:  # this process has no rank between two generations
                if not sys.argv[4:]:
                    continue
            if rank == 0:
                file.write(f"{time.clock_gettime(time.CLOCK_BOOTTIME)}\n")
                file.flush()


def finish(number, _):
    """Writes a checkpoint at SIGTERM."""
    end = time.monotonic() + float((sys.argv[4:] or ["0.5"])[0])
    while time.monotonic() < end:
        time.sleep(0.02)
    os._exit(128 + number)


def step(number, weights):
    share = SHARES[hvd.rank() :: hvd.size()] * (number + 1)
    weights = weights + hvd.allreduce(numpy.array([share.sum()]), op=hvd.Sum, name="gradient")
    if number == 1:
        say("trains")
    if number == steps // 2:
        say("halfway")
    time.sleep(0.02)
    return weights


def save(number, weights):
    numpy.save(folder / "new.npy", numpy.array([number, weights.item()]))
    os.replace(folder / "new.npy", folder / "saved.npy")


signal.signal(signal.SIGTERM, finish)
say("inits")
hvd.init()
threading.Thread(target=write, daemon=True).start()
if is_elastic:
    state = _elastic.ObjectState(step=0, weights=numpy.zeros(1))

    @_elastic.run
    def train(state):
        while state.step < steps:
            state.weights = step(state.step, state.weights)
            state.step += 1
            if state.step % 3 == 0:
                state.commit()

    train(state)
    weights = state.weights
else:
    first, weights = 0, numpy.zeros(1)
    if hvd.rank() == 0 and (folder / "saved.npy").exists():
        first, *values = numpy.load(folder / "saved.npy")
        first, weights = int(first), numpy.array(values)
    first, weights = hvd.broadcast_object((first, weights), 0)
    for number in range(first, steps):
        weights = step(number, weights)
        if number % 20 == 19 and hvd.rank() == 0:
            save(number + 1, weights)
expected = SHARES.sum() * steps * (steps + 1) / 2
say("returned" if weights.item() == expected else f"wrong weights {weights.item()}, not {expected},")
if hvd.rank() == 0:
    say("saves")
    time.sleep(0.5)
    save(steps, weights)
say("ends")
hvd.shutdown()
is_over.set()
say("left")
