"""The lines of tests/bench/observe: the cost of a watched job."""

import contextlib
import itertools
import os
import pathlib
import random
import signal
import socket
import statistics
import tempfile
import threading
import time

from driver import teams
from driver.lines import Line, Result

PAIRS = 42  # a multiple of the orders of three blocks
SECONDS = 1  # duration of a block
LIMIT = 0.5  # maximum cost in per cent


def _children(pid):
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _cpu_seconds(pids):
    """Returns the processor time of all threads of the processes."""
    total = 0
    for pid in pids:
        for file in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
            total += int(file.read_text().split()[0])
    return total / 1e9


class Watched:
    """Context manager of a job with a port and a file for its metrics and with hang detection. Outside watched blocks
    its launcher is stopped and requests nothing from the agent."""

    def __init__(self, python, kind):
        self._ends = contextlib.ExitStack()
        # The process that writes the job's record may outlive the launcher.
        folder = self._ends.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        flags = ["--metrics-port", self._port, "--metrics-file", f"{folder}/job.prom", "--hang-warning", 10]
        worker = [python, teams.PYTHON_WORKER, "{socket}", kind]
        environment = {"PYTHONPATH": str(teams.BUILD / "python"), "HOROVOD_STATE_DIR": f"{folder}/state"}
        self.team = self._ends.enter_context(
            teams.Team(
                kind, [[teams.LAUNCHER, "-np", 2, *flags, *worker]], 2, {**environment, **teams.PYTHON_ENVIRONMENT}
            )
        )
        self._launcher = self.team.launchers[0]
        # Ranks and their children do not belong to the watchers.
        self._watchers = [self._launcher]
        for pid in self._watchers:
            self._watchers += [child for child in _children(pid) if child not in self.team.pids.values()]
        self._name = self._socket_name()
        self._failure = None
        self.cpu_seconds = self.watched_seconds = 0

    def _scrape(self):
        with socket.create_connection(("127.0.0.1", self._port), 5) as connection:
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            return self._all_of(connection)

    def _ask(self):
        """Requests the metrics as `horovodrun metrics --level rank` does, without starting a program."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._name)
            connection.sendall(b"metrics rank\n")
            return self._all_of(connection)

    def _socket_name(self):
        start = f"@horovodrun/{os.getuid()}/{self._launcher}/"
        for _ in range(50):  # /proc/net/unix may miss a name while sockets come and go
            lines = pathlib.Path("/proc/net/unix").read_text(encoding="ascii", errors="replace").splitlines()
            for name in (line.split()[-1] for line in lines):
                if name.startswith(start):
                    return "\0" + name[1:]
            time.sleep(0.1)
        raise teams.Refused("the launcher has no socket for questions")

    @staticmethod
    def _all_of(connection):
        text = b""
        while piece := connection.recv(1 << 16):
            text += piece
        if b"horovod_ranks" not in text:
            raise OSError(f"the launcher answers {text[:200]}")
        return text

    def _watch(self, is_over):
        """Scrapes the port once a second and queries the socket once a second."""
        for look in itertools.cycle((self._scrape, self._ask)):
            if is_over.wait(0.25):
                return
            try:
                look()
            except OSError as error:
                self._failure = error
                return
            if is_over.wait(0.25):
                return

    def size(self, *command):
        """Sets the number of repetitions that take a tenth of a block."""
        trial = min(self.team.ask(*command, 100)[0] for _ in range(5))
        self._command = (*command, max(1, int(SECONDS / 10 * 1e9 / trial)))

    def _repeat(self):
        """Returns the µs of 1,000 repetitions. The block is too short for the agent to notice its stopped launcher."""
        *_, count = self._command
        found = []
        while sum(found) * count < SECONDS * 1e9:
            found.append(self.team.ask(*self._command)[0])
        return statistics.mean(found)

    def block(self, is_watched):
        os.kill(self._launcher, signal.SIGCONT if is_watched else signal.SIGSTOP)
        if not is_watched:
            return self._repeat()
        is_over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(is_over,))
        before, start = _cpu_seconds(self._watchers), time.monotonic()
        watcher.start()
        try:
            figure = self._repeat()
        finally:
            is_over.set()
            watcher.join()
        self.watched_seconds += time.monotonic() - start
        self.cpu_seconds += _cpu_seconds(self._watchers) - before
        if self._failure:
            raise self._failure
        return figure

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._launcher, signal.SIGCONT)
        self._ends.close()


def _interval(values):
    """Returns the 95 % interval of the median, by resampling."""
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(1000))
    return medians[25], medians[-26]


def cost(kind, *command):
    """Measures by how many per cent a watched block takes longer than an unwatched block of the same round."""

    def measure(bench):
        with Watched(bench.python, kind) as job:
            job.size(*command)
            orders = itertools.cycle(itertools.permutations(("watched", "off", "other")))
            rounds = []
            for order in itertools.islice(orders, 6 if bench.is_quick else PAIRS):
                rounds.append({name: job.block(name == "watched") for name in order})
            share = 100 * job.cpu_seconds / job.watched_seconds
        watched, other = ([100 * (each[name] / each["off"] - 1) for each in rounds] for name in ("watched", "other"))
        low, high = _interval(other)
        limit = max(LIMIT, -low, high)
        ours = statistics.median(watched)
        of_watched = " to ".join(f"{end:+.2f}" for end in _interval(watched))
        off = statistics.median(each["off"] for each in rounds) / 1000
        note = (
            f"{len(rounds)} pairs of {SECONDS} s, {off:.2f} ms for 1,000; "
            f"95 % of the median {of_watched} %, of off against off {low:+.2f} to {high:+.2f} %; "
            f"launcher and agent use {share:.2f} % of a core"
        )
        peers = {"off against off": statistics.median(other)}
        return Result("%", ours, peers, f"≤ {limit:.2f} %", ours <= limit, note)

    return measure


LINES = [
    Line("cost-allreduce", "a watched job, hvd.allreduce_ of 64 B, 2 ranks", cost("horovod", "allreduces", 64)),
    Line("cost-step", "a watched job, training of an MLP by hvd, 2 ranks", cost("horovod", "steps", "mlp")),
    Line("cost-gloo", "a watched job, all_reduce of 64 B by gloo, 2 ranks", cost("launched", "allreduces", 64)),
    Line("cost-ddp", "a watched job, training of an MLP by DDP, 2 ranks", cost("launched", "steps", "mlp")),
]
