"""Keras on TensorFlow."""

from __future__ import annotations

from typing import Any, Sequence

from horovod.tensorflow import functions, mpi_ops
from horovod.tensorflow._aggregation import LocalAggregation  # noqa: F401
from horovod.tensorflow._reduction import Reduction, key_of  # noqa: F401
from horovod.tensorflow.compression import Compression  # noqa: F401

allreduce, allgather, broadcast = mpi_ops.allreduce, mpi_ops.allgather, mpi_ops.broadcast
reducescatter = mpi_ops.reducescatter


def broadcast_variables(variables: Sequence[Any], root_rank: int) -> None:
    functions.broadcast_variables(variables, root_rank)
