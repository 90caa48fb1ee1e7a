"""Horovod for the Keras of TensorFlow: ``import horovod.tensorflow.keras as hvd``.

Works with tf.keras of Keras 2 or 3. Signatures are Horovod's.
"""

import horovod.tensorflow as _hvd  # noqa: F401, says what is wrong with TensorFlow, if it is not there
import tensorflow as _tensorflow

from horovod import _common
from horovod._basics import *
from horovod._common import *
from horovod._keras.facade import functions_for as _functions_for

_made = _functions_for(_tensorflow.keras)
Compression = _made["Compression"]
DistributedOptimizer = _made["DistributedOptimizer"]
PartialDistributedOptimizer = _made["PartialDistributedOptimizer"]
allgather = _made["allgather"]
allreduce = _made["allreduce"]
broadcast = _made["broadcast"]
broadcast_global_variables = _made["broadcast_global_variables"]
load_model = _made["load_model"]
reducescatter = _made["reducescatter"]

from horovod.tensorflow.keras import callbacks, elastic

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "callbacks",
    "elastic",
    "load_model",
    "reducescatter",
]
__all__ += _common.__all__
