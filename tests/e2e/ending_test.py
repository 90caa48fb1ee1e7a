#!/usr/bin/python3 -B
"""Nothing of a job remains on any host, for every kind of end, and before the end of a lease."""

import contextlib
import os
import time

from harness import *
from terminal import Terminal

NASTY = [PYTHON, WORKERS / "rank.py", "--nasty"]


def start(*flags, hosts="a:2,b:2"):
    """Starts a job whose ranks hide processes and refuse to end."""
    job = Job("-np", 4, "-H", hosts, *flags, *NASTY)
    job.wait_for("ready", 4)
    expect(len(job.before.new_processes()) > 24, "the ranks have no children to hide")
    return job


def ended_by(number, hosts="a:2,b:2"):
    job = start(hosts=hosts)
    job.signal(number)
    job.ends_with(128 + number, PROMPT)
    job.leaves_nothing()


@world()
def test_control_c():
    ended_by(signal.SIGINT)


@world()
def test_sigterm():
    ended_by(signal.SIGTERM)


@world()
def test_sigterm_to_every_process_shows_the_ranks_last_lines():
    code = (
        "import os, signal, sys, time\n"
        "def save(*_): os.write(1, b'saving\\n'); time.sleep(1); print('saved'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\nprint('ready', flush=True)\n"
        "while True: time.sleep(0.02)"
    )
    job = Job("-np", 4, "-H", "localhost:2,b:2", "--kill-grace", 60, PYTHON, "-c", code)
    job.wait_for("ready", 4)
    for pid, _ in job.before.new_ones():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGTERM)
    job.ends_with(143)
    for rank in range(4):
        said = re.findall(rf"\[{rank}\]<stdout>:(.*)", job.out)
        expect(said == ["ready", "saving", "saved"], job.describe())
    one_sentence(job, "^ended by SIGTERM$")
    job.leaves_nothing()


DEAF = """
import os, signal, sys, time
number = int(os.environ["HOROVOD_RANK"])
if number == 1:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
try:
    while not os.path.exists(sys.argv[1]): time.sleep(0.02)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise SystemExit(0)
if number == 2:
    print("why it failed", file=sys.stderr)
    sys.exit(3)
time.sleep(600)
"""


@world()
def test_a_rank_that_has_to_be_killed_is_named():
    go = scratch() / "go"
    job = Job("-np", 4, "-H", "a:2,b:2", "--kill-grace", 5, PYTHON, "-c", DEAF, go)
    job.wait_for("ready", 4)
    go.touch()
    job.ends_with(3)
    one_sentence(
        job,
        r"^rank 2 on host b exited with code 3; rank 1 on host a did not end within 5 s "
        r"\(--kill-grace\) of SIGTERM and was killed; the last lines of rank 2 on standard error:$",
    )
    expect("[2]<stderr>:why it failed" in job.err, job.describe())
    job = Job("-np", 2, "-H", "a:1,b:1", "--kill-grace", 1, *NASTY)
    job.wait_for("ready", 2)
    job.signal(signal.SIGTERM)
    job.ends_with(143)
    one_sentence(
        job,
        r"^ended by SIGTERM; ranks 0-1 on 2 hosts did not end within 1 s \(--kill-grace\) of "
        "SIGTERM and were killed$",
    )


@world()
def test_ranks_may_be_ended_by_the_signal_that_python_raises_as_keyboardinterrupt():
    job = Job("-np", 2, "-H", "a:1,b:1", "--kill-grace", 60, "--end-signal", "INT", PYTHON, "-c", DEAF, "/none")
    job.wait_for("ready", 2)
    job.signal(signal.SIGTERM)
    job.ends_with(143)
    expect(job.out.count("interrupted") == 2, job.describe())
    one_sentence(job, "^ended by SIGTERM$")


@world()
def test_sighup():
    ended_by(signal.SIGHUP)


@world()
def test_sigterm_with_local_ranks():
    ended_by(signal.SIGTERM, hosts="localhost:2,b:2")


def test_a_parent_that_blocks_signals():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        command = ("-np", 2, "sh", "-c", "(setsid sleep 600 &); echo ready; exec sleep 600")
        job = Job("--block-signal=TERM,INT,HUP,CHLD", LAUNCHER, *command, program="/usr/bin/env")
        job.wait_for("ready", 2)
        job.signal(number)
        job.ends_with(128 + number, PROMPT)
        one_sentence(job, f"^ended by {number.name}$")
        job.leaves_nothing()


@world()
def test_sigkill_of_the_launcher():
    ended_by(signal.SIGKILL)


@world()
def test_sigkill_of_the_launcher_with_local_ranks():
    ended_by(signal.SIGKILL, hosts="localhost:2,b:2")


@world()
def test_control_c_while_hosts_are_being_reached():
    faults.freeze("b")
    before = Inventory()
    job = Job("-np", 4, "-H", "a:2,b:2", "--verbose", *NASTY)
    wait_until(lambda: "host b: connect" in job.err, 60, job.describe)
    job.signal(signal.SIGINT)
    job.ends_with(130)
    faults.thaw("b")
    job.before = before
    job.leaves_nothing()


@world()
def test_pkill_of_whatever_has_the_agents_name_on_its_command_line():
    job = start()
    for pid in faults.processes("b"):
        if "horovod-agent" in faults.said_of(pid, "cmdline"):
            os.kill(pid, signal.SIGKILL)
    code = job.wait(PROMPT)
    expect(code != 0, f"an exit code that says so was expected\n{job.describe()}")
    job.leaves_nothing()
    one_sentence(job, r"\bhost b\b")


@world()
def test_a_launcher_that_is_stopped_for_longer_than_the_lease_goes_on():
    job = Job("-np", 4, "-H", "a:2,b:2", "--lease", 5, PYTHON, WORKERS / "rank.py", "--seconds", 20)
    job.wait_for("ready", 4)
    job.signal(signal.SIGTSTP)
    wait_until(lambda: state_of(job.process.pid) == "T", 60, "the launcher to stop")
    time.sleep(11)  # a lease that must not end has no event
    expect(not ended(job), f"the ranks ended meanwhile\n{job.describe()}")
    job.signal(signal.SIGCONT)
    job.ends_with(0)
    expect(job.out.count("done") == 4, job.describe())
    job.leaves_nothing()


def ended(job):
    return not [words for words in job.before.new_processes() if "rank.py" in words]


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def shell():
    """An interactive shell with job control."""
    return Terminal("/bin/bash", "--norc", "--noprofile", "-i", PS1="$ ", TERM="dumb")


@world()
def test_control_z_for_longer_than_the_lease_and_fg_go_on():
    terminal = shell()
    terminal.type(
        f"cd {ROOT}\n{LAUNCHER} -np 4 -H a:2,b:2 --lease 5 {PYTHON} {WORKERS / 'rank.py'} --seconds 20; echo code $?\n"
    )
    terminal.shows("stdout>:ready", 4)
    terminal.type("\x1a")
    terminal.shows("Stopped")
    time.sleep(11)
    terminal.type("fg\n")
    terminal.shows("stdout>:done", 4)
    terminal.shows(r"\$ $")  # earlier input reaches rank 0
    terminal.type("echo over\n")
    terminal.shows(r"\nover")
    terminal.close()
    terminal.before.wait_for_ends()


@world()
def test_control_c_at_a_terminal():
    terminal = shell()
    terminal.type(f"cd {ROOT}\n{LAUNCHER} -np 4 -H a:2,b:2 {' '.join(map(str, NASTY))}\n")
    terminal.shows("stdout>:ready", 4)
    terminal.type("\x03")
    terminal.shows(r"\$ $")
    terminal.type("echo code $?\n")
    terminal.shows("code 130")
    terminal.close()
    terminal.before.wait_for_ends()


@world()
def test_a_terminal_that_is_closed():
    terminal = shell()
    terminal.type(f"cd {ROOT}\nexec {LAUNCHER} -np 4 -H a:2,b:2 {' '.join(map(str, NASTY))}\n")
    terminal.shows("stdout>:ready", 4)
    os.close(terminal.fd)
    terminal.before.wait_for_ends()


if __name__ == "__main__":
    main()
