#!/usr/bin/python3 -B
"""Containers with fewer resources and rights than a machine: random programs give correct results there."""

import socket

from harness import *

PROGRAMS = (BUILD / "tests" / "program_worker", 1, 40)


def closed_in(what, ranks=2, **variables):
    job = Job(
        "-np", ranks, PYTHON, WORKERS / "closed_in.py", what, *PROGRAMS, environment=clean_environment(**variables)
    )
    code = job.wait()
    if reason := re.search(r"cannot be closed in: (.*)", job.out):
        raise Skip(reason[1])
    expect(code == 0, job.describe())
    check_digests(job, ranks)


def check_digests(job, ranks):
    """Checks that all ranks have the same digest of their results."""
    digests = re.findall(r"digest (\w+)", job.out)
    expect(len(digests) == ranks and len(set(digests)) == 1, job.describe())


def test_64_mib_of_dev_shm():
    closed_in("shm=64m", 4)


def test_no_dev_shm_to_speak_of():
    closed_in("shm=4k")


def test_no_ptrace_and_no_process_vm_readv():
    closed_in("no-peeking", 3)


def test_half_a_core():
    group = f"hvd-test-{os.getpid()}"
    try:
        closed_in("half-a-core", HVD_TEST_GROUP=group)
    finally:
        for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/cpu"):
            folder = pathlib.Path(root) / group
            if folder.exists():
                wait_until(lambda: not (folder / "cgroup.procs").read_text(), 60, "an empty group")
                folder.rmdir()


@world()
def test_two_containers_with_the_same_hostname():
    for name in ("a", "b"):
        subprocess.run([HOSTS, "exec", name, "hostname", "box"], check=True)
    job = Job("-np", 4, "-H", "a:2,b:2", *PROGRAMS)
    job.ends_with(0)
    check_digests(job, 4)


@world()
def test_one_machine_under_two_names():
    address = socket.gethostbyname("a")
    job = Job("-np", 2, "-H", f"a:1,{address}:1", *PROGRAMS)
    job.ends_with(0)
    check_digests(job, 2)


@world()
def test_localhost_and_the_hostname():
    """The launcher runs on a host with sshd, and treats its own name like any other host."""
    job = Job(
        "exec",
        "a",
        "env",
        f"PATH={clean_environment()['PATH']}",
        LAUNCHER,
        *"-np 2 -H localhost:1,a:1".split(),
        *PROGRAMS,
        program=HOSTS,
    )
    job.ends_with(0)
    check_digests(job, 2)
    job.leaves_nothing()


if __name__ == "__main__":
    main()
