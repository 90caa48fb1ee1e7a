"""A program that the pages of docs start: each rank prints its place and the sum over all ranks."""
import numpy

import horovod.numpy as hvd

hvd.init()
total = hvd.allreduce(numpy.array(hvd.rank()), op=hvd.Sum, name="total")
print(f"rank {hvd.rank()} of {hvd.size()}: sum {int(total)}")
