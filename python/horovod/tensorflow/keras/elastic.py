"""States and callbacks of Keras programs that start again from their last commit: `hvd.elastic`."""

import tensorflow as _tensorflow

from horovod._elastic import ObjectState, State, leave_seconds  # noqa: F401
from horovod._keras.elastic import elastic_for as _elastic_for

_made = _elastic_for(_tensorflow.keras, __name__)
KerasState = _made["KerasState"]
CommitStateCallback = _made["CommitStateCallback"]
UpdateBatchStateCallback = _made["UpdateBatchStateCallback"]
UpdateEpochStateCallback = _made["UpdateEpochStateCallback"]
run = _made["run"]
