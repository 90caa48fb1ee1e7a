"""Methods of one object that start, end and query Horovod in this process.

This is a separate module because a traceback with a line of `common/basics.py` identifies the original Horovod
(launcher/output/traceback.cpp).
"""

from __future__ import annotations

from horovod import _basics, _observation, _ops
from horovod._library import library


class HorovodBasics:
    """For existing scripts: the functions of `hvd`, such as `init` and `rank`, as methods. All objects of this class
    refer to the single job of this process."""

    Average, Sum, Adasum = _ops.Average, _ops.Sum, _ops.Adasum
    Min, Max, Product = _ops.Min, _ops.Max, _ops.Product

    init = staticmethod(_basics.init)
    shutdown = staticmethod(_basics.shutdown)
    is_initialized = staticmethod(_basics.is_initialized)
    start_timeline = staticmethod(_observation.start_timeline)
    stop_timeline = staticmethod(_observation.stop_timeline)
    rank = staticmethod(_basics.rank)
    size = staticmethod(_basics.size)
    local_rank = staticmethod(_basics.local_rank)
    local_size = staticmethod(_basics.local_size)
    cross_rank = staticmethod(_basics.cross_rank)
    cross_size = staticmethod(_basics.cross_size)
    is_homogeneous = staticmethod(_basics.is_homogeneous)
    mpi_threads_supported = staticmethod(_basics.mpi_threads_supported)
    mpi_enabled = staticmethod(_basics.mpi_enabled)
    mpi_built = staticmethod(_basics.mpi_built)
    gloo_enabled = staticmethod(_basics.gloo_enabled)
    gloo_built = staticmethod(_basics.gloo_built)
    nccl_built = staticmethod(_basics.nccl_built)
    ddl_built = staticmethod(_basics.ddl_built)
    ccl_built = staticmethod(_basics.ccl_built)
    cuda_built = staticmethod(_basics.cuda_built)
    rocm_built = staticmethod(_basics.rocm_built)

    def __init__(self, pkg_path: str = "", *args: str) -> None:
        """The arguments name a compiled module of the original Horovod and have no effect."""
        self.MPI_LIB_CTYPES = library().opened
