"""The properties of a group that torch reads: its names, ranks, options, and the backends of its devices."""

from __future__ import annotations

import datetime
from typing import Any, Dict, List, Optional

import torch
import torch.distributed as dist

from horovod import _identity
from horovod.torch.distributed import _ranks, _tensor_memory
from horovod.torch.distributed._caller import Caller

_CPU = torch.device("cpu")


class _Options:
    """The options of a backend, as torch reads and writes them."""

    def __init__(self, timeout: datetime.timedelta) -> None:
        self._timeout = timeout
        self.backend = "horovod"
        self.global_ranks_in_group: List[int] = []
        self.group_name = ""


class Described(dist.ProcessGroup):
    """The description of a group. The group is its own backend for host memory, and may have backends for other
    devices."""

    _backend_name = "horovod"

    def __init__(self, place: _ranks.Place, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> None:
        super().__init__(rank, size)
        self._caller = Caller(place, rank, size, timeout, self._backend_name)
        self._place = place
        self._store = store
        self._is_one_host = _identity.size() == _identity.local_size()
        self._options = _Options(timeout)
        self._description = "undefined"
        self._devices: Dict[torch.device, Any] = {}
        self._bound: Optional[torch.device] = None

    def getBackendName(self) -> str:
        """Returns the name for code in C++, which treats a group with the name gloo as its own class."""
        return "horovod"

    def name(self) -> str:
        """Returns the name of the backend."""
        return self._backend_name

    _get_backend_name = name

    def getRank(self) -> int:
        """Returns the rank of this process in the group."""
        return self._caller.rank

    def getSize(self) -> int:
        """Returns the number of ranks."""
        return self._caller.size

    rank, size = getRank, getSize

    def getGroupName(self) -> str:
        """Returns torch's name of the group."""
        return self._caller.name

    def setGroupName(self, name: str) -> None:
        """Sets the name."""
        self._caller.name = name

    _set_group_name = setGroupName

    def getGroupDesc(self) -> str:
        """Returns the description of the group."""
        return self._description

    def setGroupDesc(self, description: str) -> None:
        """Sets the description."""
        self._description = description

    _set_group_desc = setGroupDesc
    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    def get_group_store(self) -> Any:
        """Returns torch's store of the group."""
        return self._store

    @property
    def _device_types(self) -> List[torch.device]:
        return [_CPU, *self._devices]

    @property
    def bound_device_id(self) -> Optional[torch.device]:
        """The device to which torch has bound the group."""
        return self._bound

    @bound_device_id.setter
    def bound_device_id(self, device: Optional[torch.device]) -> None:
        """Sets the device."""
        self._bound = device

    def _get_backend(self, device: torch.device) -> Any:
        kind = torch.device(device).type
        if kind == "cpu":
            return self
        return self._other(kind)

    def _other(self, kind: str) -> Any:
        for device, backend in self._devices.items():
            if device.type == kind:
                return backend
        raise RuntimeError(
            f"horovod: the group {self._caller.name} has no backend for tensors on {kind}; create it with "
            f"'cpu:horovod,{kind}:...', such as 'cpu:horovod,cuda:nccl', or move them with .cpu()"
        )

    def _add_backend(self, device: torch.device, kind: Any, backend: Any) -> None:
        self._devices[device] = backend
        self._register_backend(device, kind, backend)

    def _elsewhere(self, tensor: torch.Tensor) -> bool:
        """Returns whether another backend handles the tensor. Raises for a device that no backend handles."""
        return not tensor.is_cpu and self._is_of_another(tensor.device)

    def _is_of_another(self, device: Any) -> bool:
        """Returns whether another backend handles the device. Raises for a device that no backend handles."""
        return isinstance(device, torch.device) and device.type != "cpu" and bool(self._other(device.type))

    supports_splitting = supports_coalescing = supports_time_estimate = supports_shrinking = False
    _supports_time_estimate = supports_reconfigure = supports_window = False
    supports_abort_hooks = supports_completion_hooks = False

    def supports_tensor_alloc(self, device: Any) -> bool:
        """Returns whether memory of `allocate_tensor` makes collectives faster, which it does on one host."""
        return torch.device(device).type == "cpu" and self._is_one_host

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: Any) -> torch.Tensor:
        """Returns an uninitialised tensor of `size` elements in memory that the ranks of the host share: if every rank
        has its input in such memory, the ranks gather and reduce it without copies."""
        if not self.supports_tensor_alloc(device):
            raise RuntimeError(f"horovod: the group {self._caller.name} allocates no tensors on {device}")
        return _tensor_memory.empty(size, dtype)

    @property
    def options(self) -> _Options:
        """The options of the backend for host memory."""
        return self._options

    def _set_default_timeout(self, timeout: datetime.timedelta) -> None:
        self._options._timeout = timeout
        self._caller.seconds = timeout.total_seconds()

    set_timeout = _set_default_timeout

    def _has_hooks(self) -> bool:
        return False

    def get_error(self) -> Any:
        """Returns no error, because calls and works raise their own."""
        return torch._C._distributed_c10d.ErrorType.SUCCESS

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return int(repr(self._caller.numbers)[len("count(") : -1]) - 1

    def split_group(self, *args: Any, **kwargs: Any) -> Any:
        """Raises RuntimeError."""
        raise RuntimeError("horovod: a group cannot be split; make groups with dist.new_group")

    splitGroup = merge_remote_group = mergeRemoteGroup = split_group
