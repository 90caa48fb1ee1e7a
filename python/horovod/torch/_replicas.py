"""Reads an optimizer of torch.optim for the check of replicas (horovod._replicas)."""

from __future__ import annotations

import math
import weakref
from typing import Any, List, Tuple

import torch

from horovod._library import library
from horovod._replicas import PIECE, Check, Options
from horovod.torch import _ddp

_digest = library().hvd_digest
# Attributes that mark parts of larger tensors (FSDP, Megatron), and parameters that differ between ranks.
_MARKS = ("_is_flat_param", "_fsdp_flattened", "tensor_model_parallel", "_horovod_local")
_OPTIONS = ("lr", "momentum", "weight_decay", "betas")


class ReplicaModel:
    """The parameters and the options of an optimizer, to which it refers weakly."""

    def __init__(self) -> None:
        self._optimizer: Any = lambda: None

    def watch(self, optimizer: torch.optim.Optimizer) -> None:
        """Adds the options of the optimizer to the comparison."""
        self._optimizer = weakref.ref(optimizer)

    def order(self) -> List[List[str]]:
        return [[name] for name, param in self._named() if param.requires_grad]

    def _named(self) -> List[Tuple[str, torch.Tensor]]:
        optimizer = self._optimizer()
        return [] if optimizer is None else [(name, param) for param, name in optimizer._parameter_names.items()]

    def parameters(self) -> List[Tuple[str, torch.Tensor]]:
        """Returns parameters by name. Omits parts of larger tensors and parameters marked as local, which differ
        between ranks by design."""
        return [
            (name, param)
            for name, param in self._named()
            if type(param) in (torch.Tensor, torch.nn.Parameter)
            and param.layout is torch.strided
            and param.device.type in ("cpu", "cuda")
            and not param.is_quantized
            and not any(getattr(param, mark, False) for mark in _MARKS)
            and not _ddp.owns(param)
        ]

    def digest(self, parameter: torch.Tensor, seed: int) -> int:
        values = parameter.detach().resolve_conj().resolve_neg().reshape(-1)
        for start in range(0, len(values), 16 * PIECE):  # a GPU's tensor may be larger than host memory
            piece = values[start : start + 16 * PIECE].cpu()
            seed = int(_digest(piece.data_ptr(), piece.numel() * piece.element_size(), seed))
        return seed

    def length(self, parameter: torch.Tensor) -> int:
        return parameter.numel() * (2 if parameter.is_complex() else 1)

    def reals(self, parameter: torch.Tensor) -> torch.Tensor:
        values = parameter.detach().resolve_conj().resolve_neg()
        return (torch.view_as_real(values) if values.is_complex() else values).reshape(-1)

    def doubled(self, reals: torch.Tensor, start: int) -> Tuple[torch.Tensor, int, int]:
        # A NaN on one rank must count as a large difference.
        numbers = torch.nan_to_num(_piece(reals, start), 1e100).clamp_(-1e100, 1e100)
        doubled = torch.cat([numbers, -numbers])
        return doubled, doubled.data_ptr(), doubled.numel()

    def squares(self, doubled: torch.Tensor) -> Tuple[float, float]:
        high, low = doubled.view(2, -1)[0], -doubled.view(2, -1)[1]
        return float((high - low).square().sum()), float(torch.maximum(high.abs(), low.abs()).square().sum())

    def norm(self, parameter: torch.Tensor) -> float:
        reals = self.reals(parameter)
        squares = (float(_piece(reals, start).square().sum()) for start in range(0, len(reals), PIECE))
        return math.sqrt(sum(squares))

    def options(self) -> Options:
        optimizer = self._optimizer()
        if optimizer is None:
            return []
        found: Options = [("the class", type(optimizer).__name__)]
        for index, group in enumerate(optimizer.param_groups):
            for key in _OPTIONS:
                value = group.get(key)
                for place, each in enumerate(value if isinstance(value, (tuple, list)) else [value]):
                    if isinstance(each, (int, float)) or (isinstance(each, torch.Tensor) and each.numel() == 1):
                        name = key if value is each else f"{key}[{place}]"
                        found.append((f"{name} of group {index}", float(each)))
        return found


class ReducerModel(ReplicaModel):
    """The parameters of a reducer, to which it refers weakly."""

    def __init__(self, reducer: Any) -> None:
        super().__init__()
        self._reducer = weakref.ref(reducer)

    def order(self) -> List[List[str]]:
        reducer: Any = self._reducer()
        if reducer is None:
            return []
        return [[reducer.names[id(param)] for param in bucket.params] for bucket in reducer.buckets]

    def _named(self) -> List[Tuple[str, torch.Tensor]]:
        reducer: Any = self._reducer()
        return [(reducer.names[id(param)], param) for _, params in reducer._added for param in params]


# torch.compile of a step would trace the functions that the step calls.
_untraced: Any = getattr(torch, "_disable_dynamo", lambda function: function)


class ReplicaCheck(Check):
    """The check of a reducer, or of an optimizer whose steps the ranks combine."""

    begin = _untraced(Check.begin)
    _read_order = _untraced(Check._read_order)
    _send = _untraced(Check._send)


def _piece(reals: torch.Tensor, start: int) -> torch.Tensor:
    return reals[start : start + PIECE].cpu().double()
