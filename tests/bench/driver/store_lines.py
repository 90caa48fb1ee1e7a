"""The lines of tests/bench/rendezvous: the server against a bare loop and TCPStore."""

import contextlib
import math
import os
import pathlib
import re
import secrets
import statistics
import subprocess
import tempfile

from driver import teams
from driver.lines import Line, Result

TCPSTORE_WORKER = teams.ROOT / "tests" / "bench" / "workers" / "tcpstore_worker.py"


@contextlib.contextmanager
def token_file():
    with tempfile.NamedTemporaryFile("w", dir=teams.WORKERS) as file:
        os.chmod(file.name, 0o600)
        file.write(secrets.token_hex(32))
        file.flush()
        yield file.name


@contextlib.contextmanager
def server(token, *arguments, listen="127.0.0.1:0", core=None):
    """Starts the server alone. Yields its process and its port."""
    program = teams.BUILD / "bin" / "horovod-rendezvous"
    if not program.exists():
        raise teams.Refused(f"{program} is not built")
    process = subprocess.Popen(
        [*on(core), program, "--listen", listen, "--token-file", token, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        yield process, int(re.search(r":(\d+)$", line.strip())[1])
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def on(core):
    """Returns the words before a command that bind it to the core."""
    return [] if core is None else ["taskset", "-c", str(core)]


def store_team(token, ranks=1, core=None):
    worker = teams.WORKERS / "store_worker"
    return teams.Team("ours", [[*on(core), worker, "{socket}", rank, token] for rank in range(ranks)], ranks)


def bare_team(token, core=None):
    return teams.Team("bare loop", [[*on(core), teams.WORKERS / "bare_server", "{socket}", token]], 1)


def requests_per_second(verb):
    """Measures 64 keep-alive clients of the server and of the bare loop in alternation, by medians of the rounds."""

    def measure(bench):
        figures = {"ours": [], "bare loop": []}
        requests = 300 if bench.rounds < 9 else 2000
        with token_file() as token, server(token) as (_, port), bare_team(token) as bare, store_team(token) as clients:
            ports = {"ours": port, "bare loop": int(bare.ask("ports")[0])}
            for _ in range(bench.rounds):
                for name, one in ports.items():
                    figures[name] += clients.ask("rate", one, 64, requests, verb)
        ours, limit = (statistics.median(figures[name]) for name in figures)
        share = 100 * ours / limit
        return Result(
            "%",
            share,
            must="≥ 50 % of a bare loop",
            passed=share >= 50,
            note=f"{ours:.0f}/s, the bare loop with the same proofs {limit:.0f}/s",
        )

    return measure


def gets_per_second(clients):
    """Runs each client in its own process. Requests to the server are signed, those to TCPStore are not."""

    def measure(bench):
        seconds = 0.5 if bench.rounds < 9 else 2
        ours, theirs = [], []
        with token_file() as token, server(token) as (_, port), store_team(
            token, clients
        ) as team, contextlib.ExitStack() as stack:
            try:
                peer = stack.enter_context(
                    teams.Team(
                        "TCPStore",
                        [
                            [bench.python, "-B", TCPSTORE_WORKER, "{socket}", rank, "{folder}"]
                            for rank in range(clients)
                        ],
                        clients,
                    )
                )
            except teams.Missing as error:
                raise teams.Refused(str(error)) from None
            for _ in range(min(5, bench.rounds)):
                ours.append(sum(row[0] for row in team.ask_all("gets", port, seconds)))
                theirs.append(sum(row[0] for row in peer.ask_all("gets", seconds)))
        mine, its = statistics.median(ours), statistics.median(theirs)
        return Result(
            "µs",
            1e6 / mine,
            {"TCPStore": 1e6 / its},
            "≥ 2 × TCPStore",
            mine >= 2 * its,
            f"{mine:.0f} gets/s, TCPStore {its:.0f}/s",
        )

    return measure


def set_to_get(is_across):
    """Measures set and get from one thread, in alternation with a bare round trip of one byte.

    The core of a server matters more than the work of the server. The bench therefore binds both servers to one core:
    the client's core, or another core, which must wake up for each message."""

    def measure(bench):
        iterations = 200 if bench.rounds < 9 else 1500
        cores = sorted(os.sched_getaffinity(0))
        if is_across and len(cores) < 2:
            raise teams.Refused("this machine has one core")
        core = cores[1 if is_across else 0]
        rows = []
        with token_file() as token, server(token, core=core) as (_, port), bare_team(token, core) as bare, store_team(
            token, core=cores[0]
        ) as team:
            echo = int(bare.ask("ports")[1])
            for _ in range(min(5, bench.rounds)):
                rows.append(team.ask("reach", port, echo, iterations))
        half, late, echo_half, echo_late = (statistics.median(column) for column in zip(*rows))
        return Result(
            "µs",
            half,
            {"round trip": echo_half},
            "≤ 2 × a round trip, p99 ≤ 4 ×",
            half <= 2 * echo_half and late <= 4 * echo_late,
            f"p99 {late:.1f} µs, of a round trip {echo_late:.1f} µs",
        )

    return measure


def memory_mib(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024


# Bytes of a rank's record: the part that all ranks of a host share, and the part of the rank.
SHARED, OWN = 190, 60


def start_up(hosts, parties, record, seconds, mebibytes, wanted="links"):
    """Each party, a rank or a host for all of its ranks, joins on its own connection, stores its record, and receives
    the records of its host and its links, or of all parties."""

    def measure(bench):
        rows, peak = [], math.nan
        with token_file() as token:
            for _ in range(1 if hosts > 5000 else min(3, bench.rounds)):
                with server(token, "-np", hosts * parties, listen="0.0.0.0:0") as (process, port), teams.Team(
                    "ours", [[teams.WORKERS / "start_worker", "{socket}", 0, token]], 1
                ) as team:
                    rows.append(team.ask("start", port, hosts, parties, record, wanted))
                    peak = memory_mib(process)
        took, received = (statistics.median(column) for column in zip(*rows))
        return Result(
            "s",
            took,
            must=f"≤ {seconds} s, ≤ {mebibytes} MiB",
            passed=took <= seconds and peak <= mebibytes,
            note=f"{took / hosts * 1e6:.0f} µs a host, server's memory {peak:.0f} MiB, "
            f"{2 * hosts * parties} requests after hello, {received:.1f} MiB of "
            "replies",
        )

    return measure


LINES = [
    Line("set", "64 clients, 8 B", requests_per_second("set")),
    Line("get", "64 clients, 8 B", requests_per_second("get")),
    *[Line(f"get-{n}", f"get from {n} client processes", gets_per_second(n)) for n in (1, 4, 16)],
    Line("reach", "from a set to the get that waits, on one core", set_to_get(False)),
    Line("reach-across", "the same, the server on another core", set_to_get(True)),
    Line("start-ranks", "start-up of 1,000 hosts of 8 ranks, each connects", start_up(1000, 8, 120, 2, 2048)),
    Line("start-1000x8", "start-up of 1,000 hosts, each for its 8 ranks", start_up(1000, 1, 8 * 120, 2, 2048)),
    Line("start-12500x8", "start-up of 12,500 hosts, each for its 8 ranks", start_up(12500, 1, 8 * 120, 20, 2048)),
    *[
        line
        for hosts in (8, 32, 125)
        for line in (
            Line(
                f"all-{hosts * 8}",
                f"{hosts * 8} ranks, each takes all records",
                start_up(hosts, 8, SHARED + OWN, 2, 2048, "all"),
            ),
            Line(
                f"all-{hosts}x8",
                f"{hosts} hosts, each takes all records for its 8 ranks",
                start_up(hosts, 1, SHARED + 8 * OWN, 2, 2048, "all"),
            ),
        )
    ],
]
