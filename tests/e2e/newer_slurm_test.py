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


@contextlib.contextmanager
def debian_13():
    if os.getuid() != 0 or not shutil.which("mmdebstrap"):
        raise Skip("a root of Debian 13 needs root and mmdebstrap")
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="e2e-", ignore_cleanup_errors=True) as path:
        root = pathlib.Path(path) / "root"
        roots.make_root(root, PACKAGES, is_kept=True, suite="trixie")
        roots.bring_libraries(root, LAUNCHER)
        yield root


def run_all(file, but=(), only=()):
    """Runs the tests of a file there, and expects each to pass."""
    path = ROOT / "tests/e2e" / file
    names = only or [name for name in re.findall(r"(?m)^def test_(\w+)", path.read_text()) if name not in but]
    with debian_13() as root:
        code, words = roots.run_on_another_debian(root, "python3", "-B", path, *names, seconds=1500)
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


if __name__ == "__main__":
    main()
