#!/usr/bin/python3 -B
"""Attacks of another user on one host's sockets: the launcher's, which takes commands, and the PMIx server's."""

import contextlib
import pathlib
import socket
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from elastic_jobs import RANK, wait_for_generation
from harness import *
from mpi_test import helpers

from other_user_test import ATTACKER, NOBODY, secrets_of_ranks

# Listens at names like this launcher's, sends requests to the launcher's own name, and prints all bytes received on
# either; ends at the end of its standard input.
STRANGER = r"""
import secrets, socket, sys, threading
pid, name, *requests = sys.argv[1:]
def hear(peer, what):
    try:
        while piece := peer.recv(65536):
            print(what, piece.hex(), flush=True)
    except OSError:
        pass
def serve(listener):
    while True:
        hear(listener.accept()[0], "a question:")
for end in secrets.token_hex(16), "0":
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0horovodrun/0/{pid}/{end}")
    listener.listen()
    threading.Thread(target=serve, args=[listener], daemon=True).start()
for sent in *map(bytes.fromhex, requests), b"ps\n", b"stack\n":
    with socket.socket(socket.AF_UNIX) as launcher:
        launcher.connect("\0" + name)
        try:
            launcher.sendall(sent)
        except OSError:
            pass
        hear(launcher, "an answer:")
print("ready", flush=True)
sys.stdin.read()
"""


def ask(*words, whom=()):
    return run_to_end([*whom, LAUNCHER, *map(str, words)], env=clean_environment(), stdin=subprocess.DEVNULL)


def name_of(job):
    """Returns the abstract socket name of a job's launcher."""
    (name,) = re.findall(rf"@(horovodrun/0/{job.process.pid}/\w+)", pathlib.Path("/proc/net/unix").read_text())
    return name


def request_of(*words):
    """Returns the bytes that horovodrun sends to a launcher of the same user for these words."""
    pid = 1  # a process that is not a launcher
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0horovodrun/{os.getuid()}/{pid}/0")
        listener.listen()
        said = []

        def serve():
            with listener.accept()[0] as caller:
                said.append(caller.recv(65536))

        thread = threading.Thread(target=serve)
        thread.start()
        ask(words[0], pid, *words[1:])
        thread.join(60)
        return said[0]


@contextlib.contextmanager
def stranger(*arguments):
    process = subprocess.Popen(
        [*NOBODY, PYTHON, "-c", STRANGER, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if line == "ready\n":
                break
        yield said
    finally:
        said += process.communicate(timeout=LONG)[0]


@world("a")
def test_another_user_gets_no_answer_runs_no_command_and_hears_no_question():
    job = Job("-np", 1, "-H", "a:1", "sh", "-c", "echo ready; exec sleep 600")
    job.wait_for("ready")
    made = scratch("/etc") / "made"  # the hosts share /etc
    request = request_of("exec", "touch", made)
    expect(request.startswith(b"exec "), request)
    with stranger(job.process.pid, name_of(job), request.hex()) as said:
        expect(said == ["ready\n"], f"the other user got an answer: {said}")
        expect(not made.exists(), "the other user ran a command")
        seen = ask("ps")
        expect(f"horovodrun, pid {job.process.pid}, 1 rank: " in seen.stdout and seen.stderr == "", seen)
        done = ask("exec", job.process.pid, "touch", made)
        expect(done.returncode == 0 and made.exists(), f"the request does nothing: {done}")
    expect("question" not in "".join(said), f"the other user heard {said}")
    job.signal(signal.SIGTERM)
    job.wait()
    job.leaves_nothing()


@world("a b")
def test_another_user_neither_sees_nor_changes_an_elastic_job():
    job = Job("-np", 2, "--min-np", 1, "-H", "a:1,b:1", PYTHON, RANK, 400, "--slow", 0.05)
    wait_for_generation(job, 0, 2)
    pid = job.process.pid
    for words in (
        ("ps",),
        ("stack",),
        ("resize", 1),
        ("resize", pid, 1),
        ("remove", "b"),
        ("remove", pid, "b"),
        ("remove", pid, 1),
        ("exec", pid, "true"),
    ):
        seen = ask(*words, whom=NOBODY)
        expect(seen.returncode != 0 or seen.stdout in ("", "no horovodrun of yours runs here\n"), f"{words}: {seen}")
        expect("rank" not in seen.stdout and "host a" not in seen.stdout, f"{words}: {seen}")
    requests = [request_of("resize", 1), request_of("remove", "b"), request_of("remove", 1)]
    expect(all(re.match(rb"(resize|remove) ", request) for request in requests), requests)
    with stranger(pid, name_of(job), *(request.hex() for request in requests)) as said:
        expect(said == ["ready\n"], f"the other user got an answer: {said}")
        expect("2 ranks: " in ask("ps").stdout, job.describe())
        expect(not re.search("begins 1", job.out), job.describe())
        done = ask("resize", pid, 1)
        expect(done.returncode == 0, f"the request does nothing: {done}")
        wait_for_generation(job, 1, 1)
    expect("question" not in "".join(said), f"the other user heard {said}")
    job.ends_with(0)
    job.leaves_nothing()


# Computes a sum with MPI when the file exists.
MPI_RANK = """
import os, sys, time
names = "PMIX_NAMESPACE", "PMIX_SERVER_URI2", "PMI_PORT"
print("waits", *(os.environ.get(name, "none") for name in names), flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
from mpi4py import MPI
print("sum", MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1), flush=True)
"""
# Another user whose processes claim to be root's.
AS_ROOT = [*NOBODY, "unshare", "--user", "--map-root-user"]
# Claims to be the rank that its environment names. Prints PMIx's reply.
POSES = """
import ctypes, os, sys
pmix = ctypes.CDLL("libpmix.so.2")
pmix.PMIx_Error_string.restype = ctypes.c_char_p
print(pmix.PMIx_Error_string(pmix.PMIx_Init(ctypes.create_string_buffer(4096), None, 0)).decode())
rank_0 = ctypes.create_string_buffer(os.environ["PMIX_NAMESPACE"].encode(), 260)
for key in sys.argv[1:]:
    value = ctypes.POINTER(ctypes.c_void_p)()
    if pmix.PMIx_Get(rank_0, key.encode(), None, 0, ctypes.byref(value)) == 0:
        print(ctypes.string_at(value[1], value[2]))
"""


def pose(space, address, *as_whom, rank=0, where="a", keys=()):
    """Returns the reply of a host's PMIx server to a process that claims to be this rank of a namespace, and the values
    of rank 0 for these keys."""
    variables = {f"PMIX_SERVER_URI{n}": address for n in (2, 21, 3, 4, 41)}
    return run_to_end(
        [HOSTS, "exec", where, *as_whom, "timeout", "60", PYTHON, "-c", POSES, *keys],
        env=clean_environment(
            PMIX_NAMESPACE=space, PMIX_RANK=str(rank), PMIX_SECURITY_MODE="native", PMIX_GDS_MODULE="hash", **variables
        ),
        stdin=subprocess.DEVNULL,
    ).stdout.strip()


# Claims to be rank 0, connects to a port of 127.0.0.1 or to an abstract socket, and prints the reply.
PMI_CLIENT = """
import socket, sys
place = sys.argv[1]
try:
    if place.isdigit():
        server = socket.create_connection(("127.0.0.1", int(place)))
    else:
        server = socket.socket(socket.AF_UNIX)
        server.connect(chr(0) + place)
    server.sendall(b"cmd=initack pmiid=0\\n")
    sys.stdout.write(server.recv(1000).decode())
except OSError:
    pass
"""


def as_pmi_client(place, *as_whom):
    return run_to_end(
        [HOSTS, "exec", "a", *as_whom, "timeout", "20", PYTHON, "-c", PMI_CLIENT, place], stdin=subprocess.DEVNULL
    ).stdout


def waiting_ranks(go):
    """Starts a job whose ranks wait for a file before MPI; returns it, the namespace and host a's PMIx server."""
    job = Job("-np", 2, "-H", "a:1,b:1", PYTHON, "-c", MPI_RANK, go)
    job.wait_for("waits", 2)
    return job, *re.search(r"\[0\]<stdout>:waits (\S+) (\S+)", job.out).groups()


@world("a b", "--no-decoys")
def test_another_user_is_no_rank_to_the_pmix_server():
    go = scratch("/etc") / "go"
    job, space, address = waiting_ranks(go)
    if space == "none":
        raise Skip("agents were built without PMIx")
    expect(pose(space, address) == "SUCCESS", "rank 0 itself is refused")
    # PMI-1 has no proof. The agent's port and the helper's socket must refuse commands of another user.
    (number_of_helper,) = helpers("a")
    names = pathlib.Path(f"/proc/{number_of_helper}/net/unix").read_text()
    of_helper = re.search(r"@(horovod-pmi-\w+)", names)[1]
    of_agent = re.search(r"\[0\]<stdout>:waits .* 127\.0\.0\.1:(\d+)\n", job.out)[1]
    for whom, heard in ((NOBODY, ""), (AS_ROOT, ""), ([], "cmd=initack rc=0")):
        for place in (of_agent, of_helper):
            said = as_pmi_client(place, *whom)
            expect(said.startswith(heard) and bool(said) == bool(heard), f"{whom} got {said!r} of {place}")
    job.signal(signal.SIGTERM)
    job.wait()
    job, space, address = waiting_ranks(go)
    # A PMIx client can send any UID, so the agent gets the UID from the kernel. Other users also do not know the job's
    # name.
    number = int(space.split("-")[1])
    for guess in space, "horovod-0-0", f"horovod-{number ^ 1}-0", "horovod":
        for whom in NOBODY, AS_ROOT:
            expect(pose(guess, address, *whom) == "UNREACHABLE", f"{whom} guessed {guess!r}")
    seen = subprocess.run(
        [HOSTS, "exec", "a", *NOBODY, PYTHON, "-B", ATTACKER],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LONG,
        check=False,
    ).stdout
    port = address.rpartition(":")[2].encode()
    expect(re.search(rb"== accepted .*\b" + port + rb"\)", seen), f"it found no PMIx server at {address}")
    for text in {space, str(number), f"{number:016x}"} | secrets_of_ranks():
        expect(text.encode() not in seen, f"another user read {text}")
    go.touch()
    job.ends_with(0)
    expect(job.out.count("sum 3") == 2, job.describe())
    job.leaves_nothing()


if __name__ == "__main__":
    main()
