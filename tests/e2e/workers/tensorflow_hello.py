import horovod.tensorflow as hvd

hvd.init()
print(
    "rocm",
    hvd.rocm_built(),
    "cuda",
    hvd.cuda_built(),
    "mpi",
    hvd.mpi_enabled(),
    hvd.mpi_built(),
    "nccl",
    hvd.nccl_built(),
    "threads",
    hvd.mpi_threads_supported(),
)
print(
    "Hello, rank = %d, local_rank = %d, size = %d, local_size = %d"
    % (hvd.rank(), hvd.local_rank(), hvd.size(), hvd.local_size())
)
