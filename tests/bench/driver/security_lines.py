"""The lines of tests/bench/security: hosts that join a job by TLS, against plain text."""

import contextlib
import os
import re
import statistics
import subprocess
import time

from driver import store_lines, teams
from driver.lines import Line, Result

LAUNCHER = teams.BUILD / "bin" / "horovodrun"
AGENT = teams.BUILD / "bin" / "horovod-agent"
STORE_RANK = teams.ROOT / "tests" / "bench" / "workers" / "store_rank.py"
MODES = {"ours": [], "plain text": ["--insecure-plaintext"]}
TIMEOUT = 120
OUTPUT_LINE = "the quick brown fox jumps over the lazy dog, and over it again"


def processor_seconds():
    """Returns the processor time of all children that this process has waited for."""
    times = os.times()
    return times.children_user + times.children_system


@contextlib.contextmanager
def joining(flags, names, command, address="127.0.0.1", over=lambda _: []):
    """Starts a job whose hosts join. Yields its launcher, with pipes for input and output, and the time at which the
    first agent started.

    `over` returns the words before an agent's command on a host."""
    if not LAUNCHER.exists() or not AGENT.exists():
        raise teams.Refused(f"{LAUNCHER} or {AGENT} is not built")
    environment = {**os.environ, "PYTHONPATH": str(teams.BUILD / "python")}
    with store_lines.token_file() as token, contextlib.ExitStack() as ends:
        job = ends.enter_context(
            subprocess.Popen(
                [
                    str(word)
                    for word in (
                        LAUNCHER,
                        "-np",
                        len(names),
                        "-H",
                        ",".join(f"{n}:1" for n in names),
                        "--listen",
                        f"{address}:0",
                        "--token-file",
                        token,
                        *flags,
                        *command,
                    )
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
            )
        )
        ends.callback(job.kill)
        port = None
        while port is None:
            line = job.stderr.readline()
            if not line:
                raise teams.Refused("the launcher ended before it listened")
            port = re.search(rf" at tcp:{re.escape(address)}:(\d+) for ", line)
        start = time.perf_counter()
        agents = [
            ends.enter_context(
                subprocess.Popen(
                    [
                        str(word)
                        for word in (
                            *over(name),
                            AGENT,
                            "--join",
                            f"{address}:{port[1]}",
                            "--token-file",
                            token,
                            "--name",
                            name,
                            "--slots",
                            1,
                            *flags,
                        )
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            for name in names
        ]
        for agent in agents:
            ends.callback(agent.kill)
        yield job, start


def end(job):
    """Closes the input of a job, and returns its output if the job succeeds."""
    output, errors = job.communicate(timeout=TIMEOUT)
    if job.returncode != 0:
        raise teams.Refused(f"the job ended with {job.returncode}: {errors.strip()[-300:]}")
    return output


def joined(*job):
    """Runs a job like `joining`. Returns its output and its seconds since the start of the first agent."""
    with joining(*job) as (running, start):
        output = end(running)
        return output, time.perf_counter() - start


def in_turns(rounds, run):
    """Runs both modes in alternation after a warm-up round. Returns the median of `run` by mode."""
    found = {name: [] for name in MODES}
    for number in range(1 + rounds):
        order = list(MODES.items())
        for name, flags in order if number % 2 else reversed(order):
            figure = run(flags)
            if number > 0:
                found[name].append(figure)
    return {name: statistics.median(figures) for name, figures in found.items()}


def start(bench):
    names = [f"h{n}" for n in range(32)]
    found = in_turns(bench.rounds, lambda flags: 1e3 * joined(flags, names, ["/bin/true"])[1])
    ours, plain = found["ours"], found["plain text"]
    return Result("ms", ours, {"plain text": plain}, "≤ 1.05 × plain text", ours <= 1.05 * plain)


def store_request(bench):
    """Both jobs run at the same time and take turns of 100 requests, so that both meet the same disturbances."""
    turns = 40 if bench.rounds < 9 else 200
    found = {name: [] for name in MODES}
    with contextlib.ExitStack() as ends:
        jobs = {
            name: ends.enter_context(joining(flags, ["far"], [bench.python, "-B", STORE_RANK]))[0]
            for name, flags in MODES.items()
        }
        for number in range(1 + turns):
            order = list(jobs.items())
            for name, job in order if number % 2 else reversed(order):
                print(100, file=job.stdin, flush=True)
                answer = job.stdout.readline()
                if not answer:
                    raise teams.Refused(f"the job ended: {job.stderr.read().strip()[-300:]}")
                if number > 0:
                    found[name].append(float(answer.rpartition(":")[2]))
        for job in jobs.values():
            end(job)
    ours, plain = (statistics.median(figures) for figures in found.values())
    return Result("µs", ours, {"plain text": plain}, "≤ 10 µs more", ours <= plain + 10, f"{ours - plain:+.1f} µs")


def output(bench):
    """Measures a rank that prints at full speed on a host with 1 Gbit/s."""
    size = (200 if bench.rounds < 9 else 1000) << 20
    here = subprocess.run(
        ["ip", "-4", "-o", "route", "get", "10.77.0.1"], capture_output=True, text=True, check=True
    ).stdout
    address = re.search(r"src (\S+)", here)[1]
    subprocess.run(
        [
            teams.HOSTS,
            "exec",
            "a",
            "tc",
            "qdisc",
            "replace",
            "dev",
            "eth0",
            "root",
            "tbf",
            "rate",
            "1gbit",
            "burst",
            "512k",
            "latency",
            "50ms",
        ],
        check=True,
    )
    command = ["sh", "-c", f"yes '{OUTPUT_LINE}' | head -c {size}"]
    spent = {}

    def run(flags):
        before = processor_seconds()
        printed, took = joined(flags, ["a"], command, address, lambda name: [teams.HOSTS, "exec", name])
        if printed.count("\n") < size // (len(OUTPUT_LINE) + 1):
            raise teams.Refused("lines were lost")
        spent.setdefault(bool(flags), []).append(processor_seconds() - before)
        return size / took / 1e6

    found = in_turns(min(3, bench.rounds), run)
    ours, plain = found["ours"], found["plain text"]
    more = (statistics.median(spent[False]) - statistics.median(spent[True])) / (size / 1e9)
    return Result(
        "MB/s",
        ours,
        must="≥ 0.95 × plain text",
        passed=ours >= 0.95 * plain,
        note=f"plain text {plain:.1f} MB/s; TLS takes {more:.2f} s of a processor more for each GB, "
        "in the launcher, the agent and the rank together",
    )


LINES = [
    Line("join-32", "start of 32 hosts that join, and their end", start),
    Line("store", "a request of a rank to the store", store_request),
    Line("output", "output of a rank at 1 Gb/s", output, True, "a"),
]
