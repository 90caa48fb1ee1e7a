#!/usr/bin/python3 -B
"""`horovodrun stack` shows the Python stacks of ranks that never call hvd.init(), by the real py-spy."""

from harness import *

from hangs import refused_py_spy

PY_SPY = BUILD / "venv-py-spy/bin/py-spy"

SLEEPING = """
import time
def read_shard():
    print("ready", flush=True)
    time.sleep(600)
read_shard()
"""

REDUCING = """
import os, time
import torch, torch.distributed as dist
def load_shard():
    print("ready", flush=True)
    time.sleep(600)
dist.init_process_group("gloo")
if os.environ["HOROVOD_RANK"] == "1":
    load_shard()
print("ready", flush=True)
dist.all_reduce(torch.ones(4))
"""

MPI = """
import time
from mpi4py import MPI
def load_shard():
    print("ready", flush=True)
    time.sleep(600)
if MPI.COMM_WORLD.Get_rank() == 1:
    load_shard()
print("ready", flush=True)
MPI.COMM_WORLD.bcast(None, root=1)
"""


def stacks_of(job, pattern, *flags):
    """Returns the output of `horovodrun stack` once it contains the pattern."""
    seen = [""]

    def look():
        seen.append(ask("stack", *flags, job.process.pid).stdout)
        return re.search(pattern, seen[-1])

    wait_until(look, 30, lambda: f"{pattern!r} in the stacks: {seen[-1]}\n{job.describe()}")
    return seen[-1]


def with_py_spy(*arguments):
    """Starts a job in which only the launcher has py-spy on its PATH."""
    if not PY_SPY.exists():
        raise Skip(f"{PY_SPY} is missing: pip install py-spy")
    environment = clean_environment()
    environment["PATH"] = f"{PY_SPY.parent}:{environment['PATH']}"
    return Job("-np", 2, *arguments, environment=environment)


def end(job):
    job.signal(signal.SIGTERM)
    job.wait()
    job.leaves_nothing()


@world()
def test_a_rank_without_horovod_shows_its_python_stack():
    command = ("sh", "-c", f"{PYTHON} -c '{SLEEPING}'; true")
    job = with_py_spy("-H", "a:1,b:1", "-x", "PATH=/usr/bin:/bin", *command)
    job.wait_for("ready", 2)
    text = stacks_of(job, r"in read_shard\n(.*\n)*host b\n(.*\n)*.*in read_shard\n")
    expect(
        re.search(r'\n    File "<string>", line 5 in read_shard\n    File "<string>", line 6 in <module>\n', text), text
    )
    expect("waits in" not in text and "no Python stack" not in text, text)
    text = stacks_of(job, r"read_shard", "--native")
    expect(re.search(r"\n    \S*(sleep|select)\S* in \S*libc", text), text)
    end(job)


@world()
def test_a_rank_that_waits_in_a_collective_of_torch_is_named():
    has_torch = run_to_end([PYTHON, "-c", "import torch.distributed"])
    if has_torch.returncode != 0:
        raise Skip("Debian's Python has no torch: apt-get install python3-torch")
    job = with_py_spy("-H", "a:1,b:1", "-x", "PATH=/usr/bin:/bin", PYTHON, "-c", REDUCING)
    job.wait_for("ready", 2, 60)
    text = stacks_of(job, r"waits in torch\.distributed( \(gloo\))?: all_reduce, called at <string>:11\n")
    rank_1 = text.partition("\nrank 1\n")[2]
    expect("in load_shard" in rank_1 and "waits in" not in rank_1, text)
    end(job)


def test_a_rank_that_waits_in_mpi4py_is_named_by_its_line():
    if run_to_end([PYTHON, "-c", "import mpi4py"]).returncode != 0:
        raise Skip("Debian's Python has no mpi4py: apt-get install python3-mpi4py")
    script = scratch() / "script.py"
    script.write_text(MPI)
    job = with_py_spy("-x", "PATH=/usr/bin:/bin", PYTHON, script)
    job.wait_for("ready", 2, 60)
    text = stacks_of(job, r"waits in MPI: bcast, called at script\.py:10\n")
    rank_1 = text.partition("\nrank 1\n")[2]
    expect("in load_shard" in rank_1 and "waits in" not in rank_1, text)
    end(job)


def test_a_kernel_that_refuses_to_read_memory_is_named():
    job = with_py_spy("-x", f"PATH={refused_py_spy()}:/usr/bin:/bin", PYTHON, "-c", SLEEPING)
    job.wait_for("ready", 2)
    text = stacks_of(job, "no Python stack: ")
    expect(
        text.count("no Python stack: the kernel refuses process_vm_readv") == 2 and "--cap-add SYS_PTRACE" in text, text
    )
    end(job)


main()
