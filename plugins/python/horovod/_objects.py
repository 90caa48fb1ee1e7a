"""Python objects over the op layer, for every framework.

Objects travel pickled, over the authenticated links of the job and nothing else.
"""

from __future__ import annotations

import ctypes
import pickle
from typing import Any, Optional

from horovod import _basics, _ops
from horovod._ops import Dtype, Kind, Tensor
from horovod.exceptions import HorovodInternalError


def broadcast_object(obj: Any, root_rank: int = 0, name: Optional[str] = None,
                     process_set: int = 0) -> Any:
    """Returns rank `root_rank`'s `obj` on every rank; the root gets its own object back.

    All ranks must call it, with the same root and name. `obj` is ignored elsewhere than on the
    root, and may be None there; it must be picklable.
    """
    name = name or _ops.auto_name("broadcast_object", process_set)
    is_root = _basics.rank() == root_rank
    failure: Optional[Exception] = None
    data = b""
    if is_root:
        try:
            data = _dump(obj)
        except Exception as error:  # an object's own methods may raise anything
            failure = error
    size = ctypes.c_int64(-1 if failure else len(data))
    _broadcast(size, Dtype.INT64, (), root_rank, f"{name}.sz", process_set)
    if failure is not None:
        raise failure
    if size.value < 0:
        raise HorovodInternalError(
            f"broadcast_object {name}: rank {root_rank} could not pickle its object; its own "
            "exception says why."
        )
    received = bytearray(data if is_root else size.value)
    buffer = (ctypes.c_char * len(received)).from_buffer(received)
    _broadcast(buffer, Dtype.UINT8, (len(received),), root_rank, f"{name}.t", process_set)
    return obj if is_root else pickle.loads(received)


def allgather_object(obj: Any, name: Optional[str] = None, process_set: int = 0) -> list:
    """Returns the list of all ranks' `obj`, in the order of ranks. All ranks must call it."""
    name = name or _ops.auto_name("allgather_object", process_set)
    failure: Optional[Exception] = None
    data = b""
    try:
        data = _dump(obj)
    except Exception as error:  # the other ranks wait and must get this error
        failure = error
    size = -1 if failure else len(data)
    sizes_raw = _allgather(size.to_bytes(8, "little", signed=True), f"{name}.sz", process_set)
    if failure is not None:
        raise failure
    sizes = [int.from_bytes(sizes_raw[at : at + 8], "little", signed=True)
             for at in range(0, len(sizes_raw), 8)]
    if min(sizes) < 0:
        where = f"rank {sizes.index(-1)}" + (" of the process set" if process_set else "")
        raise HorovodInternalError(
            f"allgather_object {name}: {where} could not pickle its object; its own exception says why."
        )
    everything = memoryview(_allgather(data, f"{name}.t", process_set))
    objects = []
    start = 0
    for size in sizes:
        objects.append(pickle.loads(everything[start : start + size]))
        start += size
    return objects


def _dump(obj: Any) -> bytes:
    try:
        return pickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        # Functions and classes of __main__ need cloudpickle; use it if it is installed.
        try:
            import cloudpickle
        except ImportError:
            cloudpickle = None
        if cloudpickle is None:
            raise
        return cloudpickle.dumps(obj)


def _broadcast(buffer: Any, dtype: int, shape: tuple, root_rank: int, name: str,
               process_set: int) -> None:
    address = ctypes.addressof(buffer)
    _ops.run(
        _ops.submit(
            Kind.BROADCAST,
            f"broadcast.{name}",
            [Tensor(address, address, dtype, shape)],
            keep=buffer,
            finish=lambda handle: None,
            root_rank=root_rank,
            process_set=process_set,
        )
    )


def _allgather(data: bytes, name: str, process_set: int) -> bytes:
    buffer = ctypes.create_string_buffer(data, max(len(data), 1))

    def finish(handle: int) -> bytes:
        output = _ops.output(handle)
        return ctypes.string_at(output.address, output.shape[0]) if output.address else b""

    return _ops.run(
        _ops.submit(
            Kind.ALLGATHER,
            f"allgather.{name}",
            [Tensor(ctypes.addressof(buffer), 0, Dtype.UINT8, (len(data),))],
            keep=buffer,
            finish=finish,
            process_set=process_set,
        )
    )
