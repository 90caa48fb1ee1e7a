#!/usr/bin/python3 -B
"""Elastic jobs that a user resizes, and hosts that join, leave or are removed."""

from harness import *

from elastic_jobs import RANK, begun, running_on, sums, wait_for_generation
import network


class Joining:
    """Starts an elastic job whose hosts join by themselves."""

    def __init__(self, *arguments):
        self.token = scratch() / "token"
        self.token.write_text("f" * 64)
        self.token.chmod(0o600)
        self.job = Job("--listen", f"{network.LAUNCHER_ADDRESS}:0", "--token-file", self.token, *arguments)
        wait_until(lambda: re.search(r" at tcp:[0-9.]+:(\d+) for ", self.job.err), 30, self.job.describe)
        self.port = re.search(r" at tcp:[0-9.]+:(\d+) for ", self.job.err)[1]

    def join(self, name, slots):
        return subprocess.Popen(
            [
                HOSTS,
                "exec",
                name,
                AGENT,
                "--join",
                f"{network.LAUNCHER_ADDRESS}:{self.port}",
                "--token-file",
                self.token,
                "--name",
                name,
                "--slots",
                str(slots),
            ]
        )


@world("a b c")
def test_hosts_join_an_elastic_job_by_themselves():
    joining = Joining("-np", 2, "--min-np", 1, "--max-np", 4, PYTHON, RANK, 250)
    job, agents = joining.job, [joining.join("a", 2)]
    wait_for_generation(job, 0, 2)
    agents.append(joining.join("b", 2))
    wait_for_generation(job, 1, 4)
    agents.append(joining.join("c", 2))  # beyond --max-np: waits
    time.sleep(3)
    expect(not begun(job, 2), job.describe())
    os.kill(running_on("a", RANK.name)[0], signal.SIGKILL)
    # The other ranks continue first, or wait for the ranks of c, which start at once.
    job.wait_for(r"[45] begins \d+ \d+/4 ", 2)
    agents.append(joining.join("a", 2))  # used again, because it has no failures
    for pid in running_on("b", "horovod-agent"):
        os.kill(pid, signal.SIGKILL)
    job.wait_for(r"[67] begins \d+ \d+/4 ", 2)
    job.ends_with(0)
    expect("host a is used again when an agent joins there" in job.err, job.describe())
    for agent in agents:
        agent.wait(LONG)
    job.leaves_nothing()
    sums(job, 4)


@world("a b c")
def test_agents_that_join_at_once_all_take_part():
    joining = Joining("-np", 1, "--min-np", 1, PYTHON, RANK, 100)
    agents = [joining.join(name, 1) for name in "abc"]
    joining.job.wait_for(r"\d+ begins \d+ \d+/3 ", 3)
    joining.job.ends_with(0)
    for agent in agents:
        agent.wait(LONG)
    joining.job.leaves_nothing()


@world()
def test_resize_changes_the_number_of_ranks_and_loses_nothing():
    job = Job("-np", 4, "--min-np", 2, "-H", "a:2,b:2", PYTHON, RANK, 400, "--slow", 0.05)
    wait_for_generation(job, 0, 4)
    for words, sentence in (
        ((1,), "at least 2 ranks (--min-np)"),
        ((5,), "slots for 4 ranks"),
        (("many",), "write horovodrun resize"),
        ((0,), "write horovodrun resize"),
        ((1, 3), "no horovodrun of yours runs with pid 1"),
    ):
        wrong = ask("resize", *words)
        expect(wrong.returncode == 2 and sentence in wrong.stderr and wrong.stderr.count("\n") == 1, wrong)
    expect(not begun(job, 1), job.describe())
    fewer = ask("resize", 2)
    expect((fewer.returncode, fewer.stdout) == (0, "the job goes from 4 to 2 ranks when they next commit\n"), fewer)
    expect([rank[:2] for rank in sorted(wait_for_generation(job, 1, 2))] == [(0, 0), (1, 1)], job.describe())
    wait_until(
        lambda: not any(RANK.name in faults.said_of(pid, "cmdline") for pid in faults.processes("b")), 30, job.describe
    )
    more = ask("resize", job.process.pid, 3)
    expect(more.returncode == 0 and "from 2 to 3 ranks" in more.stdout, more)
    expect([rank[:2] for rank in sorted(wait_for_generation(job, 2, 3))] == [(0, 0), (1, 1), (4, 2)], job.describe())
    # A returned host is listed once.
    seen = ask("ps").stdout
    rows = [row.split() for row in seen.splitlines()[2:]]
    expect([row[:3] for row in rows] == [["0", "0", "a"], ["1", "1", "a"], ["2", "4", "b"]], seen)
    fewer = ask("resize", 2)
    wait_for_generation(job, 3, 2)
    job.ends_with(0)
    job.leaves_nothing()
    steps = {number: begun(job, number)[0][3] for number in (1, 2, 3)}
    expect(
        sums(job, 2) == steps[1] * 4 + (steps[2] - steps[1]) * 2 + (steps[3] - steps[2]) * 3 + (400 - steps[3]) * 2,
        job.describe(),
    )
    expect(not any("lost" in line or "killed" in line for line in job.said()), job.describe())


@world()
def test_removed_hosts_and_ranks_leave_at_the_next_commit_and_lose_nothing():
    job = Job("-np", 4, "--min-np", 1, "-H", "a:2,b:2", PYTHON, RANK, 400, "--slow", 0.05)
    wait_for_generation(job, 0, 4)
    for words, sentence in (
        (("c",), "host c is not one of the hosts that the job uses: a, b"),
        ((4,), "the job has no rank 4; its last one is 3"),
        ((), "write horovodrun remove"),
        (("a", "b"), "there is no job a in "),
    ):
        wrong = ask("remove", *words)
        expect(wrong.returncode == 2 and sentence in wrong.stderr and wrong.stderr.count("\n") == 1, wrong)
    one = ask("remove", 1)
    expect(one.returncode == 0 and one.stdout.startswith("rank 1 on host a leaves the job when"), one)
    expect([rank[:2] for rank in sorted(wait_for_generation(job, 1, 3))] == [(0, 0), (2, 1), (3, 2)], job.describe())
    seen = ask("ps")
    expect(f"horovodrun, pid {job.process.pid}, generation 1, 3 ranks: " in seen.stdout, seen)
    rows = [row.split() for row in seen.stdout.splitlines()[1:]]
    found = [row[:3] + row[4:5] for row in rows]
    ranks = [["0", "0", "a", "in_job"], ["1", "2", "b", "in_job"], ["2", "3", "b", "in_job"]]
    expect(found == [["RANK", "PROCESS", "HOST", "STATE"], *ranks], seen)
    beside = ask("exec", "--rank", "1-2", "sh", "-c", "echo $HOROVOD_ELASTIC_PROCESS")
    expect(sorted(beside.stdout.splitlines()) == ["[1]<stdout>:2", "[2]<stdout>:3"], beside)
    gone = ask("exec", "--rank", "3", "true")
    expect((gone.returncode, gone.stderr[:29]) == (2, "horovodrun: --rank: there is "), gone)
    host = ask("remove", "a")
    expect(host.returncode == 0 and host.stdout.startswith("host a leaves the job when its ranks next commit"), host)
    expect([rank[:2] for rank in sorted(wait_for_generation(job, 2, 2))] == [(2, 0), (3, 1)], job.describe())
    last = ask("remove", "b")
    expect(last.returncode == 2 and "needs at least 1" in last.stderr, last)
    back = ask("resize", 3)
    expect(back.returncode == 0 and "from 2 to 3 ranks" in back.stdout, back)
    expect([rank[:2] for rank in sorted(wait_for_generation(job, 3, 3))] == [(2, 0), (3, 1), (4, 2)], job.describe())
    job.ends_with(0)
    job.leaves_nothing()
    steps = {number: begun(job, number)[0][3] for number in (1, 2, 3)}
    expect(
        sums(job, 3) == steps[1] * 4 + (steps[2] - steps[1]) * 3 + (steps[3] - steps[2]) * 2 + (400 - steps[3]) * 3,
        job.describe(),
    )
    expect(not any("lost" in line or "killed" in line for line in job.said()), job.describe())


@world()
def test_sigterm_to_an_agent_makes_its_host_leave_and_loses_nothing():
    job = Job("-np", 4, "--min-np", 2, "-H", "a:2,b:2", PYTHON, RANK, 200, "--slow", 0.05)
    wait_for_generation(job, 0, 4)
    found = agents("b")["agent"]
    expect(found, f"no agent on host b\n{job.describe()}")
    os.kill(max(found), signal.SIGTERM)
    begun_next = wait_for_generation(job, 1, 2)
    job.ends_with(0)
    job.leaves_nothing()
    expect(sorted(rank[:2] for rank in begun_next) == [(0, 0), (1, 1)], job.describe())
    step = begun_next[0][3]
    expect(sums(job, 2) == step * 4 + (200 - step) * 2, job.describe())
    expect(
        any("host b leaves the job: its agent got signal 15; its ranks have 30 s" in line for line in job.said())
        and not any("lost" in line for line in job.said()),
        job.describe(),
    )


@world()
def test_the_only_host_with_the_state_leaves_once_another_one_has_it():
    joining = Joining("-np", 1, "--min-np", 1, "--leave-grace", 100, PYTHON, RANK, 200, "--slow", 0.05)
    job, processes = joining.job, [joining.join("a", 1)]
    wait_for_generation(job, 0, 1)
    os.kill(max(agents("a")["agent"]), signal.SIGTERM)
    wait_until(lambda: "no other host has the training state" in job.err, 30, job.describe)
    processes.append(joining.join("b", 1))
    wait_for_generation(job, 1, 2)
    expect([rank[:2] for rank in wait_for_generation(job, 2, 1)] == [(1, 0)], job.describe())
    job.ends_with(0)
    for process in processes:
        process.wait(LONG)
    job.leaves_nothing()
    sums(job, 1)
    expect(re.search(r"0 has (100|9\d) s left", job.out) and "1 has" not in job.out, job.describe())
    expect(not any("lost" in line for line in job.said()), job.describe())


@world()
def test_a_host_that_does_not_commit_within_the_leave_grace_is_lost():
    job = Job("-np", 2, "--min-np", 1, "--leave-grace", 1, "-H", "a:1,b:1", PYTHON, RANK, 4, "--slow", 6)
    wait_for_generation(job, 0, 2)
    os.kill(max(agents("b")["agent"]), signal.SIGTERM)
    wait_for_generation(job, 1, 1)
    job.ends_with(0)
    job.leaves_nothing()
    expect(
        any(
            "host b was lost: the agent got signal 15, and the ranks have not committed within 1 s" in line
            for line in job.said()
        ),
        job.describe(),
    )


@world()
def test_a_job_of_constant_size_is_not_resized():
    job = Job("-np", 2, "-H", "a:1,b:1", "sh", "-c", "echo ready; sleep 3")
    job.wait_for("ready", 2)
    wrong = ask("resize", 1)
    expect(wrong.returncode == 2 and "the number of ranks of this job is constant" in wrong.stderr, wrong)
    job.ends_with(0)
    job.leaves_nothing()


if __name__ == "__main__":
    main()
