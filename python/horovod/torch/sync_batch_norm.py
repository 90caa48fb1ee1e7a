"""Batch normalization over the samples of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from horovod import _basics, _ops
from horovod._ops import Sum
from horovod.process_sets import global_process_set
from horovod.torch import _submission
from horovod.torch._allreduce import HorovodAllreduce, allreduce_async_
from horovod.torch._rows import allgather_async
from horovod.torch.mpi_ops import allreduce_async as allreduce_async, size as size, synchronize as synchronize


class SyncBatchNorm(_BatchNorm):
    """Like torch's BatchNorm1d, 2d and 3d, with the mean and variance over the samples of all ranks.

    Input: (samples, features) or (samples, features, ...), of any floating-point type, on any device that
    `hvd.allreduce` accepts. Ranks may have different numbers of samples, or none. In training, all ranks must call it
    equally often and then run the same backward passes. In evaluation each rank works alone. The arguments are those of
    torch. Raises ValueError for an input of another shape, and in training when all ranks together have one value per
    feature.
    """

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected an input of 2 or more dimensions, not of {input.dim()}")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        uses_batch = self.training or self.running_mean is None
        if not uses_batch or not self.training or _basics.size() == 1:
            return super().forward(input)
        output, mean, variance, count = _Normalize.apply(input, self.weight, self.bias, self.eps)
        if self.track_running_stats:
            self._note(mean, variance, count)
        return output

    def _note(self, mean: torch.Tensor, variance: torch.Tensor, count: torch.Tensor) -> None:
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            momentum = self.momentum
            if momentum is None:  # then the mean of all batches with equal weights
                momentum = 1.0 / float(self.num_batches_tracked)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
            unbiased = variance * (count / (count - 1))
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)


def _moments(input: torch.Tensor, names: str) -> Any:
    """Returns the mean and variance per feature, and the number of values, over all ranks, as tensors: reading one
    would wait for the stream of a GPU."""
    features = input.shape[1]
    rows = input.transpose(0, 1).flatten(1)
    count = rows.shape[1]
    mean = rows.mean(1) if count else rows.new_zeros(features)
    squares = (rows - mean[:, None]).square().sum(1)
    own = torch.cat([mean, squares, mean.new_full((1,), count)]).reshape(1, -1)
    everybody = _ops.run(allgather_async(own, f"{names}.moments.{features}"))
    counts = everybody[:, -1:]
    total = counts.sum()
    # If this rank has two values, all ranks together have more than one value.
    if count < 2 and total < 2:
        raise ValueError("expected more than one value per feature on all ranks together")
    means, all_squares = everybody[:, :features], everybody[:, features : 2 * features]
    mean = (means * counts).sum(0) / total
    squares = (all_squares + counts * (means - mean).square()).sum(0)
    return mean, squares / total, total


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _sum(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Returns the sum over the ranks, in a differentiable form."""
    return _submission.in_graph(HorovodAllreduce, tensor, None, name, Sum, 1.0, 1.0, global_process_set)


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, bias, eps):
        wide = _wide(input)
        mean, variance, count = _moments(wide, "sync_batch_norm")
        deviation = (variance + eps).rsqrt()
        shape = (1, -1) + (1,) * (input.dim() - 2)
        output = (wide - mean.view(shape)) * deviation.view(shape)
        ctx.save_for_backward(input, weight, mean, deviation)
        ctx.count, ctx.eps = count, eps
        if weight is not None:
            output = output * weight.view(shape) + bias.view(shape)
        ctx.mark_non_differentiable(mean, variance, count)
        return output.to(input.dtype), mean, variance, count

    @staticmethod
    def backward(ctx, grad_output, *unused):
        input, weight, mean, deviation = ctx.saved_tensors
        grad, wide = grad_output.to(mean.dtype), _wide(input)
        features = wide.shape[1]
        shape = (1, -1) + (1,) * (wide.dim() - 2)
        over = [axis for axis in range(wide.dim()) if axis != 1]
        # The mean and variance also depend on the input, which matters for the derivatives of these gradients.
        is_differentiated = torch.is_grad_enabled()
        if is_differentiated:
            mean = _sum(wide.sum(over), f"sync_batch_norm.means.{features}") / ctx.count
        normal = wide - mean.view(shape)
        if is_differentiated:
            squares = _sum(normal.square().sum(over), f"sync_batch_norm.squares.{features}")
            deviation = (squares / ctx.count + ctx.eps).rsqrt()
        normal = normal * deviation.view(shape)
        grad_bias, grad_weight = grad.sum(over), (grad * normal).sum(over)
        sums, name = torch.cat([grad_bias, grad_weight]), f"sync_batch_norm.sums.{features}"
        if is_differentiated:
            sums = _sum(sums, name)
        else:
            _ops.run(allreduce_async_(sums, None, name, Sum))
        of_grad, of_both = (sums / ctx.count).reshape(2, features)
        grad_input = (grad - of_grad.view(shape) - normal * of_both.view(shape)) * deviation.view(shape)
        if weight is None:
            return grad_input.to(grad_output.dtype), None, None, None
        grad_input = grad_input * weight.to(normal.dtype).view(shape)
        return (grad_input.to(grad_output.dtype), grad_weight.to(weight.dtype), grad_bias.to(weight.dtype), None)
