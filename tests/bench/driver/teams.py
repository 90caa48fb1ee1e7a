"""Teams: the ranks of one contender, which stay alive through many measurements and sleep between them.

A team's ranks connect to the driver's Unix socket and take commands (workers/worker.h). The launcher of a team starts
its ranks on this machine or on the hosts "a" and "b" of tests/hosts.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("HVD_BUILD", ROOT / "build"))
WORKERS = BUILD / "bench"
HOSTS = ROOT / "tests" / "hosts" / "hosts"
LAUNCHER = BUILD / "bin" / "horovodrun"
PYTHON_WORKER = ROOT / "tests" / "bench" / "workers" / "python_worker.py"
TENSORFLOW_WORKER = PYTHON_WORKER.with_name("tensorflow_worker.py")
JAX_WORKER = PYTHON_WORKER.with_name("jax_worker.py")
HOST_NAMES = ("a", "b")
# glibc sometimes trims its heap after each step and faults it in again in the next step, which costs 1.5 ms of 5 ms.
# These settings disable trimming for every team.
PYTHON_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
}


class Missing(Exception):
    """A contender is not installed or does not start."""


class Refused(Exception):
    """A worker cannot carry out a command."""


class Team:
    """Context manager of one contender's ranks."""

    def __init__(self, name, commands, ranks, environment=None):
        self.name = name
        self._folder = tempfile.TemporaryDirectory(prefix="team-", dir=WORKERS)
        # A Unix socket needs a short path, and each host has its own /tmp.
        path = os.path.relpath(self._folder.name, "/")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"/{path}/s")
        self._listener.listen(ranks)
        places = {"socket": f"/{path}/s", "folder": f"/{path}"}
        self._log = open(f"/{path}/log", "w+", encoding="utf-8", errors="replace")
        self._processes = [
            subprocess.Popen(
                [str(word).format(**places) for word in command],
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
            for command in commands
        ]
        self.launchers = [process.pid for process in self._processes]
        self._ranks = {}
        self.pids = {}
        try:
            self._meet(ranks)
        except BaseException:
            self.stop()
            raise

    def _meet(self, ranks):
        self._listener.settimeout(0.5)
        waited = 0
        while len(self._ranks) < ranks:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                waited += 0.5
                ended = [p for p in self._processes if p.poll() is not None]
                if ended or waited > 120:
                    raise Missing(f"{self.name} does not start: {self._last_words()}") from None
                continue
            connection.settimeout(120)
            lines = connection.makefile(encoding="utf-8")
            _, rank = lines.readline().split()
            self._ranks[int(rank)] = (connection, lines)
            # The kernel translates the PID into the namespace of this process.
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            self.pids[int(rank)] = int.from_bytes(credentials[:4], sys.byteorder)

    def _last_words(self):
        self._log.seek(0)
        words = [line.strip() for line in self._log.read().splitlines() if line.strip()]
        return words[-1] if words else "it says nothing"

    def ask(self, *command):
        """Sends a command to all ranks. Returns the numbers of rank 0."""
        return self.ask_all(*command)[0]

    def ask_all(self, *command):
        """Sends a command to all ranks. Returns each rank's numbers; raises Refused if a rank fails."""
        for connection, _ in self._ranks.values():
            connection.sendall((" ".join(map(str, command)) + "\n").encode())
        numbers, refusals = {}, []
        for rank, (_, lines) in sorted(self._ranks.items()):
            verdict, _, rest = lines.readline().strip().partition(" ")
            if verdict == "ok":
                numbers[rank] = [float(word) for word in rest.split()]
            else:
                refusals.append(rest or f"rank {rank} is gone: {self._last_words()}")
        if refusals:
            raise Refused(refusals[0])
        return [numbers[rank] for rank in sorted(numbers)]

    def stop(self):
        for connection, lines in self._ranks.values():
            try:
                connection.sendall(b"quit\n")
            except OSError:
                pass
            lines.close()
            connection.close()
        for process in self._processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._listener.close()
        self._log.close()
        self._folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def _need(path, what):
    if not os.path.exists(path) and not shutil.which(path):
        raise Missing(f"{what} is not there")
    return path


def _built(path):
    if not path.exists():
        raise Missing(f"{path} is not there; build the release preset with BUILD_TESTING=ON")
    return path


def ours_is_built():
    """Raises Missing with one message for all lines if the build lacks a program."""
    _built(BUILD / "bin" / "horovodrun")
    _built(WORKERS / "horovod_worker")


def launcher_is_built():
    _built(LAUNCHER)
    WORKERS.mkdir(exist_ok=True)


def _spread(hosts, ranks):
    return ["-H", ",".join(f"{host}:{ranks // 2}" for host in HOST_NAMES)] if hosts else []


def _singly(command, ranks, hosts):
    """Returns one command per rank, for peers without a launcher; replaces {rank}."""
    commands = []
    for rank in range(ranks):
        words = [str(word).replace("{rank}", str(rank)) for word in command]
        commands.append([HOSTS, "exec", HOST_NAMES[rank * 2 // ranks], *words] if hosts else words)
    return commands


def _named(build, bound):
    return bound or ("ours" if build == BUILD else "before")


def ours(ranks, hosts=False, python=None, build=BUILD, bound=None):
    """Starts the C worker, or with `python` the Python worker in an interpreter that has torch. `bound`: the data that
    each step reduces instead of gradients; see python_worker.Bound."""
    launcher = [_built(build / "bin" / "horovodrun"), "-np", ranks, *_spread(hosts, ranks)]
    if python:
        worker = [python, PYTHON_WORKER, "{socket}", *(["bound", bound] if bound else ["horovod"])]
    else:
        worker = [_built(WORKERS / "horovod_worker"), "{socket}"]
    name = _named(build, bound)
    return Team(
        f"{name} (Python)" if python and name == "ours" else name,
        [launcher + worker],
        ranks,
        {"PYTHONPATH": str(build / "python"), "LD_LIBRARY_PATH": str(build / "lib"), **PYTHON_ENVIRONMENT},
    )


def openmpi(ranks, hosts=False):
    command = [
        _need("mpirun.openmpi", "Open MPI"),
        "-np",
        ranks,
        *"--allow-run-as-root --oversubscribe --bind-to none".split(),
        *_spread(hosts, ranks),
    ]
    if hosts:
        net = "10.77.0.0/16"
        command += ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", net, "--mca", "oob_tcp_if_include", net]
    return Team("Open MPI", [command + [_need(WORKERS / "openmpi_worker", "Open MPI's worker"), "{socket}"]], ranks)


def mpich(ranks, hosts=False):
    return Team(
        "MPICH",
        [
            [
                _need("mpiexec.hydra", "MPICH"),
                "-np",
                ranks,
                *(["-hosts", ",".join(HOST_NAMES)] if hosts else []),
                _need(WORKERS / "mpich_worker", "MPICH's worker"),
                "{socket}",
            ]
        ],
        ranks,
    )


def _interface(hosts):
    return "eth0" if hosts else "lo"


def gloo(ranks, hosts=False):
    command = [
        _need(WORKERS / "gloo_worker", "libgloo's worker"),
        "{socket}",
        "{rank}",
        ranks,
        "{folder}",
        _interface(hosts),
    ]
    return Team("libgloo", _singly(command, ranks, hosts), ranks)


def ccl_library():
    path = os.environ.get("HVD_TEST_CCL")
    if path is None:
        raise Missing("HVD_TEST_CCL names no libccl.so.1; tests/run.sh gets one")
    return _need(path, path)


def ccl(ranks):
    command = [_built(WORKERS / "ccl_worker"), "{socket}", "{rank}", ranks, "{folder}", ccl_library()]
    return Team("oneCCL", _singly(command, ranks, False), ranks)


# For DistributedDataParallel(gradient_as_bucket_view=True).
_VIEWS = {"HVD_BENCH_BUCKET_VIEWS": "1"}
_ALLOCATES = {"HVD_BENCH_ALLOCATES": "1"}


def torch_group(
    ranks,
    hosts=False,
    python="/usr/bin/python3",
    is_direct=False,
    is_bound=True,
    has_views=False,
    allocates=False,
    keeps_memory=True,
):
    """Starts torch.distributed on the backend horovod. `is_direct`: hvd.allreduce_ instead; `is_bound`: bind ranks to
    cores; `has_views`: DDP's gradients are views of its buckets; `allocates`: FSDP2 and collectives use memory of the
    group; `keeps_memory`: disable trimming of the heap (PYTHON_ENVIRONMENT)."""
    launcher = [_built(BUILD / "bin" / "horovodrun"), "-np", ranks, *_spread(hosts, ranks)]
    worker = [python, PYTHON_WORKER, "{socket}", "horovod" if is_direct else "group"]
    return Team(
        "hvd.allreduce_"
        if is_direct
        else (
            "dist, horovod"
            + ", views" * has_views
            + ", memory of the group" * allocates
            + ", own settings of the C library" * (not keeps_memory)
        ),
        [launcher + worker],
        ranks,
        {
            "PYTHONPATH": str(BUILD / "python"),
            **({"HVD_BENCH_BOUND": "1"} if is_bound else {}),
            **(_VIEWS if has_views else {}),
            **(_ALLOCATES if allocates else {}),
            **(PYTHON_ENVIRONMENT if keeps_memory else {"OMP_NUM_THREADS": "1"}),
        },
    )


def torch_gloo(ranks, hosts=False, python="/usr/bin/python3", is_bound=False):
    command = [python, PYTHON_WORKER, "{socket}", "gloo", "{rank}", ranks, "{folder}", _interface(hosts)]
    if is_bound:
        return Team("torch gloo", _singly(command, ranks, hosts), ranks, {"HVD_BENCH_BOUND": "1", **PYTHON_ENVIRONMENT})
    return Team("torch gloo", _singly(command, ranks, hosts), ranks, PYTHON_ENVIRONMENT)


def plain_torch(ranks, python="/usr/bin/python3", is_ddp=False, has_views=False):
    """Starts torch processes that share only a barrier. `is_ddp`: each process wraps its model in DDP."""
    command = [python, PYTHON_WORKER, "{socket}", "plain", "{rank}", ranks, "{folder}", *(["ddp"] if is_ddp else [])]
    name = ("DDP, views, barrier only" if has_views else "DDP, barrier only") if is_ddp else "barrier only"
    environment = {**PYTHON_ENVIRONMENT, **(_VIEWS if has_views else {})}
    return Team(name, _singly(command, ranks, False), ranks, environment)


def _tensorflow(python):
    """Returns the words that start a worker. tests/run.sh makes such an interpreter."""
    return [_need(python, f"{python}, an interpreter with TensorFlow,"), TENSORFLOW_WORKER, "{socket}"]


def tensorflow_ours(ranks, python, build=BUILD, bound=None):
    launcher = [_built(build / "bin" / "horovodrun"), "-np", ranks]
    worker = ["bound"] if bound else ["horovod"]
    return Team(
        _named(build, bound),
        [launcher + _tensorflow(python) + worker],
        ranks,
        {"PYTHONPATH": str(build / "python"), **PYTHON_ENVIRONMENT},
    )


def tensorflow_plain(ranks, python):
    """Starts processes that share only a barrier, or one process alone."""
    command = _tensorflow(python) + ["plain", "{rank}", ranks, "{folder}"]
    name = "barrier only" if ranks > 1 else "one alone"
    return Team(name, _singly(command, ranks, False), ranks, PYTHON_ENVIRONMENT)


def tensorflow_mirrored(ranks, python):
    """Starts MultiWorkerMirroredStrategy on ports that are free when this function picks them."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(ranks)]
        ports = [one.getsockname()[1] for one in held]
    command = _tensorflow(python) + ["mirrored", "{rank}", ranks, *ports]
    return Team("MWMS", _singly(command, ranks, False), ranks, PYTHON_ENVIRONMENT)


def jax_ours(ranks, python, build=BUILD):
    worker = [_need(python, f"{python}, an interpreter with JAX,"), JAX_WORKER, "{socket}"]
    launcher = [_built(build / "bin" / "horovodrun"), "-np", ranks]
    environment = {"PYTHONPATH": str(build / "python"), **PYTHON_ENVIRONMENT}
    return Team(_named(build, None), [launcher + worker], ranks, environment)


def stream_pair(hosts=False):
    command = [_built(WORKERS / "stream_worker"), "{socket}", "{rank}", 2, "{folder}", _interface(hosts)]
    return Team("plain stream pair", _singly(command, 2, hosts), 2)
