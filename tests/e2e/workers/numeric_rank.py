"""Checks what sums do with overflow, NaN and narrow integers on the hosts of the job, or prints whether an
element's sum depends on what it is packed with."""
import sys

import horovod.torch as hvd
import torch

NAN = float("nan")


def equal(got, right, what):
    ok = bool(((got == right) | (torch.isnan(got) & torch.isnan(right))).all())
    assert ok and got.dtype == right.dtype, f"{what}: rank {hvd.rank()} has {got} and not {right}"


def check_values():
    rank, size = hvd.rank(), hvd.size()
    for count in (8, 20_000, 3_000_000):
        half = torch.full((count,), 60000., dtype=torch.float16)
        equal(hvd.allreduce(half, op=hvd.Average, name=f"half{count}"), half, "an average of float16")
    single = torch.full((1000,), 60000.)
    equal(hvd.allreduce(single, op=hvd.Average, compression=hvd.Compression.fp16, name="fp16"),
          single.half().float(), "an average with Compression.fp16")
    for owner in range(size):
        one = torch.tensor([NAN if rank == owner else 1., 2.])
        for op in (hvd.Max, hvd.Min):
            equal(hvd.allreduce(one, op=op, name=f"nan{owner}{op}"), torch.tensor([NAN, 2.]),
                  f"a minimum or maximum with a NaN on rank {owner}")
    for dtype, value in ((torch.uint8, 200), (torch.int8, -100), (torch.int16, 30_000),
                         (torch.int32, 2_000_000_000)):
        whole = torch.full((700,), value, dtype=dtype)
        equal(hvd.allreduce(whole, op=hvd.Average, name=f"average{dtype}"), whole,
              f"an average of {dtype}")
    try:
        hvd.allreduce(torch.ones(2), op=hvd.Sum, prescale_factor=NAN, name="factor")
        raise AssertionError("a factor of NaN is not refused")
    except (RuntimeError, ValueError) as error:
        assert "prescale factor is nan on rank 0" in str(error), str(error)


def check_order():
    torch.manual_seed(hvd.rank())
    values = torch.randn(60_000) * torch.exp(torch.randn(60_000) * 4)
    whole = hvd.allreduce(values, op=hvd.Sum, name="whole")
    parts = [hvd.allreduce(part, op=hvd.Sum, name=f"part{i}")
             for i, part in enumerate(values.split(701))]
    same = bool((torch.cat(parts) == whole).all())
    if hvd.rank() == 0:
        print("one order" if same else "several orders")


hvd.init()
check_order() if sys.argv[1:] == ["order"] else check_values()
print("done")
