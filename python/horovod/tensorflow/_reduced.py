"""Records which reductions ran since the last step of an optimizer, eagerly or in the graph of the step.

The mark of a gradient (`mark_reduced`) is insufficient, because a clipped or unscaled gradient is another tensor."""

from __future__ import annotations

import weakref
from typing import Any, Dict, Iterator, List, Optional, Sequence

import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

REDUCED, LOCAL = "reduced", "local"


class _Record:
    """The reductions of eager execution, or of one graph. A complete graph also applies the gradients that it
    reduces."""

    def __init__(self) -> None:
        self.is_complete = False
        self.has_others = False  # reductions of values with unknown variables
        self.variables: Dict[int, Any] = {}  # by id: a weak reference, and whether the gradient stayed local

    def kind_of(self, variable: Any) -> Optional[str]:
        variable = _plain(variable)
        reference, is_local = self.variables.get(id(variable), (None, False))
        if reference is None or reference() is not variable:
            return None
        return LOCAL if is_local else REDUCED


_eager = _Record()
_graphs: weakref.WeakKeyDictionary[tf.Graph, _Record] = weakref.WeakKeyDictionary()
_calls = 0


def note(variables: Sequence[Any] = (), local: Sequence[bool] = ()) -> None:
    """Records a reduction, and the variables whose gradients it reduces or leaves to this rank."""
    global _calls
    _calls += 1
    records = [_eager] if tf.executing_eagerly() else [_graphs.setdefault(graph, _Record()) for graph in _own_graphs()]
    for record in records:
        record.has_others |= not variables
    for variable, is_local in zip(variables, local):
        variable = _plain(variable)
        if not isinstance(variable, tf.Variable):
            continue
        entry = weakref.ref(variable), is_local
        for record in records:
            record.variables[id(variable)] = entry


def calls() -> int:
    """Returns how often this process has called a reduction, eagerly or while it made a graph."""
    return _calls


def may_have_run(grads: Sequence[Any], variables: Sequence[Any], calls_before: int) -> bool:
    """Returns whether a reduction may have run for these gradients. Searches the graph that applies the gradients. If
    they come from elsewhere, compares `calls_before`, an earlier result of `calls`, with the present count."""
    if not tf.executing_eagerly():
        graphs = _own_graphs()
        if any(graph in _graphs for graph in graphs) or _calls_a_reduction(graphs[-1]):
            return True
        if not _are_inputs(graphs[-1], grads):
            return False
    # A function that reduces gradients, but does not apply them, may have run.
    return _calls != calls_before or any(
        record.has_others or any(map(record.kind_of, variables))
        for record in _graphs.values()
        if not record.is_complete
    )


def kind_of(variable: Any, grads: Sequence[Any]) -> Optional[str]:
    """Returns REDUCED or LOCAL if a tape returned a gradient of this variable, which the program has not applied yet.
    `grads`: all gradients of the step."""
    return next(filter(None, (record.kind_of(variable) for record in _sources(grads))), None)


def forget(variables: Sequence[Any]) -> None:
    """Records that the gradients of these variables have been applied."""
    graphs = [] if tf.executing_eagerly() else _own_graphs()
    records = [_graphs[graph] for graph in graphs if graph in _graphs]
    for record in records:
        record.is_complete = True
    for record in [_eager, *records]:
        for variable in variables:
            record.variables.pop(id(_plain(variable)), None)


def _sources(grads: Sequence[Any]) -> Iterator[_Record]:
    graphs = [] if tf.executing_eagerly() else _own_graphs()
    yield from (_graphs[graph] for graph in graphs if graph in _graphs)
    if not graphs or _are_inputs(graphs[-1], grads):
        yield _eager
        yield from (record for record in _graphs.values() if not record.is_complete)


def _plain(variable: Any) -> Any:
    value = getattr(variable, "value", None)  # the variable of TensorFlow in a variable of Keras 3
    return value if isinstance(value, tf.Variable) else variable


def _own_graphs() -> List[tf.Graph]:
    """Returns the graph that TensorFlow is building, and its outer functions, the outermost last."""
    graphs = [tf.compat.v1.get_default_graph()]
    while isinstance(graphs[-1], FuncGraph) and isinstance(graphs[-1].outer_graph, FuncGraph):
        graphs.append(graphs[-1].outer_graph)
    return graphs


def _calls_a_reduction(graph: tf.Graph) -> bool:
    """Returns whether the graph calls a function that was traced before and reduces."""
    try:
        functions = graph.as_graph_def().library.function
    except ValueError:  # the graph is too large for a protobuf message
        return True
    return any(
        node.op.startswith(("HorovodAllreduce", "HorovodReducescatter"))
        for function in functions
        for node in function.node_def
    )


def _are_inputs(graph: tf.Graph, grads: Sequence[Any]) -> bool:
    """Returns whether all gradients may be inputs of the function, or be computed from such inputs."""
    if not isinstance(graph, FuncGraph):
        return False
    inputs = [each.shape.as_list() for each in graph.inputs if each.dtype.is_floating and each.shape.rank is not None]
    return all(grad.shape.rank is None or grad.shape.as_list() in inputs for grad in grads if grad is not None)
