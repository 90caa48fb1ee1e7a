#!/usr/bin/python3 -B
"""Another user of the same hosts who binds names of this user's jobs first does not disturb a job."""

import contextlib

import world_test
from harness import *

# Binds the names of the next processes, with and without a suffix, and marks ports. Accepts no connection.
STRANGER = """
import os, resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
held = []
def bind(kind, name):
    held.append(socket.socket(socket.AF_UNIX, kind))
    held[-1].bind("\\0" + name)
    if kind != socket.SOCK_DGRAM:
        held[-1].listen(0)
for port in sys.argv[1:]:
    bind(socket.SOCK_SEQPACKET, "horovod-port-" + port)
    bind(socket.SOCK_DGRAM, "horovod-port-" + port)
for pid in range(os.getpid(), os.getpid() + 4000):
    for end in "", "/0":
        bind(socket.SOCK_SEQPACKET, f"horovod-agent/{pid}{end}")
        bind(socket.SOCK_STREAM, f"horovodrun/0/{pid}{end}")
print("ready", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def strangers(*hosts, ports=()):
    """Runs the other user's program on each host; "" is the launcher's machine."""
    processes = [
        subprocess.Popen(
            [*([HOSTS, "exec", name] if name else []), PYTHON, "-c", STRANGER, *map(str, ports)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in hosts
    ]
    try:
        for process in processes:
            expect(process.stdout.readline() == "ready\n", "a stranger could not bind its names")
        yield
    finally:
        for process in processes:
            process.communicate()


@world()
def test_names_that_another_user_has_bound_refuse_no_job():
    ports = range(20400, 20404)
    with strangers("a", "b", ports=ports):
        for flags in ((), ("--port-range", f"{ports[0]}-{ports[-1]}")):
            job = Job("-np", 2, "-H", "a:1,b:1", *flags, "sh", "-c", "echo $(hostname) $MASTER_PORT")
            job.ends_with(0)
            expect(sorted(re.findall(r":([ab]) \d+", job.out)) == ["a", "b"], job.describe())
            expect(not flags or re.search(r" 2040[0-3]\n", job.out), job.describe())
            job.leaves_nothing()


@world()
def test_a_port_that_a_job_of_another_user_marks_is_avoided_while_there_are_others():
    with strangers("a", ports=range(20400, 20403)):
        job = Job("-np", 1, "-H", "a:1", "--port-range", "20400-20403", "sh", "-c", "echo $MASTER_PORT")
        job.ends_with(0)
        expect(":20403\n" in job.out, job.describe())
        job.leaves_nothing()


@world()
def test_a_rank_in_a_world_of_its_own_is_seen_among_names_of_another_user():
    with strangers("a", "b"):
        world_test.test_a_rank_in_a_world_of_its_own_ends_the_job()


# Listens at the port in place of rank 0, like a user of the host who waits for it.
THIEF = """
import os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
taken = socket.socket()
taken.bind(("0.0.0.0", int(sys.argv[1])))
taken.listen()
print("ready", flush=True)
sys.stdin.read()
"""
FIRST_LISTENS = """
import os, socket, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
listener = socket.socket()
listener.bind(("0.0.0.0", int(os.environ["MASTER_PORT"])))
"""


@world()
def test_another_user_at_the_master_port_is_named():
    with tempfile.TemporaryDirectory() as folder:
        go = pathlib.Path(folder, "go")
        job = Job("-np", 1, "-H", "a:1", "--port-range", "20400-20400", PYTHON, "-c", FIRST_LISTENS, go)
        thief = subprocess.Popen(
            [
                HOSTS,
                "exec",
                "a",
                "sh",
                "-c",
                """
            until grep -q horovod-port-20400 /proc/net/unix; do sleep 0.05; done
            until "$@" 2>/dev/null; do sleep 0.05; done""",
                "-",
                PYTHON,
                "-c",
                THIEF,
                "20400",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            expect(thief.stdout.readline() == "ready\n", "the port was not taken")
            go.touch()
            job.ends_with(1)
            expect(
                re.search(
                    "rank 0 on host a exited with code 1; user 65534 of that host has taken the job's MASTER_PORT",
                    job.err,
                ),
                job.describe(),
            )
        finally:
            thief.communicate()
        job.leaves_nothing()


def test_output_and_timeline_do_not_follow_the_link_of_another_user():
    with tempfile.TemporaryDirectory() as folder:
        precious = pathlib.Path(folder, "precious")
        precious.write_text("kept")
        shared = pathlib.Path(folder, "out")
        (shared / "rank.0").mkdir(parents=True)
        (shared / "rank.0" / "stdout").symlink_to(precious)
        # The link is moved aside with the directory, as the output of an earlier run.
        job = Job("-np", 1, "--output-filename", shared, "echo", "x")
        job.ends_with(0)
        expect((shared / "rank.0" / "stdout").read_text() == "[0]<stdout>:x\n", job.describe())
        # A restart appends to the files of the first attempt.
        job = Job(
            *"-np 1 --max-restarts 1".split(),
            "--output-filename",
            shared,
            "sh",
            "-c",
            f"rm {shared}/rank.0/stdout; ln -s {precious} {shared}/rank.0/stdout; "
            f"chown -h 65534 {shared}/rank.0/stdout; exit 1",
        )
        job.ends_with(1)
        expect("rank.0/stdout: it is a symbolic link" in job.err, job.describe())
        job = Job(
            *"-np 1 --max-restarts 1".split(),
            "--output-filename",
            shared,
            "sh",
            "-c",
            f"chown 65534 {shared}/rank.0; exit 1",
        )
        job.ends_with(1)
        expect("rank.0: it belongs to another user, of uid 65534" in job.err, job.describe())
        lock = shared / ".horovodrun.lock"
        lock.unlink()
        lock.symlink_to(precious)
        os.chown(lock, 65534, 65534, follow_symlinks=False)
        job = Job("-np", 1, "--output-filename", shared, "echo", "x")
        job.ends_with(2)
        expect(".horovodrun.lock: it is a symbolic link" in job.err, job.describe())
        expect(precious.read_text() == "kept", "the file behind the link was written")


@world()
def test_jobs_are_listed_among_names_of_another_user():
    with strangers(""):
        job = Job("-np", 1, "-H", "a:1", "sh", "-c", "echo ready; sleep 600")
        job.wait_for("ready")
        for words in ("ps", "stack"):
            seen = run_to_end([LAUNCHER, words], env=clean_environment())
            expect(
                seen.returncode == 0
                and f"horovodrun, pid {job.process.pid}, 1 rank: " in seen.stdout
                and seen.stderr == "",
                seen,
            )
        job.signal(signal.SIGKILL)
        job.wait()
        job.leaves_nothing()


if __name__ == "__main__":
    main()
