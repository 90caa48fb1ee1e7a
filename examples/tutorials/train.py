"""Each rank of a job prints its number and the sum over all ranks: the first program to start on new hosts."""

import numpy

import horovod.numpy as hvd

hvd.init()
total = hvd.allreduce(numpy.array(hvd.rank()), op=hvd.Sum, name="total")
print(f"rank {hvd.rank()} of {hvd.size()}: sum {int(total)}")
