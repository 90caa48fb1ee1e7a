"""Compares the variables of the ranks (horovod._replicas) before their gradients are reduced, eagerly and in graphs.

A native counter decides before each reduction whether Python must run. A graph has a condition on this counter, and
calls Python in its branch; the operations of the reduction wait for the condition.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
import threading
import weakref
from types import FrameType
from typing import Any, Collection, Optional, Sequence, Set, Tuple

import numpy
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops import control_flow_util

from horovod._keras._replicas import Checks, VariableCheck, VariableModel
from horovod._replicas import _FRAMEWORKS
from horovod.process_sets import ProcessSet
from horovod.tensorflow import _nodes
from horovod.tensorflow._native import count_down, is_due

_NEVER = 1 << 62  # number of reductions


class ReplicaCheck(VariableCheck):
    """The check of one list of variables. Any thread may call `run`."""

    remedy = (
        "Call hvd.broadcast_variables(model.variables, root_rank=0), or give fit() a "
        "BroadcastGlobalVariablesCallback(0), when the model is complete and its checkpoint is loaded"
    )

    def __init__(self, model: VariableModel, process_set: ProcessSet, label: str) -> None:
        # Random, so that a graph imported by another process does not refer to a check of that process.
        self.number = secrets.randbits(31)
        self._lock = threading.Lock()
        super().__init__(model, process_set, label)
        weakref.finalize(self, count_down, self.number, -1).atexit = False

    def restart(self) -> None:
        super().restart()
        self._planned = 0  # the number of reductions after which Python runs next
        count_down(self.number, 0)

    def run(self, values: Sequence[numpy.ndarray]) -> None:
        """Called before a reduction that is due, with the values of the variables."""
        with self._lock:
            if not is_due(self.number):  # another thread was first
                return
            self.variables.values = values
            try:
                if self.count != self._planned:
                    self.count = self._planned
                    self.note_reduction()
                if self.is_open:
                    self.begin()
                    self.read_order()
            finally:
                self.variables.values = ()
            self._planned = self.next_count
            count_down(self.number, self.next_count - self.count - 1 if self.next_count else _NEVER)


def _plain(variable: Any) -> Any:
    value = getattr(variable, "value", None)  # a variable of Keras 3 contains one of TensorFlow
    return value if isinstance(value, tf.Variable) else variable


def _is_comparable(variable: Any) -> bool:
    plain = _plain(variable)
    return isinstance(plain, tf.Variable) and plain.dtype.base_dtype in _nodes.DTYPES and plain.shape.is_fully_defined()


_checks = Checks(ReplicaCheck, _is_comparable)
# For each graph: the name of the last operation that may call Python, or in a graph of TensorFlow 1 the numbers of its
# checks.
_last: weakref.WeakKeyDictionary[tf.Graph, str] = weakref.WeakKeyDictionary()
_of_session: weakref.WeakKeyDictionary[tf.Graph, Set[int]] = weakref.WeakKeyDictionary()


def before_reduction(
    reduction: Any,
    variables: Sequence[Any],
    reduced: Collection[int],
    local: Sequence[bool],
    optimizer: Any,
    requests: Sequence[str],
) -> Any:
    """Compares the variables that are not `local`, if a comparison is due. `reduced`: the indices of variables whose
    gradients the ranks reduce next. `requests`: the names of the requests, if they come from tensors. Returns a context
    for the operations of the reduction, which in a graph wait for the comparison."""
    if _cannot_check():
        return contextlib.nullcontext()
    check, chosen = _checks.find(reduction, variables, reduced, local, optimizer, _label)
    if check is None:
        return contextlib.nullcontext()
    if not tf.executing_eagerly():
        check.variables.requests = check.variables.requests or requests
        return tf.control_dependencies([_in_graph(check, [_plain(each) for each in chosen], optimizer)])
    if is_due(check.number):
        check.run([_plain(each).numpy() for each in chosen])
    return contextlib.nullcontext()


def _cannot_check() -> bool:
    if tf.distribute.has_strategy():  # its replicas would count their reductions together
        return True
    return not tf.executing_eagerly() and control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def _label() -> str:
    if tf.executing_eagerly():
        return ""
    graph: Any = tf.compat.v1.get_default_graph()
    while isinstance(graph, FuncGraph) and isinstance(graph.outer_graph, FuncGraph):
        graph = graph.outer_graph
    return "." + re.sub(r"_\d+$", "", getattr(graph, "name", None) or "graph")


def _in_graph(check: ReplicaCheck, variables: Sequence[tf.Variable], optimizer: Any) -> tf.Operation:
    """Adds the condition to the graph, and returns its operation. The graph keeps the optimizer alive: the check reads
    its options."""
    graph = tf.compat.v1.get_default_graph()
    check.line_of_program = check.line_of_program or _line()
    is_function = isinstance(graph, FuncGraph)
    members = None if is_function else _of_session.setdefault(graph, set())
    if members is not None:
        members.add(check.number)

    def run(*tensors: Any, _optimizer: Any = optimizer) -> None:
        if members is not None and len(members) > 1:
            # A session may begin the checks in another order on each rank, and block its threads.
            count_down(check.number, _NEVER)
            return
        check.run([each.numpy() for each in tensors])

    def compare() -> Any:
        with tf.device("CPU:0"):
            called = tf.py_function(run, [each.read_value() for each in variables], [])
        return tf.group(called)

    before = [graph.get_operation_by_name(_last[graph])] if graph in _last else []
    with tf.control_dependencies(before):
        condition = tf.cond(tf.equal(_nodes.number(5, check.number), 1), compare, tf.no_op)
    operation: tf.Operation = tf.group(condition)
    if is_function:
        _last[graph] = operation.name
    return operation


def _line() -> Optional[Tuple[str, int]]:
    """Returns the file and line of the program that makes the graph."""
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        is_copy = os.path.basename(frame.f_code.co_filename).startswith("__autograph_generated_file")
        if not is_copy and frame.f_globals.get("__name__", "").partition(".")[0] not in _FRAMEWORKS:
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None
