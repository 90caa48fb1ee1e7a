#!/usr/bin/python3 -B
"""--hang-warning names the places of ranks that never call hvd.init() and hang; and nothing else is called a hang."""

import contextlib
import socket
import threading

from harness import *

PY_SPY = BUILD / "venv-py-spy/bin/py-spy"

# Rank 1 waits while rank 0 is busy in each of these ways that are no hang, for so many seconds. Then rank 0 hangs.
SCRIPT = """
import hashlib, os, pdb, signal, socket, subprocess, sys, time
import torch, torch.distributed as dist

port, seconds = int(sys.argv[1]), float(sys.argv[2])

def load_shard():
    print("hangs", flush=True)
    time.sleep(600)

def compile_in_a_child():
    subprocess.run(["timeout", str(seconds), "sh", "-c", "while :; do :; done"])

def download():
    with socket.create_connection(("127.0.0.1", port)) as server:
        while server.recv(4096):
            pass

def be_stopped():
    waker = subprocess.Popen(["sh", "-c", "sleep %s; kill -CONT %d" % (seconds, os.getpid())])
    os.kill(os.getpid(), signal.SIGSTOP)
    waker.wait()

def typed_after(text):
    master, slave = os.openpty()
    return subprocess.Popen(["sh", "-c", "sleep %s; echo %s" % (seconds, text)], stdout=master), slave

def read_a_terminal():
    writer, slave = typed_after("typed")
    os.read(slave, 100)
    writer.wait()

def debug():
    writer, slave = typed_after("continue")
    pdb.Pdb(stdin=open(slave, closefd=False), stdout=sys.stderr).set_trace()
    writer.wait()

def save():
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        torch.save(torch.ones(100000), "/tmp/hang-checkpoint-%d" % os.getpid())
        time.sleep(0.01)
    os.unlink("/tmp/hang-checkpoint-%d" % os.getpid())

def evaluate():
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        torch.ones(200, 200) @ torch.ones(200, 200)

def call_c():
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", int(2.5e6 * seconds))

def log():
    for _ in range(int(2 * seconds)):
        print("epoch", flush=True)
        time.sleep(0.5)

def fork():
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        subprocess.run(["sleep", "0.2"])

dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 0:
    for kind in sys.argv[3:]:
        print(kind, flush=True)
        globals()[kind]()
    load_shard()
dist.all_reduce(torch.ones(4))
"""
FEW = ["compile_in_a_child", "download", "be_stopped", "read_a_terminal"]
MORE = ["debug", "save", "evaluate", "call_c", "log", "fork"]


def with_py_spy(*arguments):
    """A job whose launcher has py-spy on its PATH."""
    if not PY_SPY.exists():
        raise Skip(f"{PY_SPY} is missing: pip install py-spy")
    environment = clean_environment()
    environment["PATH"] = f"{PY_SPY.parent}:{environment['PATH']}"
    return Job("-np", 2, *arguments, environment=environment)


@contextlib.contextmanager
def slow_server(seconds):
    """The port of a server that sends each client some bytes every tenth of a second, for so long."""

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    for _ in range(int(10 * seconds)):
                        connection.sendall(b"x" * 1000)
                        time.sleep(0.1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def check_kinds(limit, seconds, kinds):
    """Ranks wait in each of these ways for so many seconds; only the hang behind them is named, and ends the job."""
    has_torch = subprocess.run([PYTHON, "-c", "import torch.distributed"], capture_output=True)
    if has_torch.returncode != 0:
        raise Skip("Debian's Python has no torch: apt-get install python3-torch")
    script = scratch() / "train.py"
    script.write_text(SCRIPT)
    with slow_server(seconds) as port:
        job = with_py_spy("--hang-warning", limit, "--on-hang", "stop", PYTHON, script, port, seconds, *kinds)
        job.wait_for("hangs", 1, 60 + 3 * seconds * len(kinds))
        expect("hang" not in job.err, job.describe())
        code = job.wait(60)
    pattern = (
        r"no rank has moved for (\d+) s: rank 1 on \S+ waits in torch\.distributed( \(gloo\))?: all_reduce, "
        r"train\.py:\d+; rank 0 on \S+ is in load_shard, train\.py:\d+"
    )
    expect(re.search("the job hangs: " + pattern, job.err), job.describe())
    expect(re.search(r"the job hangs and was ended \(--on-hang stop\): " + pattern, job.err), job.describe())
    expect(code == 124, job.describe())
    job.leaves_nothing()


def test_a_hang_is_named_after_waits_that_are_none_and_stops_the_job():
    check_kinds(2, 4, FEW)


def test_no_other_wait_is_called_a_hang_at_three_limits():
    for limit in (1, 2, 4):
        check_kinds(limit, 2 * limit, (FEW + MORE) * 3)


# By library and kind: where rank 1 is, if not in the wait of rank 0.
PLANTED = {
    "torch": {
        "skip": "is in skip",
        "order": None,
        "group": None,
        "lock": "is in lock_twice",
        "file": "is in read_a_dead_file",
        "exit": "is in wait_at_exit",
    },
    "ddp": {"skip": "is in skip", "lock": "is in lock_twice", "exit": "is in wait_at_exit"},
    "mpi": {"skip": "is in skip", "order": None, "group": None, "exit": "is in wait_at_exit"},
    "jax": {"skip": "is in skip", "lock": "is in lock_twice", "file": "is in read_a_dead_file"},
}
WAIT = {
    "torch": r"torch\.distributed( \(gloo\))?: \w+",
    "ddp": r"torch\.distributed( \(gloo\))?: [^,]+",
    "mpi": r"MPI: \w+",
    "jax": r"JAX: \w+",
}

PACKAGE = {"torch": "torch", "ddp": "torch", "mpi": "mpi4py", "jax": "jax"}


def check_planted(library, *flags, python=PYTHON):
    worker = ROOT / "tests/e2e/workers/hanging_rank.py"
    if subprocess.run([python, "-c", f"import {PACKAGE[library]}"]).returncode != 0:
        raise Skip(f"{python} has no package for {library}")
    for kind, place in PLANTED[library].items():
        job = with_py_spy("--hang-warning", 4, *flags, python, worker, "--library", library, "--kind", kind)
        job.wait_for("hangs", 2, 120)
        began = time.monotonic()
        wait_until(lambda job=job: "the job hangs" in job.err, 14, job.describe)
        wait = rf"{WAIT[library]}, hanging_rank\.py:\d+"
        both = rf"ranks 0-1 on \S+ wait in {wait}|rank 0 on \S+ waits in {wait}; rank 1 on \S+ waits in {wait}"
        one = rf"rank 0 on \S+ waits in {wait}; rank 1 on \S+ {place}, hanging_rank\.py:\d+"
        print(f"{library} {kind}: {time.monotonic() - began:.1f} s")
        expect(re.search(one if place else both, job.err), job.describe())
        expect(job.err.count("the job hangs") == 1, job.describe())
        job.signal(signal.SIGTERM)
        job.wait()


def test_each_planted_hang_of_torch_is_named():
    check_planted("torch")
    check_planted("ddp")


def test_each_planted_hang_of_mpi4py_is_named():
    check_planted("mpi", "--pmix")


def test_each_planted_hang_of_jax_is_named():
    python = BUILD / "venv-jax/bin/python3"
    if not python.exists():
        raise Skip(f"{python} is missing")
    check_planted("jax", python=str(python))


def test_ranks_that_sleep_without_a_collective_do_not_hang():
    job = with_py_spy("--hang-warning", 1, "--on-hang", "stop", PYTHON, "-c", "import time; time.sleep(6)")
    expect(job.wait(60) == 0 and job.err == "", job.describe())


main()
