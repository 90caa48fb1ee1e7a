"""Names that every framework's module exports in addition to its collectives. Importing this module opens the library:
if the library is missing, the import raises ImportError."""

from horovod import __version__, _basics
from horovod._basics import *
from horovod._frontend import allgather_object, barrier, broadcast_object, join, total
from horovod._library import library
from horovod._observation import metrics, start_timeline, stop_timeline
from horovod._ops import Adasum, Average, Max, Min, Product, Sum
from horovod.exceptions import HorovodInternalError
from horovod.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)

__all__ = [
    "Adasum",
    "Average",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "__version__",
    "add_process_set",
    "allgather_object",
    "barrier",
    "broadcast_object",
    "global_process_set",
    "join",
    "metrics",
    "remove_process_set",
    "start_timeline",
    "stop_timeline",
    "total",
]
__all__ += _basics.__all__  # type checkers ignore this line, so the frameworks' modules import _basics too

library()
