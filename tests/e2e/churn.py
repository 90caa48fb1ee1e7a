"""An elastic job with repeated failures of ranks, and hosts that join, leave, and are lost."""

import random

from harness import *

import network

sys.path.insert(0, str(WORKERS))
import churn_rank
import churn_training

HOST_NAMES = "a b c d"


class Churn:
    """`program`: the ranks' program; it gets a file as its last argument, and ends when the file exists."""

    def __init__(self, seed, program, settled=45):
        self.random = random.Random(seed)
        self.program, self.settled = program[1].name, settled  # seconds until a generation must begin
        folder = scratch()
        self.stop, self.answer = folder / "stop", folder / "answer"
        self.named = HOST_NAMES.split()
        self.say()
        # A killed process leaves TensorFlow's own files.
        environment = clean_environment(TF_CPP_MIN_LOG_LEVEL="3", TMPDIR=str(folder))
        self.job = Job(
            *"-np 4 --min-np 1 --max-np 6 --blacklist-cooldown-range 1 2".split(),
            "--host-discovery-script",
            f"cat {self.answer}",
            *"-x TF_CPP_MIN_LOG_LEVEL -x TMPDIR".split(),
            *program,
            self.stop,
            environment=environment,
        )
        self.events = []

    def say(self):
        following = self.answer.with_suffix(".new")
        following.write_text("".join(f"{name}:2\n" for name in self.named))
        following.rename(self.answer)

    def members(self):
        """Returns (generation, hosts of its ranks) of the newest generation that all its ranks have begun."""
        found = {}
        for number, rank, size, name in re.findall(r"generation (\d+): rank (\d+)/(\d+) on (\w+) ", self.job.out):
            found.setdefault(int(number), {})[int(rank)] = (int(size), name)
        whole = [
            (number, [name for _, name in ranks.values()])
            for number, ranks in found.items()
            if len(ranks) == next(iter(ranks.values()))[0]
        ]
        return max(whole, default=(-1, []))

    def describe(self):
        return f"events: {'; '.join(self.events)}\nmembers: {self.members()}\n{self.job.describe()}"

    def wait_for_generation(self, after):
        wait_until(lambda: self.members()[0] > after, self.settled, self.describe)

    def pids(self, name, program):
        return [pid for pid in faults.processes(name) if program in faults.said_of(pid, "cmdline")]

    def kill(self, name, program):
        """Kills the newest process, because the processes of a lost host end a while later."""
        os.kill(max(self.pids(name, program)), signal.SIGKILL)

    def lose(self, name):
        """Cuts the host's links for longer than --host-timeout."""
        for peer in [network.LAUNCHER, *(set(HOST_NAMES.split()) - {name})]:
            faults.cut(name, peer)
        time.sleep(5)
        for peer in [network.LAUNCHER, *(set(HOST_NAMES.split()) - {name})]:
            faults.heal(name, peer)

    def leave(self, name):
        self.named.remove(name)
        self.say()

    def step(self):
        """Causes one event, and waits for the generation after it."""
        generation, members = self.members()
        absent = [name for name in HOST_NAMES.split() if name not in self.named]
        if absent and self.random.random() < 0.5:
            name = self.random.choice(absent)
            self.events.append(f"{name} comes")
            self.named.append(name)
            self.say()
            return
        if len(set(members)) < 2:  # another loss would lose the state
            self.events.append("nothing")
            return
        name = self.random.choice(sorted(set(members)))
        what = self.random.choice(["rank", "agent", "host", "leaves", "pause"])
        self.events.append(f"{what} of {name} in {generation}")
        if what == "pause":  # shorter than --host-timeout: no host is lost
            faults.freeze(name)
            time.sleep(1)
            faults.thaw(name)
            return
        {
            "rank": lambda: self.kill(name, self.program),
            "agent": lambda: self.kill(name, "horovod-agent"),
            "host": lambda: self.lose(name),
            "leaves": lambda: self.leave(name),
        }[what]()
        self.wait_for_generation(generation)

    def end(self):
        return end(self.job, self.stop, self.describe)


def end(job, stop, describe):
    """Ends the program by its file. Returns the number of steps, and the ranks' printed weights."""
    stop.touch()
    job.ends_with(0)
    job.leaves_nothing()
    ends = set(re.findall(r"ends after (\d+) steps with (\w+)", job.out))
    expect(len(ends) == 1, f"the ranks differ: {ends}\n{describe()}")
    steps, weights = ends.pop()
    return int(steps), weights


def check_numbers(steps, checksum):
    """Checks that churn_rank.py in a single process computes the same bits."""
    weights = churn_rank.numpy.zeros(churn_rank.SIZE)
    for step in range(steps):
        weights = weights + churn_rank.gradient(step)
    expect(churn_rank.checksum(weights) == checksum, "one process has other weights")


def check_training(steps, weights):
    """Checks the weights of churn_training.py, whose order of summation differs from one process's."""
    got = churn_training.numpy.frombuffer(bytes.fromhex(weights)).reshape(churn_training.SHAPE)
    want = churn_training.weights_of_one_process(steps)
    off = abs(got - want).max() / abs(want).max()
    expect(off < 1e-9, f"the weights differ by {off:.1e} of their size from those of one process")
