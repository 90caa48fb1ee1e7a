"""Numbers the calls of a `tf.function` in a graph of TensorFlow 1.

A session may run the calls of a function as calls of one function, and their collectives then have one node,
hence one name. A function there takes the number of its call as one more captured input, whose value is made
where the function is called; the operations put it into the name by which ranks match.
"""

from __future__ import annotations

import re
import weakref
from collections import Counter
from typing import Any, List, Optional

import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops import control_flow_v2_func_graphs as control_flow

_NOT_FUNCTIONS = (control_flow.CondBranchFuncGraph, control_flow.WhileCondFuncGraph,
                  control_flow.WhileBodyFuncGraph)
_KEY = "horovod.tensorflow"
_BASE = 1000003  # a call in a call: outer * _BASE + inner

# For each function: the number of its call.
_captured: weakref.WeakKeyDictionary[tf.Graph, tf.Tensor] = weakref.WeakKeyDictionary()
# For each graph: the number of calls of each function in it.
_called: weakref.WeakKeyDictionary[tf.Graph, Counter] = weakref.WeakKeyDictionary()


def number(graph: tf.Graph) -> Optional[tf.Tensor]:
    """Returns the number of the call that runs the function to which `graph` belongs, as a tensor that the graph
    may use. None outside of functions, and where the program runs eagerly."""
    if tf.compat.v1.executing_eagerly_outside_functions():
        return None
    function = _function(graph)
    # A tape gives no further inputs to the function that computes gradients. `number_of_gradient` knows the others.
    if not isinstance(function, FuncGraph) or function.name.startswith("__backward_"):
        return None
    return _input(function)


def _input(function: FuncGraph) -> tf.Tensor:
    captured = _captured.get(function)
    if captured is None:
        captured = _captured[function] = _capture(function)
    return captured


def number_of_gradient(op: Any, graph: tf.Graph) -> Optional[tf.Tensor]:
    """The same for the gradient of an operation, where the number is that of the operation's call, since one
    function computes the gradients of all calls. `tf.gradients` takes several gradients of one call by several
    calls of that function, which have numbers of their own; a tape gives all its calls the same inputs."""
    if not op.type.endswith("InCall"):
        return None
    forward = op.inputs[-1]
    function = _function(graph)
    # A tape gives its own object for the operation, without `graph`.
    if not isinstance(function, FuncGraph) or _function(function.outer_graph) is not _function(forward.graph):
        return forward
    return forward * _BASE + _input(function)


def _function(graph: tf.Graph) -> tf.Graph:
    while isinstance(graph, _NOT_FUNCTIONS):
        graph = graph.outer_graph
    return graph


def _capture(function: FuncGraph) -> tf.Tensor:
    """Adds an input to the function, whose value each call makes in the graph where it is."""
    name = re.sub(r"_\d+$", "", function.name or "")

    def value() -> List[tf.Tensor]:
        return [_next(name)]

    with function.as_default():
        placeholder = function.capture_call_time_value(
            lambda: _next(name), tf.TensorSpec([], tf.int64), key=_KEY)
    # TensorFlow's own closure refuses graphs of TensorFlow 1, and in a function asks for one value for all calls.
    if hasattr(function, "_deferred_captures"):  # 2.4 to 2.12
        function._deferred_captures[_KEY] = (value, placeholder)
    else:
        captures = function._function_captures
        captures.add_or_replace(key=_KEY, external=value, internal=placeholder,
                                tracetype=captures.by_ref_tracetype[_KEY], is_by_ref=True)
    return placeholder


def _next(name: str) -> tf.Tensor:
    graph = tf.compat.v1.get_default_graph()
    called = _called.setdefault(graph, Counter())
    called[name] += 1
    inner = tf.constant(called[name], tf.int64)
    outer = number(graph)
    return inner if outer is None else outer * _BASE + inner
