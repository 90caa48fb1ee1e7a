"""A rank that starts with each controller and each backend in turn, and prints the result of each:
lines "cell CONTROLLER OPERATIONS ok", or "... no: WHY".

usage: matrix_rank.py [once | by-rank VARIABLE VALUE_OF_RANK_0 VALUE_OF_THE_OTHERS]

once: one start with the environment's choice; prints "refused: WHY" after an error.
by-rank: the same, with different values of a variable on rank 0 and on the others.
"""

import os
import sys

import numpy

import horovod.numpy as hvd

RANKS = ("HOROVOD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")


def first_line(error):
    return str(error).strip().splitlines()[0]


def try_once():
    hvd.init()
    total = hvd.allreduce(numpy.ones(1000, numpy.float32), op=hvd.Sum)
    assert (total == hvd.size()).all(), total
    threads = hvd.mpi_threads_supported()
    assert hvd.mpi_enabled() or not threads
    said = f"{hvd.size()} ranks" + (", threads" if threads else "")
    hvd.shutdown()
    return said


if sys.argv[1:2] == ["by-rank"]:
    variable, first, others = sys.argv[2:]
    rank = next(os.environ[name] for name in RANKS if name in os.environ)
    os.environ[variable] = first if rank == "0" else others
if sys.argv[1:]:
    try:
        try_once()
        print("not refused", flush=True)
    except Exception as refusal:
        print(f"refused: {first_line(refusal)}", flush=True)
    sys.exit()

# MPI first: Open MPI does not start in a process that has finalized PMIx.
for controller in ("mpi", "gloo"):
    for operations in sorted(os.environ["HVD_MATRIX_OPERATIONS"].split(), key=lambda one: one != "mpi"):
        os.environ["HOROVOD_CONTROLLER"] = controller
        os.environ["HOROVOD_CPU_OPERATIONS"] = operations
        try:
            said = f"ok {try_once()}"
        except Exception as refusal:
            said = f"no: {first_line(refusal)}"
        print(f"cell {controller} {operations} {said}", flush=True)
