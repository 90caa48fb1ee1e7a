"""Horovod for TensorFlow: ``import horovod.tensorflow as hvd``.

Works eagerly, in `tf.function` and in graphs of TensorFlow 1. Signatures are Horovod's.
"""

from horovod._framework import need as _need

_tensorflow = _need(
    "tensorflow", "TensorFlow", "horovod.tensorflow", "2.4", "install it, for example with 'pip install tensorflow'"
)

from horovod import _common
from horovod._basics import *
from horovod._common import *
from horovod.common.util import split_list
from horovod.tensorflow import (
    _collectives,
    compression,
    elastic,
    functions,
    gradient_aggregation,
    gradient_aggregation_eager,
    mpi_ops,
    sync_batch_norm,
    util,
)
from horovod.tensorflow._collectives import *
from horovod.tensorflow._collectives import grouped_broadcast
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.gradient_aggregation import (
    LocalGradientAggregationHelper,
    LocalGradientAggregationHelperEager,
)
from horovod.tensorflow.gradient_tape import (
    DistributedGradientTape,
    PartialDistributedGradientTape,
)
from horovod.tensorflow.gradient_tape import (
    make_allreduce_grads_fn as _make_allreduce_grads_fn,  # noqa: F401, for users
)
from horovod.tensorflow.mpi_ops import (
    _allreduce as _allreduce,
    _grouped_allreduce as _grouped_allreduce,
    check_num_rank_power_of_2,
    handle_average_backwards_compatibility,
)
from horovod.tensorflow.optimizer import DistributedOptimizer
from horovod.tensorflow.optimizer import _V1 as _LegacyOptimizer  # noqa: F401, for users
from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization
from horovod.tensorflow.util import _executing_eagerly as _executing_eagerly
from horovod.tensorflow.util import refs_to_vars, vars_to_refs

__all__ = [
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "LocalGradientAggregationHelper",
    "LocalGradientAggregationHelperEager",
    "PartialDistributedGradientTape",
    "SyncBatchNormalization",
    "allgather_object",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "check_num_rank_power_of_2",
    "compression",
    "elastic",
    "functions",
    "gradient_aggregation",
    "gradient_aggregation_eager",
    "grouped_broadcast",
    "handle_average_backwards_compatibility",
    "mpi_ops",
    "refs_to_vars",
    "split_list",
    "sync_batch_norm",
    "util",
    "vars_to_refs",
]
__all__ += _common.__all__
__all__ += _collectives.__all__
