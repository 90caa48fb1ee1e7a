"""Jobs with a planted hang, or only busy jobs, for hang_test.py. The launcher names a hang; in a job that calls
hvd.init(), rank 0's stall report does."""

import contextlib
import socket
import threading

from harness import *

PY_SPY = BUILD / "venv-py-spy/bin/py-spy"
JAX = BUILD / "venv-jax/bin/python3"
DEEPSPEED = BUILD / "venv-torch-2.13/bin/python3"
DEBUGPY = BUILD / "venv-debugpy"

# By library and kind: the place of rank 1, or None if rank 1 waits like rank 0.
PLANTED = {
    "horovod": {
        "skip": "skip",
        "order": None,
        "group": None,
        "lock": "lock_twice",
        "stop": "does not answer",
        "file": "in system call openat|in read_a_dead_file",  # a signal may not reach Python there
        "exit": "wait_at_exit",
    },
    "torch": {
        "skip": "is in skip",
        "order": None,
        "group": None,
        "lock": "is in lock_twice",
        "file": "is in read_a_dead_file",
        "exit": "is in wait_at_exit",
    },
    "ddp": {
        "skip": "is in skip",
        "group": r"waits in torch\.distributed( \(gloo\))?: all_reduce",
        "lock": "is in lock_twice",
        "file": "is in read_a_dead_file",
        "exit": "is in wait_at_exit",
    },
    "deepspeed": {
        "skip": "is in skip",
        "lock": "is in lock_twice",
        "file": "is in read_a_dead_file",
        "exit": "is in wait_at_exit",
    },
    "mpi": {"skip": "is in skip", "order": None, "group": None, "exit": "is in wait_at_exit"},
    "jax": {
        "skip": "is in skip",
        "lock": "is in lock_twice",
        "file": "is in read_a_dead_file",
        "exit": "is in wait_at_exit",
    },
}
WAIT = {
    "torch": r"torch\.distributed( \(gloo\))?: \w+",
    "ddp": r"torch\.distributed( \(gloo\))?: the reduction of gradients in backward\(\)",
    "deepspeed": r"torch\.distributed( \(gloo\))?: [^,]+",
    "mpi": r"MPI: \w+",
    "jax": r"JAX: \w+",
}
PACKAGE = {
    "horovod": "numpy",
    "torch": "torch",
    "ddp": "torch",
    "deepspeed": "deepspeed",
    "mpi": "mpi4py",
    "jax": "jax",
}
# Ways to be busy, which include those of the project's targets.
BUSY = [
    "compile_in_a_child",
    "compile_with_xla",
    "save",
    "download",
    "evaluate",
    "call_c",
    "debug",
    "debug_in_an_editor",
    "be_stopped",
    "serve",
    "sleep",
    "import_slowly",
]
MORE_BUSY = ["read_a_terminal", "log", "fork"]


# Stands in for py-spy: runs the real py-spy in a kernel that refuses process_vm_readv, and also lseek in /proc/PID/mem,
# which py-spy tries next (x86_64 and 64-bit ARM).
REFUSED = """#!/usr/bin/python3
import ctypes, os, struct, sys
read, seek = {"x86_64": (310, 8), "aarch64": (270, 62)}[os.uname().machine]
rules = [(0x20, 0, 0, 0), (0x15, 1, 0, read), (0x15, 0, 1, seek), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
if libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) != 0:
    sys.exit("no seccomp: %%s" %% os.strerror(ctypes.get_errno()))
os.execv(%r, sys.argv)
"""


def refused_py_spy():
    """Makes a folder with the program REFUSED as py-spy."""
    double = scratch() / "py-spy"
    double.write_text(REFUSED % str(PY_SPY))
    double.chmod(0o755)
    return double.parent


def python_of(library):
    """Returns the interpreter that has the library; raises Skip."""
    python = {"jax": JAX, "deepspeed": DEEPSPEED}.get(library, pathlib.Path(PYTHON))
    import_it = [python, "-c", f"import {PACKAGE[library]}"]
    if not python.exists() or run_to_end(import_it).returncode != 0:
        raise Skip(f"{python} has no {PACKAGE[library]}")
    return str(python)


def with_py_spy(*arguments, ranks=2):
    """Starts a job whose launcher has py-spy on its PATH."""
    if not PY_SPY.exists():
        raise Skip(f"{PY_SPY} is missing: pip install py-spy")
    environment = clean_environment(TORCH_EXTENSIONS_DIR=str(BUILD / "torch-extensions"))
    environment["PATH"] = f"{PY_SPY.parent}:{DEEPSPEED.parent}:{environment['PATH']}"
    for folder in DEBUGPY.glob("lib/python3*/site-packages"):
        environment["PYTHONPATH"] += f":{folder}"
    return Job("-np", ranks, *arguments, environment=environment)


def without_py_spy(*arguments):
    return Job("-np", 2, *arguments, environment=clean_environment())


def planted(library, kind, limit, *flags):
    """Starts a job that hangs, and ends it. Returns the seconds until the hang was named; raises Failure if the message
    was wrong, or came later than 10 s after the limit."""
    python = python_of(library)
    is_ours = library == "horovod"
    flags = [*flags, "--stall-check-warning-time-seconds" if is_ours else "--hang-warning", limit]
    worker = WORKERS / "hanging_rank.py"
    ranks = 3 if is_ours else 2
    job = with_py_spy(*flags, python, worker, "--library", library, "--kind", kind, ranks=ranks)
    try:
        job.wait_for("hangs", ranks, 240)
        began = time.monotonic()
        words = "Missing ranks:" if is_ours else "the job hangs"
        wait_until(lambda: words in job.err, limit + 10, job.describe)
        took = time.monotonic() - began
        (check_stall if is_ours else check_named)(job, library, PLANTED[library][kind])
        return took
    finally:
        end(job)


def end(job):
    if job.process.poll() is None:
        job.signal(signal.SIGTERM)
        job.wait()


def check_stall(job, _, place):
    wait_until(lambda: "The last operation of all ranks was" in job.err, 10, job.describe)
    expect(re.search(r"\b1!?: \[allreduce\.gradient", job.err), job.describe())
    if place is None:
        expect(re.search(r"\b0!?: \[allreduce\.gradient", job.err), job.describe())
    else:
        expect(not re.search(r"\b[02]!?: \[", job.err), job.describe())
        expect(re.search(r"rank 1 on host \S+, pid \d+: ", job.err), job.describe())
        expect(re.search(place, job.err), job.describe())


def check_named(job, library, place):
    wait = rf"{WAIT[library]}, \w+\.py:\d+"
    both = rf"ranks 0-1 on \S+ wait in {wait}|rank 0 on \S+ waits in {wait}; rank 1 on \S+ waits in {wait}"
    one = rf"rank 0 on \S+ waits in {wait}; rank 1 on \S+ {place}, (hanging_rank|collective_libraries)\.py:\d+"
    expect(re.search(one if place else both, job.err), job.describe())
    expect(job.err.count("the job hangs") == 1, job.describe())


@contextlib.contextmanager
def slow_server(seconds):
    """Starts a server that sends each client some bytes every tenth of a second for `seconds`, and returns its port."""

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


def busy(kinds, limit, seconds, *flags):
    """Starts a job that is busy in each of these ways for `seconds`, and then hangs. Returns the job and its stderr
    before the hang."""
    library = "jax" if "compile_with_xla" in kinds else "torch"
    python = python_of(library)
    if "debug_in_an_editor" in kinds and not DEBUGPY.exists():
        raise Skip(f"{DEBUGPY} is missing")
    worker = [python, WORKERS / "busy_rank.py", "--library", library, "--seconds", seconds]
    with slow_server(seconds) as port:
        job = with_py_spy("--hang-warning", limit, *flags, *worker, "--port", port, *kinds)
        job.wait_for("hangs", 1, 120 + 3 * seconds * len(kinds))
        return job, job.err
