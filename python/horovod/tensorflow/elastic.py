"""States of TensorFlow programs that start again from their last commit: `hvd.elastic`.

See `run`, and docs/elastic.md.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, List, Optional, Sequence

import tensorflow as tf

from horovod import _elastic, _objects
from horovod._basics import init, rank, shutdown  # noqa: F401, for scripts
from horovod._elastic import ObjectState, State, leave_seconds, run_fn  # noqa: F401, run_fn for scripts
from horovod._keras import elastic as _impl
from horovod.exceptions import HorovodInternalError
from horovod.tensorflow.functions import broadcast_variables

__all__ = ["ObjectState", "State", "TensorFlowKerasState", "TensorFlowState", "leave_seconds", "run"]


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except tf.errors.UnknownError as error:
        if "Horovod" not in str(error):
            raise
        raise HorovodInternalError(str(error)) from error


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates as `horovod._elastic.run` does, and turns TensorFlow's UnknownError of our operations into a
    HorovodInternalError. All ranks must call the decorated function."""
    return _elastic.run_with(func, init, _errors)


def _broadcast(variables: Sequence[Any]) -> None:
    broadcast_variables(variables, _elastic.source_rank())


def _broadcast_values(variables: Sequence[_InSession]) -> None:
    # Assign without a new operation, which would belong to one rank. The graph may also be finalized.
    source = _elastic.source_rank()
    for variable in variables:
        mine = variable.numpy() if rank() == source else None
        variable.assign(_objects.broadcast_object(mine, source, "elastic.variable"))


class _InSession:
    """A variable of a graph of TensorFlow 1, read and set in the session that `session` returns."""

    def __init__(self, variable: Any, session: Callable[[], Any]) -> None:
        self._variable, self._session = variable, session

    def numpy(self) -> Any:
        return self._session().run(self._variable)

    def assign(self, value: Any) -> None:
        # Reuse the operation that sets the initial value, because the graph may be finalized.
        setter = self._variable.initializer
        self._session().run(setter, {setter.inputs[1]: value})


class TensorFlowState(_impl.VariablesState):
    """Variables of TensorFlow, and keyword arguments as attributes.

    In a graph of TensorFlow 1, `variables` defaults to all global variables of the graph. The variables must be
    initialised, and are read and set in `session`, by default the default session. Raises ValueError without variables
    in eager execution, and without a session in a graph.
    """

    def __init__(self, variables: Optional[Sequence[tf.Variable]] = None, session: Any = None, **kwargs: Any) -> None:
        if tf.executing_eagerly():
            if variables is None:
                raise ValueError("TensorFlowState needs variables, a list of tf.Variable.")
            super().__init__(lambda: variables, _broadcast, **kwargs)
            return
        found = list(tf.compat.v1.global_variables() if variables is None else variables)

        def current() -> Any:
            chosen = session or tf.compat.v1.get_default_session()
            if chosen is None:
                raise ValueError(
                    "TensorFlowState needs a session in a graph of TensorFlow 1: give one, or "
                    "enter one with 'with session.as_default():'."
                )
            return chosen

        targets: List[Any] = [_InSession(variable, current) for variable in found]
        super().__init__(lambda: targets, _broadcast_values, **kwargs)


class TensorFlowKerasState(_impl.VariablesState):
    """Weights of `model`, which is built, variables of `optimizer` (the model's where it is None), and
    keyword arguments as attributes. `backend` is accepted for existing scripts."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        self.model, self.optimizer = model, optimizer
        super().__init__(lambda: _impl.variables_of_model(model, optimizer), _broadcast, **kwargs)
