"""Callbacks for training with Keras on all ranks."""

import keras as _keras

from horovod._keras.callbacks import callbacks_for as _callbacks_for

_made = _callbacks_for(_keras, __name__)
BroadcastGlobalVariablesCallback = _made["BroadcastGlobalVariablesCallback"]
MetricAverageCallback = _made["MetricAverageCallback"]
LearningRateScheduleCallback = _made["LearningRateScheduleCallback"]
LearningRateWarmupCallback = _made["LearningRateWarmupCallback"]
BestModelCheckpoint = _made["BestModelCheckpoint"]
