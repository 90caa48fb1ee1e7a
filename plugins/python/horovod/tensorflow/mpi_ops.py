"""Collectives on tensors of TensorFlow, under the name that scripts import; no MPI is needed."""

from horovod import _common
from horovod._common import *
from horovod.tensorflow._collectives import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    reducescatter,
    size_op,
)
from horovod.tensorflow.functions import allgather_object, broadcast_object  # noqa: F401

__all__ = [
    "allgather", "allreduce", "alltoall", "broadcast", "broadcast_", "grouped_allgather",
    "grouped_allreduce", "grouped_reducescatter", "local_rank_op", "local_size_op",
    "process_set_included_op", "rank_op", "reducescatter", "size_op",
]
__all__ += _common.__all__
