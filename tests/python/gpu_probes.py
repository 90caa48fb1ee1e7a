"""Measurements on a machine with GPUs whose results cannot be known beforehand.

gpu_probes.py NAME [DOUBLE]

choice: do the ranks choose NCCL without any variable of Horovod, and how much does the choice cost?
abort: how long does a rank wait for its error after another rank is lost?
cost: how much does a step cost the host and the driver, compared with torch's own process group?
group: does torch.distributed compute correctly with this project's backend for host memory?
jax: does horovod.jax compute correctly with arrays on a GPU?

Lines that begin with RESULT go into the summary of tests/gpu.sh. Exit code 0: all values were right; 77: skipped.
DOUBLE is that of gpu_test.py.
"""

import os
import signal
import sys
import time

NAME = sys.argv.pop(1)
RANK, SIZE = int(os.environ.get("HOROVOD_RANK", "0")), int(os.environ.get("HOROVOD_SIZE", "1"))
SOON = 5.0  # seconds until the error of a lost rank


def report(*words):
    print(f"RESULT {NAME}: rank {RANK}:", *words, flush=True)


def need(is_right, what):
    if not is_right:
        raise SystemExit(f"gpu_probes.py: rank {RANK}: {what}")


def skip(why):
    print(f"SKIP: {why}")
    sys.exit(77)


def run_jax():
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        skip(f"{sys.executable} has no jax")
    if jax.default_backend() != "gpu":
        skip("jax finds no GPU")
    import horovod.jax as hvd

    hvd.init()
    ones = jnp.full((1 << 20,), 1.0)
    need(bool((hvd.allreduce(ones, op=hvd.Sum) == SIZE).all()), "a sum outside of jit is wrong")
    step = jax.jit(lambda array: hvd.allreduce(2 * array, op=hvd.Sum) - 1)
    need(bool((step(ones) == 2 * SIZE - 1).all()), "a sum in jit is wrong")
    gradient = jax.jit(jax.grad(lambda array: hvd.allreduce(array, op=hvd.Sum).sum()))
    need(bool((gradient(ones) == SIZE).all()), "the gradient of a sum is wrong")
    begin = time.perf_counter()
    for _ in range(20):
        step(ones).block_until_ready()
    report(f"{(time.perf_counter() - begin) / 20 * 1e3:.2f} ms for a jitted sum of 4 MiB, jax {jax.__version__}")
    hvd.shutdown()


if NAME == "jax":
    run_jax()
    sys.exit()

import gpu_test
from gpu_test import DOUBLE, LOCAL_RANK, here
from rank_case import hvd, torch

from horovod.exceptions import HorovodInternalError
from horovod.torch import _devices, _paths


def full(count, value=None, dtype=torch.float32):
    return here(torch.full((count,), RANK + 1.0 if value is None else value, dtype=dtype))


def check_sum(count, name):
    got = hvd.allreduce(full(count), op=hvd.Sum, name=name)
    need(bool((got.cpu() == SIZE * (SIZE + 1) / 2).all()), f"the sum {name} is wrong")


def pinned_bytes():
    if DOUBLE or not hasattr(torch.cuda, "host_memory_stats"):
        return {}
    stats = torch.cuda.host_memory_stats()
    return {key: value for key, value in stats.items() if key.endswith("bytes.current")}


def choice():
    model = [full(1000 if DOUBLE else 1 << 20) for _ in range(64)]
    begin = time.perf_counter()
    hvd.broadcast_parameters([(f"param.{index}", param) for index, param in enumerate(model)], 0)
    report(f"{time.perf_counter() - begin:.2f} s for the first broadcast; pinned bytes {pinned_bytes()}")
    need(all(bool((param.cpu() == 1).all()) for param in model), "a broadcast is wrong")
    outcome = _paths.trial_of(0, LOCAL_RANK).outcome()
    report(f"the outcome of the trial is {outcome}")
    for step in range(50):
        check_sum(1000 + step, "work")
    need(outcome is True, "the ranks do not use NCCL")


def hold_stream():
    """Makes the current stream wait for about 20 s."""
    if not DOUBLE:
        torch.cuda._sleep(40_000_000_000)
        return
    import ctypes

    stream = ctypes.c_void_p(_devices.cuda.stream(LOCAL_RANK).cuda_stream)
    usleep = ctypes.CDLL(None).usleep
    assert _devices.cuda.library.cudaLaunchHostFunc(stream, usleep, ctypes.c_void_p(20_000_000)) == 0


def abort():
    """Runs a kernel on rank 0 that waits for rank 1, followed by a kernel of another communicator, which float16 with a
    factor creates."""
    if SIZE < 2:
        skip("one rank loses no other")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher ends the ranks
    half = full(1 << 10, 1.0, torch.float16)
    arguments = {"op": hvd.Sum, "postscale_factor": 0.3}
    hvd.allreduce(half, name="first", **arguments)
    hvd.barrier()
    if RANK == 1:
        hold_stream()
    handle = hvd.allreduce_async(half, name="late", **arguments)
    time.sleep(2)  # wait until the streams have the kernels
    if RANK == SIZE - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.perf_counter()
    try:
        hvd.synchronize(handle)
        need(False, "no error of a lost rank")
    except HorovodInternalError as error:
        seconds = time.perf_counter() - begin
        report(f"{seconds:.1f} s until the error: {str(error)[:160]}")
    need(seconds < SOON, "the error came late")
    os._exit(0)  # CUDA would wait for the stream at the end of the process


def group():
    if DOUBLE:
        skip("torch.distributed knows no double of CUDA")
    import horovod.torch.distributed  # noqa: F401

    import torch.distributed as dist

    dist.init_process_group("cpu:horovod,cuda:nccl")
    for device in ("cpu", gpu_test.DEVICE):
        tensor = torch.full((1000,), RANK + 1.0, device=device)
        dist.all_reduce(tensor)
        need(bool((tensor.cpu() == SIZE * (SIZE + 1) / 2).all()), f"all_reduce on {device} is wrong")
    dist.destroy_process_group()


def cost():
    if DOUBLE:
        skip("torch's profiler sees no call of the double")
    import tempfile

    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile

    with tempfile.NamedTemporaryFile() as store:
        dist.init_process_group("nccl", init_method=f"file://{store.name}.of-torch", rank=RANK, world_size=SIZE)
    gradients = [torch.ones(1 << size, device=gpu_test.DEVICE) for size in (10, 16, 20) for _ in range(50)]

    def ours(tensors):
        handles = [hvd.allreduce_async_(one, op=hvd.Average, name=f"g{i}") for i, one in enumerate(tensors)]
        submitted = time.perf_counter()
        for handle in handles:
            hvd.synchronize(handle)
        return submitted

    def theirs(tensors):
        works = [dist.all_reduce(one, op=dist.ReduceOp.AVG, async_op=True) for one in tensors]
        submitted = time.perf_counter()
        for work in works:
            work.wait()
        return submitted

    def medians(body, tensors):
        times = []
        for _ in range(60):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            submitted = body(tensors)
            times.append((submitted - begin, time.perf_counter() - begin))
        return [sorted(column)[len(times) // 2] * 1e6 for column in zip(*times)]

    for count in (1, len(gradients)):
        for whose, body in (("Horovod", ours), ("torch", theirs)):
            submission, whole = medians(body, gradients[:count])
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
                body(gradients[:count])
                torch.cuda.synchronize()
            calls = {each.key: each.count for each in found.key_averages() if each.key.startswith(("cu", "nccl"))}
            report(f"{count} tensors, {whose}: {submission:.0f} us to submit, {whole:.0f} us until the host goes on")
            report(f"{count} tensors, {whose}: calls", dict(sorted(calls.items())))
    dist.destroy_process_group()


if __name__ == "__main__":
    if NAME == "choice":
        os.environ.pop("HOROVOD_GPU_OPERATIONS")
    hvd.init()
    if not DOUBLE:
        torch.cuda.set_device(LOCAL_RANK)
    {"choice": choice, "abort": abort, "group": group, "cost": cost}[NAME]()
    hvd.shutdown()
