"""Checks whether NCCL, called directly, lets two processes share one GPU: exit code 0 or 1.

gpu_sharing.py FILE

Each rank of a job with two ranks runs it. FILE passes NCCL's id from rank 0 to rank 1, and must not exist.
"""

import ctypes
import os
import pathlib
import sys
import time

STREAM_NON_BLOCKING, MANAGED_GLOBAL, FLOAT32, SUM = 1, 1, 7, 0
RANK, SIZE = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


cuda = ctypes.CDLL(os.environ.get("HOROVOD_CUDA_LIBRARY", "libcudart.so"))
nccl = ctypes.CDLL(os.environ.get("HOROVOD_NCCL_LIBRARY", "libnccl.so.2"))


def check(result, what):
    if result != 0:
        raise SystemExit(f"gpu_sharing.py: rank {RANK}: {what} returned {result}")


def exchange_id(path):
    unique = UniqueId()
    if RANK == 0:
        check(nccl.ncclGetUniqueId(ctypes.byref(unique)), "ncclGetUniqueId")
        made = path.with_suffix(".made")
        made.write_bytes(bytes(unique))
        made.rename(path)
        return unique
    while not path.exists():
        time.sleep(0.05)
    return UniqueId.from_buffer_copy(path.read_bytes())


def main():
    unique = exchange_id(pathlib.Path(sys.argv[1]))
    communicator, stream, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cudaSetDevice(0), "cudaSetDevice")
    check(cuda.cudaStreamCreateWithPriority(ctypes.byref(stream), STREAM_NON_BLOCKING, 0), "cudaStreamCreate")
    check(cuda.cudaMallocManaged(ctypes.byref(memory), ctypes.c_size_t(4), MANAGED_GLOBAL), "cudaMallocManaged")
    number = ctypes.c_float.from_address(memory.value)
    number.value = RANK + 1
    check(nccl.ncclCommInitRank(ctypes.byref(communicator), SIZE, unique, RANK), "ncclCommInitRank")
    check(nccl.ncclAllReduce(memory, memory, ctypes.c_size_t(1), FLOAT32, SUM, communicator, stream), "ncclAllReduce")
    check(cuda.cudaStreamSynchronize(stream), "cudaStreamSynchronize")
    if number.value != sum(range(1, SIZE + 1)):
        raise SystemExit(f"gpu_sharing.py: rank {RANK}: the sum is {number.value}")
    check(nccl.ncclCommDestroy(communicator), "ncclCommDestroy")


if __name__ == "__main__":
    main()
