#!/usr/bin/python3 -B
"""--bind-to: the CPUs that ranks have, the report, and what is refused before a rank starts."""

from harness import *

from elastic_jobs import RANK, running_on, wait_for_generation

CPUS = sorted(os.sched_getaffinity(0))
# A rank prints its CPUs, those of a child, and its variables.
SHOW = """
import os, subprocess, sys
mask = lambda: ",".join(map(str, sorted(os.sched_getaffinity(0))))
child = subprocess.check_output([sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"], text=True)
names = "HOROVOD_BOUND_CPUS HOROVOD_NUMA_NODE OMP_NUM_THREADS".split()
print(mask(), child.strip("[]\\n").replace(" ", "") == mask(), *[os.environ.get(name, "-") for name in names])
"""
ALL = ",".join(map(str, CPUS))
# A core may have several of the CPUs.
SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
CORES = len({pathlib.Path(SIBLINGS.format(cpu)).read_text() for cpu in CPUS})


def places(*arguments, **environment):
    """Returns what each rank prints, and the launcher's lines."""
    job = Job(*arguments, PYTHON, "-c", SHOW, environment=clean_environment(**environment))
    job.ends_with(0)
    return [line.partition(":")[2].split() for line in sorted(job.out.splitlines())], job.said()


def refused(words, *arguments, command=("true",), **options):
    job = Job(*arguments, *command, **options)
    job.ends_with(2)
    expect(len(job.said()) == 1 and words in job.said()[0], job.describe())


def two_cores():
    if CORES < 2:
        raise Skip("one core is no choice")


@world()
def test_ranks_on_two_hosts_have_cores_of_their_own_and_the_report_names_them():
    two_cores()
    got, said = places("-H", "a:2,b:1", "--bind-to", "core", "--no-smt", "--report-bindings")
    first, second = got[0][0], got[1][0]
    expect([each[:3] for each in got] == [[cpu, "True", cpu] for cpu in (first, second, first)], got)
    expect(first != second and [each[4] for each in got] == ["1"] * 3, got)
    lines = [f"rank 0 on a: cpus {first} ", f"rank 1 on a: cpus {second} ", f"rank 2 on b: cpus {first} "]
    expect(len(said) == 3 and all(line.startswith(words) for line, words in zip(said, lines)), said)
    # Equal hosts have a line for each local rank, and nothing starts without a command.
    job = Job("-H", "a:1,b:1", "--bind-to", "core", "--report-bindings")
    job.ends_with(0)
    expect(len(job.said()) == 1 and job.said()[0].startswith("local rank 0 on each of 2 hosts: cpus "), job.describe())
    # The user's number of threads stays, and a restart binds again.
    got, _ = places("-H", "a:1", "-x", "OMP_NUM_THREADS=7", "--cpu-list", second)
    expect(got == [[second, "True", second, got[0][3], "7"]], got)
    failing = "import os; print(*os.sched_getaffinity(0)); os._exit(int(os.environ['HOROVOD_GENERATION']) < 1)"
    job = Job("-H", "a:1", "--cpu-list", second, "--max-restarts", 1, PYTHON, "-c", failing)
    job.ends_with(0)
    expect(job.out.splitlines() == [f"[0]<stdout>:{second}"] * 2, job.describe())


@world("a")
def test_without_a_flag_ranks_have_all_cpus_and_no_new_variable():
    got, said = places("-np", 2)
    expect([each[:4] for each in got] == [[ALL, "True", "-", "-"]] * 2 and said == [], (got, said))
    got, said = places("-np", 2, "--report-bindings")
    expect(len(said) == 2 and all(": not bound, cpus " in line for line in said), said)
    # A launcher of processes binds these itself.
    job = Job("-np", 1, "--bind-to", "core", "--report-bindings", "/bin/sh", "-c", "true", "torchrun")
    job.ends_with(0)
    expect("is not bound, because it binds the processes that it starts" in job.err, job.describe())


@world("a")
def test_a_second_job_takes_free_cores_or_says_that_there_are_none():
    two_cores()
    first = Job("-np", 1, "--bind-to", "core", PYTHON, "-uc", SHOW + "import time; time.sleep(1000)")
    first.wait_for("True")
    cores = len(places("-np", 1, "--report-bindings", "--bind-to", "core")[1])
    expect(cores == 1, cores)
    other = places("-np", 1, "--bind-to", "core")[0][0][0]
    expect(other != first.out.partition(":")[2].split()[0], (other, first.out))
    refused("running jobs of yours have 1;", "-np", CORES, "--bind-to", "core")
    first.signal(signal.SIGKILL)  # the agent notices, and the kernel frees the core
    first.wait()
    first.leaves_nothing()
    places("-np", CORES, "--bind-to", "core", "--no-smt")


@world()
def test_a_rank_that_replaces_another_gets_its_core():
    two_cores()
    each = ("--cpus-per-rank", CORES // 2)  # two ranks fill the host
    job = Job("-np", 2, "--min-np", 1, "--restart-ranks", "-H", "a:2", *each, PYTHON, RANK, 200, "--kill", "1@5")
    wait_for_generation(job, 2, 2)
    masks = [frozenset(os.sched_getaffinity(pid)) for pid in running_on("a", RANK.name)]
    expect(len(set(masks)) == len(masks) == 2 and not masks[0] & masks[1], masks)
    job.ends_with(0)
    job.leaves_nothing()


@world("a")
def test_each_impossible_binding_is_refused_in_one_sentence():
    refused("--bind-to board: write none, auto, numa", "-np", 1, "--bind-to", "board")
    refused("CPU 4000 is not among the CPUs", "-np", 1, "--cpu-list", "4000")
    refused("--bind-to core needs 999 cores for 999 ranks", "-np", 999, "--bind-to", "core")
    refused("has places for", "-np", 99, "--map-by", "ppr:1:numa")
    if not any(pathlib.Path("/dev").glob("nvidia[0-9]*")):
        refused("the host shows 0 for 1 rank;", "-np", 1, "--bind-to", "gpu")
    bound = ("-c", f'exec taskset -c {CPUS[-1]} "$@"', "sh", LAUNCHER)
    refused("and the agent may use 1", *bound, "-np", 2, "--bind-to", "core", program="/bin/sh")
    job = Job(*bound, "-np", 1, "--bind-to", "core", PYTHON, "-c", SHOW, program="/bin/sh")
    job.ends_with(0)
    expect(f":{CPUS[-1]} True {CPUS[-1]} " in job.out, job.describe())


@world("a")
def test_limits_of_cgroups_hold():
    """A quota below one core is refused for --bind-to core alone, and a cpuset is the host."""
    if os.geteuid() != 0:
        raise Skip("only root makes cgroups here")
    for kind, words, flags in (
        ("half-a-core", "the cgroup allows 0.5 of a core", ("--bind-to", "core")),
        ("one-cpu", "and the agent may use 1", ("-np", 2, "--bind-to", "core")),
        ("one-cpu", f"is not among the CPUs {CPUS[-1]} ", ("--cpu-list", CPUS[0])),
    ):
        name = f"hvd-binding-{os.getpid()}"
        job = Job(
            WORKERS / "closed_in.py",
            kind,
            LAUNCHER,
            "-np",
            1,
            *flags,
            "true",
            program=PYTHON,
            environment=clean_environment(HVD_TEST_GROUP=name),
        )
        code = job.wait()
        for group in pathlib.Path("/sys/fs/cgroup").glob(f"**/{name}"):
            wait_until(lambda group=group: not (group / "cgroup.procs").read_text(), 60, "an empty group")
            group.rmdir()
        if code == SKIPPED:
            raise Skip(job.out)
        expect(code == 2 and words in job.err and len(job.said()) == 1, job.describe())


def test_plans_of_the_machines_in_the_source_of_hwloc_keep_the_rules():
    folder = scratch()
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (folder / "list").write_text(f"deb-src [signed-by={keys}] http://deb.debian.org/debian bookworm main\n")
    for name in ("state/lists/partial", "cache/archives/partial", "trees"):
        (folder / name).mkdir(parents=True)
    places = {"Dir::Etc::sourcelist": "list", "Dir::State": "state", "Dir::Cache": "cache"}
    options = [f"-o{name}={folder / place}" for name, place in places.items()]
    options += ["-oDir::Etc::sourceparts=/dev/null", "-oAPT::Sandbox::User=", "-qq"]
    if subprocess.run(["apt-get", *options, "update"], check=False).returncode != 0:
        raise Skip("Debian's archive cannot be reached")
    subprocess.run(["apt-get", *options, "source", "--download-only", "hwloc"], cwd=folder, check=True)
    archive = next(folder.glob("hwloc_*.orig.tar.*"))
    subprocess.run(
        ["tar", "-xf", archive, "-C", folder / "trees", "--wildcards", "*/tests/hwloc/xml/*.xml"], check=True
    )
    subprocess.run(["ninja", "-C", BUILD, "binding_test"], check=True, stdout=subprocess.DEVNULL)
    done = run_to_end(
        [BUILD / "tests" / "binding_test", "--test-case=Plans of real machines*"],
        env={**os.environ, "HVD_TEST_TREES": str(folder / "trees")},
    )
    expect(done.returncode == 0, done.stdout[-3000:])


if __name__ == "__main__":
    main()
