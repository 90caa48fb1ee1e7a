"""Rounds of one job and one or two random faults, in a random phase of the job. Each round checks what must hold after
any fault: no healthy rank is ended, two processes never write as rank 0 at the same time, the exit code is 0 exactly if
all ranks that returned from the training ended with 0, no message blames a healthy host, and nothing remains.
"""

import contextlib
import functools
import threading
import time

from harness import *

import network

PROGRAM = WORKERS / "chaos_rank.py"
PHASES = ("start", "imports", "inits", "trains", "halfway", "returned", "saves", "ends")
LEASE, HOST_TIMEOUT = 20, 3
# Longer than each fault, and as long as a lease, a start and a restart.
SECONDS = 240


def check_writers(folder, describe, thaws=()):
    """Expects that no two processes of chaos_rank.py wrote as rank 0 at the same time. Returns their number. A frozen
    host's ranks run again (`thaws`: when) until its agent learns that they are replaced."""
    writers = []
    for file in folder.glob("writer-*"):
        times = [float(line) for line in file.read_text().split("\n")[:-1]]
        if times:
            writers.append((times, file.name))
    writers.sort()
    for (times, one), ((begin, *_), other) in zip(writers, writers[1:]):
        late = [time for time in times if time >= begin and not any(0 <= time - thaw < 0.5 for thaw in thaws)]
        expect(not late, f"{one} wrote until {times[-1] - begin:.2f} s after {other} began\n{describe()}")
    return len(writers)


class Round:
    def __init__(self, chance):
        self.mode = chance.choice(("elastic", "elastic", "plain", "restarts"))
        self.hosts = "abc"[: chance.choice((2, 3))]
        self.slots = chance.choice((1, 2))
        self.size = self.slots * len(self.hosts)
        self.folder = scratch()
        self.faulty = set()  # hosts that a message may blame
        self.hit = set()  # HOST/PID of the ranks that faults have affected
        self.hit_late = set()  # affected ranks that may have returned from the training, like another rank
        self.healing = []
        self.thaws = []  # times by CLOCK_BOOTTIME
        self.faults = []
        flags = ["--lease", LEASE, "--host-timeout", HOST_TIMEOUT, "--start-timeout", 60, "--kill-grace", 2]
        if self.mode == "elastic":
            flags += ["--min-np", 1, "--elastic-timeout", 30]
            flags += chance.choice(([], ["--restart-ranks"], ["--blacklist-cooldown-range", 1, 2]))
        if self.mode == "restarts":
            flags += ["--max-restarts", 3]
        named = ",".join(f"{name}:{self.slots}" for name in self.hosts)
        program = "elastic" if self.mode == "elastic" else "plain"
        self.job = Job("-np", self.size, "-H", named, *flags, PYTHON, PROGRAM, program, 60, self.folder)

    def describe(self):
        return f"{self.mode}: {'; '.join(self.faults)}\n{self.job.describe()}"

    def said(self, phase):
        """Returns HOST/PID of the ranks that have printed a phase."""
        return set(re.findall(rf">:{phase} (\w+/\d+)$", self.job.out, re.M))

    def wait_for(self, phase):
        if phase != "start":
            wait_until(lambda: self.said(phase) or self.job.process.poll() is not None, SECONDS, self.describe)

    def ranks_on(self, name):
        return [pid for pid in faults.processes(name) if str(PROGRAM) in faults.said_of(pid, "cmdline")]

    def heal_after(self, seconds, *functions):
        timer = threading.Timer(seconds, lambda: [function() for function in functions])
        timer.start()
        self.healing.append(timer)

    def send(self, pids, number):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def note(self, name, *pids):
        """Records a fault of a host that affects these processes, or all ranks there. The ranks print their names."""
        self.faulty.add(name)
        if not pids:
            self.hit |= {each for each in self.said("imports") if each.startswith(f"{name}/")}
        for pid in pids:
            numbers = re.search(r"^NSpid:.*\s(\d+)$", faults.said_of(pid, "status"), re.M)
            self.hit |= {f"{name}/{numbers[1]}"} if numbers else set()
        if self.said("returned"):
            self.hit_late |= {each for each in self.hit if each.startswith(f"{name}/")}

    # The faults. Each returns whether it has hit anything.

    def kill_rank(self, chance, name, _):
        pids = self.ranks_on(name)[-1:]
        if pids:
            self.note(name, *pids)
        self.send(pids, signal.SIGKILL)
        return bool(pids)

    def term_rank(self, chance, name, _):
        pids = self.ranks_on(name)[:1]
        if pids:
            self.note(name, *pids)
        self.send(pids, signal.SIGTERM)
        return bool(pids)

    def term_agent(self, chance, name, _):
        pids = agents(name)["agent"]
        if pids:
            self.note(name)
        self.send(pids, signal.SIGTERM)
        return bool(pids)

    def kill_agent(self, chance, name, _):
        return self.kill(name, "agent")

    def kill_guardian(self, chance, name, _):
        return self.kill(name, "guardian")

    def kill_both(self, chance, name, _):
        return self.kill(name, "guardian", "agent")

    def kill(self, name, *roles):
        found = agents(name)
        pids = [pid for role in roles for pid in found[role]]
        if pids:
            self.note(name)
            self.send(pids, signal.SIGKILL)
        return bool(pids)

    def stop_agent(self, chance, name, seconds):
        pids = agents(name)["agent"]
        if pids:
            self.note(name)
        self.send(pids, signal.SIGSTOP)
        self.heal_after(seconds, lambda: self.send(pids, signal.SIGCONT))
        return bool(pids)

    def stop_rank(self, chance, name, seconds):
        pids = self.ranks_on(name)[:1]
        if pids:
            self.note(name, *pids)
        self.send(pids, signal.SIGSTOP)
        self.heal_after(seconds, lambda: self.send(pids, signal.SIGCONT))
        return bool(pids)

    def freeze_host(self, chance, name, seconds):
        self.note(name)
        faults.freeze(name)

        def thaw():
            self.thaws.append(time.clock_gettime(time.CLOCK_BOOTTIME))
            faults.thaw(name)

        self.heal_after(seconds, thaw)
        return True

    def cut_host(self, chance, name, seconds):
        others = [network.LAUNCHER, *(each for each in self.hosts if each != name)]
        self.note(name)
        for other in others:
            faults.cut(name, other)
        self.heal_after(seconds, *(functools.partial(faults.heal, name, other) for other in others))
        return True

    def flap(self, chance, name, seconds):
        """Simulates an intermittent link."""
        for moment in range(int(seconds / 0.5)):
            self.heal_after(0.5 * moment, lambda: faults.cut(name, network.LAUNCHER))
            self.heal_after(0.5 * moment + 0.25, lambda: faults.heal(name, network.LAUNCHER))
        self.note(name)
        return True

    def cut_from_launcher(self, chance, name, seconds):
        self.note(name)
        faults.cut(name, network.LAUNCHER)
        self.heal_after(seconds, lambda: faults.heal(name, network.LAUNCHER))
        return True

    def cut_peers(self, chance, name, seconds):
        other = next(each for each in self.hosts if each != name)
        for each in (name, other):
            self.note(each)
        faults.cut(name, other)
        self.heal_after(seconds, lambda: faults.heal(name, other))
        return True

    def stop_launcher(self, chance, name, seconds):
        pid = self.job.process.pid
        self.send([pid], signal.SIGSTOP)
        self.heal_after(seconds, lambda: self.send([pid], signal.SIGCONT))
        return True

    def kill_launcher(self, chance, name, _):
        self.send([self.job.process.pid], signal.SIGKILL)
        return True

    def run(self, chance):
        for _ in range(chance.choice((1, 1, 1, 2))):
            phase, delay = chance.choice(PHASES), chance.choice((0, 0.05, 0.2, 0.5))
            fault = chance.choice(FAULTS)
            name, seconds = chance.choice(self.hosts), chance.choice((0.5, 1.5, 5, 8, 14))
            self.wait_for(phase)
            time.sleep(delay)  # the moment is the test's parameter
            if self.job.process.poll() is not None:
                break
            has_hit = fault(self, chance, name, seconds)
            self.faults.append(f"{phase} + {delay} s: {fault.__name__} {name} {seconds} s{'' if has_hit else ', none'}")
        try:
            code = self.job.wait(SECONDS)
        finally:
            self.heal()
        if any("kill_both" in each for each in self.faults):
            self.sweep()
        try:
            self.job.leaves_nothing()
        except Failure as failure:
            raise Failure(f"{failure}\n{self.describe()}") from None
        check_writers(self.folder, self.describe, self.thaws)
        expect("wrong weights" not in self.job.out, self.describe())
        if not any("kill_launcher" in each for each in self.faults):
            self.check_end(code)
            self.check_blame()

    def sweep(self):
        """After the end of all processes of a host's job, a later job of this user removes their folder."""
        self.job.before.wait_for_ends(60)
        for pid, path in self.job.before.new_things():
            if "/horovod-job-" in path:
                os.utime(f"/proc/{pid}/root{path}", (0, 0))
        named = ",".join(f"{name}:1" for name in self.hosts)
        Job("-np", len(self.hosts), "-H", named, "true").ends_with(0)

    def heal(self):
        for timer in self.healing:
            timer.join()

    def check_end(self, code):
        returned, left = self.said("returned"), self.said("left")
        # A fault may hit a rank between its last line and its end. An agent that is killed loses lines.
        is_certain = not left & self.hit and self.hit_late <= returned
        if self.mode == "elastic":
            # After faults on all hosts, no rank may be left that has the training state, or no host.
            is_lost = self.faulty == set(self.hosts) and code != 0
            expect(returned or is_lost, f"no rank has finished\n{self.describe()}")
            ended = returned - left - self.hit
            expect(not ended, f"{ended} could have gone on\n{self.describe()}")
            expect(not is_certain or (code == 0) == (returned <= left), self.describe())
        elif self.mode == "plain":
            is_whole = len(left) == self.size
            expect(not is_certain or (code == 0) == is_whole, self.describe())
            expect(self.faulty or is_whole, f"nothing has failed\n{self.describe()}")
        elif code == 2 and self.faulty and not self.said("imports"):
            pass  # a host that cannot be reached in time, before any start
        elif any("term_agent" in each for each in self.faults):
            pass  # a user or scheduler takes the host away, and no restart follows
        else:
            expect(code == 0 and len(returned) >= self.size, self.describe())

    def check_blame(self):
        sentence = r"host (\w+) (?:was (?:lost|killed)|exited with code (?!0\b)|failed|is not used|has not)"
        causes = [line.partition("; before that, ")[0] for line in self.job.judgement()]
        blamed = {name for cause in causes for name in re.findall(sentence, cause)}
        expect(blamed <= self.faulty, f"{blamed - self.faulty} had no fault\n{self.describe()}")


FAULTS = (
    Round.kill_rank,
    Round.term_rank,
    Round.term_agent,
    Round.kill_agent,
    Round.kill_guardian,
    Round.kill_both,
    Round.stop_agent,
    Round.stop_rank,
    Round.freeze_host,
    Round.cut_host,
    Round.flap,
    Round.cut_from_launcher,
    Round.cut_peers,
    Round.stop_launcher,
    Round.kill_launcher,
)
