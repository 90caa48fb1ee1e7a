"""Keras on TensorFlow."""

from __future__ import annotations

from typing import Any, Sequence

import horovod.tensorflow as hvd
from horovod.tensorflow._aggregation import LocalAggregation  # noqa: F401
from horovod.tensorflow._reduction import Reduction, key_of  # noqa: F401
from horovod.tensorflow.compression import Compression  # noqa: F401

allreduce, allgather, broadcast = hvd.allreduce, hvd.allgather, hvd.broadcast
reducescatter = hvd.reducescatter


def broadcast_variables(variables: Sequence[Any], root_rank: int) -> None:
    hvd.broadcast_variables(variables, root_rank)
