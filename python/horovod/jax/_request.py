"""The arguments of a collective other than its arrays, and its execution on numpy arrays."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence

from horovod import _frontend, _ops
from horovod._frontend import member_names
from horovod._ops import Kind
from horovod.numpy import _arrays
from horovod.process_sets import ProcessSet, id_of

# The first part of a collective's name.
_PREFIXES = {
    Kind.ALLREDUCE: "grouped_allreduce",
    Kind.ALLGATHER: "allgather",
    Kind.BROADCAST: "broadcast",
    Kind.ALLTOALL: "alltoall",
    Kind.REDUCESCATTER: "reducescatter",
}


class Request(NamedTuple):
    """A collective without its arrays. hvd_submission in include/horovod/horovod.h has most of these fields."""

    kind: Kind
    name: Optional[str]  # None: the call gets a number as its name
    process_set: ProcessSet
    reduce_op: int = 1
    root_rank: int = 0
    prescale: float = 1.0
    postscale: float = 1.0
    suffix: str = ""  # end of the name: which derivative of the call this is
    derivatives: int = 0  # the number of differentiations of the call

    @property
    def prefix(self) -> str:
        return _PREFIXES[self.kind]

    @property
    def label(self) -> str:
        """Returns the name for errors."""
        return f"{self.prefix}.{self.name or 'noname'}{self.suffix}"

    def full_name(self, base: str) -> str:
        """Returns the name by which ranks match the call. `base`: the name, or its substitute."""
        return f"{self.prefix}.{base}{self.suffix}"


def perform(request: Request, base: Optional[str], arrays: Sequence[Any]) -> List[Any]:
    """Returns the results of the collective for numpy arrays. `base`: as for `Request.full_name`; None: the process
    numbers its unnamed calls."""
    number = id_of(request.process_set)
    if base is None:
        base = _ops.auto_name(request.prefix, number)[len(request.prefix) + 1 :]
    name = request.full_name(base)
    if request.kind == Kind.ALLREDUCE:
        handle = _frontend.elementwise(
            _arrays,
            request.kind,
            name,
            arrays,
            False,
            member_names(request.prefix, base + request.suffix, len(arrays)),
            grouped=True,
            reduce_op=request.reduce_op,
            prescale=request.prescale,
            postscale=request.postscale,
            process_set=number,
        )
    elif request.kind == Kind.BROADCAST:
        handle = _frontend.elementwise(
            _arrays, request.kind, name, arrays, False, root_rank=request.root_rank, process_set=number
        )
    elif request.kind == Kind.REDUCESCATTER:
        handle = _frontend.rows(
            _arrays,
            request.kind,
            name,
            arrays,
            request.process_set,
            reduce_op=request.reduce_op,
            prescale=request.prescale,
            postscale=request.postscale,
        )
    else:
        handle = _frontend.rows(_arrays, request.kind, name, arrays, request.process_set)
    results = _ops.run(handle)
    return list(results) if request.kind == Kind.ALLREDUCE else [results]
