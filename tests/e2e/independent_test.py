#!/usr/bin/python3 -B
"""Ranks that do not know each other have each done the whole work: the launcher warns at the end. Programs whose ranks
know each other, or are started by another program, run without a warning."""

import ctypes.util

from harness import *

PLAIN = "import helper\nprint('trained', helper.STEPS)\n"
HELPER = "STEPS = 3\n"
WARNING = r"each of the \d ranks has run .* by itself: none has called hvd\.init\(\).*--independent"


def program(**files):
    folder = scratch(BUILD)  # all hosts have this folder
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def run(folder, *command, flags=(), hosts=("-np", 2)):
    job = Job(*hosts, *flags, *command, cwd=folder)
    job.ends_with(0)
    return job


def warnings(job):
    return [line for line in job.said() if re.search(WARNING, line)]


def test_a_plain_script_is_named_once_at_the_end():
    folder = program(train=PLAIN, helper=HELPER)
    for command in ((PYTHON, "train.py", "--rate", 1), (PYTHON, "-u", "-m", "train"), (PYTHON, folder / "train.py")):
        job = run(folder, *command)
        expect(len(warnings(job)) == 1 and "train" in warnings(job)[0], job.describe())
        expect(job.out.count("trained 3") == 2, job.describe())


def test_programs_that_know_their_rank_and_sweeps_run_without_a_warning():
    for files in (
        {"train": PLAIN, "helper": "import os\nSTEPS = os.environ['HOROVOD_RANK']\n"},
        {
            "train": "from helper import STEPS\n",
            "helper": "from more import *\nSTEPS = 1\n",
            "more": "import os; print(os.environ['LOCAL_RANK'])\n",
        },
    ):
        job = run(program(**files), PYTHON, "train.py")
        expect(not warnings(job), job.describe())
    folder = program(train=PLAIN, helper=HELPER)
    expect(not warnings(run(folder, PYTHON, "train.py", flags=("--independent",))), "the switch warns")
    expect(not warnings(run(folder, PYTHON, "train.py", hosts=("-np", 1))), "one rank warns")
    for command in (("sh", "-c", f"{PYTHON} train.py"), (PYTHON, "-c", "print(1)"), ("hostname",)):
        expect(not warnings(run(folder, *command)), command)
    failing = Job("-np", 2, PYTHON, "-m", "train", cwd=program(train="raise SystemExit(3)"))
    failing.ends_with(3)
    expect(not warnings(failing), failing.describe())


def test_ranks_that_meet_are_seen_where_the_source_shows_nothing():
    """The words that the launcher searches for are in a module outside of the folder, like an installed package. Rank 0
    listens while rank 1 ends, because the kernel may not list a connection that both ends have closed."""
    package = program(
        joins="import horovod.numpy as hvd\nhvd.init()\n",
        listens=f"{IDLE}\nimport socket\n"
        "place = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])\n"
        "if os.environ['RANK'] == '0':\n"
        "    server = socket.create_server(place); server.accept()[0].recv(1); rest(1)\n"
        "else:\n"
        "    deadline = time.monotonic() + 200\n"
        "    while time.monotonic() < deadline:\n"
        "        try: socket.create_connection(place); break\n"
        "        except OSError: time.sleep(0.01)\n",
    )
    modules = ["joins", "listens"]
    if ctypes.util.find_library("pmix"):
        (package / "meets.py").write_text(
            "import ctypes, ctypes.util\n"
            "pmix = ctypes.CDLL(ctypes.util.find_library('pmix'))\n"
            "name = ctypes.create_string_buffer(260)\n"
            "assert pmix.PMIx_Init(name, None, 0) == 0\npmix.PMIx_Finalize(None, 0)\n"
        )
        modules.append("meets")
    for module in modules:
        folder = program(train=f"import sys\nsys.path.append('{package}')\nimport {module}\n")
        job = run(folder, PYTHON, "train.py")
        expect(not warnings(job), job.describe())


# Programs whose ranks know their rank, and train alone or find each other in a way that the launcher cannot see.
ALONE = f"""{IDLE}
import LIBRARY
print("rank", os.environ["RANK"])
rest(4)
"""
BY_A_FILE = f"""{IDLE}
import torch
place = "file://" + os.path.abspath("meeting")
torch.distributed.init_process_group("gloo", place, rank=int(os.environ["RANK"]), world_size=2)
rest(2)
"""


def test_ranks_of_a_parallel_library_that_are_not_connected_are_named():
    for library, name, flags in (("torch", "PyTorch", ()), ("mpi4py.MPI", "MPI", ("--no-pmix",))):
        if run_to_end([PYTHON, "-c", f"import {library}"]).returncode:
            raise Skip(f"there is no {library}")
        job = run(program(train=ALONE.replace("LIBRARY", library)), PYTHON, "train.py", flags=flags)
        expect(
            len(warnings(job)) == 1
            and "the ranks' processes were not connected to each other;" in warnings(job)[0]
            and f"let the program's {name} find the other ranks;" in warnings(job)[0],
            job.describe(),
        )
    job = run(program(train=ALONE.replace("LIBRARY", "torch")), PYTHON, "train.py", flags=("--independent",))
    expect(not warnings(job), job.describe())
    for words in ((PYTHON, "train.py"), ("sh", "-c", f"{PYTHON} prepare.py && {PYTHON} train.py")):
        job = run(program(train=BY_A_FILE, prepare=ALONE.replace("LIBRARY", "torch")), *words)
        expect(not warnings(job), job.describe())
    # An ensemble: each rank starts a separate MPI job.
    words = ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", 2, PYTHON, "train.py")
    job = run(program(train=ALONE.replace("LIBRARY", "mpi4py.MPI")), *words, flags=("--no-pmix",))
    expect(not warnings(job), job.describe())


@world()
def test_a_plain_script_on_two_hosts():
    folder = program(train=PLAIN, helper=HELPER)
    job = run(folder, PYTHON, "train.py", hosts=("-np", 4, "-H", "a:2,b:2"))
    expect(len(warnings(job)) == 1 and "each of the 4 ranks" in warnings(job)[0], job.describe())


if __name__ == "__main__":
    main()
