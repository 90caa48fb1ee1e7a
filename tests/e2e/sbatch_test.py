#!/usr/bin/python3 -B
"""Scripts of sbatch on nodes with GPUs, of root and of an ordinary user: the script of examples/slurm
(docs/schedulers.md), which the ordinary user submits, the line of README.md, and jobs that end before their time."""

import contextlib
import shlex
import shutil

from harness import *

import slurm

# Homes of root and of an ordinary user. All nodes see them, since they share the world's /etc.
PLACES = {"root": pathlib.Path("/etc/of-root"), "tester": pathlib.Path("/etc/of-tester")}

SLOW = 240  # seconds that sixteen ranks may take to come up on a busy machine

# A program with low load: four jobs run four ranks each.
SLEEPER = """
import os, time
import horovod.numpy as hvd
hvd.init()
print('asleep', hvd.size(), 'gpus', os.environ.get('CUDA_VISIBLE_DEVICES'), flush=True)
time.sleep(900)
"""


SAYER = """
import os
import numpy
import horovod.numpy as hvd
hvd.init()
total = hvd.allreduce(numpy.array([hvd.rank() + 1.0]), op=hvd.Sum)[0]
os.write(1, f"rank {hvd.rank()} of {hvd.size()} on {os.uname().nodename}, sum {total:g}\\n".encode())
hvd.shutdown()
"""

# Words that a script may have before "python train.py", with three tasks on each of two nodes.
FORMS = ("horovodrun", "horovodrun -np 6", "horovodrun --mpi", "srun", "srun --mpi=pmi2")


@contextlib.contextmanager
def cluster():
    try:
        made = slurm.Cluster(["a", "b"], gpus=4)
    except slurm.Missing as missing:
        raise Skip(str(missing)) from None
    subprocess.run(["useradd", "-M", "-d", PLACES["tester"], "-s", "/bin/bash", "tester"], check=True)
    for user, place in PLACES.items():
        place.mkdir(0o755)
        (place / "sleeper.py").write_text(SLEEPER)
        (place / "train.py").write_text(SAYER)
        shutil.chown(place, user)
    with made:
        yield made


def shell(made, user, line, seconds=250):
    """Returns the output of a command line that the user types in a login shell in the user's home."""
    place = PLACES[user]
    variables = clean_environment(HOME=str(place), USER=user, LOGNAME=user, **made.environment)
    del variables["PYTHONPATH"]
    done = subprocess.run(
        ["runuser", "-u", user, "--", "bash", "-lc", line],
        env=variables,
        cwd=place,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    expect(done.returncode == 0, f"{user}$ {line}\n{done.stdout}\n{printed(user)}")
    return done.stdout


def printed(user):
    return "\n".join(path.read_text() for path in PLACES[user].rglob("*.out"))


def submit(made, user, name, words):
    """Submits a job and returns its number."""
    (PLACES[user] / f"{name}.sh").write_text(
        f"#!/bin/bash -e\nexport PYTHONPATH={BUILD}/python HOROVOD_START_TIMEOUT={SLOW}\n"
        f"{shlex.join(map(str, words))} "
        f"{PYTHON} sleeper.py\n"
    )
    return shell(
        made, user, f"sbatch --parsable -J {name} -t10 -N2 --ntasks-per-node=2 --gpus-per-node=1 -o %x.out {name}.sh"
    ).strip()


@world("a b", "--no-decoys")
def test_the_script_of_the_examples():
    if not pathlib.Path("/etc/profile.d/lmod.sh").exists():
        raise Skip("there is no lmod: packaging/packages-test.txt names it")
    subprocess.run(["cmake", "--install", BUILD, "--prefix", "/etc/horovod"], check=True, stdout=subprocess.DEVNULL)
    with cluster() as made:
        user = "tester"
        shutil.copytree(ROOT / "examples", PLACES[user] / "examples")
        subprocess.run(["chown", "-R", user, PLACES[user]], check=True)
        before = Inventory()
        said = shell(
            made,
            user,
            f"""set -e
            {PYTHON} -m venv --without-pip --system-site-packages ~/venv
            . ~/venv/bin/activate
            cd examples/slurm
            PYTHONPATH=/etc/horovod/lib/python3/dist-packages sbatch --wait -J plain mnist_slurm.sh
            module use $PWD/modulefiles
            export HOROVOD_PREFIX=/etc/horovod
            sed 's/^##SBATCH/#SBATCH/; $i env | grep -q ^CUDA_VISIBLE_DEVICES=0,1' mnist_slurm.sh >gpus.sh
            sbatch --wait -J gpus gpus.sh""",
        )
        for name in ("plain", "gpus"):
            (path,) = PLACES[user].rglob(f"{name}-*.out")
            out = path.read_text()
            expect("mnist on 2 nodes: a,b" in out or "mnist on 2 nodes: [a-b]" in out, out)
            expect("epoch 2: loss" in out and "on 4 processes" in out, f"{said}\n{name}: {out}")
        before.wait_for_ends(60)


@world("a b", "--no-decoys")
def test_every_form_of_a_script():
    if shutil.which("mpirun") is None:
        raise Skip("there is no mpirun: packaging/packages-test.txt names its package")
    (of_readme,) = re.findall(r"(?m)^sbatch (.* --wrap .*)$", (ROOT / "README.md").read_text())
    lines = "".join(f"echo form: {form}\n{form} python3 train.py\n" for form in FORMS)
    with cluster() as made:
        before = Inventory()
        for user, place in PLACES.items():
            (place / "forms.sh").write_text(
                f"#!/bin/bash -e\nexport PYTHONPATH={BUILD}/python PATH={LAUNCHER.parent}:$PATH "
                f"HOROVOD_START_TIMEOUT={SLOW}\n{lines}"
            )
            said = shell(made, user, "sbatch --wait -N2 --ntasks-per-node=3 -o %x.out forms.sh", SLOW * 2)
            _, *parts = printed(user).split("form: ")
            expect(len(parts) == len(FORMS), f"{said}\n{printed(user)}")
            for form, part in zip(FORMS, parts):
                ranks = sorted(re.findall(r"rank (\d) of 6 on ([ab]), sum 21\b", part))
                expect(ranks == [(str(rank), "aaabbb"[rank]) for rank in range(6)], f"{user}: {form}\n{printed(user)}")
            environment = f"PYTHONPATH={BUILD}/python PATH={LAUNCHER.parent}:$PATH"
            said = shell(made, user, f"{environment} sbatch --wait -o readme.out {of_readme}", SLOW)
            ranks = sorted(re.findall(r"rank (\d) of 4 on ([ab]), sum 10\b", (place / "readme.out").read_text()))
            expect(ranks == [(str(rank), "aabb"[rank]) for rank in range(4)], f"{said}\n{printed(user)}")
        before.wait_for_ends(60)


@world("a b", "--no-decoys")
def test_a_time_limit_and_scancel_leave_nothing():
    step, ours = ("srun", "--mpi=pmix"), (LAUNCHER,)
    with cluster() as made:
        before = Inventory()
        limited = {"root": submit(made, "root", "limited", step), "tester": submit(made, "tester", "limited", ours)}
        cancelled = {
            "root": submit(made, "root", "cancelled", ours),
            "tester": submit(made, "tester", "cancelled", step),
        }
        for user in PLACES:
            wait_until(
                lambda: len(re.findall("asleep 4 gpus .*\n", printed(user))) == 8, SLOW, lambda: printed(user), 0.2
            )
        gpus = re.findall("asleep 4 gpus (.*)", "\n".join(map(printed, PLACES)))
        expect(sorted(gpus) == list("0000111122223333"), f"each job has one of its own: {gpus}")
        for user in PLACES:
            # Slurm checks the limit every 30 s, and ends the job after a minute at the earliest.
            shell(made, user, f"scontrol update JobId={limited[user]} TimeLimit=1; scancel -n cancelled")
        wait_until(lambda: not shell(made, "root", "squeue -h").strip(), SLOW, lambda: shell(made, "root", "squeue"), 1)
        # Slurm's records contain the reason of a job's end. Its message in the output is lost if the script ends first.
        for user in PLACES:
            for job, state in ((limited[user], "TIMEOUT"), (cancelled[user], "CANCELLED")):
                said = shell(made, "root", f"scontrol show job {job}")
                expect(f"JobState={state} " in said, f"{said}\n{printed(user)}")
        before.wait_for_ends(60)
        wait_until(lambda: not before.new_things(), 10, lambda: f"left behind: {before.new_things()}", 0.5)


if __name__ == "__main__":
    main()
