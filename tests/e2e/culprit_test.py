#!/usr/bin/python3 -B
"""The matrix of faults and phases of a job: the final message names the culprit, whichever process notices the fault
first. docs/how-a-job-runs.md has the matrix; `culprit_test.py --write` writes it there."""

from harness import *

PAGE = ROOT / "docs" / "how-a-job-runs.md"
BEGIN, END = "<!-- matrix of culprits: tests/e2e/culprit_test.py --write -->\n", "<!-- end of the matrix -->\n"
PHASES = {
    "start": "before `hvd.init`",
    "init": "in `hvd.init`",
    "collective": "in a collective",
    "end": "after `hvd.shutdown`",
}
# Rank 3, the last on host b, keeps the others waiting in `init`.
PROGRAM = """
import os, signal, sys, time
phase, rank = sys.argv[1], os.environ["HOROVOD_RANK"]
def wait_at(place):
    print("at", place, flush=True)
    if phase == place:
        signal.sigtimedwait([signal.SIGUSR2], 1000)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
wait_at("start")
import numpy
import horovod.numpy as hvd
if rank == "3":
    wait_at("init")
elif phase == "init":
    print("at init", flush=True)
hvd.init()
hvd.allreduce(numpy.ones(1000), name="first")
print("at collective", flush=True)
while phase == "collective":
    hvd.allreduce(numpy.ones(1000), name="step")
hvd.shutdown()
wait_at("end")
"""
SILENT = "host b was lost: the host did not answer for 3 s"
LINK = "the connection between rank [01] on host a and rank [23] on host b "
# A stopped rank does not fail: these limits end the wait for it.
WAITS = ("--init-timeout", 5, "--stall-check-warning-time-seconds", 2, "--stall-check-shutdown-time-seconds", 4)


def kill(pids, number=signal.SIGKILL):
    for pid in pids:
        os.kill(pid, number)


def ranks_of_b():
    """Returns the programs of ranks 2 and 3."""
    found = {}
    for pid in faults.processes("b"):
        rank = re.search(r"(?:^|\0)HOROVOD_RANK=(\d+)", faults.said_of(pid, "environ"))
        if rank and PROGRAM.split("\n")[1] in faults.said_of(pid, "cmdline"):
            found[int(rank[1])] = pid
    return found


def fail_in_init():
    """Rank 2 creates its host's shared memory when rank 3 continues."""
    pids = ranks_of_b()
    subprocess.run(["/usr/bin/prlimit", "--pid", str(pids[2]), "--fsize=65536:65536"], check=True)
    os.kill(pids[3], signal.SIGUSR2)


def reset_links():
    killed = run_to_end(
        ["nsenter", "-t", str(faults.running("b")), "-n", "ss", "-K", "-H", "-t", "dst", faults.address_of("a")]
    )
    if killed.returncode != 0 or not killed.stdout.strip():
        raise Skip("the kernel ends no connections for ss (CONFIG_INET_DIAG_DESTROY)")


class Fault:
    """`harm` causes the fault; the job ends with `code` and a message that matches, and the page names `culprit`.
    `heal` ends the fault, if a host needs that."""

    def __init__(self, what, harm, culprit, pattern, code=1, phases=tuple(PHASES), heal=None, options=()):
        self.what, self.harm, self.culprit, self.pattern, self.code = what, harm, culprit, pattern, code
        self.phases, self.heal, self.options = phases, heal, options


FAULTS = [
    Fault("a host crashes", lambda: faults.crash("b"), "the host", SILENT),
    Fault("a host freezes", lambda: faults.freeze("b"), "the host", SILENT),
    Fault("a host is cut off from the launcher", lambda: faults.cut("b", "launcher"), "the host", SILENT),
    Fault("an agent is stopped", lambda: kill(agents("b")["agent"], signal.SIGSTOP), "the host", SILENT),
    Fault("an agent is killed", lambda: kill(agents("b")["agent"]), "the host", "host b was lost: "),
    # The agent reports the failure, unless sshd closes the link first.
    Fault(
        "a watchdog is killed",
        lambda: kill(agents("b")["guardian"]),
        "the host",
        r"host b was lost: the watchdog above the agent was killed|host b was lost: .*ended with exit code 137",
    ),
    Fault(
        "a rank is killed",
        lambda: kill([ranks_of_b()[3]]),
        "the rank",
        r"rank 3 on host b was killed by signal 9 \(SIGKILL\)",
        code=137,
    ),
    Fault(
        "a rank is stopped (SIGSTOP)",
        lambda: kill([ranks_of_b()[3]], signal.SIGSTOP),
        "the rank",
        r"rank \d on host [ab] exited with code 1 while rank 3 on b had not called hvd.init\(\)|"
        r"'allreduce.step' has waited [\d.]+ s for rank 3 on host b, pid \d+, which does not answer; ",
        phases=("init", "collective"),
        options=WAITS,
    ),
    Fault(
        "a rank raises in `hvd.init`",
        fail_in_init,
        "the rank",
        "rank 2 on host b exited with code 1",
        phases=("init",),
    ),
    Fault(
        "a connection between ranks is reset",
        reset_links,
        "the connection",
        LINK + "was reset; ",
        phases=("collective",),
    ),
    Fault(
        "the network between two hosts is cut",
        lambda: faults.cut("a", "b"),
        "the connection",
        LINK + "brought no answer for 2 s; ",
        phases=("collective",),
        heal=lambda: faults.heal("a", "b"),
    ),
]


def table():
    lines = ["| fault | exit code | " + " | ".join(PHASES.values()) + " |\n", "|" + "---|" * (2 + len(PHASES)) + "\n"]
    for fault in FAULTS:
        cells = [fault.culprit if phase in fault.phases else "–" for phase in PHASES]
        lines.append(f"| {fault.what} | {fault.code} | {' | '.join(cells)} |\n")
    return "".join(lines)


def names_the_culprit(fault, phase):
    job = Job(
        *"-np 4 -H a:2,b:2 --host-timeout 3 --link-timeout 2".split(), *fault.options, PYTHON, "-c", PROGRAM, phase
    )
    job.wait_for(f"at {phase}", 4)
    fault.harm()
    what = f"{fault.what} {phase}"
    code = job.wait(40)
    headline = [line for line in job.judgement() if not line.startswith("host b has not confirmed")]
    expect(
        code == fault.code and len(headline) == 1 and re.match(fault.pattern, headline[0]),
        f"{what}: {fault.pattern!r} and exit code {fault.code} expected\n{job.describe()}",
    )
    if fault.heal:
        fault.heal()
    if host.pid_of("b") is not None:
        faults.heal("b", "launcher")
        faults.thaw("b")
    job.leaves_nothing()


def all_faults(phase):
    """Crashes a host in the last test, because its host does not come back."""
    for fault in reversed(FAULTS):
        if phase in fault.phases:
            names_the_culprit(fault, phase)


@world()
def test_before_init():
    all_faults("start")


@world()
def test_in_init():
    all_faults("init")


def test_a_rank_of_one_host_that_raises_in_init():
    program = "import numpy, horovod.numpy as hvd; hvd.init()"
    small = f"[ $HOROVOD_RANK != 0 ] || ulimit -f 5000; exec {PYTHON} -c '{program}'"
    job = Job("-np", 4, "sh", "-c", small)
    job.ends_with(1)
    expect(re.match("rank 0 on host localhost exited with code 1", job.judgement()[0]), job.describe())
    job.leaves_nothing()


@world()
def test_in_a_collective():
    all_faults("collective")


@world()
def test_after_shutdown():
    all_faults("end")


def test_the_page_has_the_matrix():
    text = PAGE.read_text()
    expect(BEGIN + "\n" + table() + "\n" + END in text, f"{PAGE.name} has another matrix: run {sys.argv[0]} --write")


def write():
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        main()
