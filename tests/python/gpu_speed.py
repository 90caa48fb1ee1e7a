"""Times collectives and training steps with tensors on GPUs, next to those of torch.distributed in the same processes.
Runs as one process, or as each rank of a job; rank 0 prints a line for each measurement.

gpu_speed.py [DOUBLE] [staged]

The arguments are those of gpu_test.py; with DOUBLE the times mean nothing. The peers are torch's process group and
DistributedDataParallel over NCCL, or over Gloo with DOUBLE.
"""

import shutil
import statistics
import tempfile
import time

from gpu_test import DEVICE, DOUBLE, LOCAL_RANK, STAGED, here
from rank_case import hvd, torch

import torch.distributed as dist

REPEATS = 3 if DOUBLE else 30
# The gradients of ResNet-50: 161 tensors, 97 MB.
STAGES = [(64, 64, 256, 3), (256, 128, 512, 4), (512, 256, 1024, 6), (1024, 512, 2048, 3)]


def gradient_sizes():
    sizes = [64 * 3 * 49, 64, 64]
    for first, inner, outer, blocks in STAGES:
        for block in range(blocks):
            incoming = first if block == 0 else outer
            sizes += [incoming * inner, inner, inner, inner * inner * 9, inner, inner, inner * outer, outer, outer]
            if block == 0:
                sizes += [incoming * outer, outer, outer]
    return [*sizes, 2048 * 1000, 1000]


def synchronize():
    if not DOUBLE:
        torch.cuda.synchronize()


def median_ms(body):
    for _ in range(3):
        body()
    times = []
    for _ in range(REPEATS):
        synchronize()
        start = time.perf_counter()
        body()
        synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def compare(name, ours, theirs):
    """Prints the two times and their ratio on rank 0."""
    own, other = median_ms(ours), median_ms(theirs)
    if hvd.rank() == 0:
        way = "staged" if STAGED else "NCCL"
        print(
            f"{way:6} {hvd.size()} ranks  {name:32} {own:9.3f} ms  torch {other:9.3f} ms  ratio {own / other:5.2f}",
            flush=True,
        )


def main():
    hvd.init()
    if not DOUBLE:
        torch.cuda.set_device(LOCAL_RANK)
    folder = tempfile.mkdtemp() if hvd.rank() == 0 else None
    folder = hvd.broadcast_object(folder, name="folder")
    dist.init_process_group(
        "gloo" if DOUBLE else "nccl", init_method=f"file://{folder}/store", rank=hvd.rank(), world_size=hvd.size()
    )

    for name, count in (("allreduce of 1 KB", 256), ("allreduce of 64 MB", 1000 if DOUBLE else 16 << 20)):
        own, other = here(torch.ones(count)), torch.ones(count, device=DEVICE)
        compare(
            name,
            lambda own=own: hvd.allreduce_(own, op=hvd.Average, name="one"),
            lambda other=other: dist.all_reduce(other),
        )

    sizes = [size // 1000 + 1 for size in gradient_sizes()] if DOUBLE else gradient_sizes()
    own = [here(torch.ones(size)) for size in sizes]
    other = [torch.ones(size, device=DEVICE) for size in sizes]

    def one_by_one():
        handles = [hvd.allreduce_async_(tensor, op=hvd.Average, name=f"g{i}") for i, tensor in enumerate(own)]
        for handle in handles:
            hvd.synchronize(handle)

    def theirs():
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in other]:
            work.wait()

    compare(f"{len(sizes)} gradients, one by one", one_by_one, theirs)
    compare("the same gradients as a group", lambda: hvd.grouped_allreduce_(own, op=hvd.Average, name="group"), theirs)
    start = time.perf_counter()
    handles = [hvd.allreduce_async_(tensor, op=hvd.Average, name=f"g{i}") for i, tensor in enumerate(own)]
    submitted = time.perf_counter() - start
    for handle in handles:
        hvd.synchronize(handle)
    if hvd.rank() == 0:
        print(f"{submitted / len(sizes) * 1e6:.1f} us for the submission of each gradient", flush=True)

    compare("step of 160 tensors", *training_steps())
    dist.destroy_process_group()
    hvd.barrier()
    if hvd.rank() == 0:
        shutil.rmtree(folder)
    hvd.shutdown()


def training_steps():
    """Times a step of DistributedOptimizer and a step of DistributedDataParallel with the same weights. Fails if the
    resulting weights differ."""
    width = 8 if DOUBLE else 1024

    def model():
        torch.manual_seed(1)
        return torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(80)]).to(DEVICE)

    own, other = model(), model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(own.parameters(), lr=1e-3), own.named_parameters(), groups=1 if DOUBLE else None
    )
    wrapped = torch.nn.parallel.DistributedDataParallel(other)
    plain = torch.optim.SGD(wrapped.parameters(), lr=1e-3)
    batch = torch.full((64, width), 1.0 + hvd.rank(), device=DEVICE)

    def step(net, update):
        update.zero_grad()
        net(batch).square().mean().backward()
        update.step()

    step(own, optimizer)
    step(wrapped, plain)
    for one, two in zip(own.parameters(), other.parameters()):
        if not torch.allclose(one.detach().cpu(), two.detach().cpu(), rtol=1e-4, atol=1e-6):
            raise SystemExit("gpu_speed.py: DistributedOptimizer and DistributedDataParallel train differently")
    return lambda: step(own, optimizer), lambda: step(wrapped, plain)


if __name__ == "__main__":
    main()
