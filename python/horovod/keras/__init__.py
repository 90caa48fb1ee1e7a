"""Horovod for Keras: ``import horovod.keras as hvd``.

Keras 2, and Keras 3 on TensorFlow, PyTorch or JAX. Signatures are Horovod's.
"""

import os as _os

from horovod._framework import need as _need

_keras = _need(
    "keras",
    "Keras",
    "horovod.keras",
    "2",
    "install it, for example with 'pip install keras', and what it runs on, which the variable "
    "KERAS_BACKEND names: tensorflow, torch or jax"
    + (f" (here {_os.environ['KERAS_BACKEND']})" if "KERAS_BACKEND" in _os.environ else ""),
)

from horovod import _common
from horovod._basics import *
from horovod._common import *
from horovod._keras.facade import functions_of_keras as _functions_of_keras

_made = _functions_of_keras(_keras)
Compression = _made["Compression"]
DistributedOptimizer = _made["DistributedOptimizer"]
PartialDistributedOptimizer = _made["PartialDistributedOptimizer"]
allgather = _made["allgather"]
allreduce = _made["allreduce"]
broadcast = _made["broadcast"]
broadcast_global_variables = _made["broadcast_global_variables"]
load_model = _made["load_model"]
reducescatter = _made["reducescatter"]

from horovod.keras import callbacks, elastic

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
