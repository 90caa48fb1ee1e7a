"""Elastic jobs of stand-in ranks: their discovery script, and parsers of the generations and sums in their output."""

from harness import *

RANK = WORKERS / "elastic_rank.py"


def discovery(folder, *hosts):
    """Sets the hosts that the discovery script prints from now on."""
    answer = folder / "answer"
    answer.with_suffix(".new").write_text("".join(f"{host}\n" for host in hosts))
    answer.with_suffix(".new").rename(answer)
    return "--host-discovery-script", f"cat {answer}"


def begun(job, generation):
    """Returns the ranks of a generation: (process, rank, size, step)."""
    return [tuple(map(int, words)) for words in re.findall(rf"(\d+) begins {generation} (\d+)/(\d+) at (\d+)", job.out)]


def wait_for_generation(job, number, ranks, seconds=60):
    job.wait_for(rf"\d+ begins {number} \d+/{ranks} ", ranks, seconds)
    return begun(job, number)


def sums(job, ranks):
    found = re.findall(r"(\d+) ends with (\d+) in", job.out)
    expect(len(found) == ranks, f"{ranks} ends expected\n{job.describe()}")
    expect(len({total for _, total in found}) == 1, f"the sums differ\n{job.describe()}")
    return int(found[0][1])


def running_on(name, program):
    """Returns PIDs of the processes on a host whose command line names a program."""
    return [pid for pid in faults.processes(name) if program in faults.said_of(pid, "cmdline")]


def resources_of(pid):
    """Returns descriptors, threads and KiB of memory of a process."""
    pages = int(faults.said_of(pid, "statm").split()[1])
    return (
        len(os.listdir(f"/proc/{pid}/fd")),
        len(os.listdir(f"/proc/{pid}/task")),
        pages * os.sysconf("SC_PAGE_SIZE") // 1024,
    )


def leave_nothing_behind(generations):
    folder = scratch()
    job = Job("-np", 3, "--min-np", 3, "-H", "a:2,b:1", PYTHON, WORKERS / "elastic_generations.py", generations, folder)
    launcher = []
    for generation in (generations // 10, generations):
        job.wait_for(f"after {generation} generations", 1, 60 + generations)
        launcher.append(resources_of(job.process.pid))
        (folder / str(generation)).touch()
    job.ends_with(0)
    job.leaves_nothing()
    found = [
        tuple(map(int, numbers))
        for numbers in re.findall(
            r"after (\d+) generations: (\d+) descriptors, (\d+) threads, (\d+) KiB, (\d+) keys", job.out
        )
    ]
    print(*found, sep="\n")
    expect([one[0] for one in found] == [generations // 10, generations], job.describe())
    (_, descriptors, threads, memory, keys), after = found
    expect(after[1:3] == (descriptors, threads), f"descriptors or threads: {found}")
    # Other ranks' requests may be in the store now; one leaked key per generation would be far more.
    expect(abs(after[4] - keys) <= 3, f"keys: {found}")
    expect(after[3] - memory < 1024, f"KiB: {found}")
    print("launcher", *launcher, sep="\n")
    # Some connections to the store are open for a short time; one leak per generation would be far more.
    expect(
        launcher[1][0] - launcher[0][0] <= 8 and launcher[1][1] == launcher[0][1],
        f"descriptors or threads of the launcher: {launcher}",
    )
    # The store keeps 4,096 changes, 9 per generation: less than 400 KiB.
    expect(launcher[1][2] - launcher[0][2] < 1024, f"KiB of the launcher: {launcher}")


def more_interpreters():
    return [name for name in os.environ.get("HVD_TEST_PYTHONS", "").split(":") if name and name != PYTHON]
