#!/usr/bin/python3 -B
"""The original Horovod (HVD_TEST_HOROVOD): its workers under this launcher, and these elastic ranks under its
launcher."""

from elastic_jobs import discovery
from harness import *

ORIGINAL = os.environ.get("HVD_TEST_HOROVOD")
TRAIN = WORKERS / "original_train.py"
# Process sets of the original ignore HOROVOD_GLOO_IFACE, and listen on the address of the host's name, 127.0.1.1 on
# Debian.
NAMED_BY_ADDRESS = ["unshare", "--uts", "sh", "-c", 'hostname "$(hostname -I | cut -d" " -f1)" && exec "$@"', "sh"]


def environment():
    """Returns the environment of a shell whose horovod is the original."""
    if not ORIGINAL:
        raise Skip("HVD_TEST_HOROVOD names no Python that has Horovod")
    shell = clean_environment()
    shell.pop("PYTHONPATH", None)
    return shell


def begun(out):
    """Returns {worker: [(rank, size, step), ...]} of workers that have begun, with the generations of each."""
    found = {}
    for name, *numbers in re.findall(r"(\w:\d) begins (\d+)/(\d+) at (\d+)", out):
        found.setdefault(name, []).append(tuple(map(int, numbers)))
    return found


def places(job, name):
    return [place[:2] for place in begun(job.out).get(name, [])]


def all_end_alike(job, *names, package):
    """Expects that exactly these workers have ended with the same weights, and that all used this package."""
    used = re.findall(r"\w:\d uses (\S+)", job.out)
    expect(used and all(path.startswith(str(package)) for path in used), job.describe())
    ends = re.findall(r"(\w:\d) ends at (\d+) with (\S+)", job.out)
    expect(sorted(end[0] for end in ends) == sorted(names), job.describe())
    expect(len({end[1:] for end in ends}) == 1, job.describe())


@world()
def test_its_workers_train_under_our_launcher():
    job = Job(
        *"--insecure-compat -np 4 -H a:2,b:2".split(),
        *NAMED_BY_ADDRESS,
        ORIGINAL,
        "-B",
        TRAIN,
        40,
        environment=environment(),
    )
    job.ends_with(0)
    job.leaves_nothing()
    expect(
        begun(job.out) == {name: [(rank, 4, 0)] for rank, name in enumerate(("a:0", "a:1", "b:0", "b:1"))},
        job.describe(),
    )
    all_end_alike(job, "a:0", "a:1", "b:0", "b:1", package=pathlib.Path(ORIGINAL).parents[1])


class UnderItsLauncher(Job):
    """Starts a job of this project's ranks under Horovod's own launcher."""

    def __init__(self, hosts, *arguments):
        shell = environment()
        package = clean_environment()["PYTHONPATH"]
        super().__init__(
            "exec",
            "a",
            pathlib.Path(ORIGINAL).parent / "horovodrun",
            "--min-np",
            1,
            *hosts,
            "--network-interface",
            "eth0",
            "env",
            f"PYTHONPATH={package}",
            ORIGINAL,
            "-B",
            TRAIN,
            *arguments,
            environment=shell,
            program=HOSTS,
        )


@world()
def test_our_ranks_survive_a_killed_one_under_its_launcher():
    job = UnderItsLauncher(("-np", 4, *discovery(scratch(), "a:2", "b:2")), 40, "--kill", "b:1@20")
    job.ends_with(0)
    job.leaves_nothing()
    expect(len(begun(job.out)) == 4 and places(job, "a:0")[-1] == (0, 2), job.describe())
    expect(begun(job.out)["a:1"][-1] == (1, 2, 20), job.describe())
    all_end_alike(job, "a:0", "a:1", package=BUILD / "python")


@world("a b c")
def test_its_launcher_gives_our_ranks_another_host_after_a_failure():
    folder = scratch()
    job = UnderItsLauncher(("-np", 2, *discovery(folder, "a:1", "b:1")), 150, "--slow", 0.05, "--kill", "b:0@80")
    job.wait_for(r"\w:0 begins \d/2 at 0", 2)
    discovery(folder, "a:1", "b:1", "c:1")
    job.ends_with(0)
    job.leaves_nothing()
    expect(begun(job.out)["a:0"][-1][1:] == (2, 80), job.describe())
    expect(begun(job.out)["c:0"] == [(1, 2, 80)], job.describe())
    all_end_alike(job, "a:0", "c:0", package=BUILD / "python")


if __name__ == "__main__":
    main()
