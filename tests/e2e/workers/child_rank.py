"""A rank that starts another process, which calls hvd.init() as well.

usage: child_rank.py spawn-one|spawn-all|beside|wrapper|shut-down|forked|run|again
"""

import multiprocessing
import os
import subprocess
import sys
import time

import numpy

sys.path.append(os.path.join(os.path.dirname(__file__), "../../hosts"))
from idle import idle

import horovod
import horovod.numpy as hvd

what = sys.argv[1]
if what.startswith("spawn"):
    hvd.init()  # a spawned child runs the top level again
    if multiprocessing.parent_process() is not None:
        os.write(1, f"rank {hvd.rank()} of {hvd.size()} as a child\n".encode())


def train():
    hvd.init()
    total = float(hvd.allreduce(numpy.ones(1) * (hvd.rank() + 1), op=hvd.Sum)[0])
    os.write(1, f"rank {hvd.rank()} of {hvd.size()} sum {total:g}\n".encode())  # a single write keeps the line whole


def child():
    train()
    hvd.shutdown()


def spawn():
    began = idle()
    process = multiprocessing.get_context("spawn").Process(target=child)
    process.start()
    process.join()
    os.write(1, f"the child ended after {idle() - began:.1f} s\n".encode())


def inner():
    hvd.init()
    return hvd.size()


if __name__ == "__main__":
    if what == "wrapper":
        spawn()
    elif what == "beside":  # two processes below a shell, which is the rank
        both = [
            subprocess.Popen([sys.executable, __file__, "waits"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(2)
        ]
        said = [each.stdout.readline() for each in both]
        for each in both:
            each.communicate()
        os.write(1, b"".join(said))
    elif what == "waits":
        try:
            hvd.init()
            os.write(1, b"in\n")
        except Exception as error:
            os.write(1, str(error).encode() + b"\n")
        sys.stdin.read()
    else:
        if what == "forked":
            hvd.init()
            worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
            worker.start()
            hvd.shutdown()
        train()
        if what.startswith("spawn") and (what == "spawn-all" or hvd.rank() == 0):
            spawn()
        if what == "run":
            assert horovod.run(inner, np=2) == [2, 2]
        hvd.barrier()
        hvd.shutdown()
        if what == "again":
            train()
        if what in ("shut-down", "forked"):
            spawn()
        if what == "forked":
            worker.terminate()
