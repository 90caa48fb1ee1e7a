#!/usr/bin/python3 -B
"""Runs other files' jobs under the Slurm of Debian 13 (24.11, PMIx 5.0), in a root of that Debian."""

import contextlib

import roots
from harness import *

PACKAGES = (
    "cmake",
    "hostname",
    "iproute2",
    "munge",
    "openmpi-bin",
    "openssh-client",
    "openssh-server",
    "procps",
    "python3",
    "python3-numpy",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurmctld",
    "slurmd",
)


# For the frameworks: Debian 13 has another Python and none of their packages.
MORE_PACKAGES = ("gcc", "libc6-dev", "libmpich-dev", "libopenmpi-dev", "python3-mpi4py")
PYTHON_12 = pathlib.Path("/usr/bin/python3.11")
LIBRARY_12 = pathlib.Path("/usr/lib/python3.11")
VARIABLES = ("HVD_TEST_WORLDS", "HVD_TEST_OLD_JAX")


@contextlib.contextmanager
def debian_13(packages=PACKAGES):
    if os.getuid() != 0 or not shutil.which("mmdebstrap"):
        raise Skip("a root of Debian 13 needs root and mmdebstrap")
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="e2e-", ignore_cleanup_errors=True) as path:
        root = pathlib.Path(path) / "root"
        roots.make_root(root, packages, is_kept=True, suite="trixie")
        roots.bring_libraries(root, LAUNCHER)
        yield root


def run_all(file, but=(), only=()):
    """Runs the tests of a file in a new root, and expects each to pass."""
    with debian_13() as root:
        run_in(root, file, but, only)


def run_in(root, file, but=(), only=(), variables=None, folders=()):
    """Runs the tests of a file in this root, and expects each to pass."""
    path = ROOT / "tests/e2e" / file
    names = only or [name for name in re.findall(r"(?m)^def test_(\w+)", path.read_text()) if name not in but]
    words = [f"{name}={value}" for name, value in (variables or {}).items()]
    code, words = roots.run_on_another_debian(
        root,
        *("env", *words, "python3", "-B", path, *names),
        seconds=1500,
        mounts={ROOT, BUILD.resolve(), *folders},
    )
    print(words)
    passed = re.findall(r"(?m)^PASS test_(\w+)", words)
    expect(code == 0 and sorted(passed) == sorted(names), f"{file}: exit code {code}\n{words[-6000:]}")


def test_jobs_of_its_users():
    run_all("slurm_test.py", but=["a_hydra_in_a_step_of_slurm_counts_before_slurm"])


def test_gpus_and_heterogeneous_jobs():
    # The scripts of the examples need PyTorch.
    run_all("slurm_gpus_test.py", but=["the_scripts_of_the_examples"])


def test_scripts_of_sbatch_and_programs_of_srun():
    run_all("sbatch_test.py", only=["every_form_of_a_script", "a_time_limit_and_scancel_leave_nothing"])
    run_all("bootstrap_test.py", only=["pmix_of_slurm", "pmi_of_slurm", "a_plain_step_of_slurm"])


def test_lists_of_ranks():
    run_all("rank_lists_test.py", only=["pmix_of_slurm", "a_plain_step_of_slurm"])


def bring_frameworks(root):
    """Gives the root the Python of Debian 12, and for each variable an interpreter with the packages that it names.
    Returns the variables, and the folders that the root must have."""
    shutil.copy(PYTHON_12, root / "usr/bin")
    roots.bring_libraries(root, PYTHON_12, *sorted(LIBRARY_12.glob("lib-dynload/*.so")))
    folders, variables = {LIBRARY_12}, {}
    for name in VARIABLES:
        ask = "import sys; print(*(path for path in sys.path if path.endswith('site-packages')))"
        done = run_to_end([os.environ[name], "-c", ask], check=True)
        paths = [pathlib.Path(path).resolve() for path in done.stdout.split()]
        folders.update(paths)
        program = root / "usr/local/bin" / name.lower()
        paths = ":".join(map(str, paths))
        program.write_text(f'#!/bin/sh\nPYTHONPATH=$PYTHONPATH:{paths} exec {PYTHON_12} "$@"\n')
        program.chmod(0o755)
        variables[name] = f"/usr/local/bin/{program.name}"
    return variables, folders


def test_frameworks_that_find_their_ranks():
    if missing := [name for name in VARIABLES if name not in os.environ]:
        raise Skip(f"no interpreter: {' '.join(missing)}")
    with debian_13((*PACKAGES, *MORE_PACKAGES)) as root:
        variables, folders = bring_frameworks(root)
        run_in(root, "../worlds/newer_slurm.py", variables=variables, folders=folders)


if __name__ == "__main__":
    main()
