"""The functions of `horovod.keras` and `horovod.tensorflow.keras`, for one Keras."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Dict, List, Optional

from horovod._compression import check_compression
from horovod._frontend import choose_op
from horovod._keras._frameworks import backend_of, framework_of, variables_of
from horovod._keras.models import load, prepare
from horovod._keras.optimizer import distribute, plan_of
from horovod._ops import Average
from horovod.process_sets import ProcessSet, global_process_set


def functions_for(keras: Any) -> Dict[str, Any]:
    """Returns the names that the two modules export besides callbacks. Raises ImportError on other
    backends than tensorflow, torch and jax."""
    # This is one function because the closures below are the exported functions: each of them needs `keras` and
    # `backend`, and help() shows their signatures and docstrings to users.
    backend = backend_of(keras)
    prepare(keras)

    def allreduce(
        value: Any,
        name: Optional[str] = None,
        average: Optional[bool] = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        op: Optional[int] = None,
        compression: Any = None,
    ) -> Any:
        """Returns the tensor (or a value that converts to one) reduced over all ranks by `op`; None means Average.
        `average` is an older argument for the same choice. All ranks must call it, with equal shapes and types."""
        more = {} if compression is None else {"compression": compression}
        if more:
            check_compression(compression)
        return backend.allreduce(
            value,
            name=name,
            op=choose_op(average, op),
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            **more,
        )

    def allgather(value: Any, name: Optional[str] = None) -> Any:
        """Returns the tensors of all ranks, concatenated along the first dimension. All ranks must
        call it; first dimensions may differ."""
        return backend.allgather(value, name=name)

    def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> Any:
        """Returns the tensor of the rank `root_rank`. All ranks must call it, with equal shapes."""
        return backend.broadcast(value, root_rank, name=name)

    def reducescatter(value: Any, name: Optional[str] = None, op: int = Average) -> Any:
        """Returns this rank's rows of the tensor reduced over all ranks. All ranks must call it,
        with equal shapes."""
        return backend.reducescatter(value, name=name, op=op)

    def broadcast_global_variables(root_rank: int) -> Any:
        """In graphs of TensorFlow 1, returns the operation that sets all variables to their values on the rank
        `root_rank`. Raises RuntimeError in other modes: use BroadcastGlobalVariablesCallback there."""
        if framework_of(keras) != "tensorflow":
            raise RuntimeError(
                "hvd.broadcast_global_variables works in graphs of TensorFlow 1; use "
                "hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank)."
            )
        from horovod.tensorflow.functions import broadcast_global_variables as broadcast_all

        return broadcast_all(root_rank)

    def DistributedOptimizer(
        optimizer: Any,
        name: Optional[str] = None,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Any = None,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        op: int = Average,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
        num_groups: int = 0,
        groups: Any = None,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> Any:
        """Returns an optimizer like `optimizer`, of Keras, that reduces gradients over all ranks first.

        All ranks must train the same model. With Keras 2 the methods that compute gradients reduce (`minimize`, which
        Model.fit calls, `compute_gradients`, `get_gradients`), and `apply_gradients` takes gradients as they are, with
        one warning where nothing has reduced them. Keras 3 has no such methods: `apply` and `apply_gradients` reduce,
        but not gradients returned by a DistributedGradientTape; raises ValueError if such gradients have changed since
        (by clipping) and a second reduction would give another result (op=hvd.Sum or hvd.Product, and local layers).
        With a LossScaleOptimizer, which compile adds under mixed_float16, all ranks make a step or none does.
        `backward_passes_per_step`: the number of batches whose gradients this rank adds (or averages, if
        `average_aggregated_gradients`) before it reduces and applies them; with Keras 2 a schedule of the learning rate
        then advances once per that number of batches, so divide its numbers of steps. `sparse_as_dense`:
        tf.IndexedSlices become tensors first. `gradient_predivide_factor`: f splits the average in two: divided by f
        before the sum and by size / f after it. `groups`: a number of groups, or lists of variables, whose gradients
        travel together (on TensorFlow; on other backends all gradients travel together). With op=hvd.Adasum each rank
        makes its own step, and the ranks combine the changes of these steps. `device_dense` and `device_sparse` are
        accepted for existing scripts. Raises ValueError for bad arguments.
        """
        plan = plan_of(
            keras,
            compression,
            sparse_as_dense,
            gradient_predivide_factor,
            op,
            backward_passes_per_step,
            average_aggregated_gradients,
            num_groups,
            groups,
            process_set,
            scale_local_gradients,
        )
        return distribute(keras, optimizer, name, plan)

    def PartialDistributedOptimizer(
        optimizer: Any,
        name: Optional[str] = None,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Any = None,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        op: int = Average,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
        num_groups: int = 0,
        groups: Any = None,
        process_set: ProcessSet = global_process_set,
        local_layers: Any = None,
        scale_local_gradients: bool = True,
    ) -> Any:
        """`DistributedOptimizer` that leaves the gradients of `local_layers`, a built layer or a list of them, to this
        rank; `scale_local_gradients` divides them by the number of ranks."""
        plan = plan_of(
            keras,
            compression,
            sparse_as_dense,
            gradient_predivide_factor,
            op,
            backward_passes_per_step,
            average_aggregated_gradients,
            num_groups,
            groups,
            process_set,
            scale_local_gradients,
            variables_of(local_layers),
        )
        return distribute(keras, optimizer, name, plan)

    def load_model(
        filepath: Any,
        custom_optimizers: Any = None,
        custom_objects: Any = None,
        compression: Any = None,
        legacy_opts: bool = False,
    ) -> Any:
        """Loads a model that Keras has saved, and makes its optimizer a distributed one, in its saved state.

        `custom_optimizers`: classes of optimizers that Keras does not know; `custom_objects`: a dict of other custom
        classes. `legacy_opts` is accepted for existing scripts.
        """
        plan = plan_of(keras, compression, False, 1.0, Average, 1, False, 0, None, global_process_set, True)
        return load(keras, filepath, plan, custom_optimizers, custom_objects)

    return {
        "Compression": backend.Compression,
        **{
            function.__name__: function
            for function in [
                DistributedOptimizer,
                PartialDistributedOptimizer,
                allgather,
                allreduce,
                broadcast,
                broadcast_global_variables,
                load_model,
                reducescatter,
            ]
        },
    }


# The arguments that `horovod.keras` has last, in its order, which is the order of the original Horovod.
_LAST = {
    "DistributedOptimizer": (
        "num_groups groups backward_passes_per_step average_aggregated_gradients process_set scale_local_gradients"
    ),
    "PartialDistributedOptimizer": (
        "groups process_set local_layers scale_local_gradients backward_passes_per_step average_aggregated_gradients "
        "num_groups"
    ),
}


def functions_of_keras(keras: Any) -> Dict[str, Any]:
    """Returns the functions of `functions_for`, but its two optimizers take their arguments in the order of
    `horovod.keras`. After `op`, this order differs from that of `horovod.tensorflow.keras`."""
    made = functions_for(keras)
    return {**made, **{name: _with_last(made[name], last.split()) for name, last in _LAST.items()}}


def _with_last(function: Callable[..., Any], names: List[str]) -> Callable[..., Any]:
    """Returns the function with these arguments after all others."""
    signature = inspect.signature(function)
    first = [each for name, each in signature.parameters.items() if name not in names]
    ordered = signature.replace(parameters=first + [signature.parameters[name] for name in names])

    @functools.wraps(function)
    def call(*values: Any, **named: Any) -> Any:
        try:
            bound = ordered.bind(*values, **named)
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        return function(**bound.arguments)

    call.__signature__ = ordered  # type: ignore[attr-defined]
    return call
