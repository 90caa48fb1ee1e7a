#!/usr/bin/python3 -B
"""The agent leaves PMIx out where a program certainly uses no MPI, and nowhere else."""

import mpi_test as mpi
from commands_test import on_host
from harness import *

# No source of the program names MPI, nor what serves it.
IS_SERVED = "import os; print('served', 'PM' 'IX_RANK' in os.environ)"
# For the folder of installed packages, whose sources the agent does not read.
MEETS = """
import ctypes, sys, time
library = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
library.MPI_Init(None, None)
size = ctypes.c_int()
world = ctypes.addressof(ctypes.c_char.in_dll(library, "ompi_mpi_comm_world"))
library.MPI_Comm_size(ctypes.c_void_p(world), ctypes.byref(size))
print("of", size.value, flush=True)
"""
SENTENCE = r"a rank has loaded /\S*libmpi\.so\S*, but PMIx was left out, .* --pmix"


def bare_python(folder):
    """A Python without mpi4py, which that of the machine may have."""
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    return folder / "venv" / "bin" / "python3"


def packages_of(python):
    return next((python.parents[1] / "lib").glob("python3*/site-packages"))


def served(*command, flags=("-np", 2), count=2, **options):
    """Whether the ranks of that command, which prints it, get PMIx."""
    job = Job(*flags, *command, **options)
    job.ends_with(0)
    expect(job.out.count("served ") == count, job.describe())
    expect("served True" not in job.out or "served False" not in job.out, job.describe())
    return "served True" in job.out


def test_programs_that_certainly_use_no_mpi_get_no_pmix():
    mpi.need()
    folder = scratch()
    python = bare_python(folder)
    (folder / "train.py").write_text("import helper\n")
    (folder / "helper.py").write_text(IS_SERVED)
    for command in (
        (python, "-c", IS_SERVED),
        (python, "-u", "-m", "train", "--rate", 1),
        (python, folder / "train.py"),
    ):
        expect(not served(*command, cwd=folder), command)
        expect(served("--pmix", *command, cwd=folder), command)
    # cat needs only the C library and starts nothing.
    job = Job("-np", 2, "cat", "/proc/self/environ")
    job.ends_with(0)
    expect("HOROVOD_RANK" in job.out and "PMIX_RANK" not in job.out, job.describe())


def test_all_that_may_lead_to_mpi_gets_pmix():
    mpi.need()
    folder = scratch()
    python = bare_python(folder)
    site = packages_of(python)
    (folder / "other" / "mpi4py").mkdir(parents=True)
    expect(not served(python, "-c", IS_SERVED), "a bare Python")
    for command in (
        ("sh", "-c", f'{python} -c "{IS_SERVED}"'),
        ("timeout", 60, python, "-c", IS_SERVED),
        ("env", "A=1", python, "-c", IS_SERVED),
        ("nice", python, "-c", IS_SERVED),
        (python, "-c", "import ctypes, subprocess\n" + IS_SERVED),
        (python, "-c", IS_SERVED, "--backend", "mpi"),
    ):
        expect(served(*command), command)
    variables = {"PYTHONPATH": str(folder / "other")}, {"LD_PRELOAD": "libm.so.6"}, {"HOROVOD_CONTROLLER": "MPI"}
    for more in variables:
        expect(served(python, "-c", IS_SERVED, environment=clean_environment(**more)), more)
    (site / "more.pth").write_text(f"{folder}/other\n")
    expect(served(python, "-c", IS_SERVED), "a file .pth")
    (site / "more.pth").unlink()
    (site / "mpi4py-4.0.0.dist-info").mkdir()
    expect(served(python, "-c", IS_SERVED), "a package")


def test_mpi_programs_behind_scripts_and_ctypes_are_one_world():
    mpi.need("mpicc.openmpi")
    folder = scratch()
    program = mpi.compiled(folder)
    script = folder / "mw.sh"
    script.write_text(f"#!/bin/bash\nA=1\n{program}\n")
    script.chmod(0o755)
    (folder / "meets.py").write_text(MEETS)
    for command in ((script,), ("timeout", 60, program), (program,)):
        job = Job("-np", 2, *command)
        job.ends_with(0)
        expect(sorted(re.findall(r"rank \d sum \d", job.out)) == ["rank 0 sum 1", "rank 1 sum 1"], job.describe())
        job.leaves_nothing()
    job = Job("-np", 2, bare_python(folder), folder / "meets.py")
    job.ends_with(0)
    expect(job.out.count("of 2\n") == 2, job.describe())


def test_a_rank_that_uses_mpi_all_the_same_is_named_once():
    mpi.need("mpicc.openmpi")
    folder = scratch()
    python = bare_python(folder)
    site = packages_of(python)
    (site / "meets.py").write_text(MEETS)
    (site / "numpy").symlink_to("/usr/lib/python3/dist-packages/numpy")
    (site / "horovod").symlink_to(BUILD / "python" / "horovod")
    late = "import meets, os, time\ntime.sleep(2)\n"
    joins = "import meets\nfrom horovod import numpy as hvd\nhvd.init()\nprint('rank', hvd.rank())\n"
    uneven = "import meets, os, time\ntime.sleep(0.1 if os.environ['HOROVOD_RANK'] == '0' else 1)\n"
    for code in (late, uneven, joins):
        job = Job("-np", 2, python, "-c", code)
        job.ends_with(0)
        expect(job.out.count("of 1\n") == 2, job.describe())
        expect(len([each for each in job.said() if re.search(SENTENCE, each)]) == 1, job.describe())
    for flags in (("--pmix",), ("--no-pmix",), ("--independent",)):
        job = Job("-np", 2, *flags, python, "-c", late)
        job.ends_with(0)
        expect(job.out.count("of 2\n" if flags == ("--pmix",) else "of 1\n") == 2, job.describe())
        expect("libmpi" not in job.err, job.describe())


@world("a b", "--no-decoys")
def test_a_host_that_sees_no_mpi_serves_it_where_another_host_does():
    mpi.need("mpicc.openmpi")
    # All hosts have this folder, but not what is mounted there later.
    folder = scratch(BUILD)
    python = bare_python(folder)
    packages = packages_of(python)
    (packages / "meets.py").write_text(MEETS)
    command = ("-H", "a:2,b:2", python, "-c", "import meets")

    def run(words):
        job = Job(*command)
        job.ends_with(0)
        expect(job.out.count(words) == 4, job.describe())
        return job

    run("of 1\n")
    for left in pathlib.Path("/tmp").glob("ompi.[ab].0"):  # by Open MPI in a world of one
        shutil.rmtree(left)
    more = folder / "more"
    more.mkdir()
    shutil.copy(packages / "meets.py", more)
    (more / "mpi4py").mkdir()
    on_host("b", "mount", "--bind", more, packages)
    run("of 4\n").leaves_nothing()


@world("a b", "--no-decoys")
def test_a_server_that_waits_and_cannot_start_ends_the_job():
    mpi.need()
    folder = scratch(BUILD)
    python = bare_python(folder)
    packages = folder / "packages"
    packages.mkdir()
    (folder / "more" / "mpi4py").mkdir(parents=True)
    on_host("b", "mount", "--bind", folder / "more", packages)
    command = ("-H", "a:1,b:1", python, "-c", "print('has run')")
    environment = clean_environment(PYTHONPATH=str(packages))
    job = Job(*command, environment=environment)
    job.ends_with(0)
    expect(job.out.count("has run") == 2, job.describe())
    on_host(
        "a",
        "sh",
        "-c",
        "mkdir -p ~/.pmix && mount -t tmpfs none ~/.pmix && echo psec = missing > ~/.pmix/mca-params.conf",
    )
    job = Job(*command, environment=environment)
    job.ends_with(1)
    expect(
        re.search(
            r"host a: start: the PMIx server of this host, which other hosts' ranks need, "
            r"has failed: PMIx_server_init: .*; --no-pmix leaves PMIx out\n",
            job.err,
        ),
        job.describe(),
    )
    # The rank of b may have run: its server had started.
    expect("[0]<stdout>:has run" not in job.out, job.describe())
    job.leaves_nothing()
    job = Job("--no-pmix", *command, environment=environment)
    job.ends_with(0)


if __name__ == "__main__":
    main()
