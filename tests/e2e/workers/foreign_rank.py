"""A rank for any launcher: prints its identity and the sum of all ranks.

usage: foreign_rank.py [fail RANK | sleep | mpi FIRST | twice]
"""

import os
import sys
import time

import numpy

import horovod.numpy as hvd

what = sys.argv[1] if len(sys.argv) > 1 else ""
if what == "mpi" and sys.argv[2] == "mpi4py":
    from mpi4py import MPI
hvd.init()
if what == "mpi":
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    assert (comm.Get_rank(), comm.Get_size()) == (hvd.rank(), hvd.size())
    assert comm.allreduce(1) == hvd.size()
    hvd.shutdown()
    part = comm.Split(comm.Get_rank() % 2, comm.Get_rank())
    assert hvd.ProcessSet(part).ranks == list(range(comm.Get_rank() % 2, comm.Get_size(), 2))
    hvd.init(comm=part)  # the ranks of the communicator are their own job
    assert (part.Get_rank(), part.Get_size()) == (hvd.rank(), hvd.size())
    assert hvd.allgather_object(comm.Get_rank()) == part.allgather(comm.Get_rank())
    hvd.shutdown()
    hvd.init(comm=comm)
total = hvd.allreduce(numpy.array([hvd.rank() + 1.0], "f"), op=hvd.Sum).item()
print(
    f"rank {hvd.rank()} of {hvd.size()}, local {hvd.local_rank()} of {hvd.local_size()}, "
    f"cross {hvd.cross_rank()} of {hvd.cross_size()}, sum {total:g} on {os.uname().nodename}",
    flush=True,
)
if what == "fail" and hvd.rank() == int(sys.argv[2]):
    os._exit(7)
if what in ("fail", "sleep"):
    print("asleep", flush=True)
    time.sleep(300)
if what == "twice":
    hvd.shutdown()
    hvd.init()
    total = hvd.allreduce(numpy.array([hvd.rank() + 1.0], "f"), op=hvd.Sum).item()
    print(f"again rank {hvd.rank()} of {hvd.size()}, sum {total:g}", flush=True)
