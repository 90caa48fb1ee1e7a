"""The requests that reduce the buckets of one optimizer."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence

import torch

from horovod.exceptions import HorovodDisagreementError
from horovod.process_sets import ProcessSet, id_of
from horovod.torch._allreduce import allreduce_async_, grouped_allreduce_async_
from horovod.torch._buckets import Bucket, PackedBucket, Pending, wait
from horovod.torch._notice import Notice
from horovod.torch._sparse_gradients import SparseGradients


class Requests:
    """Starts requests, and adds findings to the notice. `names`: names of the parameters, by id."""

    def __init__(
        self,
        compression: Any,
        op: int,
        predivide_factor: float,
        sparse_as_dense: bool,
        process_set: ProcessSet,
        notice: Notice,
        names: Dict[int, str],
    ) -> None:
        self._compression, self._op, self._process_set = compression, op, process_set
        self._prescale, self._postscale = 1.0 / predivide_factor, predivide_factor
        self._notice, self._names = notice, names
        self.sparse = SparseGradients(op, process_set, sparse_as_dense)

    def start(self, bucket: Bucket, passes: int) -> List[Pending]:
        """Starts a bucket."""
        if not isinstance(bucket, PackedBucket):
            return [self.start_any(bucket)]
        # The first reduction uses the names and shapes of the parameters, so that errors can name differences.
        if bucket.is_agreed:
            return self._start_packed(bucket)
        return [self.start_any(alone) for alone in bucket.apart(passes)]

    def run(self, bucket: PackedBucket) -> bool:
        """Reduces a bucket in one native call, if all its gradients are usable. Returns False otherwise. If a signal
        handler raises meanwhile, the bucket holds the continuing work."""
        try:
            return bucket.gradients.run(self._terms(bucket))
        except BaseException:
            if bucket.gradients.interrupted is not None:
                bucket.works = [self._end_of(bucket.gradients, bucket.gradients.interrupted, ())]
            raise

    def _start_packed(self, bucket: PackedBucket) -> List[Pending]:
        gradients, copies = bucket.gradients, []
        works: List[Pending] = []
        with torch.no_grad():
            for index in self._gather(bucket):
                param, name = bucket.params[index], bucket.names[index]
                if param.grad is None and not param.requires_grad:
                    continue  # all ranks have now frozen the parameter
                if self.sparse.is_apart(param):
                    works.append(self._start_one(name, param))
                    continue
                if param.grad is None:
                    self._notice.add_missing(self._names[id(param)])
                grad = self.sparse.dense(param)
                if gradients.takes(index, grad):
                    gradients.slot(index, grad).copy_(grad)
                    copies.append((grad, index))
                else:  # the slot is zero now; after the notice, all ranks reduce this gradient
                    self._notice.add_changed(self._names[id(param)], grad)
        if bucket is self._notice.carrier:
            self._notice.write()
        return [self._end_of(gradients, gradients.submit(self._terms(bucket)), copies), *works]

    def _gather(self, bucket: PackedBucket) -> Sequence[int]:
        """Gathers the gradients, except gradients that are sparse on some ranks and have separate requests. Returns the
        indices of the gradients not gathered."""
        apart = []
        if self.sparse.are_apart():
            apart = [(param, param.grad) for param in bucket.params if self.sparse.is_apart(param)]
        for param, _ in apart:
            param.grad = None
        try:
            return bucket.gradients.gather()
        finally:
            for param, grad in apart:
                param.grad = grad

    def _end_of(self, gradients: Any, handle: int, copies: Sequence[tuple]) -> Callable[[], None]:
        def finish() -> None:
            wait(handle)
            gradients.scatter()
            with torch.no_grad():
                for grad, index in copies:
                    grad.copy_(gradients.slot(index, grad))

        return finish

    def _terms(self, bucket: PackedBucket) -> tuple:
        return ("allreduce." + bucket.name, self._op, self._prescale, self._postscale, id_of(self._process_set))

    def start_any(self, bucket: Bucket) -> Pending:
        """Starts a bucket with gradients of any kind."""
        params = bucket.wanted()
        if len(params) == 1:
            return self._start_one(bucket.name, params[0])
        return self._start_group(bucket.name, [self.sparse.dense(param) for param in params])

    def _start_group(self, name: str, grads: List[torch.Tensor]) -> Callable[[], None]:
        compressed, contexts = zip(*(self._compression.compress(grad) for grad in grads))
        terms = (None, name, self._op, self._prescale, self._postscale, self._process_set)
        if len(grads) == 1:
            handle = allreduce_async_(compressed[0], *terms)
        else:
            handle = grouped_allreduce_async_(list(compressed), *terms)

        def finish() -> None:
            wait(handle)
            with torch.no_grad():
                for grad, reduced, context in zip(grads, compressed, contexts):
                    if reduced is not grad:
                        grad.copy_(self._compression.decompress(reduced, context))

        return finish

    def _start_one(self, name: str, param: torch.Tensor) -> Callable[[], None]:
        """Starts one gradient. A rank without this gradient does not know whether other ranks have a sparse one: if the
        ranks have requested different operations, all of them request the sum of sparse gradients."""
        if param.grad is None and self.sparse.is_apart(param):
            end = self.sparse.start(name, param)
        else:
            grad = self.sparse.dense(param)
            end = self.sparse.start(name, param) if grad.is_sparse else self._start_group(name, [grad])
        may_differ = True

        def finish() -> None:
            nonlocal end, may_differ
            try:
                end()
            except HorovodDisagreementError as error:
                if not may_differ or not self.sparse.are_elsewhere(name, param, error):
                    raise
                may_differ, end = False, self.sparse.start(name, param)
                end()

        return finish
