"""States of TensorFlow programs that start again from their last commit: `hvd.elastic`.

Jobs keep their size in this release; see `run`.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional, Sequence

import tensorflow as tf

from horovod import _elastic
from horovod._elastic import ObjectState, State  # noqa: F401
from horovod._keras import elastic as _impl
from horovod.exceptions import HorovodInternalError
from horovod.tensorflow.functions import broadcast_variables


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """`horovod._elastic.run`, to which TensorFlow's UnknownError of our operations is a
    HorovodInternalError; all ranks must call the function."""

    @functools.wraps(func)
    def translated(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except tf.errors.UnknownError as error:
            if "Horovod" not in str(error):
                raise
            raise HorovodInternalError(str(error)) from error

    return _elastic.run(translated)


class TensorFlowState(_impl.VariablesState):
    """Variables of TensorFlow, and keyword arguments as attributes. `session` is accepted for existing
    scripts; ValueError without variables."""

    def __init__(self, variables: Optional[Sequence[tf.Variable]] = None, session: Any = None,
                 **kwargs: Any) -> None:
        if variables is None:
            raise ValueError("TensorFlowState needs variables, a list of tf.Variable.")
        super().__init__(lambda: variables, lambda targets: broadcast_variables(targets, 0),
                         **kwargs)


class TensorFlowKerasState(_impl.VariablesState):
    """Weights of `model`, which is built, variables of `optimizer` (the model's where it is None), and
    keyword arguments as attributes. `backend` is accepted for existing scripts."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None,
                 **kwargs: Any) -> None:
        self.model, self.optimizer = model, optimizer
        super().__init__(lambda: _impl.variables_of_model(model, optimizer),
                         lambda targets: broadcast_variables(targets, 0), **kwargs)
