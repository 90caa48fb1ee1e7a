"""The lines of tests/bench/elastic: how long the ranks of an elastic job wait when its hosts change."""

import contextlib
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from driver import teams
from driver.lines import Line, Result

sys.path.insert(0, str(teams.ROOT / "tests" / "hosts"))

LAUNCHER = teams.BUILD / "bin" / "horovodrun"
RANK = teams.ROOT / "tests" / "bench" / "workers" / "elastic_times.py"
PHASES = teams.ROOT / "tests" / "e2e" / "workers" / "elastic_phases.py"
LINE = re.compile(r"(?P<event>\w+) \d+ (?P<generation>\d+) (?P<seconds>\d+\.\d+)$")
TIMEOUT = 120


class Job:
    """A job of elastic_times.py whose output this process reads while the job runs."""

    def __init__(self, ends, python, flags, *command, program=RANK):
        if not LAUNCHER.exists():
            raise teams.Refused(f"{LAUNCHER} is not built")
        environment = {**os.environ, "PYTHONPATH": str(teams.BUILD / "python")}
        self.log = ends.enter_context(tempfile.TemporaryFile("w+"))
        self.process = ends.enter_context(
            subprocess.Popen(
                [str(word) for word in (LAUNCHER, *flags, python, "-B", program, *command)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self.log,
                text=True,
                env=environment,
            )
        )
        ends.callback(self.process.kill)

    def seconds_of(self, event, count, generation=None):
        """Returns the seconds that `count` ranks print with an event, in any generation or in one."""
        found = []
        while len(found) < count:
            line = self.process.stdout.readline()
            if not line:
                self.log.seek(0)
                raise teams.Refused(f"the job ended: {self.log.read().strip()[-300:]}")
            words = LINE.search(line)
            if words and words["event"] == event and generation in (None, int(words["generation"])):
                found.append(float(words["seconds"]))
        return found

    def end(self):
        """Ends the job by SIGTERM."""
        self.process.terminate()
        for _ in self.process.stdout:
            pass
        self.process.wait(TIMEOUT)


class Discovery:
    """A discovery script and the hosts that it prints."""

    def __init__(self, ends, *hosts):
        self.answer = pathlib.Path(ends.enter_context(tempfile.TemporaryDirectory())) / "answer"
        self.say(*hosts)

    def say(self, *hosts):
        following = self.answer.with_suffix(".new")
        following.write_text("".join(f"{host}\n" for host in hosts))
        following.rename(self.answer)

    @property
    def flags(self):
        return "--host-discovery-script", f"cat {self.answer}"


def median_of(bench, run):
    """Returns the median over rounds, after a warm-up round."""
    run()
    return statistics.median(run() for _ in range(bench.rounds))


def result(seconds, limit, note=""):
    return Result("ms", 1e3 * seconds, must=f"≤ {1e3 * limit:.0f} ms", passed=seconds <= limit, note=note)


# The launcher takes two names of this machine for two hosts.
HERE, ALSO_HERE = "localhost", "127.0.0.1"


def killed(bench, ranks, event):
    """Measures the seconds from the end of a rank until the last survivor prints an event."""

    def run():
        half = ranks // 2
        with contextlib.ExitStack() as ends:
            job = Job(
                ends,
                bench.python,
                ["-np", ranks, "--min-np", half, "-H", f"{HERE}:{half},{ALSO_HERE}:{half}"],
                1000,
                "--kill",
                f"{ranks - 1}@20",
            )
            (before,) = job.seconds_of("killed", 1)
            after = job.seconds_of(event, half, 0 if event == "noticed" else 1)
            job.end()
            return max(after) - before

    return median_of(bench, run)


def noticed(bench):
    return result(killed(bench, 4, "noticed"), 0.05)


def resumed(bench):
    return result(killed(bench, 16, "resumed"), 0.5)


def pause(bench, first, then, survivors, of=max):
    """Returns the longest pause of the surviving ranks when the hosts of the discovery script change from `first` to
    `then`. `of` combines the pauses of all survivors."""
    ranks = sum(int(host.partition(":")[2]) for host in first)
    with contextlib.ExitStack() as ends:
        script = Discovery(ends, *first)
        job = Job(ends, bench.python, ["-np", ranks, "--min-np", 1, *script.flags], 100000)
        job.seconds_of("resumed", ranks, 0)
        script.say(*then)
        gaps = job.seconds_of("gap", survivors, 1)
        job.end()
        return of(gaps)


def added(bench):
    here, both = [f"{HERE}:2"], [f"{HERE}:2", f"{ALSO_HERE}:2"]
    return result(median_of(bench, lambda: pause(bench, here, both, 2)), 1)


def left(bench):
    here, both = [f"{HERE}:2"], [f"{HERE}:2", f"{ALSO_HERE}:2"]
    return result(median_of(bench, lambda: pause(bench, both, here, 2)), 0.5)


def cut(bench):
    import faults  # tests/hosts sets the path

    with contextlib.ExitStack() as ends:
        job = Job(ends, bench.python, ["-np", 4, "--min-np", 2, "-H", "a:2,b:2"], 100000)
        job.seconds_of("resumed", 4, 0)
        faults.crash("b")
        before = time.monotonic()
        after = job.seconds_of("resumed", 2, 1)
        job.end()
    return result(max(after) - before, 4, "one round: the host is gone afterwards")


def again(bench):
    """Measures how long 16 ranks on four hosts pause when a fifth host leaves. The peer is a job of constant size that
    shuts down and initializes again."""
    hosts = [f"{name}:4" for name in "abcd"]

    def plain():
        with contextlib.ExitStack() as ends:
            job = Job(ends, bench.python, ["-np", 16, "-H", ",".join(hosts)], 0, "--again", 3)
            times = job.seconds_of("again", 48)
            job.end()
            return statistics.median(times)

    elastic, constant = [], []
    for _ in range(bench.rounds):
        elastic.append(pause(bench, [*hosts, "e:1"], hosts, 16, statistics.median))
        constant.append(plain())
    ours, peer = statistics.median(elastic), statistics.median(constant)
    return Result("ms", 1e3 * ours, {"constant size": 1e3 * peer}, "≤ 1.5 × constant size", ours <= 1.5 * peer)


def repeated(bench):
    """Counts the committed steps that the ranks repeat when a rank fails in each phase of a step."""
    steps, failures = 0, 0
    for mode in ([], ["--no-snapshot"]):
        with contextlib.ExitStack() as ends:
            folder = ends.enter_context(tempfile.TemporaryDirectory())
            flags = ["-np", 4, "--min-np", 2, "--blacklist-cooldown-range", 1, 2, "-H", f"{HERE}:2,{ALSO_HERE}:2"]
            job = Job(
                ends, bench.python, flags, folder, *mode, "before", "between", "stepped", "user", "idle", program=PHASES
            )
            for line in job.process.stdout:
                found = re.search(r" 0/2 at (\d+), newest commit (\d+)", line)
                if found:
                    failures += 1
                    steps += int(found[2]) - int(found[1])
    return Result(
        "steps",
        steps,
        must="0",
        passed=steps == 0 and failures == 10,
        note=f"after {failures} failures of 10, with and without snapshots",
    )


def commit(bench):
    """Measures a commit without a snapshot, a commit with one, and a deep copy into new memory."""
    environment = {**os.environ, "PYTHONPATH": str(teams.BUILD / "python")}
    said = subprocess.run(
        [bench.python, "-B", str(RANK.with_name("elastic_commit.py")), str(2 * bench.rounds)],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    ).stdout
    times = {}
    for line in said.splitlines():
        kind, seconds = line.split()
        times.setdefault(kind, []).append(1e3 * float(seconds))
    medians = {kind: statistics.median(found[1:]) for kind, found in times.items()}
    ours = medians.pop("marks")
    return Result(
        "ms",
        ours,
        {"with snapshot": medians["copies"], "deepcopy": medians["deepcopy"]},
        "≤ 0.2 × with snapshot",
        ours <= 0.2 * medians["copies"],
    )


LINES = [
    Line("noticed", "a killed rank is known to all others, 4 ranks", noticed),
    Line("killed", "first collective after a killed rank, 16 ranks", resumed),
    Line("added", "pause of the others when a host joins", added),
    Line("left", "pause of the others when a host leaves", left),
    Line("cut", "first collective after a host is cut off", cut, True, "a b"),
    Line("repeated", "committed steps repeated after a failure", repeated),
    Line("commit", "commit() of 100 MB of weights with Adam", commit),
    Line("again", "next generation of 16 ranks on 4 hosts", again, True, "a b c d e"),
]
