"""States and callbacks of Keras programs that start again from their last commit: `hvd.elastic`."""

from __future__ import annotations

from typing import Any

import keras as _keras

from horovod._elastic import ObjectState, State  # noqa: F401
from horovod._keras import backend_of, framework_of
from horovod._keras import elastic as _impl

if framework_of(_keras) == "tensorflow":
    from horovod.tensorflow.elastic import run  # noqa: F401
elif framework_of(_keras) == "jax":
    from horovod.jax.elastic import run  # noqa: F401
else:
    from horovod._elastic import run  # noqa: F401

_Callback = _keras.callbacks.Callback


class KerasState(_impl.VariablesState):
    """Weights of `model`, which is built, variables of `optimizer` (the model's where it is None), and
    keyword arguments such as batch=0 and epoch=0 as attributes."""

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        self.model, self.optimizer = model, optimizer
        super().__init__(lambda: _impl.variables_of_model(model, optimizer),
                         lambda variables: backend_of(_keras).broadcast_variables(variables, 0),
                         **kwargs)


class CommitStateCallback(_impl.CommitState, _Callback):
    __doc__ = _impl.CommitState.__doc__


class UpdateBatchStateCallback(_impl.UpdateBatchState, _Callback):
    __doc__ = _impl.UpdateBatchState.__doc__


class UpdateEpochStateCallback(_impl.UpdateEpochState, _Callback):
    __doc__ = _impl.UpdateEpochState.__doc__
