#!/usr/bin/python3 -B
"""Jobs that continue without their terminal (--detach), and their output (horovodrun attach)."""

import json
import signal as signals

from harness import *
from terminal import Terminal

# Prints that it runs, and ends by SIGUSR1, which the launcher forwards.
WAITS = "trap 'echo late $HOROVOD_RANK; echo bad >&2; exit 3' USR1; echo early; while :; do sleep 0.1; done"


def log_of(pid, parent=None):
    """Returns the folder with the record and the log of a detached job."""
    parent = parent or clean_environment()["HOROVOD_SPOOL_DIR"]
    (log,) = pathlib.Path(parent, "horovodrun-0").glob(f"*_{pid}_*.job")
    return log


class Detached:
    """A job that horovodrun --detach has started, and whose first process has ended."""

    def __init__(self, *arguments, environment=None):
        self.job = Job("--detach", *arguments, environment=environment)
        self.job.ends_with(0)
        found = re.search(r"horovodrun attach (\d+) shows", self.job.err)
        expect(found, self.job.describe())
        self.pid = int(found[1])

    def attach(self, **more):
        return Job("attach", self.pid, **more)

    def is_running(self):
        state = faults.said_of(self.pid, "stat").rpartition(")")[2].split()
        return bool(state) and state[0] not in "ZX"

    def wait_for_the_end(self):
        wait_until(lambda: not self.is_running(), 60, "the end of the launcher")

    def signal(self, number):
        os.kill(self.pid, number)

    def leaves_nothing(self):
        self.job.leaves_nothing()


@world()
def test_output_before_and_after_and_the_code():
    detached = Detached("-np", 2, "-H", "a:1,b:1", "sh", "-c", WAITS)
    expect(detached.is_running(), detached.job.describe())
    expect(os.getsid(detached.pid) == detached.pid, "the launcher has no session of its own")
    expect(os.readlink(f"/proc/{detached.pid}/fd/0") == "/dev/null", "the launcher has a standard input")
    one = detached.attach()
    one.wait_for("early", 2)
    expect(
        f"pid {detached.pid}, 2 ranks" in run_to_end([LAUNCHER, "ps"], env=clean_environment()).stdout,
        "ps",
    )
    detached.signal(signals.SIGUSR1)
    one.ends_with(3)
    # The other rank may be ended before it prints.
    failed = re.search(r"rank (\d) on host . exited with code 3", one.said()[-1])
    expect(failed, one.describe())
    rank = failed[1]
    expect(f"[{rank}]<stdout>:late {rank}\n" in one.out and f"[{rank}]<stderr>:bad\n" in one.err, one.describe())
    detached.leaves_nothing()


@world()
def test_two_attach_at_the_same_time_and_one_afterwards():
    detached = Detached("-np", 1, "-H", "b:1", "sh", "-c", WAITS)
    both = [detached.attach(), detached.attach()]
    for each in both:
        each.wait_for("early")
    detached.signal(signals.SIGUSR1)
    for each in both:
        each.ends_with(3)
        expect(each.out == "[0]<stdout>:early\n[0]<stdout>:late 0\n", each.describe())
    late = detached.attach()
    late.ends_with(3)
    expect((late.out, late.err) == (both[0].out, both[0].err), late.describe())
    detached.leaves_nothing()


@world()
def test_attach_without_a_pid():
    ended = [Detached("-np", 1, "sh", "-c", f"echo {code}; exit {code}") for code in (8, 9)]
    for each in ended:
        each.wait_for_the_end()
    # Make this job the most recently started one.
    record = log_of(ended[0].pid) / "record.json"
    told = json.loads(record.read_text())
    record.write_text(json.dumps({**told, "began": told["began"] + 10}))
    Job("attach").ends_with(8)
    running = [Detached("-np", 1, "sh", "-c", WAITS)]
    attached = Job("attach")
    attached.wait_for("early")
    running.append(Detached("-np", 1, "sh", "-c", WAITS))
    several = Job("attach")
    several.ends_with(2)
    rows = "".join(f"\n  {each.pid}  sh .*" for each in running)
    expect(re.search(f"several jobs run; write horovodrun attach ID.*{rows}", several.err), several.describe())
    for each in running:
        each.signal(signals.SIGUSR1)
        each.wait_for_the_end()
    attached.ends_with(3)
    running[0].leaves_nothing()


@world()
def test_the_last_1000_lines_after_the_end():
    detached = Detached("-np", 1, "-H", "b:1", "sh", "-c", "seq 3000; exit 5")
    detached.wait_for_the_end()
    late = detached.attach()
    late.ends_with(5)
    lines = late.out.splitlines()
    expect(lines == [f"[0]<stdout>:{number}" for number in range(2002, 3001)], late.describe())
    expect(late.err.count("\n") == 2 and "exited with code 5" in late.err, late.describe())
    expect("2001 older lines are not shown; attach shows the last 1000" in late.err, late.describe())
    detached.leaves_nothing()


@world()
def test_a_log_below_the_working_directory():
    folder = scratch()
    job = Job("--detach", "-np", 1, "sh", "-c", WAITS, environment=clean_environment(HOROVOD_SPOOL_DIR="."), cwd=folder)
    job.ends_with(0)
    pid = int(re.search(r"horovodrun attach (\d+) shows", job.err)[1])
    attached = Job("attach", pid, environment=clean_environment(HOROVOD_SPOOL_DIR=str(folder)))
    attached.wait_for("early")
    os.kill(pid, signals.SIGUSR1)
    attached.ends_with(3)
    missing = Job("--detach", "-np", 1, "true", environment=clean_environment(HOROVOD_SPOOL_DIR=str(folder / "none")))
    missing.ends_with(2)
    one_sentence(missing, f"cannot make directory {folder}/none/horovodrun-0 .* HOROVOD_SPOOL_DIR: No such file")
    job.leaves_nothing()


@world()
def test_a_start_that_fails():
    job = Job("--detach", "-np", 2, "-H", "a:1,b:1", "no-such-program")
    job.ends_with(2)
    expect(len(job.said()) == 2 and job.err.count("no-such-program") == 2, job.describe())
    again = Job("attach")
    again.ends_with(2)
    expect(again.err == job.err, again.describe())
    job.leaves_nothing()


@world()
def test_control_c_while_hosts_start():
    terminal = Terminal(
        LAUNCHER,
        *"--detach -np 1 -H b:1".split(),
        "--remote-init",
        "echo up >&2; sleep 600",
        "--start-timeout",
        "600",
        "true",
    )
    wait_until(lambda: any(words.endswith(": sleep 600") for words in terminal.before.new_processes()), 60, "a start")
    terminal.type("\x03")
    terminal.shows("ended by SIGINT before anything was started")
    expect(os.waitstatus_to_exitcode(terminal.end()) == 130, terminal.text)
    terminal.before.wait_for_ends()
    expect(not terminal.before.new_things(), terminal.before.new_things())


@world()
def test_a_launcher_whose_first_process_is_killed_while_hosts_start_ends():
    job = Job("--detach", "-np", 1, "-H", "b:1", "--remote-init", "sleep 600", "--start-timeout", 600, "true")
    wait_until(lambda: any(words.endswith(": sleep 600") for words in job.before.new_processes()), 60, "a start")
    job.process.kill()
    job.wait()
    job.before.wait_for_ends(PROMPT)


@world()
def test_control_c_ends_only_attach():
    detached = Detached("-np", 1, "-H", "b:1", "sh", "-c", WAITS)
    terminal = Terminal(LAUNCHER, "attach", str(detached.pid))
    terminal.shows("early")
    terminal.type("\x03")
    expect(os.waitstatus_to_exitcode(terminal.end()) == -signals.SIGINT, terminal.text)
    expect(detached.is_running(), "the job has ended")
    again = detached.attach()
    again.wait_for("early")
    detached.signal(signals.SIGINT)
    again.ends_with(130)
    one_sentence(again, "ended by SIGINT")
    detached.leaves_nothing()


@world()
def test_attach_logs_and_wait_notify_of_a_stopped_launcher():
    detached = Detached("--name", "stopped", "-np", 1, "-H", "b:1", "sh", "-c", WAITS)
    early = detached.attach()
    early.wait_for("early")
    detached.signal(signals.SIGSTOP)
    waiting = [detached.attach(), Job("logs", "-f", "stopped"), Job("wait", "stopped")]
    for each in waiting:
        notice = f"pid {detached.pid} is stopped, as by Ctrl-Z, .* kill -CONT {detached.pid} continues it"
        wait_until(lambda: re.search(notice, each.err), 60, each.describe)
    detached.signal(signals.SIGCONT)
    detached.signal(signals.SIGUSR1)
    for each, code in zip(waiting, (3, 0, 3)):
        each.ends_with(code)
    early.ends_with(3)
    detached.leaves_nothing()


@world()
def test_a_job_survives_its_terminal():
    for hosts in ("b:1", "localhost:1"):
        terminal = Terminal(
            "/bin/sh", "-c", f'{LAUNCHER} --detach -np 1 -H {hosts} sh -c "$JOB"; exec sleep 600', JOB=WAITS
        )
        terminal.shows(r"attach \d+ shows")
        pid = int(re.search(r"attach (\d+) shows", terminal.text)[1])
        os.close(terminal.fd)
        status = os.waitpid(terminal.pid, 0)[1]
        expect(os.waitstatus_to_exitcode(status) == -signals.SIGHUP, "the shell ends with its terminal")
        os.kill(pid, signals.SIGHUP)  # like the end of a session
        attached = Job("attach")
        attached.wait_for("early")
        os.kill(pid, signals.SIGUSR1)
        attached.ends_with(3)
        terminal.before.wait_for_ends()
        expect(not terminal.before.new_things(), terminal.before.new_things())


@world()
def test_a_detached_launcher_keeps_no_file_of_its_caller():
    """Otherwise, a caller that reads the program's output from a pipe would wait for the end of the job."""
    file = scratch() / "open"
    job = Job("-c", f"exec 9>{file}; exec {LAUNCHER} --detach -np 1 sleep 60", program="/bin/sh")
    job.ends_with(0)
    pid = int(re.search(r"attach (\d+) shows", job.err)[1])
    held = [os.readlink(link) for link in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
    expect(len(held) > 3 and str(file) not in held, held)
    Job("stop", pid).ends_with(0)
    job.leaves_nothing()


def fill(folder):
    """Fills the disk of this folder."""
    with open(folder / "filler", "wb", buffering=0) as filler:
        for size in (65536, 4096, 1):
            try:
                while True:
                    filler.write(bytes(size))
            except OSError:
                continue


@world()
def test_a_full_disk_stops_no_job():
    disk = scratch()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", disk], check=True)
    try:
        environment = clean_environment(HOROVOD_SPOOL_DIR=str(disk))
        # The output exceeds the disk's space: the newest lines stay.
        detached = Detached(
            "-np",
            1,
            "sh",
            "-c",
            "trap 'seq 100000; exit 5' USR1; echo early; while :; do sleep 0.1; done",
            environment=environment,
        )
        first = log_of(detached.pid, disk) / "0"
        wait_until(lambda: first.exists() and b"early" in first.read_bytes(), 60, "a first line")
        detached.signal(signals.SIGUSR1)
        detached.wait_for_the_end()
        late = detached.attach(environment=environment)
        late.ends_with(5)
        expect(late.out.endswith("[0]<stdout>:100000\n"), late.describe())
        shutil.rmtree(disk / "horovodrun-0")
        # The disk has no free space at all.
        detached = Detached("-np", 1, "sh", "-c", WAITS, environment=environment)
        attached = detached.attach(environment=environment)
        attached.wait_for("early")
        fill(disk)
        detached.signal(signals.SIGUSR1)
        attached.ends_with(3)
        refused = Job("--detach", "-np", 1, "true", environment=environment)
        refused.ends_with(2)
        one_sentence(refused, f"{disk}/horovodrun-0.*No space left on device")
        detached.job.leaves_nothing()
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


@world()
def test_a_log_that_is_full_loses_its_oldest_lines():
    detached = Detached("-np", 1, "sh", "-c", f"yes {'x' * 999} | head -n 80000; seq 10; exit 7")
    detached.wait_for_the_end()
    size = sum(path.stat().st_size for path in log_of(detached.pid).iterdir() if path.name.isdigit())
    expect(60 << 20 < size <= 64 << 20, f"{size} bytes")
    late = detached.attach()
    late.ends_with(7)
    lines = late.out.splitlines()
    expect(len(lines) in (999, 1000) and lines[-1] == "[0]<stdout>:10", late.describe())
    detached.leaves_nothing()


@world()
def test_a_launcher_that_was_killed():
    for follows in (True, False):
        detached = Detached("-np", 1, "-H", "b:1", "sh", "-c", WAITS)
        attached = detached.attach()
        attached.wait_for("early")
        if not follows:
            attached.process.kill()
        detached.signal(signals.SIGKILL)
        detached.wait_for_the_end()
        attached = attached if follows else detached.attach()
        attached.ends_with(137)
        one_sentence(
            attached,
            f"the launcher, pid {detached.pid}, was killed, or could not say how it ended; agents end their ranks",
        )
        expect("early" in attached.out, attached.describe())
        detached.leaves_nothing()


def as_another_user(*command, **variables):
    return run_to_end(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *map(str, command)],
        env=clean_environment(HOROVOD_STATE_DIR="none", HOROVOD_SPOOL_DIR="/tmp", **variables),
    )


@world()
def test_another_user_sees_nothing():
    here = clean_environment(HOROVOD_SPOOL_DIR="/tmp")
    detached = Detached("-np", 1, "-H", "b:1", "sh", "-c", WAITS, environment=here)
    log = log_of(detached.pid, "/tmp")
    wait_until(lambda: (log / "0").exists(), 60, "a first line")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (log.parent, log, *log.iterdir())}
    expect(modes == {"horovodrun-0": 0o700, log.name: 0o700, "record.json": 0o600, "0": 0o600}, modes)
    if as_another_user(LAUNCHER, "--version").returncode != 0:
        raise Skip("another user cannot run this build")
    other = as_another_user(LAUNCHER, "attach", detached.pid)
    expect(other.returncode == 2 and "HOROVOD_STATE_DIR is none" in other.stderr, other)
    # Another user has made a directory with that name first.
    planted = pathlib.Path("/tmp/horovodrun-65534")
    planted.mkdir(mode=0o700)
    for words in (("attach", detached.pid), ("--detach", "-np", "1", "true")):
        other = as_another_user(LAUNCHER, *words)
        expect(
            other.returncode == 2
            and f"{planted}, for the output" in other.stderr
            and "HOROVOD_SPOOL_DIR" in other.stderr,
            other,
        )
    planted.rmdir()
    expect(as_another_user("ls", log).returncode != 0, "another user lists the log")
    detached.signal(signals.SIGUSR1)
    detached.attach(environment=here).ends_with(3)
    shutil.rmtree(log.parent)
    detached.leaves_nothing()


def test_flags_that_do_not_go_together():
    for words, said in (
        (("--stdin", "all", "true"), "--stdin all"),
        (("--hostfile", "-", "true"), "--hostfile -"),
        (("--mpi", "true"), "--mpi"),
    ):
        job = Job("--detach", "-np", 1, *words)
        job.ends_with(2)
        one_sentence(job, said, "--detach")
    nowhere = clean_environment(HOROVOD_SPOOL_DIR=str(scratch()))
    for words, said in (
        (("1",), "there is no job 1 in "),
        ((), "there is no detached job of yours"),
        (("--x",), r"write horovodrun attach \[NAME\]"),
        (("../1",), r"there is no job \.\./1 in "),
    ):
        job = Job("attach", *words, environment=nowhere)
        job.ends_with(2)
        one_sentence(job, said)


if __name__ == "__main__":
    main()
