"""The benchmark lines about torch.distributed: all_reduce on the backend horovod against gloo and hvd.allreduce_,
messages, DDP against hvd.DistributedOptimizer, FSDP2 against gloo, and an idle group.

In the lines about all_reduce on one host and about messages, each rank of each Python team is bound to a core if there
are enough cores.
"""

import statistics

from driver import teams, training_lines
from driver.lines import KIB, MIB, Line, Result, limited_links, rest_of


def _rows(bench, size, ranks):
    group = bench.need(teams.torch_group, ranks, python=bench.python)
    gloo = bench.need(teams.torch_gloo, ranks, python=bench.python, is_bound=True)
    ours = bench.need(teams.torch_group, ranks, python=bench.python, is_direct=True)
    mpi = bench.team(teams.openmpi, ranks)
    rows = bench.rounds_of([group, gloo, ours, mpi], "allreduce", size, "ITERATIONS")
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
        views = []
        if bench.bounds:
            views = [
                bench.need(teams.torch_group, 2, python=bench.python, is_bound=False, has_views=True),
                bench.need(teams.plain_torch, 2, python=bench.python, is_ddp=True, has_views=True),
            ]
        found, step = training_lines.efficiencies(bench, model, barrier, [group, ours, gloo, alone, *views])
        mine, least = found.pop(group.name), found[ours.name] - 2
        note = (
            f"a step at a barrier only takes {step:.2f} ms; DDP without communication leaves "
            f"{found.pop(alone.name):.1f} %"
        )
        if views:
            both = " and ".join(f"{found.pop(team.name):.1f}" for team in views)
            note += f"; gradient_as_bucket_view=True: {both} %"
        return Result("%", mine, found, f"≥ {least:.1f} %", mine >= least, note)

    return measure


def between_hosts(size, factor):
    """Measures two ranks on two hosts whose links have 1 Gbit/s."""

    def measure(bench):
        group = bench.need(teams.torch_group, 2, hosts=True, python=bench.python, is_bound=False)
        gloo = bench.need(teams.torch_gloo, 2, hosts=True, python=bench.python)
        mpi = bench.team(teams.openmpi, 2, hosts=True)
        with limited_links("1gbit"):
            rows = bench.rounds_of([group, gloo, mpi], "allreduce", size, "ITERATIONS")
        found = {name: statistics.median(row[0] for row in each) for name, each in rows.items()}
        mine = found.pop(group.name)
        return Result("µs", mine, found, f"≥ {factor} × gloo", found[gloo.name] >= factor * mine)

    return measure


def one_way(size, microseconds=None):
    """Measures a torch.distributed message between two ranks; without a limit, also a copy of as many bytes."""

    def measure(bench):
        group = bench.need(teams.torch_group, 2, python=bench.python)
        gloo = bench.need(teams.torch_gloo, 2, python=bench.python, is_bound=True)
        rows = bench.rounds_of([group, gloo], "message", size, "ITERATIONS")
        mine, copy = (statistics.median(column) for column in zip(*rows[group.name]))
        peers = {gloo.name: statistics.median(row[0] for row in rows[gloo.name])}
        must = f"≤ {microseconds} µs" if microseconds else "measured"
        passed = not microseconds or mine <= microseconds
        return Result("µs", mine, peers, must, passed, "" if microseconds else f"{copy / mine:.2f} × a copy")

    return measure


def fsdp(ranks):
    """Measures FSDP2 with buffers of torch, and with buffers that FSDP2 allocates from the group."""

    def measure(bench):
        ways = [(True, False), (True, True), (False, False), (False, True)]
        group, *others = (
            bench.need(
                teams.torch_group,
                ranks,
                python=bench.python,
                is_bound=False,
                keeps_memory=keeps,
                allocates=allocates,
            )
            for keeps, allocates in ways
        )
        gloo = bench.need(teams.torch_gloo, ranks, python=bench.python)
        rows = bench.rounds_of([group, *others, gloo], "train", "transformer", "ITERATIONS")
        found = {name: statistics.median(row[0] for row in each) for name, each in rows.items()}
        mine = found.pop(group.name)
        memory, plain, plain_memory = (found.pop(team.name) / 1000 for team in others)
        note = (
            f"with buffers of the group {memory:.1f} ms; with the C library's own settings {plain:.1f} ms, and "
            f"{plain_memory:.1f} ms with buffers of the group"
        )
        return Result("µs", mine, found, "≥ 1.5 × gloo", found[gloo.name] >= 1.5 * mine, note)

    return measure


def in_memory_of_group(kind):
    """Measures all_gather_into_tensor or reduce_scatter_tensor of 4 MiB in the group's memory and in torch's."""

    def measure(bench):
        memory = bench.need(teams.torch_group, 2, python=bench.python, allocates=True)
        private = bench.need(teams.torch_group, 2, python=bench.python)
        gloo = bench.need(teams.torch_gloo, 2, python=bench.python, is_bound=True)
        rows = bench.rounds_of([memory, private, gloo], kind, 4 * MIB, "ITERATIONS")
        found = {name: statistics.median(row[0] for row in each) for name, each in rows.items()}
        mine = found.pop(memory.name)
        return Result("µs", mine, found, "≤ torch's memory", mine <= found[private.name])

    return measure


def at_rest(bench):
    return rest_of(bench, bench.need(teams.torch_group, 2, python=bench.python, is_bound=False))


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
    + [
        *(
            Line(
                f"door-fsdp2-{ranks}",
                f"a step of FSDP2, a transformer of 3.2 million parameters, {ranks} ranks",
                fsdp(ranks),
            )
            for ranks in (2, 4)
        ),
        Line("door-gather", "all_gather_into_tensor of 4 MiB in memory of the group", in_memory_of_group("gather")),
        Line("door-scatter", "reduce_scatter_tensor of 4 MiB in memory of the group", in_memory_of_group("scatter")),
        Line("door-send-4B", "4 B from rank to rank, one way, by send and recv", one_way(4, 8)),
        Line("door-send-1MiB", "1 MiB from rank to rank, one way, by send and recv", one_way(MIB)),
        Line("door-idle", "a group at rest, 2 ranks", at_rest),
    ]
    + [
        Line(
            f"door-hosts-{size}",
            f"dist.all_reduce of {size} between two hosts, 1 Gbit/s",
            between_hosts(count, 2 if count == 4 * KIB else 0.98),
            True,
        )
        for size, (count, _) in SIZES.items()
    ]
)
