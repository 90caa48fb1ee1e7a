"""Callbacks for training with Keras on all ranks."""

import tensorflow as _tensorflow

from horovod._keras.callbacks import BestModelOfTensorFlow as _Best
from horovod._keras.callbacks import callbacks_for as _callbacks_for

_made = _callbacks_for(_tensorflow.keras, __name__, _Best)
BroadcastGlobalVariablesCallback = _made["BroadcastGlobalVariablesCallback"]
MetricAverageCallback = _made["MetricAverageCallback"]
LearningRateScheduleCallback = _made["LearningRateScheduleCallback"]
LearningRateWarmupCallback = _made["LearningRateWarmupCallback"]
BestModelCheckpoint = _made["BestModelCheckpoint"]
