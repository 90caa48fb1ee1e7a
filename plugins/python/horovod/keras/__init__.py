"""Horovod for Keras: ``import horovod.keras as hvd``.

Keras 2, and Keras 3 on TensorFlow, PyTorch or JAX. Signatures are Horovod's.
"""

import os as _os

from horovod._framework import need as _need

_keras = _need("keras", "Keras", "horovod.keras", "2",
               "install it, for example with 'pip install keras', and what it runs on, which the variable "
               "KERAS_BACKEND names: tensorflow, torch or jax"
               + (f" (here {_os.environ['KERAS_BACKEND']})" if "KERAS_BACKEND" in _os.environ else ""))

from horovod._common import *
from horovod._keras.face import functions_for as _functions_for

globals().update(_functions_for(_keras))

from horovod.keras import callbacks, elastic  # noqa: E402
