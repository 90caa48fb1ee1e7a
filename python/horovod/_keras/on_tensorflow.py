"""Keras on TensorFlow."""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow as tf

from horovod._ops import Sum
from horovod.tensorflow import _reduced as reduced  # noqa: F401
from horovod.tensorflow import functions, mpi_ops
from horovod.tensorflow._aggregation import LocalAggregation  # noqa: F401
from horovod.tensorflow._collectives import reduce_dense
from horovod.tensorflow._reduction import Reduction, key_of  # noqa: F401
from horovod.tensorflow.compression import Compression

allreduce, allgather, broadcast = mpi_ops.allreduce, mpi_ops.allgather, mpi_ops.broadcast
reducescatter = mpi_ops.reducescatter


def is_traced(value: Any) -> bool:
    """Returns whether the value is symbolic, in a graph that TensorFlow traces."""
    return not tf.executing_eagerly()


def total(flag: Any, name: str, process_set: Any) -> Any:
    return reduce_dense([flag], name, Compression.none, Sum, 1.0, 1.0, process_set)[0]


def broadcast_variables(variables: Sequence[Any], root_rank: int) -> None:
    functions.broadcast_variables(variables, root_rank)
