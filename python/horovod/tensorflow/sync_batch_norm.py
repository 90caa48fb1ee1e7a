"""Batch normalization over the samples of all ranks."""

from __future__ import annotations

from typing import Any, Sequence, Tuple

import tensorflow as tf

from horovod import _basics
from horovod._basics import rank, size  # noqa: F401, for scripts
from horovod._keras import major_of
from horovod._ops import Sum
from horovod.process_sets import global_process_set
from horovod.tensorflow._collectives import reduce_dense
from horovod.tensorflow.compression import Compression


def _sum(tensor: Any) -> Any:
    # This is not hvd.allreduce, which would count as a reduction of gradients.
    return reduce_dense([tensor], None, Compression.none, Sum, 1.0, 1.0, global_process_set)[0]


def _moments(inputs: Any, axes: Sequence[int], mask: Any = None) -> Tuple[Any, Any]:
    """Returns mean and variance of all ranks' samples over `axes`, which are kept with length 1."""
    dtype = tf.float64 if inputs.dtype == tf.float64 else tf.float32
    wide = tf.cast(inputs, dtype)
    weights = tf.ones_like(wide)
    if mask is not None:
        weights *= tf.cast(mask, dtype)[..., tf.newaxis]
    sums = tf.stack([tf.reduce_sum(weights, axes, keepdims=True), tf.reduce_sum(wide * weights, axes, keepdims=True)])
    counts, sums = tf.unstack(_sum(sums))
    mean = sums / counts
    squares = tf.reduce_sum(tf.square(wide - mean) * weights, axes, keepdims=True)
    return mean, _sum(squares) / counts


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """Keras's BatchNormalization, with mean and variance of all ranks' samples in training.

    Ranks may have different numbers of samples. All ranks must call it equally often in training, and then compute
    gradients; in evaluation each rank works alone. `fused` must be False: ValueError. The other arguments are those of
    Keras.
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization computes moments of all ranks, which fused=True cannot.")
        if "name" not in kwargs:
            kwargs["name"] = None
        if major_of(tf.keras) < 3:
            kwargs["fused"] = False
        super().__init__(**kwargs)

    def _moments(self, inputs: Any, *more: Any, **kwargs: Any) -> Tuple[Any, Any]:
        if _basics.size() == 1 and not _basics.is_elastic():  # a compiled function may outlive a change of the size
            return super()._moments(inputs, *more, **kwargs)
        if major_of(tf.keras) >= 3:
            mean, variance = _moments(inputs, self._reduction_axes, more[0] if more else kwargs.get("mask"))
            squeeze = self._reduction_axes
        else:
            axes, keep, mask = (list(more) + [None] * 3)[:3]
            axes = kwargs.get("reduction_axes", axes)
            mean, variance = _moments(inputs, axes, kwargs.get("mask", mask))
            squeeze = [] if kwargs.get("keep_dims", keep) else axes
        if len(squeeze):
            mean, variance = tf.squeeze(mean, squeeze), tf.squeeze(variance, squeeze)
        return mean, variance
