"""Functions over Python objects and parameters, under the name that scripts import."""

from horovod._frontend import allgather_object, broadcast_object
from horovod.mxnet._training import broadcast_parameters

__all__ = ["allgather_object", "broadcast_object", "broadcast_parameters"]
