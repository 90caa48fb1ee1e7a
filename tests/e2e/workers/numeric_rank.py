"""Checks sums with overflow, NaN, narrow integers, rounding and memory in flight on the job's hosts, or prints whether
an element's sum depends on the elements that share its batch."""

import random
import sys
import time

import horovod.torch as hvd
import numpy
import torch

NAN = float("nan")


def equal(got, right, what):
    ok = bool(((got == right) | (torch.isnan(got) & torch.isnan(right))).all())
    assert ok and got.dtype == right.dtype, f"{what}: rank {hvd.rank()} has {got} and not {right}"


def check_values():
    rank, size = hvd.rank(), hvd.size()
    for count in (8, 20_000, 3_000_000):
        half = torch.full((count,), 60000.0, dtype=torch.float16)
        equal(hvd.allreduce(half, op=hvd.Average, name=f"half{count}"), half, "an average of float16")
    single = torch.full((1000,), 60000.0)
    equal(
        hvd.allreduce(single, op=hvd.Average, compression=hvd.Compression.fp16, name="fp16"),
        single.half().float(),
        "an average with Compression.fp16",
    )
    for owner in range(size):
        one = torch.tensor([NAN if rank == owner else 1.0, 2.0])
        for op in (hvd.Max, hvd.Min):
            equal(
                hvd.allreduce(one, op=op, name=f"nan{owner}{op}"),
                torch.tensor([NAN, 2.0]),
                f"a minimum or maximum with a NaN on rank {owner}",
            )
    for dtype, value in ((torch.uint8, 200), (torch.int8, -100), (torch.int16, 30_000), (torch.int32, 2_000_000_000)):
        whole = torch.full((700,), value, dtype=dtype)
        equal(hvd.allreduce(whole, op=hvd.Average, name=f"average{dtype}"), whole, f"an average of {dtype}")
    try:
        hvd.allreduce(torch.ones(2), op=hvd.Sum, prescale_factor=NAN, name="factor")
        raise AssertionError("a factor of NaN is not refused")
    except (RuntimeError, ValueError) as error:
        assert "prescale factor is nan on rank 0" in str(error), str(error)


def rounded(values, dtype):
    """Rounds float64 numbers once to 16 bits."""
    single = values.numpy().astype("float32")
    wide, bits = single.astype("float64"), single.view("int32")
    # Round-to-odd keeps in float32 the bits that the second rounding needs.
    is_inexact = numpy.isfinite(single) & (wide != values.numpy())
    bits -= (is_inexact & (abs(wide) > abs(values.numpy()))).astype("int32")
    bits |= is_inexact.astype("int32")
    return torch.from_numpy(single).to(dtype)


def spread(count):
    """Returns numbers of many magnitudes, different on each rank."""
    generator = torch.Generator().manual_seed(hvd.rank())
    return torch.randn(count, generator=generator) * torch.exp(torch.randn(count, generator=generator) * 2.5)


def check_rounding():
    for dtype, compression in ((torch.float16, "fp16"), (torch.bfloat16, "bf16")):
        for count in (500, 60_000):
            single = spread(count)
            sent = single.to(dtype)
            exact = hvd.allgather(sent[None], name=f"all{dtype}{count}").double().sum(0)
            for what, got in (
                ("sum", hvd.allreduce(sent, op=hvd.Sum, name=f"sum{dtype}{count}")),
                (
                    "compressed sum",
                    hvd.allreduce(
                        single,
                        op=hvd.Sum,
                        name=f"compressed{dtype}{count}",
                        compression=getattr(hvd.Compression, compression),
                    ).to(dtype),
                ),
            ):
                wrong = int((got != rounded(exact, dtype)).sum())
                assert wrong <= count // 10_000, f"{what} of {dtype}: {wrong} of {count} elements are misrounded"
            exact /= hvd.size()
            got = hvd.allreduce(sent, op=hvd.Average, name=f"average{dtype}{count}")
            assert bool((got.isfinite() == rounded(exact, dtype).isfinite()).all()), f"an average of {dtype}"


def check_repetition():
    """Gradients that arrive at different moments share different batches."""
    sizes = (10, 300, 5000, 20_000, 80_000) * 4
    first, moments = None, random.Random(hvd.rank())
    for _ in range(5):
        handles = []
        for index, size in enumerate(sizes):
            if moments.random() < 0.3:
                time.sleep(moments.random() * 0.004)
            handles.append(hvd.allreduce_async(spread(size), op=hvd.Sum, name=f"gradient{index}"))
        results = [hvd.synchronize(handle) for handle in handles]
        first = first or results
        for size, got, before in zip(sizes, results, first):
            assert torch.equal(got, before), f"the sum of {size} elements changes from run to run"


def check_memory():
    """The last rank is late: until then the first operation is in flight on the others."""
    rank, size = hvd.rank(), hvd.size()
    is_last = rank == size - 1
    ends = hvd.add_process_set([0, size - 1])
    for what, members, part in (
        ("one tensor in two process sets", ends, slice(None)),
        ("overlapping views", hvd.global_process_set, slice(600, None)),
    ):
        flat, others = torch.ones(1000), torch.ones(1000)
        if is_last:
            hvd.barrier()
        first = hvd.allreduce_async_(flat, name="first", op=hvd.Sum)
        second = None
        if members.included():
            try:
                second = hvd.allreduce_async_(
                    (others if rank else flat)[part], name="second", op=hvd.Sum, process_set=members
                )
                assert rank, f"{what}: rank 0 is not refused"
            except ValueError as error:
                assert rank == 0 and "overlaps the output of allreduce" in str(error), str(error)
        if not is_last:
            hvd.barrier()
        if second is not None:
            try:
                hvd.synchronize(second)
                raise AssertionError(f"{what}: rank {rank} does not hear that rank 0 is refused")
            except ValueError as error:
                assert "rank 0 refused allreduce" in str(error), str(error)
        equal(hvd.synchronize(first), torch.full((1000,), float(size)), what)


def check_order():
    torch.manual_seed(hvd.rank())
    values = torch.randn(60_000) * torch.exp(torch.randn(60_000) * 4)
    whole = hvd.allreduce(values, op=hvd.Sum, name="whole")
    parts = [hvd.allreduce(part, op=hvd.Sum, name=f"part{i}") for i, part in enumerate(values.split(701))]
    same = bool((torch.cat(parts) == whole).all())
    if hvd.rank() == 0:
        print("one order" if same else "several orders")


CHECKS = {
    "values": check_values,
    "rounding": check_rounding,
    "repetition": check_repetition,
    "memory": check_memory,
    "order": check_order,
}
torch.set_num_threads(1)
hvd.init()
for check in sys.argv[1:]:
    CHECKS[check]()
print("done")
