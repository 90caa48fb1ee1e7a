#!/usr/bin/python3 -B
"""Launcher, agents and ranks with few descriptors (ulimit -n) or little memory (ulimit -v): the job succeeds, or ends
with messages that name the limit and the remedy. Nothing remains."""

from harness import *

WORKER = BUILD / "tests" / "runtime_worker"
FILES = ("Too many open files|may open no more descriptors", "ulimit -n")
MEMORY = ("memory|thread", "ulimit -v")
KIB_STEPS = (0, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536)


def limited(flag, limit, *command):
    """Runs the job with a limit for the launcher."""
    return Job(f"--{flag}={limit}:{limit}", *command, program="/usr/bin/prlimit")


def login(host, text):
    """Writes start-up files that run this text on a host before the agent."""
    for name in (".bashrc", ".profile"):
        (pathlib.Path.home() / name).write_text(f"[ $(cat /proc/sys/kernel/hostname) != {host} ] || {text}\n")


def ends_rightly(job, count, patterns, place="", said=True):
    """Returns True if the job succeeded. Otherwise one of its messages must name the place, the limit and the remedy;
    `said`: the launcher must print it, else a rank."""
    code = job.wait()
    expect(not re.search("terminate called|defect", job.err), job.describe())
    if code == 0:
        expect(len(job.out.splitlines()) == count and job.said() == [], job.describe())
    else:
        expect(code in (1, 2), job.describe())
        sentences = job.said() if said else job.err.splitlines()
        expect(any(all(re.search(pattern, one) for pattern in (place, *patterns)) for one in sentences), job.describe())
    job.leaves_nothing()
    return code == 0


def both_ends(jobs):
    """Runs one job after another: the first must fail with the right message, the last must succeed."""
    ends = list(jobs)
    print("".join(".x"[end] for end in ends))
    expect(not ends[0] and ends[-1], f"of the limits, these let the job succeed: {ends}")


def least(kib, works):
    """Returns the least address space in KiB with which it works, within 64 KiB."""
    low, high = 0, kib
    while high - low > 64:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return high


def runs_within(*command):
    return lambda kib: (
        run_to_end(
            ["/usr/bin/prlimit", f"--as={kib << 10}", *map(str, command)],
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            text=False,
        ).returncode
        == 0
    )


@world()
def test_a_launcher_with_few_descriptors():
    both_ends(
        ends_rightly(limited("nofile", number, LAUNCHER, "-np", 2, "-H", "a:1,b:1", "hostname"), 2, FILES)
        for number in (7, 8, 10, 11, 13, 15, 17, 64)
    )


@world("a b c")
def test_a_launcher_whose_ranks_find_no_descriptor_for_their_store():
    both_ends(
        ends_rightly(
            limited("nofile", number, LAUNCHER, "-np", 3, "-H", "a:1,b:1,c:1", "--start-timeout", 10, WORKER, "sum"),
            3,
            FILES,
            said=False,
        )
        for number in (22, 64)
    )


@world()
def test_an_agent_with_few_descriptors():
    def job(number):
        login("b", f"ulimit -n {number}")
        arguments = ("-np", 6, "-H", "a:1,b:5", "--preflight", "off", "hostname")
        return ends_rightly(Job(*arguments), 6, FILES, "host b")

    both_ends(map(job, (12, 14, 16, 20, 24, 64)))


def test_a_limit_of_file_sizes():
    limit = 1 << 20
    job = limited("fsize", limit, LAUNCHER, "-np", 2, "true")
    job.ends_with(0)
    expect(job.said() == [], job.describe())
    job.leaves_nothing()
    # The ranks' programs have a shell's default action for the signal.
    path = scratch() / "file"
    job = limited("fsize", limit, LAUNCHER, "-np", 1, "dd", "if=/dev/zero", f"of={path}", "bs=1M", "count=2")
    job.ends_with(128 + signal.SIGXFSZ)
    job = limited("fsize", limit, LAUNCHER, "-np", 2, WORKER, "sum")
    job.ends_with(1)
    expect("MiB, and the limit of file sizes is 1 MiB; raise it by ulimit -f" in job.err, job.describe())
    job.leaves_nothing()


@world()
def test_a_rank_sees_the_limit_of_the_user_and_not_that_of_the_launcher():
    """The launcher raises its own soft limit, here to 96."""
    for hosts in ("localhost:6", "a:3,localhost:3"):
        words = ("-np", 6, "-H", hosts, "sh", "-c", "uname -n; ulimit -Sn; ulimit -Hn")
        job = Job("--nofile=80:4096", LAUNCHER, *words, program="/usr/bin/prlimit")
        job.ends_with(0)
        seen = re.findall(r"(?m)^\[[345]\]<stdout>:(\S+)$", job.out)
        expect(seen.count("80") == seen.count("4096") == 3, job.describe())


@world()
def test_ranks_with_few_descriptors():
    # The ranks of a host may learn that the first rank has ended before that rank's own message arrives.
    words = ("ulimit -n|closed its socket during the local rendezvous",)
    both_ends(
        ends_rightly(
            Job("-np", 4, "-H", "a:2,b:2", "sh", "-c", f"ulimit -n {number}; exec {WORKER} sum"), 4, words, said=False
        )
        for number in (6, 9, 11, 13, 14, 20, 64)
    )


@world()
def test_a_launcher_with_little_memory():
    first = least(1 << 20, runs_within(LAUNCHER, "--version"))
    both_ends(
        ends_rightly(limited("as", (first + more) << 10, LAUNCHER, "-np", 2, "-H", "a:1,b:1", "hostname"), 2, MEMORY)
        for more in KIB_STEPS
    )


@world()
def test_an_agent_with_little_memory():
    # The login shell and its commands need more than the agent.
    first = max(
        least(1 << 20, runs_within(AGENT, "--version")),
        least(
            1 << 20,
            runs_within(
                "/bin/bash", "-c", "ls -ldn /; uname -m; id -u; wc -c /dev/null; timeout 1 head -c 0 /dev/null"
            ),
        ),
    )

    def job(more):
        login("b", f"ulimit -v {first + more}")
        return ends_rightly(Job("-np", 6, "-H", "a:1,b:5", "echo", "here"), 6, MEMORY, "host b")

    expect(list(map(job, KIB_STEPS))[-1], "an agent within 64 MiB works")


@world()
def test_ranks_with_little_memory():
    # A lower limit is too little for the loader. Without a job, the program runs as a single process.
    loaded = least(1 << 20, runs_within("/usr/bin/env", "LD_TRACE_LOADED_OBJECTS=1", WORKER))
    alone = least(8 << 20, runs_within(WORKER, "sum"))
    both_ends(
        ends_rightly(
            Job("-np", 4, "-H", "a:2,b:2", "sh", "-c", f"ulimit -v {kib}; exec {WORKER} sum"), 4, MEMORY, said=False
        )
        for kib in (*(loaded + 1024 + (alone - loaded) * part // 8 for part in range(1, 9)), alone + 65536, 8 << 20)
    )


if __name__ == "__main__":
    main()
