"""The sparse gradients of one optimizer, and this rank's knowledge of sparse gradients on other ranks.

A rank without a gradient does not know whether other ranks have a sparse one, and takes part with dense zeros. Requests
for sparse and dense gradients have the same name. If both kinds meet, the ranks get an error, and then exchange their
kinds.
"""

from __future__ import annotations

from typing import Callable, Dict

import torch

from horovod import _objects
from horovod._ops import Average, Sum
from horovod.exceptions import HorovodDisagreementError
from horovod.process_sets import ProcessSet, id_of
from horovod.torch._rows import sparse_gradient_async


class SparseGradients:
    """Makes requests for sparse gradients, or with `as_dense` makes them dense before the reduction and sparse after
    it. The thread of the backward pass, or of the step, calls this object."""

    def __init__(self, op: int, process_set: ProcessSet, as_dense: bool) -> None:
        self._op = op
        self._process_set = process_set
        self._as_dense = as_dense
        self.forget()

    def forget(self) -> None:
        """Forgets which gradients are sparse, for example after a shutdown of Horovod."""
        # Parameters whose gradient was sparse on some rank, with its sparse dimensions.
        self._known: Dict[torch.Tensor, int] = {}
        self._made_dense: Dict[torch.Tensor, int] = {}  # gradients converted in this step
        self._has_shared = False

    def is_apart(self, param: torch.Tensor) -> bool:
        """Returns whether the gradient has a separate request on all ranks, because it is sparse on some."""
        return not self._as_dense and param in self._known

    def are_apart(self) -> bool:
        """Returns whether a gradient has a separate request."""
        return not self._as_dense and bool(self._known)

    def dense(self, param: torch.Tensor) -> torch.Tensor:
        """Sets a missing gradient to zeros and, with `as_dense`, makes a sparse one dense. Returns the gradient."""
        if param.grad is None:
            param.grad = torch.zeros_like(param)
            if self._as_dense and param in self._known:
                self._made_dense[param] = self._known[param]
        elif param.grad.is_sparse and self._as_dense:
            self._made_dense[param] = self._dimensions(param)
            param.grad = param.grad.to_dense()
        return param.grad

    def _dimensions(self, param: torch.Tensor) -> int:
        """Returns the number of sparse dimensions of a sparse gradient; before torch 2, zero_() changes it."""
        return self._known.get(param) or param.grad.sparse_dim()

    def start(self, name: str, param: torch.Tensor) -> Callable[[], None]:
        """Starts the sum of a gradient (sparse, dense or missing). Returns a function that waits for the sum."""
        if self._op not in (Average, Sum):
            raise ValueError(f"{name}: sparse gradients can be reduced by Average and Sum only.")
        grad = torch.zeros_like(param) if param.grad is None else param.grad
        if not grad.is_sparse or grad.sparse_dim() != self._known.get(param, grad.sparse_dim()):
            grad = (grad.to_dense() if grad.is_sparse else grad).to_sparse(self._known[param])
        wait = sparse_gradient_async(grad, f"allreduce.{name}", self._op, self._process_set)

        def finish() -> None:
            param.grad = wait()
            self._known.setdefault(param, param.grad.sparse_dim())

        return finish

    def are_elsewhere(self, name: str, param: torch.Tensor, error: HorovodDisagreementError) -> bool:
        """Called on all ranks after an error that all of them received. Returns whether a rank has a sparse
        gradient."""
        if not str(error).startswith("Mismatched ") or self._op not in (Average, Sum):
            return False
        is_sparse = param.grad is not None and param.grad.is_sparse
        self._share({name: self._dimensions(param) if is_sparse else self._known.get(param, 0)}, {name: param})
        return param in self._known

    def _share(self, mine: Dict[str, int], params: Dict[str, torch.Tensor]) -> None:
        """Learns by name which of the parameters have sparse gradients on some rank."""
        try:
            found = _objects.allgather_object(mine, f"sparse.{next(iter(params))}", id_of(self._process_set))
        except HorovodDisagreementError:  # a rank has joined
            return
        for name, param in params.items():
            dimensions = min((row[name] for row in found if row.get(name)), default=0)
            if dimensions:
                self._known[param] = dimensions

    def make_sparse(self, params: Callable[[], Dict[str, torch.Tensor]]) -> None:
        """Converts gradients that `dense` converted back to sparse. In the first step, a rank also learns of gradients
        that it lacked: SparseAdam refuses a dense gradient, and SGD rounds differently with it. `params`: all
        parameters, by name."""
        if self._as_dense and not self._has_shared:
            named = params()
            if named:
                names = {param: name for name, param in named.items()}
                self._share({names[param]: count for param, count in self._made_dense.items()}, named)
                self._made_dense.update({param: self._known[param] for param in names if param in self._known})
            self._has_shared = True
        while self._made_dense:
            param, dimensions = self._made_dense.popitem()
            param.grad = param.grad.to_sparse(dimensions)
