#!/usr/bin/python3 -B
"""A host that crashes, freezes or is cut off is named: while it is silent, and as the cause of the end, whichever
process notices first."""

import secrets
import threading

from harness import *
from terminal import Terminal

import network

STEPS = """
import os, sys, time
import numpy
import horovod.numpy as hvd
hvd.init()
step = 0
more = True
while more:
    total = hvd.allreduce(numpy.full(1000, hvd.rank() + 1.0), op=hvd.Sum, name="sum")
    if total.tolist() != [10.0] * 1000:
        sys.exit(f"step {step} has another sum")
    if step % 10 == 0:
        print("step", step, flush=True)
    step += 1
    more = not hvd.allreduce(numpy.array([os.path.exists(sys.argv[1])], dtype=numpy.int32), op=hvd.Max, name="end")[0]
    time.sleep(0.02)
print("all sums are right", flush=True)
"""
# Rank 0 fails by itself, and neither rank calls hvd.init.
FAILS_FIRST = 'echo born; [ $RANK = 1 ] && exec sleep 1000; while [ ! -e "$0" ]; do sleep 0.05; done; exit 3'


def loses_b(harm):
    """After a crash, rank 0 or 1 reports its lost peer within two seconds, long before the launcher's decision."""
    job = Job("-np", 4, "-H", "a:2,b:2", "--host-timeout", 6, "--link-timeout", 2, PYTHON, "-c", STEPS, "/nowhere")
    job.wait_for("step 20")
    harm("b")
    return job


def answers_of_the_job(job):
    """Checks that ps and exec report the silence of b."""
    pid = job.process.pid

    def listed():
        text = ask("ps", pid).stdout
        return re.search(r"^host b: no answer for [2-6] s$", text, re.M) and text

    text = wait_until(listed, 10, job.describe)
    rows = {row.split()[0]: row.split() for row in text.splitlines()[2:-1]}
    expect(rows["0"][1] == "a" and rows["0"][2].isdigit() and rows["2"][1:3] == ["b", "-"], text)
    began = idle()
    both = ask("exec", pid, "hostname")
    expect(both.returncode == 1 and re.search(r"host b: no answer for [2-6] s", both.stderr), both)
    expect("a\n" in both.stdout and idle() - began < 3, both)


def blames_b(job, consequence):
    job.ends_with(1)
    one_sentence(job, "^host b was lost: the host did not answer for 6 s" + consequence)


@world()
def test_a_crashed_host_is_the_headline_although_its_peers_fail_first():
    job = loses_b(faults.crash)
    blames_b(job, "; before that, rank [01] on host a exited with code 1$")
    job.leaves_nothing()


TORCH_STEPS = """
import sys, time
import torch
import torch.distributed as dist
import horovod.torch.distributed
dist.init_process_group("horovod")
start = time.monotonic()
try:
    while True:
        last = time.monotonic()
        dist.all_reduce(torch.ones(1000))
        if last - start < 0.5:
            continue
        start = time.monotonic()
        print("step", flush=True)
except RuntimeError as error:
    print(f"raised after {time.monotonic() - last:.1f} s: {type(error).__name__}: {error}", flush=True)
"""


@world()
def test_a_group_of_torch_raises_the_loss_of_a_crashed_host():
    job = Job("-np", 4, "-H", "a:2,b:2", "--host-timeout", 10, "--link-timeout", 2, PYTHON, "-c", TORCH_STEPS)
    job.wait_for("step", 4)
    faults.crash("b")
    job.wait_for("raised after", 2, 6)  # idle seconds: the launcher's verdict comes after 10
    expect(not any("was lost" in sentence for sentence in job.said()), job.describe())
    job.wait()
    found = re.findall(r"raised after ([0-9.]+) s: HorovodInternalError: (.*)", job.out)
    expect(len(found) == 2, job.describe())
    expect(all("on host b" in sentence for _, sentence in found), job.describe())
    print(*found, sep="\n")


@world("a b c")
def test_two_hosts_that_crash_together_are_both_named():
    job = Job("-np", 3, "-H", "a:1,b:1,c:1", "--host-timeout", 4, "sh", "-c", "echo up; exec sleep 1000")
    job.wait_for("up", 3)
    faults.crash("c")
    faults.crash("b")
    job.ends_with(1)
    one_sentence(job, "^hosts b and c were lost: they did not answer for 4 s$")
    job.leaves_nothing()


@world()
def test_a_frozen_host_is_named():
    job = loses_b(faults.freeze)
    answers_of_the_job(job)
    blames_b(job, "$")
    faults.thaw("b")
    job.leaves_nothing()


@world()
def test_a_host_that_crashes_before_its_ranks_call_init_is_named():
    failing = scratch() / "failing"
    job = Job("-np", 2, "-H", "a:1,b:1", "--host-timeout", 4, "sh", "-c", FAILS_FIRST, failing)
    job.wait_for("born", 2)
    faults.crash("b")
    time.sleep(1.5)  # wait until a ping times out, which causes no event
    failing.touch()
    job.ends_with(1)
    one_sentence(
        job,
        "^host b was lost: the host did not answer for 4 s; before that, rank 0 on host a exited with code 3$",
    )
    job.leaves_nothing()


@world()
def test_a_failure_beside_a_host_that_answers_late_stays_the_cause():
    failing = scratch() / "failing"
    job = Job("-np", 2, "-H", "a:1,b:1", "--host-timeout", 30, "sh", "-c", FAILS_FIRST, failing)
    job.wait_for("born", 2)
    faults.cut("b", "launcher")
    time.sleep(1.2)  # wait until a ping times out, which causes no event
    failing.touch()
    time.sleep(0.5)  # the launcher does not end the job, which has no event
    expect(job.process.poll() is None and not job.said(), job.describe())
    faults.heal("b", "launcher")
    job.ends_with(3)
    one_sentence(job, "^rank 0 on host a exited with code 3$")
    job.leaves_nothing()


@world("a b c")
def test_a_spare_takes_over_although_the_peers_of_the_lost_host_fail_first():
    job = Job(
        *"-H a:2,b:2,c:2 --spares 1 --max-restarts 1 --host-timeout 5 --link-timeout 2".split(),
        "sh",
        "-c",
        '[ $HOROVOD_GENERATION = 0 ] || { echo at $(hostname); exit 0; }; exec "$@"',
        "-",
        PYTHON,
        "-c",
        STEPS,
        "/nowhere",
    )
    job.wait_for("step 20")
    faults.crash("b")
    job.ends_with(0)
    expect(job.out.count(":at c") == 2 and ":at b" not in job.out, job.describe())
    expect(any(sentence.startswith("host b was lost: ") for sentence in job.said()), job.describe())
    expect(job.said()[-2:] == ["host c, a spare, takes the place of host b", "restart 1 of 1"], job.describe())


def is_complete(job):
    """Checks that no line of a rank is lost, duplicated or out of order."""
    steps = [[int(step) for step in re.findall(rf"(?m)^\[{rank}\]<stdout>:step (\d+)$", job.out)] for rank in range(4)]
    expect(all(of_rank == list(range(0, 10 * len(steps[0]), 10)) for of_rank in steps), f"{steps}\n{job.describe()}")
    expect(job.out.count("all sums are right") == 4, job.describe())


def survives_a_cut_of(seconds, job, stop, lost_in):
    job.wait_for("step 20", 4)
    faults.cut("b", "launcher")
    time.sleep(seconds)
    faults.heal("b", "launcher")
    wait_until(lambda: "host b answers again" in job.said() or job.process.poll() is not None, 30, job.describe)
    stop.touch()
    job.ends_with(0)
    expect(
        job.said()[-2:]
        == [f"host b has not answered for 15 s (ranks 2-3); lost in {lost_in} s", "host b answers again"],
        job.describe(),
    )
    is_complete(job)


# TCP retransmits 12.6 s, 26 s and 52 s after the beginning of a cut: too late after these cuts.
@world()
def test_a_cut_of_17_s_is_reported_once_and_changes_no_sum():
    stop = scratch() / "stop"
    job = Job("-np", 4, "-H", "a:2,b:2", "--host-timeout", 24, PYTHON, "-c", STEPS, stop)
    survives_a_cut_of(17, job, stop, lost_in=9)
    expect(len(job.said()) == 2, job.describe())
    job.leaves_nothing()


@world()
def test_a_cut_of_30_s_ends_no_job():
    stop = scratch() / "stop"
    job = Job("-np", 4, "-H", "a:2,b:2", PYTHON, "-c", STEPS, stop)
    survives_a_cut_of(30, job, stop, lost_in=30)
    job.leaves_nothing()


@world()
def test_a_cut_of_30_s_that_ends_both_ends_of_a_link_ends_no_job():
    """The cut is longer than ServerAliveInterval of ssh and ClientAliveInterval of sshd."""
    stop = scratch() / "stop"
    job = Job(
        *"-np 4 -H a:2,b:2".split(),
        "--launch-agent",
        "ssh -o BatchMode=yes -o ServerAliveInterval=4 -o ServerAliveCountMax=2 {host}",
        PYTHON,
        "-c",
        STEPS,
        stop,
    )
    job.wait_for("step 20", 4)
    (guardian,) = agents("b")["guardian"]
    sshd = int(faults.said_of(guardian, "stat").rpartition(")")[2].split()[1])
    expect(faults.said_of(sshd, "comm") == "sshd\n", faults.said_of(sshd, "cmdline"))

    def end_sshd():
        time.sleep(12)
        os.kill(sshd, signal.SIGKILL)

    ending = threading.Thread(target=end_sshd)
    ending.start()
    survives_a_cut_of(30, job, stop, lost_in=30)
    job.leaves_nothing()
    ending.join()


# Runs its arguments after FILE. Drops the program's output once the file appears, like a connection that fails in one
# direction. Later connections work, and make FILE.again.
MUTE = """
import os, subprocess, sys, threading
file = sys.argv[1]
is_early = not os.path.exists(file)
if not is_early:
    open(f"{file}.again", "w").close()
program = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def pass_on():
    while data := os.read(0, 65536):
        os.write(program.stdin.fileno(), data)
    program.stdin.close()
threading.Thread(target=pass_on, daemon=True).start()
while data := os.read(program.stdout.fileno(), 65536):
    if not (is_early and os.path.exists(file)):
        os.write(1, data)
sys.exit(program.wait())
"""


@world()
def test_the_end_of_a_launch_command_that_was_replaced_ends_no_agent():
    """The launcher sends SIGHUP to the old command's process group, which contains the agent's guardian."""
    folder = scratch()
    (folder / "command.py").write_text(MUTE)
    job = Job(
        *"-np 4 -H one:2,two:2 --lease 12".split(),
        "--launch-agent",
        f"{PYTHON} {folder / 'command.py'} {folder}/{{host}}.mute",
        PYTHON,
        "-c",
        STEPS,
        folder / "stop",
    )
    job.wait_for("step 20", 4)
    (folder / "two.mute").touch()
    wait_until((folder / "two.mute.again").exists, 60, job.describe)
    number = max(map(int, re.findall(r"step (\d+)", job.out)))
    job.wait_for(f"step {number + 100}", 4)  # lone signals take effect after a second
    (folder / "stop").touch()
    job.ends_with(0)
    expect(job.out.count("all sums are right") == 4, job.describe())
    job.leaves_nothing()


@world()
def test_a_cut_of_an_ssh_connection_that_several_share_ends_no_job():
    config = pathlib.Path.home() / ".ssh" / "config"
    # libssh, which shares no connection, does not know CheckHostIP.
    config.write_text(
        "Host b\n ControlMaster auto\n ControlPath /tmp/shared-%C\n ControlPersist yes\n"
        f" CheckHostIP yes\n{config.read_text() if config.exists() else ''}"
    )
    stop = scratch() / "stop"
    job = Job("-np", 4, "-H", "a:2,b:2", "--host-timeout", 24, PYTHON, "-c", STEPS, stop)
    survives_a_cut_of(17, job, stop, lost_in=9)


@world()
def test_a_cut_of_30_s_from_a_host_that_joined_ends_no_job():
    stop = scratch() / "stop"
    token = scratch() / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex(32))
    job = Job(
        *"-np 4 -H a:2,b:2".split(),
        "--listen",
        f"{network.LAUNCHER_ADDRESS}:0",
        "--token-file",
        token,
        PYTHON,
        "-c",
        STEPS,
        stop,
    )
    address = wait_until(lambda: re.search(r" at tcp:([\d.]+:\d+) for ", job.err), 60, job.describe)[1]
    agents_there = [start_agent(address, token, name, 2, inside=name) for name in "ab"]
    survives_a_cut_of(30, job, stop, lost_in=30)
    job.leaves_nothing()
    for agent in agents_there:
        said = agent.communicate(timeout=LONG)[0]
        expect(agent.returncode == 0, said)


@world()
def test_a_terminal_counts_the_seconds_of_silence():
    terminal = Terminal(
        *(LAUNCHER, "-np", "2", "-H", "a:1,b:1", "--host-timeout", "8", "sh", "-c", "echo up; exec sleep 1000"),
        TERM="xterm",
    )
    terminal.shows("up", 2)
    faults.crash("b")
    terminal.shows(r"host b has not answered for 5 s \(rank 1\); lost in 3 s")
    terminal.shows(r"host b has not answered for 6 s \(rank 1\); lost in 2 s")
    terminal.shows("host b was lost: the host did not answer for 8 s")
    terminal.end()
    expect("ranks started" not in terminal.text.rpartition(":up")[2], terminal.text)


@world()
def test_a_terminal_shows_the_silence_in_place_of_the_start_and_until_the_end():
    terminal = Terminal(LAUNCHER, "-np", "2", "-H", "a:1,b:1", "--host-timeout", "8", "sleep", "1000", TERM="xterm")
    terminal.shows("ranks started 2; 1 s")
    faults.crash("b")
    terminal.shows("has not answered for 6 s")
    terminal.type("\x03")
    terminal.end()
    silence, _, end = terminal.text.partition("has not answered for 5 s")[2].partition("; Ctrl-C again to kill")
    expect("has not answered for 6 s" in silence and "ranks started" not in silence, terminal.text)
    expect(end and "has not answered" not in end, terminal.text)


@world()
def test_a_launcher_or_a_job_that_was_stopped_accuses_nobody():
    stop = scratch() / "stop"
    job = Job("-np", 4, "-H", "a:2,b:2", "--heartbeat-timeout", 4, "--host-timeout", 5, PYTHON, "-c", STEPS, stop)
    job.wait_for("step 20")
    os.kill(job.process.pid, signal.SIGSTOP)
    time.sleep(2.5)
    os.kill(job.process.pid, signal.SIGCONT)
    time.sleep(2)  # wait for a message that must not come
    # Schedulers suspend all processes of a job for longer than its lease, and the launcher resumes last.
    os.kill(job.process.pid, signal.SIGSTOP)
    for name in "ab":
        faults.freeze(name)
    time.sleep(8)
    for name in "ab":
        faults.thaw(name)
    time.sleep(1)
    os.kill(job.process.pid, signal.SIGCONT)
    steps = job.out.count("step")
    wait_until(lambda: job.out.count("step") > steps + 2 or job.process.poll() is not None, 60, job.describe)
    stop.touch()
    job.ends_with(0)
    expect(job.said() == [] and job.out.count("all sums are right") == 4, job.describe())


@world()
def test_a_stopped_agent_whose_launcher_is_dead_keeps_its_ranks_for_its_lease():
    job = Job("-np", 2, "-H", "a:1,b:1", "--lease", 3, "sh", "-c", "echo up; exec sleep 1000")
    job.wait_for("up", 2)
    for pid in agents("b")["agent"]:
        os.kill(pid, signal.SIGSTOP)
    job.process.kill()
    job.wait()
    job.leaves_nothing()


if __name__ == "__main__":
    main()
