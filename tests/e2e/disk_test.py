#!/usr/bin/python3 -B
"""Full disks, and a /tmp that cannot be written: the job succeeds nevertheless, or ends with one message that names the
host, the path, the cause and the remedy. Nothing remains."""

import faults_test as disks
import namespaces as ns
import traces

from harness import *

WORKER = BUILD / "tests" / "runtime_worker"
SUM = """
import numpy
import horovod.numpy as hvd
hvd.init()
print("sum", hvd.allreduce(numpy.ones(1 << 20, numpy.float32), op=hvd.Sum)[0], flush=True)
"""
IMPORTS = f"import os, sys; sys.path.insert(0, {str(HOSTS.parent)!r}); import namespaces as ns\n"
# Mounts a read-only /tmp here; a clone of the project below it stays visible. Then executes a command.
READ_ONLY = (
    IMPORTS + f"ns.cover('/tmp', {sorted({str(ROOT), str(BUILD.resolve())})!r}, 0o1777)\n"
    f"ns.mount('none', '/tmp', None, {ns.MS_REMOUNT | ns.MS_RDONLY})\n"
    "if sys.argv[1:]: os.execv(sys.argv[1], sys.argv[1:])"
)


def full_disk(name, folder, size):
    """Mounts a file system of this size at the folder on a host."""
    disks.inside(
        name,
        PYTHON,
        "-c",
        IMPORTS + f"os.makedirs(sys.argv[1])\nns.mount('tmpfs', sys.argv[1], 'tmpfs', 0, 'size={size}')",
        folder,
    )


def code_to_stage():
    folder = scratch() / "project"
    folder.mkdir()
    (folder / "weights").write_bytes(b"w" * (3 << 20))
    return folder


@world("a b", "--private-tmp")
def test_a_read_only_tmp_on_all_hosts_and_where_the_launcher_runs():
    for name in "ab":
        disks.inside(name, PYTHON, "-c", READ_ONLY)
    job = Job(
        "--mount",
        "--",
        PYTHON,
        "-c",
        READ_ONLY,
        LAUNCHER,
        "-np",
        4,
        "-H",
        "a:2,b:2",
        PYTHON,
        "-c",
        SUM,
        environment=clean_environment(HOROVOD_STATE_DIR="none"),  # the records of tests are in /tmp
        program="/usr/bin/unshare",
    )
    job.ends_with(0)
    expect(job.out.count("sum 4.0") == 4 and job.said() == [], job.describe())
    job.leaves_nothing()


@world("a b", "--private-tmp")
def test_code_is_not_staged_to_a_read_only_tmp_nor_to_a_full_one():
    code = code_to_stage()
    disks.small_disk("b", "1m", "/tmp")
    for words in ("No space left on device", "Read-only file system"):
        # The agent of a has started no rank, so it does not wait for the grace period either.
        job = Job("-np", 2, "-H", "a:1,b:1", "--stage", ".", "--kill-grace", 100, "true", cwd=code)
        job.ends_with(2)
        one_sentence(job, "host b: .*--stage: cannot write /tmp/horovod-stage-", words, "TMPDIR")
        expect("that the program wrote" not in job.err, job.describe())
        job.leaves_nothing()
        disks.inside("b", PYTHON, "-c", IMPORTS + f"ns.mount('none', '/tmp', None, {ns.MS_REMOUNT | ns.MS_RDONLY})")


@world()
def test_standard_output_on_a_full_disk_ends_the_job():
    folder = pathlib.Path("/tmp/e2e-full")
    folder.mkdir()
    ns.mount("tmpfs", folder, "tmpfs", 0, "size=64k")
    job = Job("-c", 'exec "$@" >/tmp/e2e-full/out', "sh", LAUNCHER, "-np", 2, "-H", "a:1,b:1", "yes", program="/bin/sh")
    job.ends_with(1)
    one_sentence(job, "standard output, /tmp/e2e-full/out", "No space left on device", "redirect")
    job.leaves_nothing()


@world()
def test_a_timeline_on_a_full_disk_ends_alone_and_stays_readable():
    full_disk("a", "/run/e2e-full", "16k")
    path = "/run/e2e-full/trace.json"
    job = Job("-np", 2, "-H", "a:1,b:1", "--timeline-filename", path, WORKER, "sum")
    job.ends_with(0)
    found = re.findall(f"cannot write the timeline {path}: No space left on device", job.err)
    expect(len(found) == 1, f"one sentence was expected\n{job.describe()}")
    copy = scratch() / "trace.json"
    copy.write_text(disks.inside("a", "cat", path).stdout)
    traces.Trace(copy)
    job.leaves_nothing()


@world()
def test_a_full_dev_shm_on_one_host():
    disks.small_disk("b", "1m", "/dev/shm")
    disks.inside("b", "sh", "-c", "! head -c 2M /dev/zero >/dev/shm/e2e-filler")  # the disk is full now
    job = Job("-np", 4, "-H", "a:2,b:2", PYTHON, "-c", SUM)
    job.ends_with(0)
    expect(job.out.count("sum 4.0") == 4, job.describe())
    job.leaves_nothing()


if __name__ == "__main__":
    main()
