"""The lines about torch.distributed: its all_reduce on this backend against gloo, and against hvd.allreduce_; and DDP
against hvd.DistributedOptimizer.

In the lines about all_reduce, each rank is bound to a core, as is its counterpart of the other teams, where there are
as many cores.
"""

import statistics

from driver import teams, training_lines
from driver.lines import KIB, MIB, Line, Result


def _rows(bench, size, ranks):
    group = bench.need(teams.torch_group, ranks, python=bench.python)
    gloo = bench.need(teams.torch_gloo, ranks, python=bench.python, is_bound=True)
    ours = bench.need(teams.torch_group, ranks, python=bench.python, is_direct=True)
    rows = bench.rounds_of([group, gloo, ours], "allreduce", size, "ITERATIONS")
    return {name: statistics.median(row[0] for row in each) for name, each in rows.items()}, group.name, ours.name


def times_gloo(size, ranks, factor):
    def measure(bench):
        found, group, _ = _rows(bench, size, ranks)
        mine = found.pop(group)
        return Result("µs", mine, found, f"≥ {factor} × gloo", found["torch gloo"] >= factor * mine)

    return measure


def beside_ours(size, ranks, more=0.0, factor=1.0):
    def measure(bench):
        found, group, ours = _rows(bench, size, ranks)
        mine, limit = found.pop(group), found[ours] * factor + more
        return Result("µs", mine, found, f"≤ {limit:.1f} µs", mine <= limit)

    return measure


def ddp(model):
    def measure(bench):
        barrier = bench.need(teams.plain_torch, 2, python=bench.python)
        group = bench.need(teams.torch_group, 2, python=bench.python, is_bound=False)
        ours = bench.need(teams.ours, 2, python=bench.python)
        gloo = bench.need(teams.torch_gloo, 2, python=bench.python)
        alone = bench.need(teams.plain_torch, 2, python=bench.python, is_ddp=True)
        found, step = training_lines.efficiencies(bench, model, barrier, [group, ours, gloo, alone])
        mine, least = found.pop(group.name), found[ours.name] - 2
        note = (
            f"a step at a barrier only takes {step:.2f} ms; DDP without communication leaves "
            f"{found.pop(alone.name):.1f} %"
        )
        return Result("%", mine, found, f"≥ {least:.1f} %", mine >= least, note)

    return measure


SIZES = {"4KiB": (4 * KIB, 10), "64KiB": (64 * KIB, 10), "1MiB": (MIB, 6), "8MiB": (8 * MIB, 3)}
LINES = (
    [
        Line(
            f"door-{size}-{ranks}",
            f"dist.all_reduce of {size}, {ranks} ranks on one host, against gloo",
            times_gloo(count, ranks, factor),
        )
        for ranks in (2, 4)
        for size, (count, factor) in SIZES.items()
    ]
    + [
        Line(
            f"door-{size}-beside",
            f"dist.all_reduce of {size}, 2 ranks, against hvd.allreduce_ and 4 µs more",
            beside_ours(count, 2, more=4.0),
        )
        for size, (count, _) in list(SIZES.items())[:2]
    ]
    + [
        Line(
            f"door-{size}-beside",
            f"dist.all_reduce of {size}, 2 ranks, against 1.1 × hvd.allreduce_",
            beside_ours(count, 2, factor=1.1),
        )
        for size, (count, _) in list(SIZES.items())[2:]
    ]
    + [
        Line(f"door-ddp-{model}", f"DDP of {what}, against hvd.DistributedOptimizer - 2", ddp(model))
        for model, what in training_lines.MODELS.items()
    ]
)
