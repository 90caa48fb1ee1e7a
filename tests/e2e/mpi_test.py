#!/usr/bin/python3 -B
"""MPI programs under horovodrun: agents serve PMIx to their ranks."""

import shutil

from commands_test import on_host
from harness import *

# Each rank prints its rank in MPI and in horovod, and both sum over all ranks.
BOTH = """
import numpy
from mpi4py import MPI
import horovod.numpy as hvd
hvd.init()
world = MPI.COMM_WORLD
sums = world.allreduce(world.Get_rank() + 1), int(hvd.allreduce(
    numpy.array([hvd.rank() + 1.0]), op=hvd.Sum)[0])
print(f"rank {world.Get_rank()} {hvd.rank()} of {world.Get_size()} {hvd.size()} sums {sums}")
hvd.shutdown()
"""
PROGRAM = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int rank, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d sum %d\\n", rank, sum);
  if (argc > 1 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 9);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}
"""


# Prints its PMIx server, and waits until it may continue.
WAITS = """
import os, sys, time
print("given", os.environ.get("PMIX_RANK"), os.environ.get("PMIX_SERVER_URI2"), flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""
USES_MPI = WAITS + "from mpi4py import MPI; print('of', MPI.COMM_WORLD.Get_size(), flush=True)"
ON_RANK_0 = "import os; os.environ['HOROVOD_RANK'] == '0' and __import__('mpi4py.MPI')"


BY_HAND = r"""
import os, socket
host, port = os.environ["PMI_PORT"].split(":")
def open_one(text="cmd=initack pmiid=0\n"):
    one = socket.create_connection((host, int(port)))
    one.sendall(text.encode())
    return one, one.makefile()
def ask(one, text, lines=1):
    one[0].sendall(text.encode())
    return "".join(one[1].readline() for _ in range(lines))
first = open_one()
assert [first[1].readline() for _ in range(4)] == [
    "cmd=initack rc=0\n", "cmd=set size=1\n", "cmd=set rank=0\n", "cmd=set debug=0\n"]
assert "rc=0" in ask(first, "cmd=init pmi_version=1 pmi_subversion=1\n")
assert "rc=-1" in ask(first, "cmd=init pmi_version=2 pmi_subversion=0\n")
name = ask(first, "cmd=get_my_kvsname\n").split("kvsname=")[1].split()[0]
assert "rc=0" in ask(first, f"cmd=put kvsname={name} key=k value=v\n")
assert "rc=0" in ask(first, "cmd=barrier_in\n")
assert "value=v\n" in ask(first, f"cmd=get kvsname={name} key=k\n")
assert "value=(vector,(0,1,1))\n" in ask(first, f"cmd=get kvsname={name} key=PMI_process_mapping\n")
for line in (f"get kvsname={name} key=none", "get kvsname=other key=k", "put kvsname=other key=k value=v",
             f"put kvsname={name} key={'k' * 65} value=v", f"put kvsname={name} key=k value={'v' * 1025}",
             "lookup_name service=s", "publish_name service=s port=p"):
    assert "rc=-1" in ask(first, f"cmd={line}\n"), line
assert "spawn_result rc=-1" in ask(first, "mcmd=spawn\nnprocs=1\nexecname=x\nendcmd\n")
assert "finalize_ack" in ask(first, "cmd=finalize\n")
# The next program of the rank has keys of its own.
second = open_one()
[second[1].readline() for _ in range(4)]
other = ask(second, "cmd=get_my_kvsname\n").split("kvsname=")[1].split()[0]
assert other != name and "rc=-1" in ask(second, f"cmd=get kvsname={other} key=k\n")
for text in ("cmd=initack pmiid=1\n", "cmd=initack pmiid=x\n", "cmd=get_maxes\n", "nonsense\n", "x" * 5000,
             "cmd=initack pmiid=0\ncmd=initack pmiid=0\n", "cmd=initack pmiid=0\ncmd=unknown\n"):
    lines = open_one(text)[1].readlines()
    assert all(line.startswith(("cmd=initack rc=0", "cmd=set ")) for line in lines) and len(lines) in (0, 4), lines
"""


def need(*parts):
    for part in parts:
        if part == "mpi4py":
            found = run_to_end([PYTHON, "-c", "import mpi4py"]).returncode == 0
        else:
            found = shutil.which(part, path="/usr/bin")
        if not found:
            raise Skip(f"there is no {part}")
    if not (BUILD / "launcher/pmix/horovod-pmix").exists():
        raise Skip("this build has no PMIx server: libpmix-dev is missing, or it is sanitized")


def compiled(folder, mpi="openmpi"):
    source = pathlib.Path(folder, "program.c")
    source.write_text(PROGRAM)
    program = pathlib.Path(folder, mpi)
    subprocess.run([f"mpicc.{mpi}", "-o", program, source], check=True)
    return program


def test_mpi4py_is_one_world():
    need("mpi4py")
    job = Job("-np", 2, PYTHON, "-c", "from mpi4py import MPI; print(MPI.COMM_WORLD.Get_rank())")
    job.ends_with(0)
    expect(sorted(job.out.splitlines()) == ["[0]<stdout>:0", "[1]<stdout>:1"], job.describe())
    job.leaves_nothing()


def test_a_job_without_it_is_many_worlds_of_one():
    need("mpi4py")
    job = Job("-np", 2, "--no-pmix", PYTHON, "-c", "from mpi4py import MPI; print('of', MPI.COMM_WORLD.Get_size())")
    job.ends_with(0)
    expect(job.out.count("of 1\n") == 2, job.describe())


def test_an_mpirun_in_a_rank_makes_a_world_of_its_own():
    need("mpi4py", "mpirun.openmpi")
    say = "from mpi4py import MPI; print('of', MPI.COMM_WORLD.Get_size())"
    job = Job("-np", 1, "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", 3, PYTHON, "-c", say)
    job.ends_with(0)
    expect(len(re.findall("of 3|of", job.out)) == 3 and "of 1" not in job.out, job.describe())


def helpers(*hosts):
    """Returns the processes of PMIx helpers on these hosts."""
    return [pid for name in hosts for pid in faults.processes(name) if faults.said_of(pid, "comm") == "horovod-pmix\n"]


def test_programs_behind_scripts_are_one_world_also_in_turn():
    need("mpicc.openmpi", "mpicc.mpich")
    folder = scratch()
    of_pmix, of_pmi = compiled(folder), compiled(folder, "mpich")
    for command, times in (
        (("timeout", 60, of_pmix), 1),
        (("sh", "-c", f"A=1; {of_pmix} && {of_pmix}"), 2),
        (("timeout", 60, of_pmi), 1),
        (("sh", "-c", f"{of_pmi} && {of_pmix} && {of_pmi}"), 3),
    ):
        job = Job("-np", 2, *command)
        job.ends_with(0)
        found = sorted(re.findall(r"rank \d sum \d", job.out))
        expect(found == ["rank 0 sum 1"] * times + ["rank 1 sum 1"] * times, job.describe())
        job.leaves_nothing()


WITHOUT_MPI = r"rank [12] on host \S+ exited with code 0, and (rank [02] waits|ranks 0 and 2 wait) for it in MPI_Init"


def test_ranks_without_mpi_are_named_to_those_that_wait():
    need("mpi4py", "mpicc.openmpi", "mpicc.mpich")
    folder = scratch()
    of_pmix, of_pmi = compiled(folder), compiled(folder, "mpich")
    for command in (
        (PYTHON, "-c", ON_RANK_0),
        ("sh", "-c", f"{of_pmix}; [ $HOROVOD_RANK = 1 ] || exec {of_pmix}"),
        ("sh", "-c", f"{of_pmi}; [ $HOROVOD_RANK = 1 ] || exec {of_pmi}"),
    ):
        for ranks in (2, 3):
            job = Job("-np", ranks, *command)
            expect(job.wait() != 0, job.describe())
            one_sentence(job, WITHOUT_MPI, "--no-pmix")
            job.leaves_nothing()
    job = Job("-np", 2, "--no-pmix", PYTHON, "-c", ON_RANK_0)
    job.ends_with(0)


@world("a b", "--no-decoys")
def test_ranks_without_mpi_on_another_host_are_named():
    need("mpi4py")
    for hosts in ("a:1,b:1", "a:1,b:2"):
        job = Job("-H", hosts, PYTHON, "-c", ON_RANK_0)
        expect(job.wait() != 0, job.describe())
        one_sentence(job, WITHOUT_MPI, "--no-pmix")
        expect("on host b exited" in job.err, job.describe())
        job.leaves_nothing()


def writes(pid):
    """Returns the number of write(2) calls that a process has made."""
    return int(re.search(r"syscw: (\d+)", pathlib.Path(f"/proc/{pid}/io").read_text())[1])


@world("a b", "--no-decoys")
def test_agents_rest_while_ranks_of_mpi_sleep():
    need("mpi4py")
    code = "from mpi4py import MPI; import time; print('in', flush=True); time.sleep(600)"
    job = Job("-H", "a:1,b:1", PYTHON, "-c", code)
    job.wait_for("in", 2)
    watched = [pid for name in ("a", "b") for pid in agents(name)["agent"]]
    before = {pid: writes(pid) for pid in watched}
    time.sleep(1)
    made = {pid: writes(pid) - before[pid] for pid in watched}
    expect(len(made) == 2 and max(made.values()) < 200, f"writes of the agents in a second: {made}")
    job.signal(signal.SIGTERM)
    job.wait()


@world("a b", "--no-decoys")
def test_the_helper_starts_with_the_first_connection():
    need("mpi4py")
    go = scratch("/etc") / "go"
    job = Job("-H", "a:2,b:1", PYTHON, "-c", USES_MPI, go)
    job.wait_for("given", 3)
    expect(not helpers("a", "b"), "a helper runs before a rank uses MPI")
    expect(len(re.findall(r"given \d horovod\.\d;tcp4://127\.0\.0\.1:\d+", job.out)) == 3, job.describe())
    go.touch()
    job.ends_with(0)
    expect(job.out.count("of 3\n") == 3, job.describe())
    job.leaves_nothing()


@world("a b", "--no-decoys")
def test_ranks_wait_for_a_helper_that_starts_late():
    need("mpi4py")
    # The helper reads its settings from a pipe, which has no writer yet.
    on_host("a", "sh", "-c", "mkdir -p ~/.pmix && mount -t tmpfs none ~/.pmix && mkfifo ~/.pmix/mca-params.conf")
    go = scratch("/etc") / "go"
    go.touch()
    job = Job("-H", "a:2,b:1", "env", "HOME=/", PYTHON, "-c", USES_MPI, go)
    job.wait_for("given", 3)
    wait_until(lambda: helpers("a"), 30, job.describe)
    # The agent's loop continues meanwhile.
    expect("3 ranks: " in ask("ps").stdout, job.describe())
    expect("of 3" not in job.out, job.describe())
    enter = ["nsenter", "-t", str(host.pid_of("a")), "-m", "sh", "-c"]
    with subprocess.Popen([*enter, "while :; do : > ~/.pmix/mca-params.conf; done"], start_new_session=True) as writer:
        try:
            job.ends_with(0)
        finally:
            os.killpg(writer.pid, signal.SIGKILL)
    expect(job.out.count("of 3\n") == 3, job.describe())
    job.leaves_nothing()


@world("a b", "--no-decoys")
def test_a_helper_that_cannot_start_fails_mpi_alone():
    need("mpi4py")
    on_host(
        "a",
        "sh",
        "-c",
        "mkdir -p ~/.pmix && mount -t tmpfs none ~/.pmix && echo psec = missing > ~/.pmix/mca-params.conf",
    )
    job = Job("-H", "a:1,b:1", PYTHON, "-c", "print('has run')")
    job.ends_with(0)
    # HOME=/ keeps the rank from reading the settings in ~/.pmix.
    job = Job("-H", "a:1,b:1", "env", "HOME=/", PYTHON, "-c", "from mpi4py import MPI")
    expect(job.wait() != 0, job.describe())
    why = r"host a: the PMIx server of this host has failed: PMIx_server_init: .*, so that MPI_Init fails there"
    expect(re.search(why, job.err), job.describe())
    job.leaves_nothing()


@world("a b", "--no-decoys")
def test_no_rank_gets_pmix_where_a_host_lacks_its_library():
    need()
    job = Job("-H", "a:1,b:1", "env")
    job.ends_with(0)
    expect(job.out.count("PMIX_RANK=") == 2, job.describe())
    on_host("b", "mount", "--bind", "/dev/null", "/etc/ld.so.cache")
    job = Job("-H", "a:1,b:1", "env")
    job.ends_with(0)
    expect("PMIX_" not in job.out and "OMPI_MCA_schizo" not in job.out, job.describe())
    job = Job("-H", "a:1,b:1", "--pmix", "env")
    job.ends_with(0)
    expect(job.out.count("PMIX_RANK=") == 2, job.describe())


@world("a b", "--no-decoys")
def test_ranks_on_two_hosts_sum_with_mpi_and_with_horovod():
    need("mpi4py", "mpicc.openmpi")
    with tempfile.TemporaryDirectory(dir="/etc") as folder:
        script = pathlib.Path(folder, "both.py")
        script.write_text(BOTH)
        job = Job("-H", "a:2,b:2", PYTHON, script)
        job.ends_with(0)
        for rank in range(4):
            expect(f"rank {rank} {rank} of 4 4 sums (10, 10)" in job.out, job.describe())
        job.leaves_nothing()
        program = compiled(folder)
        job = Job("-H", "a:2,b:2", program)
        job.ends_with(0)
        expect(job.out.count("sum 6\n") == 4, job.describe())
        job.leaves_nothing()
        # The error names the rank that aborts, and no MPI process remains.
        job = Job("-H", "a:2,b:2", program, "abort")
        expect(job.wait() != 0, job.describe())
        expect(any("rank 1" in sentence for sentence in job.said()), job.describe())
        job.leaves_nothing()


@world("a b", "--no-decoys")
def test_programs_of_mpich_are_one_world_on_two_hosts():
    need("mpicc.mpich")
    with tempfile.TemporaryDirectory(dir="/etc") as folder:
        job = Job("-H", "a:2,b:1", compiled(folder, "mpich"))
        job.wait_for("sum 3\n", 3)
        # MPI_Finalize of MPICH 4.0 may block between hosts, also under MPICH's mpiexec.
        job.signal(signal.SIGTERM)
        job.wait()
        expect(sorted(re.findall(r"rank \d", job.out)) == ["rank 0", "rank 1", "rank 2"], job.describe())
        job.leaves_nothing()


def test_pmi_1_refuses_keys_of_other_programs_and_nonsense():
    """Sends PMI-1 commands as one rank: keys of other programs, commands of dynamic processes, and nonsense."""
    need()
    job = Job("-np", 1, PYTHON, "-c", BY_HAND)
    job.ends_with(0)
    job.leaves_nothing()


@world("a b", "--no-decoys")
def test_nothing_stays_when_agents_and_helpers_are_killed():
    need("mpi4py")
    code = "from mpi4py import MPI; import time; print('in', flush=True); time.sleep(600)"
    for victim in ("agent", "helper"):
        job = Job("-H", "a:1,b:1", PYTHON, "-c", code)
        job.wait_for("in", 2)
        if victim == "agent":
            os.kill(agents("b")["agent"][0], signal.SIGKILL)
        else:
            (helper,) = helpers("b")
            os.kill(helper, signal.SIGKILL)
            job.signal(signal.SIGTERM)
        expect(job.wait() != 0, job.describe())
        job.leaves_nothing()


if __name__ == "__main__":
    main()
