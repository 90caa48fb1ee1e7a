#!/usr/bin/python3 -B
"""Another user of a job's hosts, without privileges, can read, change and end nothing of the job."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import *

# Computes sums until any rank gets a signal, and checks each sum.
RANK = """
import signal, sys
import numpy, horovod.numpy as hvd
hvd.init()
ends = [0]
signal.signal(signal.SIGUSR1, lambda *_: ends.__setitem__(0, 1))
rounds = 0
while True:
    got = hvd.allreduce(numpy.full(5000, hvd.rank() + 1.0), op=hvd.Sum, name="sum")
    assert (got == hvd.size() * (hvd.size() + 1) / 2).all(), got
    rounds += 1
    if rounds == 100:
        print("sums", flush=True)
    if hvd.allreduce(numpy.array([ends[0]]), op=hvd.Max, name="end")[0]:
        break
signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # another rank may have had it first
print("right to the end", flush=True)
"""
ATTACKER = pathlib.Path(__file__).with_name("other_user.py")
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]


def secrets_of_ranks():
    """Returns the secrets in the environment of each process of a job."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        found |= set(re.findall(r"(?:^|\0)HOROVOD_JOB_SECRET=([^\0]+)", faults.said_of(pid, "environ")))
    return found


def has_a_secret(secrets, said):
    return any(secret.encode() in said or bytes.fromhex(secret) in said for secret in secrets)


def shared_folder():
    """Makes a folder that all hosts and all users see."""
    folder = scratch("/var/tmp")
    folder.chmod(0o755)
    return folder


@world("a b")
def test_another_user_gets_nothing_and_changes_nothing():
    folder = shared_folder()
    (folder / "staged").mkdir()
    (folder / "staged" / "file").touch()
    job = Job(
        *"-np 4 -H a:2,b:2".split(),
        "--stage",
        folder / "staged",
        "--output-filename",
        folder / "out",
        "--timeline-filename",
        folder / "trace.json",
        "--log-level",
        "trace",
        "--stall-report",
        folder / "stalls",
        "--verbose",
        PYTHON,
        "-c",
        RANK,
    )
    job.wait_for("sums", 4)
    secrets = secrets_of_ranks()
    expect(secrets, "no rank has a secret")
    for where, listens in ([], False), ([HOSTS, "exec", "a"], True):
        done = subprocess.run(
            [*where, *NOBODY, PYTHON, "-B", ATTACKER],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LONG,
            check=False,
        )
        said = done.stdout
        expect(done.returncode == 0 and said.endswith(b"== end\n"), said[-1000:].decode(errors="replace"))
        # The attacker saw the job, and a rank's host accepted its connections.
        expect(b"horovod-agent" in said if listens else b"horovodrun" in said, "it saw no process of the job")
        expect(not listens or re.search(rb"== accepted .*\('", said), "it found no port of the ranks")
        expect(b"/rank.0/stdout\n" in said, "it did not find the output of the ranks")
        expect(not has_a_secret(secrets, said), f"the other user has the secret of the job: {where}")
        reached = re.findall(
            rb"\n== ((?:environ|maps|mem|auxv|stack|syscall|pagemap|descriptor|control|pid|folder"
            rb"|file) .*)",
            said,
        )
        expect(not reached, f"the other user reached {reached[:20]}")
    report = run_to_end(
        [LAUNCHER, "stack"], env=clean_environment(), stdin=subprocess.DEVNULL, check=True, text=False
    ).stdout
    job.signal(signal.SIGUSR1)
    job.ends_with(0)
    expect(job.out.count("right to the end") == 4, job.describe())
    job.leaves_nothing()
    written = [file for file in folder.rglob("*") if file.is_file()]
    expect({"trace.json", "stdout"} <= {file.name for file in written}, written)
    for file in written:
        expect(not has_a_secret(secrets, file.read_bytes()), f"{file} has the secret of the job")
    expect("[trace]" in job.err or "[debug]" in job.err, f"no log\n{job.describe()}")
    expect(not has_a_secret(secrets, (job.out + job.err).encode() + report), "the log has the secret of the job")


@world("a")
def test_another_user_cannot_read_the_core_of_a_rank():
    if not re.match(r"\w", faults.said_of("sys/kernel", "core_pattern")):
        raise Skip("this machine writes cores elsewhere")
    folder = shared_folder()
    job = Job(
        *"-np 1 -H a:1".split(),
        "sh",
        "-c",
        f"umask 0; ulimit -c unlimited; cd {folder}; exec {PYTHON} -c 'import os; os.abort()'",
    )
    expect(job.wait() == 134, job.describe())
    (core,) = folder.iterdir()
    expect(b"HOROVOD_JOB_SECRET=" in core.read_bytes(), "the core is not that of the rank")
    done = run_to_end([*NOBODY, "cat", core], text=False)
    expect(done.returncode != 0 and done.stdout == b"", "another user read the core")


if __name__ == "__main__":
    main()
