"""Horovod for Keras: ``import horovod.keras as hvd``.

Keras 2, and Keras 3 on TensorFlow, PyTorch or JAX. Signatures are Horovod's.
"""

try:
    import keras as _keras
except ImportError as _error:
    import importlib.util as _util

    _found = _util.find_spec("keras")
    raise ImportError(
        f"horovod.keras needs Keras, which this Python cannot import ({_error}); " + (
            "install it, for example with 'pip install keras'." if _found is None else
            f"it is in {_found.origin}, so install what it runs on, or name another that is there by "
            "the variable KERAS_BACKEND: tensorflow, torch or jax.")
    ) from None

from horovod._common import *
from horovod._keras.face import functions_for as _functions_for

globals().update(_functions_for(_keras))

from horovod.keras import callbacks, elastic  # noqa: E402
