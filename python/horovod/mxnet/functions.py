"""Functions over Python objects and parameters, under the name that scripts import."""

from horovod._basics import rank, size
from horovod._frontend import allgather_object, broadcast_object
from horovod.mxnet._collectives import allgather, broadcast_
from horovod.mxnet._training import broadcast_parameters
from horovod.process_sets import global_process_set

__all__ = [
    "allgather",
    "allgather_object",
    "broadcast_",
    "broadcast_object",
    "broadcast_parameters",
    "global_process_set",
    "rank",
    "size",
]
