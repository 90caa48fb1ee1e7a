#!/usr/bin/env python3
"""Calls a function on several ranks, from a Python program, and prints each result.

python3 examples/run_function.py --num-proc 2
python3 examples/run_function.py --num-proc 4 --hosts a:2,b:2
"""

import argparse

import horovod


def average_of_ranks(scale):
    import numpy

    import horovod.numpy as hvd

    hvd.init()
    return hvd.rank(), float(hvd.allreduce(numpy.array(scale * hvd.rank())))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-proc", type=int, default=2)
    parser.add_argument("--hosts", help="such as a:2,b:2; without it the ranks run here")
    options = parser.parse_args()
    for rank, average in horovod.run(average_of_ranks, (10.0,), num_proc=options.num_proc, hosts=options.hosts):
        print(f"rank {rank}: {average:g}")
