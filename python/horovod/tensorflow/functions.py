"""Functions over many variables, and over Python objects."""

from __future__ import annotations

from typing import Any, Callable, Iterable, List, Optional

import tensorflow as tf

from horovod import _objects, _replicas
from horovod._basics import rank, size  # noqa: F401, for scripts
from horovod.process_sets import ProcessSet, global_process_set, id_of
from horovod.tensorflow._collectives import (  # noqa: F401, all but one for scripts
    allgather,
    broadcast,
    broadcast_,
    grouped_broadcast,
)
from horovod.tensorflow.util import _executing_eagerly  # noqa: F401, for scripts

SessionRunHook: Any = tf.compat.v1.train.SessionRunHook


def _of_tensorflow(variable: Any) -> Any:
    # A variable of Keras 3 contains a variable of TensorFlow.
    value = getattr(variable, "value", None)
    return value if isinstance(value, tf.Variable) else variable


def broadcast_variables(
    variables: Iterable[Any], root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> Any:
    """Assigns to each variable its value on the rank `root_rank`. All ranks must call it.

    `variables`: of TensorFlow or Keras, with the same order, shapes and types on all ranks. In a graph
    of TensorFlow 1, returns the operation to run. `inplace` is accepted for existing scripts. Raises
    ValueError when `variables` is not a list of variables.
    """
    if isinstance(variables, str) or not hasattr(variables, "__iter__"):
        raise ValueError(
            f"broadcast_variables takes a list of variables, such as model.variables, not a {type(variables).__name__}."
        )
    targets: List[Any] = [_of_tensorflow(variable) for variable in variables]
    for target in targets:
        if not hasattr(target, "assign"):
            raise ValueError(
                f"broadcast_variables takes variables, which can be assigned to, and not a {type(target).__name__}."
            )
    if not targets:
        return None if tf.executing_eagerly() else tf.no_op()
    values = grouped_broadcast([tf.convert_to_tensor(target) for target in targets], root_rank, process_set=process_set)
    assigned = [target.assign(value) for target, value in zip(targets, values)]
    if not tf.executing_eagerly():
        return tf.group(*[one.op if hasattr(one, "op") else one for one in assigned])
    _replicas.note_broadcast()
    return None


def broadcast_global_variables(root_rank: int) -> tf.Operation:
    """Returns the operation that assigns to all global variables of the default graph, of TensorFlow 1, their values on
    the rank `root_rank`. Raises RuntimeError in eager execution, which has no such collection."""
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables works in graphs of TensorFlow 1; when executing eagerly "
            "use hvd.broadcast_variables(model.variables, root_rank)."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(SessionRunHook):
    """A session hook of TensorFlow 1 that assigns to all global variables their values on the rank
    `root_rank`, once, after they were initialised or restored from a checkpoint and before training.

    `device` is accepted for existing scripts. All ranks must use the hook.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self._operation: Optional[tf.Operation] = None

    def begin(self) -> None:
        graph = tf.compat.v1.get_default_graph()
        if self._operation is None or self._operation.graph is not graph:
            self._operation = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._operation)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the object of the rank `root_rank` on every rank. All ranks must call it.

    `obj`: a picklable object, which only the root uses. `session` is accepted for existing scripts. If
    the root cannot pickle the object, the root raises that error and the others raise
    HorovodInternalError.
    """
    return _objects.broadcast_object(obj, root_rank, name, id_of(process_set))


def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """Returns a function that calls `broadcast_object` for an object, with these other arguments."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any, session: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> list:
    """Returns the objects of all ranks as a list in rank order. All ranks must call it.

    `obj`: a picklable object. `session` is accepted for existing scripts. If a rank cannot pickle its
    own, that rank raises the error and the others raise HorovodInternalError.
    """
    return _objects.allgather_object(obj, name, id_of(process_set))
