"""The shared part of the frameworks' modules above the op layer: arguments, names, submission of arrays.

`arrays` is a framework's module of functions over its arrays. This module uses these functions:

    check(array, what)                raises an error of one sentence unless the array can be sent
    is_complex(array)                 whether the array travels as pairs of reals; a module without this function has
                                      no complex arrays
    dense(array)                      the array itself if it is row-major, else a row-major copy
    empty_like(dense)                 memory for received data
    describe(dense, output, name)     as _ops.Tensor; `output` takes the result, or is None
    copy(target, source)              copies the values
    take(output, like)                a new array with the runtime's output
    all_taken()                       completes the copies of take() for a submission; the runtime then gets its
                                      memory back; a module without this function copies at once
    splits(numbers)                   received splits, as an array
    scattered(dense, process_set)     memory for this rank's rows of a reducescatter, or None; a module
                                      without this function uses the runtime's memory
    place()                           as _ops.Place, after all other calls for a submission; a
                                      module without place() has its arrays in host memory

Arrays that travel through copies in other memory (`is_staged`) have also:

    dense_all(arrays)                 the copies of all arrays of a submission, which take the results too
    copy_all(copies)                  copies the values of each (target, source)
"""

from __future__ import annotations

import ctypes
import warnings
from typing import Any, Callable, List, Optional, Sequence, TypeVar, Union

from horovod import _native, _objects, _ops
from horovod._ops import Average, Kind, Sum
from horovod.process_sets import ProcessSet, global_process_set, id_of

ReduceOp = int


def choose_op(average: Optional[bool], op: Optional[ReduceOp]) -> ReduceOp:
    """Returns `op`, or the reduction that the deprecated argument `average` chooses."""
    if average is None:
        return Average if op is None else op
    if op is not None:
        raise ValueError("Give either op or average, not both; op=hvd.Average is the default.")
    warnings.warn(
        "The argument average is deprecated; use op=hvd.Average or op=hvd.Sum.", DeprecationWarning, stacklevel=4
    )
    return Average if average else Sum


def whole(value: Any, what: str, hint: str) -> int:
    """Returns the value as an integer. Raises ValueError, with `hint`, if the value is not an integer."""
    if not hasattr(value, "__index__"):
        raise ValueError(f"{what} is {value!r}, a {type(value).__name__}; give {hint}.")
    return value.__index__()


def whole_op(op: Any) -> ReduceOp:
    """Returns `op` as the integer that graphs need. Raises ValueError if it is not an integer."""
    return whole(op, "op", "hvd.Average, hvd.Sum or another of hvd's reductions")


def whole_root(root_rank: Any) -> int:
    """Returns `root_rank` as the integer that graphs need. Raises ValueError if it is not an integer."""
    return whole(root_rank, "root_rank", "the number of a rank")


def elementwise(
    arrays: Any,
    kind: Kind,
    name: str,
    tensors: Sequence[Any],
    in_place: bool,
    members: Sequence[Optional[str]] = (None,),
    *,
    grouped: bool = False,
    **arguments: Any,
) -> int:
    """Submits allreduce or broadcast, whose outputs have the shapes of the inputs."""
    raw, results, copies = [], [], []
    is_staged = getattr(arrays, "is_staged", False)
    all_dense = _dense(arrays, kind, name, tensors, members, arguments)
    for tensor, dense, member in zip(tensors, all_dense, members):
        result = tensor if in_place else arrays.empty_like(dense)
        target = dense if in_place or is_staged else result
        if target is not result:
            copies.append((result, target))
        raw.append(arrays.describe(dense, target, member))
        results.append((result, dense, target))

    def finish(handle: int) -> Any:
        if is_staged:
            arrays.copy_all(copies)
        else:
            for result, dense in copies:
                arrays.copy(result, dense)
        return tuple(entry[0] for entry in results) if grouped else results[0][0]

    return _ops.submit(kind, name, raw, keep=results, finish=finish, place=_place_of(arrays), **arguments)


def allreduce(
    submit: Callable[..., int],
    tensors: Sequence[Any],
    in_place: bool,
    op: ReduceOp,
    name: Optional[str],
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
    base: Optional[str] = None,
) -> int:
    """Submits an allreduce. `submit`: `elementwise` without its argument `arrays`. `base`: the name of a group, from
    `group_base`."""
    number = id_of(process_set)
    members = [None] if base is None else member_names("grouped_allreduce", base, len(tensors))
    full = _ops.full_name("allreduce", name, number) if base is None else f"grouped_allreduce.{base}"
    return submit(
        Kind.ALLREDUCE,
        full,
        tensors,
        in_place,
        members,
        grouped=base is not None,
        reduce_op=op,
        prescale=prescale_factor,
        postscale=postscale_factor,
        process_set=number,
    )


def broadcast(
    submit: Callable[..., int],
    tensor: Any,
    in_place: bool,
    root_rank: int,
    name: Optional[str],
    process_set: ProcessSet,
) -> int:
    """Submits a broadcast. `submit`: as for `allreduce`."""
    number = id_of(process_set)
    full = _ops.full_name("broadcast", name, number)
    return submit(Kind.BROADCAST, full, [tensor], in_place, root_rank=root_rank, process_set=number)


def rows(
    arrays: Any,
    kind: Kind,
    name: str,
    tensors: Sequence[Any],
    process_set: ProcessSet,
    members: Sequence[Optional[str]] = (None,),
    *,
    grouped: bool = False,
    with_splits: bool = False,
    **arguments: Any,
) -> int:
    """Submits allgather, alltoall or reducescatter. The runtime owns outputs whose size is unknown before the call."""
    keep = _dense(arrays, kind, name, tensors, members, arguments)
    makes_outputs = kind == Kind.REDUCESCATTER and hasattr(arrays, "scattered")
    own = [arrays.scattered(dense, process_set) if makes_outputs else None for dense in keep]
    raw = [arrays.describe(dense, output, member) for dense, output, member in zip(keep, own, members)]

    def finish(handle: int) -> Any:
        outputs = [_ops.output(handle, index) for index in range(len(raw))]
        results = tuple(
            arrays.take(output, like) if mine is None else mine for output, like, mine in zip(outputs, keep, own)
        )
        if hasattr(arrays, "all_taken"):
            arrays.all_taken()
        if with_splits:
            return results[0], arrays.splits(outputs[0].received_splits)
        return results if grouped else results[0]

    return _ops.submit(
        kind,
        name,
        raw,
        keep=(keep, own),
        finish=finish,
        process_set=id_of(process_set),
        place=_place_of(arrays),
        **arguments,
    )


def named_rows(
    submit: Callable[..., int],
    kind: Kind,
    tensors: Sequence[Any],
    name: Optional[str],
    process_set: ProcessSet,
    grouped: bool = False,
    **arguments: Any,
) -> int:
    """Submits an operation of one tensor, or with `grouped` of several. `submit`: `rows` without its argument
    `arrays`."""
    op = kind.name.lower()
    members: Sequence[Optional[str]] = (None,)
    if grouped:
        base = group_base(f"grouped_{op}", tensors, name, process_set)
        full, members = f"grouped_{op}.{base}", member_names(f"grouped_{op}", base, len(tensors))
    else:
        full = _ops.full_name(op, name, id_of(process_set))
    return submit(kind, full, tensors, process_set, members, grouped=grouped, **arguments)


def _dense(
    arrays: Any, kind: Kind, name: str, tensors: Sequence[Any], members: Sequence[Optional[str]], arguments: dict
) -> List[Any]:
    """Returns row-major arrays. Raises unless the runtime can send all of them."""
    for tensor, member in zip(tensors, members):
        _check(arrays, tensor, member or name, kind, arguments)
    if getattr(arrays, "is_staged", False):
        return arrays.dense_all(tensors)
    return [arrays.dense(tensor) for tensor in tensors]


def _check(arrays: Any, tensor: Any, what: str, kind: Kind, arguments: dict) -> None:
    arrays.check(tensor, what)
    if hasattr(arrays, "is_complex") and arrays.is_complex(tensor):
        _ops.check_complex(what, kind, arguments.get("reduce_op", Sum))


def _place_of(arrays: Any) -> Optional[_ops.Place]:
    return arrays.place() if hasattr(arrays, "place") else None


_Function = TypeVar("_Function", bound=Callable[..., Any])


def fast_path(prefix: str, plain: tuple, waits: bool = False) -> Callable[[_Function], _Function]:
    """Decorates an in-place allreduce. The native module handles the usual calls (a dense tensor, a name, all ranks),
    without Python code. All other calls reach the function.

    `plain`: values by which the native module recognises dense tensors: (type, numbers of dtypes,
    layout), or (type, {}, None) for types with `__array_struct__`.
    """

    def decorate(function: _Function) -> _Function:
        code, defaults = function.__code__, function.__defaults__ or ()
        names = code.co_varnames[: code.co_argcount]
        shown = list(names[: len(names) - len(defaults)]) + [
            f"{name}={default if isinstance(default, (int, float)) else None}"
            for name, default in zip(names[len(names) - len(defaults) :], defaults)
        ]
        doc = f"{function.__name__}({', '.join(shown)})\n--\n\n{function.__doc__}"
        return _native.fast_path(function.__name__, doc, prefix, function, global_process_set, plain, Average, waits)

    return decorate


def member_names(op: str, base: str, count: int) -> List[str]:
    """Returns the names of a group's members."""
    return [f"{op}.{base}_{index}of{count}" for index in range(1, count + 1)]


def group_base(
    op: str, tensors: Sequence[Any], name: Optional[str], process_set: ProcessSet = global_process_set
) -> str:
    """Returns the name of a group. Raises ValueError unless `tensors` can be a group."""
    if not isinstance(tensors, (list, tuple)) or not tensors:
        raise ValueError(f"{op} takes a list or tuple of at least one tensor.")
    return name if name is not None else _ops.auto_name(op, id_of(process_set))[len(op) + 1 :]


def poll(handle: int) -> bool:
    """Returns whether the work is complete, so that `synchronize` returns at once.

    Raises ValueError for a handle that was synchronized already or never existed.
    """
    return _ops.poll(handle)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns once every rank has called it."""
    _ops.barrier(id_of(process_set))


def join(device: int = -1) -> int:
    """Takes part in the allreduces of other ranks with zeros until every rank has joined. Returns the
    last rank that joined.

    `device` is accepted for existing scripts.
    """
    return _ops.join()


def total(n: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Union[int, float]:
    """Returns the sum of a number over all ranks, for example of the items on which each rank computes its loss.

    `n`: a number, or an array or tensor with one, outside of compiled functions. Call it before the first backward pass
    of a step, with the items of all its passes. `(loss_sum * hvd.size() / (total or 1)).backward()` then gives the
    gradient of the mean over the items of all ranks, even if a rank has no items: docs/unequal-work.md. If one rank
    gives NaN or infinity, all ranks get it.
    """
    number = id_of(process_set)
    full = _ops.full_name("total", name, number)
    values = (ctypes.c_double * 1)(_number_of(n))
    address = ctypes.addressof(values)

    def finish(handle: int) -> Union[int, float]:
        return int(values[0]) if values[0].is_integer() else values[0]

    tensor = _ops.Tensor(address, address, _ops.Dtype.FLOAT64, (1,))
    return _ops.run(_ops.submit(Kind.ALLREDUCE, full, [tensor], keep=values, finish=finish, process_set=number))


def _number_of(n: Any) -> float:
    if hasattr(n, "asscalar"):  # MXNet
        n = n.asscalar()
    if isinstance(n, (str, bytes)) or not (hasattr(n, "__float__") or hasattr(n, "__index__")):
        raise ValueError(
            f"hvd.total: n is {n!r}, a {type(n).__name__}; give a number, such as the number of items of this rank. "
            "A compiled function takes hvd.allreduce(n, op=hvd.Sum)."
        )
    return float(n)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the object of the rank `root_rank` on every rank. All ranks must call it.

    `obj`: a picklable object, which only the root uses. If the root cannot pickle it, the root raises
    that error and the others raise HorovodInternalError.
    """
    return _objects.broadcast_object(obj, root_rank, name, id_of(process_set))


def allgather_object(
    obj: Any,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> list:
    """Returns the objects of all ranks as a list in rank order. All ranks must call it.

    `obj`: a picklable object. If a rank cannot pickle its own, that rank raises the error and the
    others raise HorovodInternalError.
    """
    return _objects.allgather_object(obj, name, id_of(process_set))
