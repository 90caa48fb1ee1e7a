"""Functions over whole models, optimizers and Python objects."""

from __future__ import annotations

import bisect
from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

import torch

from horovod import _objects, _ops, _replicas
from horovod._frontend import allgather_object, broadcast_object  # noqa: F401, for users
from horovod.torch import _devices
from horovod.torch.mpi_ops import (
    ProcessSet as ProcessSet,
    allgather as allgather,
    broadcast_ as broadcast_,
    broadcast_async_,
    global_process_set as global_process_set,
    rank,
    size as size,
    synchronize as synchronize,
)


def _memory_of(tensor: Any) -> Tuple[int, int]:
    """Returns the addresses [first, last) of a dense tensor; an empty range for other values."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or not tensor.numel():
        return 0, 0
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    first = tensor.data_ptr()
    return first, first + extent * tensor.element_size()


def _broadcast_all(entries: Iterable[Tuple[Optional[str], Any]], root_rank: int) -> None:
    """Broadcasts the tensors in place, all at once. A tensor that shares memory with an earlier one (tied weights, a
    view of a buffer), or does not fit into host memory, starts when the earlier broadcasts are complete."""
    handles: List[int] = []
    starts: List[int] = []  # ranges of the memory in flight, ascending
    ends: List[int] = []
    staged = 0  # bytes in flight
    for name, tensor in entries:
        first, last = _memory_of(tensor)
        size = _devices.staged_size(tensor)
        place = bisect.bisect_left(starts, last)
        is_shared = first < last and place > 0 and ends[place - 1] > first
        if is_shared or (staged and staged + size > _devices.STAGED_BYTES):
            _ops.run_all(handles)
            handles, starts, ends, place, staged = [], [], [], 0, 0
        staged += size
        starts.insert(place, first)
        ends.insert(place, last)
        handles.append(broadcast_async_(tensor, root_rank, name))
    _ops.run_all(handles)


def broadcast_parameters(
    params: Union[Dict[str, Any], Iterable[Any]],
    root_rank: int,
) -> None:
    """Overwrites parameters with those of the rank `root_rank`. All ranks must call it.

    `params`: a `state_dict()`, `named_parameters()`, or an iterable of tensors or (name, tensor) pairs,
    with the same order and shapes on all ranks. Entries that are None are skipped. Raises ValueError
    for other values.
    """
    if isinstance(params, dict):
        entries: List[Tuple[Optional[str], Any]] = sorted(params.items())
    else:
        try:
            entries = [entry if isinstance(entry, tuple) else (None, entry) for entry in params]
        except TypeError:
            raise ValueError(
                "broadcast_parameters takes a dict, or an iterable of tensors or of (name, "
                f"tensor) pairs, not a {type(params).__name__}."
            ) from None
    _broadcast_all([entry for entry in entries if entry[1] is not None], root_rank)
    _replicas.note_broadcast()


class _Slot:
    """A placeholder for a tensor in the structure that the root sends before the tensors."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape = tuple(tensor.shape)
        self.dtype = tensor.dtype
        self.is_on_cpu = tensor.device.type == "cpu"

    def fill(self, device: torch.device) -> torch.Tensor:
        """Returns an empty tensor. `device`: the device of this rank's parameter, for a tensor that the root has
        outside of host memory."""
        return torch.empty(self.shape, dtype=self.dtype, device="cpu" if self.is_on_cpu else device)


def _take_out(value: Any, tensors: List[torch.Tensor]) -> Any:
    """Returns `value` with slots in place of its tensors, and appends the tensors to `tensors`."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Slot(value)
    if isinstance(value, dict):
        return {key: _take_out(entry, tensors) for key, entry in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_take_out(entry, tensors) for entry in value)
    return value


def _put_in(value: Any, tensors: List[torch.Tensor], device: torch.device) -> Any:
    """Inverts `_take_out` with empty tensors, and appends them to `tensors` in the same order."""
    if isinstance(value, _Slot):
        tensors.append(value.fill(device))
        return tensors[-1]
    if isinstance(value, dict):
        return {key: _put_in(entry, tensors, device) for key, entry in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_put_in(entry, tensors, device) for entry in value)
    return value


def _fill(structure: Dict[str, Any], tensors: List[torch.Tensor], params: List[torch.Tensor]) -> Dict[str, Any]:
    """Returns the structure of the root's optimizer with empty tensors, each on the device of its parameter here."""
    first = params[0].device if params else torch.device("cpu")
    filled = {key: _put_in(structure[key], tensors, first) for key in ("sizes", "options")}
    filled["state"] = [
        (key, _put_in(value, tensors, params[key].device if isinstance(key, int) and key < len(params) else first))
        for key, value in structure["state"]
    ]
    return filled


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: Optional[torch.nn.Module] = None,
) -> None:
    """Copies the state and the options of the optimizer on the rank `root_rank` to every rank.

    All ranks must call it, with optimizers over the same parameters in the same order. Only the root
    needs state, for example after it has loaded a checkpoint. The function takes no optimizer step, and
    changes neither learning rate nor parameters; it accepts any optimizer. With an optimizer that has no
    state yet, missing gradients become zeros, which scripts for Horovod rely on; not with SparseAdam,
    which takes no dense gradient. `model` is accepted for existing scripts. Raises ValueError when the
    number of parameters differs from the root's.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(
            f"broadcast_optimizer_state takes an optimizer of torch.optim, not a {type(optimizer).__name__}."
        )
    params = [param for group in optimizer.param_groups for param in group["params"]]
    if not optimizer.state and not isinstance(optimizer, torch.optim.SparseAdam):
        for param in params:
            if param.requires_grad and param.grad is None:
                param.grad = torch.zeros_like(param)
    is_root = rank() == root_rank
    tensors: List[torch.Tensor] = []
    structure: Any = None
    if is_root:
        index_of = {id(param): index for index, param in enumerate(params)}
        structure = _take_out(
            {
                "sizes": [len(group["params"]) for group in optimizer.param_groups],
                "options": [
                    {key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups
                ],
                # State entries without a parameter stay under their key.
                "state": [(index_of.get(id(key), key), value) for key, value in optimizer.state.items()],
            },
            tensors,
        )
    structure = _objects.broadcast_object(structure, root_rank, "optimizer_state")
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    if not is_root:
        structure = _fill(structure, tensors, params)
    _broadcast_all([(f"optimizer_state.{index}", tensor) for index, tensor in enumerate(tensors)], root_rank)
    if sizes != structure["sizes"]:  # raised after the other ranks have received their data
        raise ValueError(
            f"broadcast_optimizer_state: the optimizer here has groups of {sizes} parameters, but on "
            f"rank {root_rank} of {structure['sizes']}."
        )
    if not is_root:
        for group, options in zip(optimizer.param_groups, structure["options"]):
            group.update(options)
        optimizer.state.clear()
        for key, value in structure["state"]:
            optimizer.state[params[key] if isinstance(key, int) else key] = value
