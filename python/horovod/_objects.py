"""Python objects over the op layer, for every framework.

Objects travel pickled, and reading a pickle runs code. Each object therefore carries a signature made with a key of the
job, which the receiver verifies first. The signature keeps outsiders out; the ranks trust each other.
"""

from __future__ import annotations

import ctypes
import hmac
import os
import pickle
import struct
from typing import Any, Optional

from horovod import _identity, _ops
from horovod._library import library
from horovod._ops import Dtype, Kind, Tensor
from horovod.exceptions import HorovodInternalError

# Values instead of a size: the rank has no object to send, or failed to pickle its object.
_NO_OBJECT = -1
_NOT_PICKLED = -2


class _Call:
    """One call of all ranks of a process set: the sizes of their objects, and the signatures.

    Each rank draws a nonce for the call. A signature is an HMAC-SHA256 over the kind of call, the process
    set, the name, the sizes and nonces of all ranks, the sender and the object. The nonces take the place of
    a sequence number, which ranks could lose count of when a call fails on one of them. The key differs
    between jobs, generations and calls of `init`. The root of a broadcast also signs its size and
    nonce, by which receivers check the size before they allocate that much.
    """

    SIGNATURE_SIZE = 32
    _HEADER = struct.Struct("<iq16s")  # rank, size, nonce
    _RECORD = struct.Struct(f"{_HEADER.size}s{SIGNATURE_SIZE}s")

    def __init__(self, function: str, name: str, process_set: int, size: int, root: Optional[int] = None) -> None:
        """Gathers the sizes of all ranks. The size of `root` becomes _NO_OBJECT if its signature is wrong."""
        self._words = f"{function} {name}"
        key = _derive_key(b"objects")
        self.rank = _identity.rank()
        label = f"{function}\n{process_set}\n{len(name)}\n{name}\n".encode()
        header = self._HEADER.pack(self.rank, size, os.urandom(16))
        is_root = self.rank == root
        mine = (header, self._sign_header(key, label, header) if is_root else bytes(self.SIGNATURE_SIZE))
        records = _allgather(b"".join(mine), f"{name}.sz", process_set)
        unpacked = list(self._RECORD.iter_unpack(records))
        headers = [self._HEADER.unpack(header) for header, _ in unpacked]
        self.sizes = {rank: size for rank, size, _ in headers}
        # The call may be a replay if it lacks this nonce. The rank continues, because other ranks wait for it.
        self._is_genuine = mine in unpacked and len(self.sizes) == _ops.ask("hvd_process_set_size", process_set)
        if root is not None and not is_root:
            for (rank, _, _), (header, signature) in zip(headers, unpacked):
                if rank == root and not hmac.compare_digest(self._sign_header(key, label, header), signature):
                    self.sizes[root] = _NO_OBJECT
                    self._is_genuine = False
        self._key = hmac.new(key, label + records, "sha256").digest()

    @staticmethod
    def _sign_header(key: bytes, label: bytes, header: bytes) -> bytes:
        # No label of a call begins with "size". Therefore the key of a call never equals the signature of a header.
        return hmac.new(key, b"size\n" + label + header, "sha256").digest()

    def sign(self, sender: int, data: Any) -> bytes:
        """Returns the signature of the sender's object."""
        signature = hmac.new(self._key, f"{sender}\n".encode(), "sha256")
        signature.update(data)
        return signature.digest()

    def check_sizes(self) -> None:
        """Raises HorovodInternalError unless the sizes come from this call's ranks."""
        if not self._is_genuine:
            raise self._altered("the list of sizes")

    def unpickle(self, sender: int, message: Any) -> Any:
        """Returns the object in a message: the pickled object and its signature. Raises
        HorovodInternalError for a wrong signature."""
        self.check_sizes()
        view = memoryview(message)
        data, signature = view[: -self.SIGNATURE_SIZE], view[-self.SIGNATURE_SIZE :]
        if not hmac.compare_digest(self.sign(sender, data), bytes(signature)):
            raise self._altered(f"the object of rank {sender}")
        return pickle.loads(data)

    def _altered(self, what: str) -> HorovodInternalError:
        return HorovodInternalError(
            f"{self._words}: {what} reached rank {self.rank} altered or replayed and is refused; restart the "
            "job, and keep strangers off the network between its hosts."
        )


def broadcast_object(obj: Any, root_rank: int = 0, name: Optional[str] = None, process_set: int = 0) -> Any:
    """Returns rank `root_rank`'s `obj` on every rank; the root gets its own object back.

    All ranks must call it, with the same root and name. `obj` must be picklable on the root. Other ranks may pass None,
    because it is ignored there.
    """
    name = name or _ops.auto_name("broadcast_object", process_set)
    is_root = _identity.rank() == root_rank
    failure: Optional[Exception] = None
    data = b""
    if is_root:
        try:
            data = _dump(obj)
        except Exception as error:  # an object's own methods may raise anything
            failure = error
    size = (_NOT_PICKLED if failure else len(data)) if is_root else _NO_OBJECT
    call = _Call("broadcast_object", name, process_set, size, root_rank)
    if failure is not None:
        raise failure
    size = call.sizes.get(root_rank, _NO_OBJECT)
    if size == _NOT_PICKLED:
        raise HorovodInternalError(
            f"broadcast_object {name}: rank {root_rank} could not pickle its object; its own exception says why."
        )
    # The size may be wrong: the root has no object, the ranks disagree, the root is not a member, or someone has
    # altered the size. The messages of the ranks then have different sizes, and the broadcast fails on all ranks.
    message = bytearray(data if is_root else max(size, 0))
    message += call.sign(call.rank, data) if is_root else bytes(call.SIGNATURE_SIZE)
    buffer = (ctypes.c_char * len(message)).from_buffer(message)
    try:
        _broadcast(buffer, Dtype.UINT8, (len(message),), root_rank, f"{name}.t", process_set)
    except HorovodInternalError:
        call.check_sizes()
        raise
    return obj if is_root else call.unpickle(root_rank, message)


def allgather_object(obj: Any, name: Optional[str] = None, process_set: int = 0) -> list:
    """Returns the list of all ranks' `obj`, in the order of ranks. All ranks must call it."""
    name = name or _ops.auto_name("allgather_object", process_set)
    failure: Optional[Exception] = None
    data = b""
    try:
        data = _dump(obj)
    except Exception as error:  # the other ranks wait, and must also get this error
        failure = error
    call = _Call("allgather_object", name, process_set, _NOT_PICKLED if failure else len(data))
    if failure is not None:
        raise failure
    for rank, size in call.sizes.items():
        if size < 0:
            raise HorovodInternalError(
                f"allgather_object {name}: rank {rank} could not pickle its object; its own exception says why."
            )
    data += call.sign(call.rank, data)
    everything = memoryview(_allgather(data, f"{name}.t", process_set))
    call.check_sizes()
    objects = []
    start = 0
    for rank, size in call.sizes.items():
        end = start + size + call.SIGNATURE_SIZE
        objects.append(call.unpickle(rank, everything[start:end]))
        start = end
    return objects


def _derive_key(purpose: bytes) -> bytes:
    key, error = ctypes.create_string_buffer(32), ctypes.create_string_buffer(4096)
    _ops.check(
        library().hvd_derive_key(purpose, ctypes.addressof(key), len(key), ctypes.addressof(error), len(error)), error
    )
    return key.raw


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


def _broadcast(buffer: Any, dtype: int, shape: tuple, root_rank: int, name: str, process_set: int) -> None:
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
