"""Collectives on MXNet's arrays, under the name that scripts import; no MPI is needed."""

from horovod import _common
from horovod._common import *
from horovod.mxnet._collectives import (
    allgather,
    allreduce,
    allreduce_,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_reducescatter,
    reducescatter,
)

__all__ = [
    "allgather", "allreduce", "allreduce_", "alltoall", "broadcast", "broadcast_",
    "grouped_allgather", "grouped_allreduce", "grouped_allreduce_", "grouped_reducescatter",
    "reducescatter",
]
__all__ += _common.__all__
