#!/usr/bin/python3 -B
"""--hang-warning names the places of ranks that never call hvd.init() and hang; and nothing else is called a hang."""

import contextlib
import socket
import threading

from harness import *

PY_SPY = BUILD / "venv-py-spy/bin/py-spy"

# Rank 1 waits while rank 0 is busy in each of the ways that are no hang, for longer than the limit. Then it hangs.
SCRIPT = """
import os, signal, socket, subprocess, sys, time
import torch, torch.distributed as dist

def load_shard():
    print("hangs", flush=True)
    time.sleep(600)

def compile_in_a_child():
    subprocess.run(["timeout", "4", "sh", "-c", "while :; do :; done"])

def download():
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as server:
        while server.recv(4096):
            pass

def be_stopped():
    waker = subprocess.Popen(["sh", "-c", "sleep 4; kill -CONT %d" % os.getpid()])
    os.kill(os.getpid(), signal.SIGSTOP)
    waker.wait()

def read_a_terminal():
    master, slave = os.openpty()
    writer = subprocess.Popen(["sh", "-c", "sleep 4; echo typed"], stdout=master)
    os.read(slave, 100)
    writer.wait()

dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 0:
    for quiet in [compile_in_a_child, download, be_stopped, read_a_terminal]:
        print(quiet.__name__, flush=True)
        quiet()
    load_shard()
dist.all_reduce(torch.ones(4))
"""


def with_py_spy(*arguments):
    """A job whose launcher has py-spy on its PATH."""
    if not PY_SPY.exists():
        raise Skip(f"{PY_SPY} is missing: pip install py-spy")
    environment = clean_environment()
    environment["PATH"] = f"{PY_SPY.parent}:{environment['PATH']}"
    return Job("-np", 2, *arguments, environment=environment)


@contextlib.contextmanager
def slow_server():
    """The port of a server that sends some bytes every tenth of a second, for four seconds."""

    def serve():
        connection, _ = listener.accept()
        with connection:
            for _ in range(40):
                connection.sendall(b"x" * 1000)
                time.sleep(0.1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def test_a_hang_is_named_after_waits_that_are_none_and_stops_the_job():
    has_torch = subprocess.run([PYTHON, "-c", "import torch.distributed"], capture_output=True)
    if has_torch.returncode != 0:
        raise Skip("Debian's Python has no torch: apt-get install python3-torch")
    script = scratch() / "train.py"
    script.write_text(SCRIPT)
    with slow_server() as port:
        job = with_py_spy("--hang-warning", 2, "--on-hang", "stop", PYTHON, script, port)
        job.wait_for("hangs", 1, 120)
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
}
WAIT = {
    "torch": r"torch\.distributed( \(gloo\))?: \w+",
    "ddp": r"torch\.distributed( \(gloo\))?: [^,]+",
    "mpi": r"MPI: \w+",
}

PACKAGE = {"torch": "torch", "ddp": "torch", "mpi": "mpi4py"}


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


def test_ranks_that_sleep_without_a_collective_do_not_hang():
    job = with_py_spy("--hang-warning", 1, "--on-hang", "stop", PYTHON, "-c", "import time; time.sleep(6)")
    expect(job.wait(60) == 0 and job.err == "", job.describe())


main()
