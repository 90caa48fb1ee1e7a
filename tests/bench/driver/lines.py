"""The lines of the benchmark: each function measures one quantity and states its target.

A line takes a `Bench`, which keeps teams alive between lines, and returns a `Result`.
"""

import contextlib
import dataclasses
import math
import pathlib
import statistics
import subprocess
import time
import typing

from driver import stillness, teams

KIB, MIB = 1 << 10, 1 << 20
PEERS = (teams.openmpi, teams.mpich, teams.gloo, teams.torch_gloo)


@dataclasses.dataclass
class Result:
    unit: str
    ours: float = math.nan
    peers: dict = dataclasses.field(default_factory=dict)  # medians by name
    must: str = ""
    passed: bool = False
    note: str = ""

    def ratio(self):
        """Returns how many times faster this project is than the best peer."""
        return min(self.peers.values()) / self.ours if self.peers and self.ours else math.nan

    def best_peer(self):
        """Returns the name of the best peer: the highest for an efficiency, else the lowest."""
        choose = max if self.unit == "%" else min
        return choose(self.peers, key=self.peers.get, default=None)


@dataclasses.dataclass
class Line:
    name: str
    what: str
    measure: typing.Callable
    needs_hosts: bool = False
    hosts: str = "a b"


class Bench:
    """Starts each team once and keeps it; `missing` has the reasons of the teams that do not start."""

    def __init__(self, quick, python, tensorflow=None, jax=None, before=None, bounds=False):
        """`before`: another build of this project, which takes turns with this build; `bounds`: whether lines about
        training also measure upper bounds."""
        self.is_quick = quick
        self.rounds, self.seconds, self.idle_seconds = (3, 0.03, 2) if quick else (9, 0.3, 10)
        self.python, self.tensorflow, self.jax = python, tensorflow, jax
        self.before, self.bounds = before, bounds
        self.missing = {}
        self._teams = {}

    def team(self, make, *arguments, **options):
        """Returns the team, or None if it does not start."""
        key = (make.__name__, arguments, tuple(sorted(options.items())))
        if key not in self._teams:
            try:
                self._teams[key] = make(*arguments, **options)
            except teams.Missing as error:
                self.missing[make.__name__] = str(error)
                self._teams[key] = None
        return self._teams[key]

    def need(self, make, *arguments, **options):
        """Returns the team. Raises teams.Missing if it does not start."""
        team = self.team(make, *arguments, **options)
        if team is None:
            raise teams.Missing(self.missing[make.__name__])
        return team

    def only(self, *kept):
        """Ends all teams except `kept`, so that idle teams take no memory."""
        for key, team in list(self._teams.items()):
            if team is not None and team not in kept:
                team.stop()
                del self._teams[key]

    def rounds_of(self, contenders, *command):
        """Returns rows of figures by team, a row per round. The contenders take turns, and a trial sets the number of
        iterations of each contender. `command` has ITERATIONS in place of this number."""
        contenders = [team for team in contenders if team is not None]
        self.only(*contenders)
        iterations, rows = {}, {team.name: [] for team in contenders}
        for team in contenders:
            trial = max(team.ask(*_with(command, 5))[0], 0.1)
            iterations[team] = max(3, min(5000, int(self.seconds * 1e6 / trial)))
        for _ in range(self.rounds):
            for team in contenders:
                rows[team.name].append(team.ask(*_with(command, iterations[team])))
        return rows

    def medians(self, contenders, *command):
        """Returns the medians of the rounds' figures by team."""
        return {
            name: [statistics.median(column) for column in zip(*rows)]
            for name, rows in self.rounds_of(contenders, *command).items()
        }

    def builds(self, ranks, **options):
        """Returns the teams of this build and, with --before, of the other build."""
        found = [self.need(teams.ours, ranks, **options)]
        if self.before:
            found.append(self.need(teams.ours, ranks, build=pathlib.Path(self.before).resolve(), **options))
        return found

    def close(self):
        self.only()


def _with(command, iterations):
    return [iterations if word == "ITERATIONS" else word for word in command]


def _beside_before(rows, name="ours", column=0):
    """Removes the figures of the other build and returns the ratio of this build to it, compared round by round."""
    before = rows.pop("before", None)
    if before is None:
        return ""
    ratios = sorted(own[column] / other[column] for own, other in zip(rows[name], before))
    return f"{statistics.median(ratios):.3f} × the build before ({ratios[0]:.3f} to {ratios[-1]:.3f})"


def _against_peers(bench, size, ranks, hosts=False, peers=PEERS, extra=(), memory=()):
    contenders = bench.builds(ranks, hosts=hosts)
    contenders += [bench.team(make, ranks, hosts=hosts) for make in peers]
    contenders += extra
    rows = bench.rounds_of(contenders, "allreduce", size, "ITERATIONS", *memory)
    note = _beside_before(rows)
    found = {name: statistics.median(row[0] for row in each) for name, each in rows.items()}
    return found.pop("ours"), found, note


def at_most(microseconds, size, ranks):
    def measure(bench):
        ours, peers, note = _against_peers(bench, size, ranks)
        return Result("µs", ours, peers, f"≤ {microseconds} µs", ours <= microseconds, note)

    return measure


def times_best_peer(factor, size, memory=()):
    """`memory` is ("registered",) if this project reduces in memory of hvd_alloc; peers use their own memory."""

    def measure(bench):
        ours, peers, note = _against_peers(bench, size, 2, memory=memory)
        result = Result("µs", ours, peers, f"≥ {factor} × best", note=note)
        result.passed = bool(peers) and result.ratio() >= factor
        return result

    return measure


def between_hosts(size):
    """Checks two targets: against the peers, and against the throughput of the link."""

    def measure(bench):
        stream = bench.team(teams.stream_pair, hosts=True)
        ours, peers, note = _against_peers(bench, size, 2, True, (teams.openmpi, teams.gloo), [stream])
        plain = peers.pop("plain stream pair", math.nan)
        result = Result("µs", ours, peers, "≥ 1.2 × best, ≥ 80 % of a stream pair")
        share = 100 * plain / ours
        result.note = "; ".join(filter(None, [f"stream pair {plain:.1f} µs: {share:.0f} % of it", note]))
        result.passed = bool(peers) and result.ratio() >= 1.2 and share >= 80
        return result

    return measure


def many_names(milliseconds, python):
    def measure(bench):
        contenders = bench.builds(2, **({"python": bench.python} if python else {}))
        name = contenders[0].name
        contenders += [bench.team(teams.torch_gloo, 2)] if python else []
        rows = bench.rounds_of(contenders, "names", 1000, 1024, "ITERATIONS")
        note = _beside_before(rows, name)
        found = {each: statistics.median(row[0] for row in figures) for each, figures in rows.items()}
        ours = found.pop(name)
        return Result("µs", ours, found, f"≤ {milliseconds} ms", ours <= 1000 * milliseconds, note)

    return measure


def submit_alone(python):
    def measure(bench):
        contenders = bench.builds(2, **({"python": bench.python} if python else {}))
        rows = bench.rounds_of(contenders, "names", 1000, 1024, "ITERATIONS")
        note = _beside_before(rows, contenders[0].name, 1)
        ours = statistics.median(row[1] for row in rows[contenders[0].name])
        return Result("µs", ours, {}, "≤ 1.5 µs", ours <= 1.5, note)

    return measure


def average(dtype, size, ranks):
    """Compares an average with a sum that is multiplied by the inverse of the number of ranks."""

    def measure(bench):
        rows = bench.rounds_of(bench.builds(ranks), "average", dtype, size, "ITERATIONS")
        note = _beside_before(rows)
        divided, multiplied, summed = (statistics.median(column) for column in zip(*rows["ours"]))
        notes = [f"{divided / multiplied:.3f} × multiplied, {divided / summed:.3f} × the sum", note]
        return Result(
            "µs", divided, {}, "≤ 1.05 × multiplied", divided <= 1.05 * multiplied, "; ".join(filter(None, notes))
        )

    return measure


def one_way(size, microseconds=None):
    """Measures a message between two ranks through the C ABI, against a limit or against a memcpy on rank 0."""

    def measure(bench):
        rows = bench.rounds_of(bench.builds(2), "message", size, "ITERATIONS")
        note = _beside_before(rows)
        ours, copy = (statistics.median(column) for column in zip(*rows["ours"]))
        must = f"≤ {microseconds} µs" if microseconds else "≥ 0.8 × memcpy"
        passed = ours <= microseconds if microseconds else copy >= 0.8 * ours
        notes = [f"{copy / ours:.2f} × memcpy" if copy > 1 else "", note]
        return Result("µs", ours, {}, must, passed, "; ".join(filter(None, notes)))

    return measure


@contextlib.contextmanager
def limited_links(rate):
    def on_each(*words):
        for host in teams.HOST_NAMES:
            subprocess.run([teams.HOSTS, "exec", host, "tc", "qdisc", *words], check=True)

    on_each("replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "128kb", "latency", "50ms")
    try:
        yield
    finally:
        on_each("del", "dev", "eth0", "root")


def bfloat16_between_hosts(size):
    """Compares an average, which sends 16 bits, with a sum, which sends 32, between two hosts at 1 Gbit/s."""

    def measure(bench):
        contenders = bench.builds(4, hosts=True)
        with limited_links("1gbit"):
            rows = bench.rounds_of(contenders, "average", "bfloat16", size, "ITERATIONS")
        note = _beside_before(rows)
        divided, _, summed = (statistics.median(column) for column in zip(*rows["ours"]))
        notes = [f"a sum takes {summed:.0f} µs, {summed / divided:.2f} × as long", note]
        return Result("µs", divided, {}, "measured", True, "; ".join(filter(None, notes)))

    return measure


def python_small(bench):
    c, python = bench.need(teams.ours, 2), bench.need(teams.ours, 2, python=bench.python)
    found = bench.medians([c, python], "allreduce", 4, "ITERATIONS")
    ours, base = found[python.name][0], found["ours"][0]
    return Result("µs", ours, {}, f"≤ C ABI ({base:.1f}) + 8 µs", ours <= base + 8)


def restart(bench):
    rows = bench.rounds_of(bench.builds(2), "restart", "ITERATIONS")
    note = _beside_before(rows)
    ours = statistics.median(row[0] for row in rows["ours"])
    return Result("µs", ours, {}, "≤ 5 ms", ours <= 5000, note)


def memory(bench):
    """Measures the memory of a rank after its first operation, beyond that of a process with torch alone."""
    plain = bench.need(teams.plain_torch, 2, python=bench.python)
    ours = bench.need(teams.ours, 2, python=bench.python)
    ours.ask("allreduce", 4, 1)
    pairs = list(zip(ours.ask_all("memory"), plain.ask_all("memory")))
    resident = max(own[0] - other[0] for own, other in pairs)
    proportional = max(own[1] - other[1] for own, other in pairs)
    return Result("MiB", resident, {}, "≤ 32 MiB", resident <= 32, f"resident; proportional {proportional:.1f} MiB")


def idle(hosts):
    def measure(bench):
        return rest_of(bench, bench.need(teams.ours, 2, hosts=hosts))

    return measure


def rest_of(bench, team):
    """Measures wake-ups and packets of a team whose ranks are idle."""
    bench.only(team)
    team.ask("allreduce", 4, 10)
    time.sleep(1)
    before = stillness.activity(team.pids.values())
    time.sleep(bench.idle_seconds)
    after = stillness.activity(team.pids.values())
    wakeups, packets = after[0] - before[0], after[1] - before[1]
    return Result("wake-ups", wakeups, {}, "0, and no packet", wakeups == 0 and packets == 0, f"{packets} packets")


LINES = (
    [
        Line("4B", "4 B, 2 ranks", at_most(3, 4, 2)),
        Line("4B-4ranks", "4 B, 4 ranks", at_most(20, 4, 4)),
        Line("1MiB", "1 MiB, private buffers, 2 ranks", times_best_peer(1.5, MIB)),
        Line("8MiB", "8 MiB, private buffers, 2 ranks", times_best_peer(2, 8 * MIB)),
        Line("64MiB", "64 MiB, private buffers, 2 ranks", times_best_peer(2.5, 64 * MIB)),
        Line("256MiB", "256 MiB, private buffers, 2 ranks", times_best_peer(2.5, 256 * MIB)),
        Line("registered-8MiB", "8 MiB in hvd_alloc memory, 2 ranks", times_best_peer(5, 8 * MIB, ("registered",))),
        Line("registered-64MiB", "64 MiB in hvd_alloc memory, 2 ranks", times_best_peer(5, 64 * MIB, ("registered",))),
        Line("names", "1,000 names of 1 KiB, then wait for all", many_names(0.8, False)),
        Line("names-python", "the same from Python", many_names(2.5, True)),
        Line("submit", "one hvd_submit of those", submit_alone(False)),
        Line("submit-python", "one hvd.allreduce_async_ of those", submit_alone(True)),
        Line("4B-python", "hvd.allreduce_ on 4 B, 2 ranks", python_small),
        Line("send-4B", "4 B from rank to rank, one way", one_way(4, 2)),
        Line("send-1MiB", "1 MiB from rank to rank, one way", one_way(MIB)),
        Line("restart", "shutdown + init, 2 ranks", restart),
        Line("idle", "nothing pending, 2 ranks", idle(False)),
        Line("memory", "memory over torch alone, per rank", memory),
    ]
    + [
        Line(
            f"average-{dtype}-{size // MIB}MiB-{ranks}ranks",
            f"average of {size // MIB} MiB {dtype}, {ranks} ranks",
            average(dtype, size, ranks),
        )
        for size in (MIB, 16 * MIB)
        for dtype in ("float32", "bfloat16")
        for ranks in (2, 3, 4)
    ]
    + [
        Line(f"hosts-{label}", f"{label[:-3]} {label[-3:]} between two hosts", between_hosts(size), True)
        for label, size in (("64KiB", 64 * KIB), ("1MiB", MIB), ("8MiB", 8 * MIB), ("64MiB", 64 * MIB))
    ]
    + [
        Line(
            f"hosts-bfloat16-{label}",
            f"average of {label[:-3]} {label[-3:]} bfloat16, 2 hosts × 2, 1 Gbit/s",
            bfloat16_between_hosts(size),
            True,
        )
        for label, size in (("64KiB", 64 * KIB), ("16MiB", 16 * MIB))
    ]
    + [Line("hosts-idle", "nothing pending, on two hosts", idle(True), True)]
)
