"""Collectives inside `tf.vectorized_map` and in the `jacobian` of a tape.

TensorFlow merges the operations of all iterations into one. Without the rules below, it would run ours in a loop,
together with the operation of the traced iteration, under one name: ranks would combine values of different iterations.
"""

from __future__ import annotations

from typing import Any, List, Optional

from tensorflow.python.ops.parallel_for.pfor import RegisterPFor, wrap

from horovod._ops import Adasum
from horovod.tensorflow import _nodes


def _refuse(op: Any) -> None:
    raise NotImplementedError(
        f"{op.type} '{op.name}': collectives that move rows, and Adasum, cannot be inside tf.vectorized_map or "
        "below tape.jacobian; give them the whole batch as one tensor, or use tf.map_fn, or "
        "jacobian(..., experimental_use_pfor=False)."
    )


def _converted(given: Any) -> List[Any]:
    """Returns the results of the collective on the batch. Each element has the same result as in its iteration, because
    the ranks reduce and broadcast element by element."""
    op = given.op
    collective = op.type[len("Horovod") :]
    call: Optional[Any] = None
    count = given.num_inputs
    if collective.endswith("InCall"):
        collective, count = collective[: -len("InCall")], count - 1
        call = given.unstacked_input(count)
    if collective not in ("Allreduce", "Broadcast") or (
        collective == "Allreduce" and op.get_attr("reduce_op") == Adasum
    ):
        _refuse(op)
    is_stacked = any(given.input(i).is_stacked for i in range(count))
    if is_stacked:
        given.stack_inputs(range(count))
    tensors = [given.input(i).t for i in range(count)]
    name = _nodes.name_of_batch(op)
    if collective == "Broadcast":
        results = _nodes.broadcast(tensors, name, op.get_attr("root_rank"), op.get_attr("process_set"), call=call)
    else:
        results = _nodes.allreduce(
            tensors,
            name,
            op.get_attr("reduce_op"),
            op.get_attr("prescale_bits"),
            op.get_attr("postscale_bits"),
            op.get_attr("process_set"),
            call=call,
        )
    return [wrap(result, is_stacked) for result in results]


def _same(given: Any) -> Any:
    return wrap(given.op.outputs[0], False)


for _collective in ("Allreduce", "Broadcast", "Allgather", "Reducescatter", "Alltoall"):
    for _form in ("", "InCall"):
        RegisterPFor(f"Horovod{_collective}{_form}")(_converted)
RegisterPFor("HorovodNumber")(_same)
