"""Horovod for the Keras of TensorFlow: ``import horovod.tensorflow.keras as hvd``.

tf.keras, be it Keras 2 or 3. Signatures are Horovod's.
"""

import horovod.tensorflow as _hvd  # says what is wrong with TensorFlow, if it is not there
import tensorflow as _tensorflow

from horovod._common import *
from horovod._keras.face import functions_for as _functions_for

globals().update(_functions_for(_tensorflow.keras))

from horovod.tensorflow.keras import callbacks, elastic  # noqa: E402
