"""The Keras of a test file: that of TensorFlow, or Keras 3 on the backend that the first argument names.

FILE_test.py [tensorflow | torch | jax]
"""

import importlib
import os
import sys

os.environ.setdefault("HVD_TEST_SECONDS", "240")  # all ranks trace functions at the same time
import rank_base

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
BACKEND = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "tensorflow"
os.environ["KERAS_BACKEND"] = BACKEND
framework = rank_base.need(BACKEND)
keras = framework.keras if BACKEND == "tensorflow" else rank_base.need("keras")
KERAS_3 = int(getattr(keras, "__version__", "2").split(".")[0]) >= 3
LEGACY = None if KERAS_3 else getattr(keras.optimizers, "legacy", None)  # since Keras 2.11
SCALED = (keras.optimizers if KERAS_3 else keras.mixed_precision).LossScaleOptimizer


def import_horovod():
    return importlib.import_module("horovod.tensorflow.keras" if BACKEND == "tensorflow" else "horovod.keras")
