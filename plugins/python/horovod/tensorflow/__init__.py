"""Horovod for TensorFlow: ``import horovod.tensorflow as hvd``.

Eagerly, in `tf.function` and in graphs of TensorFlow 1. Signatures are Horovod's.
"""

from horovod._framework import need as _need

_tensorflow = _need("tensorflow", "TensorFlow", "horovod.tensorflow", "2.15",
                    "install it, for example with 'pip install tensorflow'")

from horovod import _common
from horovod._common import *
from horovod.tensorflow import elastic
from horovod.tensorflow._collectives import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_broadcast,
    grouped_reducescatter,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    reducescatter,
    size_op,
)
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.gradient_tape import (
    DistributedGradientTape,
    PartialDistributedGradientTape,
)
from horovod.tensorflow.optimizer import DistributedOptimizer
from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization

__all__ = [
    "BroadcastGlobalVariablesHook", "Compression", "DistributedGradientTape",
    "DistributedOptimizer", "PartialDistributedGradientTape", "SyncBatchNormalization", "allgather",
    "allgather_object", "allreduce", "alltoall", "broadcast", "broadcast_",
    "broadcast_global_variables", "broadcast_object", "broadcast_object_fn", "broadcast_variables",
    "elastic", "grouped_allgather", "grouped_allreduce", "grouped_broadcast",
    "grouped_reducescatter", "local_rank_op", "local_size_op", "process_set_included_op", "rank_op",
    "reducescatter", "size_op",
]
__all__ += _common.__all__
