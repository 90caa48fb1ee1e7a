#!/usr/bin/python3 -B
"""Jobs on four hosts whose links to the launcher break at random moments, in half of the jobs together with another
fault. If only links break, the job's results have the same bits. Nothing remains after any fault."""

import contextlib
import secrets

from harness import *
from rounds import RUN, repeat, run_in_worlds
import faults_test as faulty
import network

sys.path.insert(0, str(ROOT / "tests" / "attack"))
from relay import Relay

SLOTS = {"a": 2, "b": 1, "c": 1, "d": 1}
RANKS = sum(SLOTS.values())
# Steps of a surviving job; a job that a fault must end has more steps than it can finish before.
STEPS, ENDLESS = 300, 10**6
WORLDS = 4
SECONDS = 15
# An agent started by ssh ends 5 s after its link broke: all breaks of an unresumed link lie within this time.
BREAKING_SECONDS = 2
LINE = re.compile(r"\[(\d+)\]<stdout>:step (\d+) ([0-9a-f]{16})")


class Links:
    """A relay on the path of each host's link: before its sshd, or before the launcher that the host joins."""

    def __init__(self):
        self.before_sshd = {name: Relay((network.address(index), 22)) for index, name in enumerate(SLOTS)}
        self.before_launcher = {name: Relay(None, network.LAUNCHER_ADDRESS) for name in SLOTS}
        config = pathlib.Path.home() / ".ssh" / "config"
        blocks = [
            f"Host {name}\n HostName 127.0.0.1\n Port {relay.address.rpartition(':')[2]}\n HostKeyAlias {name}\n"
            for name, relay in self.before_sshd.items()
        ]
        config.write_text("".join(blocks) + (config.read_text() if config.exists() else ""))
        self.hashes = {}  # per step, the same in all jobs


class Running:
    """A job whose hosts are reached by ssh, or join."""

    def __init__(self, links, joins, steps, *flags):
        self.hashes = links.hashes
        self.joins = joins
        self.relays = links.before_launcher if joins else links.before_sshd
        self.broken = {}  # host: how often its link had resumed at the last break
        self.broken_since = None
        hosts = ",".join(f"{name}:{slots}" for name, slots in SLOTS.items())
        token = scratch() / "token"
        token.touch(0o600)
        token.write_text(secrets.token_hex(32))
        listen = ["--listen", "127.0.0.1:0", "--token-file", token] if joins else []
        self.job = Job(
            "-np",
            RANKS,
            "-H",
            hosts,
            "--log-level",
            "info",
            *listen,
            *flags,
            BUILD / "tests" / "runtime_worker",
            "hash-sums",
            steps,
        )
        self.agents = []
        if not joins:
            return
        port = int(
            wait_until(lambda: re.search(r" at tcp:127\.0\.0\.1:(\d+) for ", self.job.err), 60, self.job.describe)[1]
        )
        for name, relay in self.relays.items():
            relay.target = ("127.0.0.1", port)
            self.agents.append(start_agent(relay.address, token, name, SLOTS[name], inside=name))

    def is_over(self):
        return self.job.process.poll() is not None

    def rest(self, seconds):
        """Runs one job; the faults' moments are parameters of the test."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.job.process.wait(seconds)

    def break_links(self, chance):
        """Breaks the links of some hosts; returns a description."""
        names = chance.sample(sorted(SLOTS), chance.choice([1, 1, 1, 2, 4]))
        seconds = chance.choice([0, 0, chance.uniform(0, 1.5)])
        is_silent = chance.random() < 0.2
        self.broken_since = self.broken_since or time.monotonic()
        if not is_silent:
            self.broken.update((name, self.resumed(name)) for name in names)
        for name in names:
            faults.cut(name, "launcher") if is_silent else self.relays[name].cut()
        self.rest(min(seconds, 0.8) if is_silent else seconds)
        for name in names:
            faults.heal(name, "launcher") if is_silent else self.relays[name].heal()
        return f"{'silence' if is_silent else 'reset'} of {''.join(names)} for {seconds:.2f} s"

    def resumed(self, name):
        return self.job.err.count(f"host {name}: the link broke and continues")

    def let_resume(self):
        """Waits for the broken links to resume before a host reached by ssh would be lost."""
        if not self.joins and self.broken_since and time.monotonic() - self.broken_since > BREAKING_SECONDS:
            wait_until(
                lambda: self.is_over() or all(self.resumed(name) > count for name, count in self.broken.items()),
                60,
                self.job.describe,
            )
            self.broken, self.broken_since = {}, None

    def heal(self):
        for name, relay in self.relays.items():
            relay.heal()
            faults.heal(name, "launcher")
        faults.thaw("b")
        for agent in self.agents:  # nsenter stops together with its child
            agent.send_signal(signal.SIGCONT)

    def check_steps(self, is_complete):
        """Expects the ranks' lines once each, in order, and every sum with the same bits as in all jobs."""
        seen = dict.fromkeys(range(RANKS), 0)
        lines = self.job.out.splitlines()
        for at, line in enumerate(lines):
            found = LINE.fullmatch(line)
            if not found and not is_complete and at == len(lines) - 1:
                continue  # cut off by the end of the job
            expect(found, f"line {at} is {line!r}")
            rank, step = int(found[1]), int(found[2])
            expect(step == seen[rank], f"line {at} is {line!r} after {seen[rank]} steps of this rank")
            seen[rank] += 1
            expect(
                self.hashes.setdefault(step, found[3]) == found[3],
                f"line {at} is {line!r}; another rank or job has {self.hashes[step]}",
            )
        expect(not is_complete or set(seen.values()) == {STEPS}, f"steps of the ranks: {seen}")

    def check_agents(self, is_lost):
        """Expects that the joined agents have ended without a crash, and without an error unless their host is lost."""
        for agent in self.agents:
            said = agent.communicate(timeout=LONG)[0]
            expect(agent.returncode not in (128 + signal.SIGSEGV, 128 + signal.SIGABRT), said)
            expect(is_lost or agent.returncode == 0, f"an agent ended with {agent.returncode}: {said}")


def kill_a_rank(_):
    return faulty.kill([pid for pid in faults.processes("b") if faults.said_of(pid, "comm") == "runtime_worker\n"])


def break_for_good(running):
    """Breaks the link of b until the host is lost."""
    running.relays["b"].cut()


HARMS = [
    faulty.kill_launcher,
    faulty.kill_agent,
    faulty.kill_guardian,
    faulty.interrupt,
    faulty.cut,
    faulty.freeze,
    kill_a_rank,
    break_for_good,
]


def round_of(chance, links):
    joins, harm = chance.random() < 0.5, chance.choice([None] * len(HARMS) + HARMS)
    running = Running(links, joins, ENDLESS if harm else STEPS, "--lease", 4 if harm else 20)
    job = running.job
    what = [f"{'joined' if joins else 'by ssh'}, {harm.__name__ if harm else 'links alone'}"]
    try:
        job.wait_for("step 0 ", RANKS)
        for _ in range(chance.randint(0 if harm else 1, 5)):
            running.rest(chance.uniform(0, 0.6))
            if harm is None:
                running.let_resume()
            if not running.is_over():
                what.append(running.break_links(chance))
        if harm is None:
            job.ends_with(0)
        else:
            expect(not running.is_over() or job.said(), job.describe())
            harm(running if harm == break_for_good else job)
            expect(job.wait() != 0, f"all went well\n{job.describe()}")
            expect(harm == faulty.kill_launcher or job.said(), f"no word on it\n{job.describe()}")
        running.heal()
        running.check_steps(is_complete=harm is None)
        job.leaves_nothing()
        running.check_agents(is_lost=harm is not None)
    except Failure as failure:
        raise Failure(f"{'; '.join(what)}: {failure}\n--- stdout ends with\n{job.out[-300:]}") from None
    finally:
        running.heal()


def start():
    """The first job has no fault. Its sums are the reference for all jobs."""
    links = Links()
    for joins in (False, True):
        running = Running(links, joins, STEPS)
        running.job.ends_with(0)
        running.check_steps(is_complete=True)
    return links


def test_links_that_break_at_any_moment_change_no_result():
    run_in_worlds(" ".join(SLOTS), WORLDS, SECONDS)


if __name__ == "__main__":
    if sys.argv[1:2] == [RUN]:
        repeat(round_of, start)
    else:
        main()
