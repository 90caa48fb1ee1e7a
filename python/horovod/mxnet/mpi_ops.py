"""Collectives on MXNet's arrays, under the name that scripts import; no MPI is needed."""

from horovod import _basics as _basics, _common
from horovod._basics import *
from horovod._common import *
from horovod.common.util import (
    check_installed_version as check_installed_version,
    get_average_backwards_compatibility_fun,
    get_ext_suffix as get_ext_suffix,
    get_extension_full_path as get_extension_full_path,
)
from horovod.mxnet._collectives import (
    allgather,
    allreduce,
    allreduce_,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_reducescatter,
    reducescatter,
)

__all__ = [
    "allgather",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "reducescatter",
]
__all__ += _common.__all__

handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)
