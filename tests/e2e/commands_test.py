#!/usr/bin/python3 -B
"""Scripts without an interpreter before them, and slots from the hosts' resources, on hosts reached by ssh."""

from harness import *


def on_host(name, *command):
    subprocess.run(["nsenter", "-t", str(host.pid_of(name)), "-m", *map(str, command)], check=True)


def python_in(folder):
    """Makes an environment whose Python prints its path and the script."""
    python = folder / "bin" / "python3"
    python.parent.mkdir(parents=True)
    # The agent runs this Python with -c to get versions.
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exec {PYTHON} "$@"\necho "by $0 $1"\n')
    python.chmod(0o755)
    return folder


@world()
def test_each_host_runs_a_script_by_the_active_environment():
    folder = scratch()
    (folder / "train.py").write_text("import os; print('by python3 of PATH', os.environ['HOROVOD_RANK'])\n")
    job = Job("-np", 2, "-H", "a:1,b:1", "--tag", "none", "train.py", cwd=folder)
    job.ends_with(0)
    expect(sorted(job.out.splitlines()) == [f"by python3 of PATH {rank}" for rank in range(2)], job.describe())
    venv = python_in(folder / "venv")
    for variable in "VIRTUAL_ENV", "CONDA_PREFIX":
        job = Job(
            *"-np 2 -H a:1,b:1 --tag none train.py".split(),
            cwd=folder,
            environment=clean_environment(**{variable: str(venv)}),
        )
        job.ends_with(0)
        expect(job.out == f"by {venv}/bin/python3 train.py\n" * 2, job.describe())
    # A copy of the script needs no file on the hosts; each host uses its own environment.
    job = Job("-np", 2, "-H", "a:1,b:1", "--tag", "none", "--stage", "train.py", "train.py", cwd=folder)
    job.ends_with(0)
    # Only host b lacks the environment: another Python there would have other packages.
    on_host("b", "mount", "-t", "tmpfs", "none", venv)
    job = Job(
        "-np", 2, "-H", "a:1,b:1", "train.py", cwd=folder, environment=clean_environment(VIRTUAL_ENV=str(venv / "bin"))
    )
    job.ends_with(2)
    expect(
        job.said()
        == [
            f"host b: prepare: VIRTUAL_ENV names the active environment {venv}/bin, which is not on "
            "this host; create it there, give all hosts its packages by --stage-env, or write a Python before the "
            "script, as in: python3 train.py"
        ],
        job.describe(),
    )


@world()
def test_a_script_that_one_host_lacks_is_named():
    folder = scratch()
    (folder / "own").mkdir()
    (folder / "own" / "train.py").write_text("print('started')\n")
    on_host("b", "mount", "-t", "tmpfs", "none", folder / "own")
    for command in (["own/train.py"], [PYTHON, "own/train.py"]):
        job = Job("-np", 2, "-H", "a:1,b:1", *command, cwd=folder)
        job.ends_with(2)
        expect(
            job.said()
            == [
                f"host b: prepare: script 'own/train.py' does not exist in {folder} on this host: copy it there, or "
                "your current directory to every host with --stage ."
            ],
            job.describe(),
        )
        expect("started" not in job.out, job.describe())


@world()
def test_slots_are_counted_on_each_host():
    cores = int(run_to_end(["nproc"], check=True).stdout)
    job = Job("-H", "a:1,b", "--nproc-per-node", "cpu", "sh", "-c", "echo $HOROVOD_HOSTNAME")
    job.ends_with(0)
    lines = [line.partition(":")[2] for line in job.out.splitlines()]
    expect(lines.count("a") == 1 and 1 <= lines.count("b") <= cores, job.describe())
    counted = lines.count("b")
    # Without GPUs, slots are cores.
    hostfile = scratch() / "hosts"
    hostfile.write_text("a\nb\n")
    job = Job("--hostfile", hostfile, "--slots-per-host=gpu", "--dry-run", "true")
    job.ends_with(0)
    expect(f'"size":{2 * counted},' in job.out, job.describe())
    job.leaves_nothing()
    job = Job("-H", "a,nobody.invalid", "--slots-per-host", "gpu", "true")
    job.ends_with(2)
    expect(job.err.startswith("horovodrun: host nobody.invalid: resolve: "), job.describe())


if __name__ == "__main__":
    main()
