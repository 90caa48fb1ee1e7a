"""Broadcast of one tensor."""

from __future__ import annotations

from typing import Optional

import torch

from horovod import _frontend, _ops
from horovod._basics import rank
from horovod._ops import Average
from horovod.process_sets import ProcessSet, global_process_set
from horovod.torch import _submission
from horovod.torch._allreduce import HorovodAllreduce

__all__ = [
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
]


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `broadcast` and returns a handle; the result is a new tensor without gradient."""
    return _frontend.broadcast(_submission.elementwise, tensor, False, root_rank, name, process_set)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `broadcast_` and returns a handle; the root's values replace `tensor`'s."""
    return _frontend.broadcast(_submission.elementwise, tensor, True, root_rank, name, process_set)


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Like `broadcast`, in place and without gradient. Returns `tensor` with the root's values."""
    return _ops.run(broadcast_async_(tensor, root_rank, name, process_set))


class HorovodBroadcast(torch.autograd.Function):
    """The autograd node of broadcast: the root gets the averaged gradient, other ranks get zeros."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.root_rank = root_rank
        ctx.process_set = process_set
        return _ops.run(broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx, grad_output):
        averaged = _submission.in_graph(HorovodAllreduce, grad_output, None, None, Average, 1.0, 1.0, ctx.process_set)
        if rank() != ctx.root_rank:
            # A gradient of this gradient reaches the node on all ranks, so that all of them take part in its
            # collective.
            averaged = averaged * 0 if averaged.requires_grad else averaged.zero_()
        return averaged, None, None, None


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Returns the tensor of the rank `root_rank` on every rank. Does not change `tensor`.

    `tensor`: any shape, the same shape and dtype on all ranks. `root_rank` is a rank of the job.
    Differentiable: the root gets the gradient averaged over the ranks.
    """
    return _submission.in_graph(HorovodBroadcast, tensor, root_rank, name, process_set)
