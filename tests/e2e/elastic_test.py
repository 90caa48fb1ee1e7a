#!/usr/bin/python3 -B
"""Elastic jobs: ranks fail, hosts come, go and are lost, and the training goes on in the same processes."""
import collections

import churn
from harness import *

import network

AGENT = BUILD / "bin" / "horovod-agent"
RANK = WORKERS / "elastic_rank.py"
TRAINING = WORKERS / "churn_training.py"
EXAMPLES = ROOT / "examples" / "elastic"
ENOUGH = 0.9  # test accuracy


def discovery(folder, *hosts):
    """Writes what the discovery script answers from now on."""
    answer = folder / "answer"
    answer.with_suffix(".new").write_text("".join(f"{host}\n" for host in hosts))
    answer.with_suffix(".new").rename(answer)
    return "--host-discovery-script", f"cat {answer}"


def begun(job, generation):
    """The ranks of a generation: (process, rank, size, step)."""
    return [tuple(map(int, words)) for words in
            re.findall(rf"(\d+) begins {generation} (\d+)/(\d+) at (\d+)", job.out)]


def wait_for_generation(job, number, ranks, seconds=60):
    job.wait_for(rf"\d+ begins {number} \d+/{ranks} ", ranks, seconds)
    return begun(job, number)


def sums(job, ranks):
    found = re.findall(r"(\d+) ends with (\d+) in", job.out)
    expect(len(found) == ranks, f"{ranks} ends expected\n{job.describe()}")
    expect(len({total for _, total in found}) == 1, f"the sums differ\n{job.describe()}")
    return int(found[0][1])


def check_shrunk(job, processes):
    """Two of four ranks go on after the fifth of 20 steps, or after the fourth where the end of the others
    came before the sum of the fifth had reached them. No step is lost, and none is repeated."""
    found = sorted(begun(job, 1))
    step = found[0][3]
    expect(step in (4, 5) and found == [(process, rank, 2, step)
                                        for rank, process in enumerate(processes)], job.describe())
    expect(sums(job, 2) == step * 4 + (20 - step) * 2, job.describe())


def running_on(name, program):
    """Ids of the processes on a host whose command line names a program."""
    return [pid for pid in faults.processes(name) if program in faults.said_of(pid, "cmdline")]


@world()
def test_a_killed_rank_takes_its_host_out_and_the_others_go_on_in_their_processes():
    job = Job("-np", 4, "--min-np", 2, "-H", "a:2,b:2", PYTHON, RANK, 20, "--kill", "2@5")
    job.ends_with(0)
    job.leaves_nothing()
    check_shrunk(job, [0, 1])
    expect(any("rank 2 on host b was killed by signal 9" in line and "host b is not used again" in line
               for line in job.said()), job.describe())


@world()
def test_rank_0_may_fail():
    job = Job("-np", 4, "--min-np", 2, "-H", "a:2,b:2", PYTHON, RANK, 20, "--raise", "0@5")
    job.ends_with(0)
    job.leaves_nothing()
    check_shrunk(job, [2, 3])


@world()
def test_a_host_that_is_cut_off_is_lost_within_seconds():
    job = Job("-np", 4, "--min-np", 2, "-H", "a:2,b:2", PYTHON, RANK, 60)
    wait_for_generation(job, 0, 4)
    faults.crash("b")
    before = time.monotonic()
    wait_for_generation(job, 1, 2, 30)
    print(f"the next generation began after {time.monotonic() - before:.1f} s")
    job.ends_with(0)
    job.leaves_nothing()
    expect(any("host b was lost" in line for line in job.said()), job.describe())


@world("a b c")
def test_hosts_come_and_go_as_the_script_says():
    folder = scratch()
    job = Job("-np", 1, *discovery(folder, "a:1"), PYTHON, RANK, 800, "--slow", 0.05)
    wait_for_generation(job, 0, 1)
    discovery(folder, "a:1", "b:2")
    expect([process for process, rank, _, _ in sorted(wait_for_generation(job, 1, 3),
                                                      key=lambda one: one[1])] == [0, 1, 2],
           job.describe())
    discovery(folder, "b:2", "c:1")
    # Both changes may come together, or one after the other.
    job.wait_for(r"\d+ begins \d+ \d+/3 at", 6)
    job.wait_for(r"[1-3] ends with", 3, 180)
    job.ends_with(0)
    job.leaves_nothing()
    expect(not re.search(r"^.*\b0 ends with", job.out, re.M), job.describe())
    sums(job, 3)


@world("a b c")
def test_an_empty_answer_and_one_with_other_hosts_alone_lose_nothing():
    folder = scratch()
    job = Job("-np", 2, *discovery(folder, "a:1", "b:1"), PYTHON, RANK, 400, "--slow", 0.05)
    wait_for_generation(job, 0, 2)
    discovery(folder)
    wait_until(lambda: any("the job pauses: it has 0 of at least 2 ranks" in line for line in job.said()), 60,
               job.describe)
    discovery(folder, "a:1", "b:1")
    expect([process for process, *_ in sorted(wait_for_generation(job, 1, 2))] == [0, 1], job.describe())
    discovery(folder, "c:2")
    expect([process for process, *_ in sorted(wait_for_generation(job, 2, 3))] == [0, 2, 3], job.describe())
    found = sorted(wait_for_generation(job, 3, 2))
    expect([process for process, *_ in found] == [2, 3] and found[0][3] > 0, job.describe())
    job.ends_with(0)
    job.leaves_nothing()
    sums(job, 2)


@world()
def test_a_bad_new_host_and_slow_imports_cost_the_ranks_nothing():
    folder = scratch()
    job = Job("-np", 1, *discovery(folder, "a:1"), PYTHON, RANK, 500, "--slow", 0.05, "--import", 3)
    wait_for_generation(job, 0, 1)
    discovery(folder, "a:1", "nowhere.invalid:1")
    wait_until(lambda: any("nowhere.invalid" in line for line in job.said()), 60, job.describe)
    expect(not begun(job, 1), job.describe())
    discovery(folder, "a:1", "b:1")
    wait_for_generation(job, 1, 2)
    job.ends_with(0)
    job.leaves_nothing()
    expect(len(begun(job, 0)) == 1, job.describe())


@world()
def test_a_job_begins_without_a_host_that_cannot_be_reached_where_a_script_names_enough_others():
    folder = scratch()
    job = Job("-np", 2, "--min-np", 1, *discovery(folder, "nowhere.invalid:1", "a:1"), PYTHON, RANK, 150)
    wait_for_generation(job, 0, 1)
    tries = "nowhere.invalid.*tries it again in (5|10) s"
    wait_until(lambda: len([line for line in job.said() if re.search(tries, line)]) == 2, 60, job.describe)
    job.ends_with(0)
    job.leaves_nothing()
    few = Job("-np", 2, *discovery(folder, "nowhere.invalid:1", "a:1"), PYTHON, RANK, 100)
    few.ends_with(2)


@world()
def test_a_new_process_has_the_local_rank_of_a_free_slot_of_its_host():
    folder = scratch()
    job = Job("-np", 3, *discovery(folder, "a:1", "b:2"), PYTHON, RANK, 400, "--slow", 0.05)
    wait_for_generation(job, 0, 3)
    before = running_on("b", RANK.name)
    discovery(folder, "a:1", "b:3")
    wait_for_generation(job, 1, 4)
    new = [pid for pid in running_on("b", RANK.name) if pid not in before]
    variables = [re.findall(r"\bHOROVOD_LOCAL_[^\0]*", faults.said_of(pid, "environ")) for pid in new]
    expect(["HOROVOD_LOCAL_RANK=2", "HOROVOD_LOCAL_SIZE=3"] in variables, variables)
    job.ends_with(0)
    job.leaves_nothing()


@world()
def test_a_listener_hears_of_a_new_host_before_the_next_commit():
    folder = scratch()
    job = Job("-np", 1, *discovery(folder, "a:1"), PYTHON, RANK, 20, "--listen")
    wait_for_generation(job, 0, 1)
    discovery(folder, "a:1", "b:1")
    found = wait_for_generation(job, 1, 2)
    expect(all(step == 1 for _, _, _, step in found), job.describe())
    job.ends_with(0)
    job.leaves_nothing()
    expect(re.findall("[0-9] hears of .*", job.out) == ["0 hears of added"], job.describe())


@world()
def test_a_job_ends_when_only_new_ranks_are_left():
    folder = scratch()
    job = Job("-np", 1, *discovery(folder, "a:1"), PYTHON, RANK, 500, "--lose", "0@1")
    wait_for_generation(job, 0, 1)
    discovery(folder, "a:1", "b:1")
    job.ends_with(1)
    job.leaves_nothing()
    expect("hvd.elastic.run: no rank is left that has the state of the training." in job.err, job.describe())


@world("a b c")
def test_the_same_exception_on_a_second_host_ends_the_job():
    job = Job("-np", 3, "--min-np", 1, "-H", "a:1,b:1,c:1", PYTHON, RANK, 20, "--raise-as-rank", "1@5")
    job.ends_with(1)
    job.leaves_nothing()
    expect(any("rank 2 on host c exited with code 1; rank 1 on host b had failed with the same exception "
               "(ValueError: no such sample) in generation 0, and no rank has committed since" in line
               for line in job.said()), job.describe())


@world("a b c")
def test_the_same_exception_after_a_commit_excludes_the_next_host():
    job = Job("-np", 3, "--min-np", 1, "-H", "a:1,b:1,c:1", PYTHON, RANK, 20, "--raise-as-rank", "2@5,1@9")
    wait_for_generation(job, 2, 1)
    job.ends_with(0)
    job.leaves_nothing()


@world("a b c")
def test_a_rank_that_dies_before_it_connects_voids_its_generation_at_once():
    job = Job("-np", 4, "--min-np", 2, "-H", "a:2,b:1,c:1", PYTHON, RANK, 20, "--kill", "2@5", "--vanish", "3@1")
    wait_until(lambda: "generation 1: 3 ranks" in job.said(), 60, job.describe)
    before = time.monotonic()
    wait_for_generation(job, 2, 2)
    seconds = time.monotonic() - before
    print(f"the next generation began after {seconds:.2f} s")
    job.ends_with(0)
    job.leaves_nothing()
    expect(seconds < 5, f"the ranks waited {seconds:.1f} s for a dead one\n{job.describe()}")
    expect(not begun(job, 1), job.describe())
    expect(any("on host c was killed by signal 9" in line for line in job.said()), job.describe())


def get_process_sets_back(*options):
    job = Job("-np", 4, "--min-np", 2, "--blacklist-cooldown-range", 1, 2, "-H", "a:2,b:2", PYTHON, RANK, 100,
              "--kill", "2@5", "--sets", *options)
    wait_for_generation(job, 2, 4)
    job.ends_with(0)
    job.leaves_nothing()

    def found(generation):
        return sorted(re.findall(rf"\d+ has (\[.*?\]) in {generation} as (\w+): (.*)", job.out))

    missed = ("ProcessSet(process_set_id=None, ranks=[2, 3]) cannot be used now: the job's ranks have changed, and it "
              "has ranks 0 to 1.")
    whole = sorted(2 * [("[0, 1]", "1", "2"), ("[0, 1]", "1", "no member"),
                        ("[2, 3]", "2", "2"), ("[2, 3]", "2", "no member")])
    expect(found(0) == whole, f"{found(0)}\n{job.describe()}")
    # The set of all ranks has the id 0.
    expect(found(1) == 2 * [("[0, 1]", "0", "2")] + 2 * [("[2, 3]", "None", missed)],
           f"{found(1)}\n{job.describe()}")
    expect(found(2) == whole, f"{found(2)}\n{job.describe()}")
    expect(job.err.count("The job has 2 ranks now. These process sets cannot be used until their ranks are back: "
                         "[2, 3] (id 2).") == 1, job.describe())


@world()
def test_process_sets_come_back_with_their_ranks():
    get_process_sets_back()


@world()
def test_reset_callbacks_may_remove_process_sets_and_add_them_again():
    get_process_sets_back("--sets-again")


def resources_of(pid):
    """Descriptors, threads and KiB of memory of a process."""
    pages = int(faults.said_of(pid, "statm").split()[1])
    return (len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task")),
            pages * os.sysconf("SC_PAGE_SIZE") // 1024)


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
    found = [tuple(map(int, numbers)) for numbers in
             re.findall(r"after (\d+) generations: (\d+) descriptors, (\d+) threads, (\d+) KiB, (\d+) keys", job.out)]
    print(*found, sep="\n")
    expect([one[0] for one in found] == [generations // 10, generations], job.describe())
    (_, descriptors, threads, memory, keys), after = found
    expect(after[1:3] == (descriptors, threads), f"descriptors or threads: {found}")
    # Requests of other ranks may be there at that moment, and one key a generation would be many more.
    expect(abs(after[4] - keys) <= 3, f"keys: {found}")
    expect(after[3] - memory < 1024, f"KiB: {found}")
    print("launcher", *launcher, sep="\n")
    # A few connections to the store come and go, and one a generation would be many more.
    expect(launcher[1][0] - launcher[0][0] <= 8 and launcher[1][1] == launcher[0][1],
           f"descriptors or threads of the launcher: {launcher}")
    # The store remembers 4,096 changes, 9 of each generation: less than 400 KiB.
    expect(launcher[1][2] - launcher[0][2] < 1024, f"KiB of the launcher: {launcher}")


@world()
def test_a_hundred_generations_leave_nothing_behind():
    leave_nothing_behind(100)


@world("a")
def test_on_a_single_host_a_failed_rank_is_started_again():
    job = Job("-np", 3, "--min-np", 2, "-H", "a:3", PYTHON, RANK, 200, "--kill", "1@5")
    wait_for_generation(job, 1, 2)
    new = wait_for_generation(job, 2, 3)
    expect(3 in [process for process, *_ in new], job.describe())
    job.ends_with(0)
    job.leaves_nothing()


@world()
def test_with_restart_ranks_a_killed_rank_is_started_again_on_its_host():
    job = Job("-np", 4, "--min-np", 2, "--restart-ranks", "-H", "a:2,b:2", PYTHON, RANK, 200, "--kill", "2@5")
    wait_for_generation(job, 1, 3)
    new = wait_for_generation(job, 2, 4)
    expect(sorted(process for process, *_ in new) == [0, 1, 3, 4], job.describe())
    expect(any("rank 2 on host b was killed by signal 9" in line and "started again in 1 s" in line
               for line in job.said()), job.describe())
    job.ends_with(0)
    job.leaves_nothing()
    sums(job, 4)


@world()
def test_an_agent_that_is_killed_takes_its_host_out():
    job = Job("-np", 4, "--min-np", 2, "-H", "a:2,b:2", PYTHON, RANK, 40)
    wait_for_generation(job, 0, 4)
    for pid in running_on("b", "horovod-agent"):
        os.kill(pid, signal.SIGKILL)
    wait_for_generation(job, 1, 2)
    job.ends_with(0)
    job.leaves_nothing()
    sums(job, 2)
    expect(any("host b" in line for line in job.said()), job.describe())


@world("a b c")
def test_a_rank_that_is_stopped_during_a_change_is_named_and_given_up():
    job = Job("-np", 3, "--min-np", 1, "-H", "a:1,b:1,c:1", "--start-timeout", 8, PYTHON, RANK, 100)
    wait_for_generation(job, 0, 3)
    ranks = {name: running_on(name, RANK.name) for name in "bc"}
    os.kill(ranks["c"][-1], signal.SIGSTOP)
    os.kill(ranks["b"][-1], signal.SIGKILL)
    wait_for_generation(job, 1, 1)
    job.ends_with(0)
    job.leaves_nothing()
    said = "\n".join(job.said())
    expect("the next generation waits for rank 2 on host c, up to 8 s" in said, job.describe())
    expect("rank 2 on host c has not called hvd.init within 8 s" in said, job.describe())


@world()
def test_a_launcher_that_is_killed_while_the_job_pauses_leaves_nothing():
    folder = scratch()
    job = Job("-np", 2, "--min-np", 2, *discovery(folder, "a:1", "b:1"), PYTHON, RANK, 1000)
    wait_for_generation(job, 0, 2)
    discovery(folder, "a:1")
    wait_until(lambda: any("the job pauses" in line for line in job.said()), 30, job.describe)
    job.signal(signal.SIGKILL)
    job.wait()
    job.leaves_nothing(30)


class Joining:
    """An elastic job whose hosts join by themselves."""

    def __init__(self, *arguments):
        self.token = scratch() / "token"
        self.token.write_text("f" * 64)
        self.token.chmod(0o600)
        self.job = Job("--listen", f"{network.LAUNCHER_ADDRESS}:0", "--token-file", self.token, *arguments)
        wait_until(lambda: re.search(r" at tcp:[0-9.]+:(\d+) for ", self.job.err), 30, self.job.describe)
        self.port = re.search(r" at tcp:[0-9.]+:(\d+) for ", self.job.err)[1]

    def join(self, name, slots):
        return subprocess.Popen([HOSTS, "exec", name, AGENT, "--join", f"{network.LAUNCHER_ADDRESS}:{self.port}",
                                 "--token-file", self.token, "--name", name, "--slots", str(slots)])


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
    # The other ranks go on first, or wait for those of c, which start at once.
    job.wait_for(r"[45] begins \d+ \d+/4 ", 2)
    agents.append(joining.join("a", 2))  # again: it has no failures
    for pid in running_on("b", "horovod-agent"):
        os.kill(pid, signal.SIGKILL)
    job.wait_for(r"[67] begins \d+ \d+/4 ", 2)
    job.ends_with(0)
    expect("host a is used again when an agent joins there" in job.err, job.describe())
    for agent in agents:
        agent.wait(30)
    job.leaves_nothing()
    sums(job, 4)


@world("a b c")
def test_agents_that_join_at_once_all_take_part():
    joining = Joining("-np", 1, "--min-np", 1, PYTHON, RANK, 100)
    agents = [joining.join(name, 1) for name in "abc"]
    joining.job.wait_for(r"\d+ begins \d+ \d+/3 ", 3)
    joining.job.ends_with(0)
    for agent in agents:
        agent.wait(30)
    joining.job.leaves_nothing()


@world()
def test_ranks_that_end_unevenly_end_the_job_with_success():
    job = Job("-np", 2, "--min-np", 1, "-H", "a:1,b:1", PYTHON, RANK, 20, "--early", "0@5")
    job.ends_with(0)
    job.leaves_nothing()


@world()
def test_too_few_ranks_without_hope_end_the_job_at_once():
    job = Job("-np", 2, "--min-np", 2, "-H", "a:1,b:1", PYTHON, RANK, 20, "--kill", "1@5")
    job.ends_with(137)
    job.leaves_nothing()
    expect("--min-np" in job.said()[-1], job.describe())


@world()
def test_resize_changes_the_number_of_ranks_and_loses_nothing():
    job = Job("-np", 4, "--min-np", 2, "-H", "a:2,b:2", PYTHON, RANK, 400, "--slow", 0.05)
    wait_for_generation(job, 0, 4)
    for words, sentence in (((1,), "at least 2 ranks (--min-np)"), ((5,), "slots for 4 ranks"),
                            (("many",), "write horovodrun resize"), ((0,), "write horovodrun resize"),
                            ((1, 3), "no horovodrun of yours runs with pid 1")):
        wrong = ask("resize", *words)
        expect(wrong.returncode == 2 and sentence in wrong.stderr and wrong.stderr.count("\n") == 1, wrong)
    expect(not begun(job, 1), job.describe())
    fewer = ask("resize", 2)
    expect((fewer.returncode, fewer.stdout) == (0, "the job goes from 4 to 2 ranks when they next commit\n"), fewer)
    expect([rank[:2] for rank in sorted(wait_for_generation(job, 1, 2))] == [(0, 0), (1, 1)], job.describe())
    wait_until(lambda: not any(RANK.name in faults.said_of(pid, "cmdline") for pid in faults.processes("b")), 30,
               job.describe)
    more = ask("resize", job.process.pid, 3)
    expect(more.returncode == 0 and "from 2 to 3 ranks" in more.stdout, more)
    expect([rank[:2] for rank in sorted(wait_for_generation(job, 2, 3))] == [(0, 0), (1, 1), (4, 2)], job.describe())
    # A host that has come back is listed once.
    seen = ask("ps").stdout
    expect(re.findall("^host .*", seen, re.M) == ["host a", "host b"], seen)
    fewer = ask("resize", 2)
    wait_for_generation(job, 3, 2)
    job.ends_with(0)
    job.leaves_nothing()
    steps = {number: begun(job, number)[0][3] for number in (1, 2, 3)}
    expect(sums(job, 2) == steps[1] * 4 + (steps[2] - steps[1]) * 2 + (steps[3] - steps[2]) * 3 + (400 - steps[3]) * 2,
           job.describe())
    expect(not any("lost" in line or "killed" in line for line in job.said()), job.describe())


@world()
def test_removed_hosts_and_ranks_leave_at_the_next_commit_and_lose_nothing():
    job = Job("-np", 4, "--min-np", 1, "-H", "a:2,b:2", PYTHON, RANK, 400, "--slow", 0.05)
    wait_for_generation(job, 0, 4)
    for words, sentence in ((("c",), "host c is not one of the hosts that the job uses: a, b"),
                            ((4,), "the job has no rank 4; its last one is 3"), ((), "write horovodrun remove"),
                            (("a", "b"), "write horovodrun remove")):
        wrong = ask("remove", *words)
        expect(wrong.returncode == 2 and sentence in wrong.stderr and wrong.stderr.count("\n") == 1, wrong)
    one = ask("remove", 1)
    expect(one.returncode == 0 and one.stdout.startswith("rank 1 on host a leaves the job when"), one)
    expect([rank[:2] for rank in sorted(wait_for_generation(job, 1, 3))] == [(0, 0), (2, 1), (3, 2)], job.describe())
    seen = ask("ps")
    expect(f"horovodrun, pid {job.process.pid}, generation 1, 3 ranks: " in seen.stdout, seen)
    expect(re.findall(r"^rank \d.*", seen.stdout, re.M) == [f"rank {rank} (process {process})"
                                                           for rank, process in enumerate((0, 2, 3))], seen)
    beside = ask("exec", "--rank", "1-2", "sh", "-c", "echo $HOROVOD_ELASTIC_PROCESS")
    expect(sorted(beside.stdout.splitlines()) == ["[1]<stdout>:2", "[2]<stdout>:3"], beside)
    expect(ask("exec", "--rank", "3", "true").returncode == 2, "rank 3 has gone")
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
    expect(sums(job, 3) == steps[1] * 4 + (steps[2] - steps[1]) * 3 + (steps[3] - steps[2]) * 2 + (400 - steps[3]) * 3,
           job.describe())
    expect(not any("lost" in line or "killed" in line for line in job.said()), job.describe())


def agents(host):
    return [pid for pid in faults.processes(host) if "agent" in faults.said_of(pid, "comm")]


@world()
def test_sigterm_to_an_agent_makes_its_host_leave_and_loses_nothing():
    job = Job("-np", 4, "--min-np", 2, "-H", "a:2,b:2", PYTHON, RANK, 200, "--slow", 0.05)
    wait_for_generation(job, 0, 4)
    found = agents("b")
    expect(found, f"no agent on host b\n{job.describe()}")
    os.kill(max(found), signal.SIGTERM)
    begun_next = wait_for_generation(job, 1, 2)
    job.ends_with(0)
    job.leaves_nothing()
    expect(sorted(rank[:2] for rank in begun_next) == [(0, 0), (1, 1)], job.describe())
    step = begun_next[0][3]
    expect(sums(job, 2) == step * 4 + (200 - step) * 2, job.describe())
    expect(any("host b leaves the job: its agent got signal 15; its ranks have 30 s" in line for line in job.said()) and
           not any("lost" in line for line in job.said()), job.describe())


@world()
def test_the_only_host_with_the_state_leaves_once_another_one_has_it():
    joining = Joining("-np", 1, "--min-np", 1, "--leave-grace", 100, PYTHON, RANK, 200, "--slow", 0.05)
    job, processes = joining.job, [joining.join("a", 1)]
    wait_for_generation(job, 0, 1)
    os.kill(max(agents("a")), signal.SIGTERM)
    wait_until(lambda: "no other host has the state" in job.err, 30, job.describe)
    processes.append(joining.join("b", 1))
    wait_for_generation(job, 1, 2)
    expect([rank[:2] for rank in wait_for_generation(job, 2, 1)] == [(1, 0)], job.describe())
    job.ends_with(0)
    for process in processes:
        process.wait(30)
    job.leaves_nothing()
    sums(job, 1)
    expect(re.search(r"0 has (100|9\d) s left", job.out) and "1 has" not in job.out, job.describe())
    expect(not any("lost" in line for line in job.said()), job.describe())


def wait_for_ranks(job, generation, ranks):
    """Waits for a later generation with so many ranks, and returns its number. New ranks that become ready more
    than a second after each other, on a busy machine, come in a generation each."""
    line = re.compile(rf"generation (\d+): rank \d/{ranks} on ")

    def found():
        counts = collections.Counter(map(int, line.findall(job.out)))
        return [number for number, count in counts.items() if number > generation and count == ranks]

    return wait_until(found, 100, job.describe)[0]


@world()
def test_pytorch_loses_no_step_by_resize_remove_and_sigterm_to_an_agent():
    stop = scratch() / "stop"
    job = Job("-np", 4, "--min-np", 1, "-H", "a:2,b:2", PYTHON, TRAINING, "torch", stop)
    generation = wait_for_ranks(job, -1, 4)
    for words, ranks in [(("resize", 2), 2), (("resize", 3), 3), (("remove", 0), 2), (("resize", 4), 4),
                         (("remove", "a"), 2), (("resize", 4), 4)]:
        answer = ask(*words)
        expect(answer.returncode == 0, f"{answer}\n{job.describe()}")
        generation = wait_for_ranks(job, generation, ranks)
    os.kill(max(agents("b")), signal.SIGTERM)
    wait_for_ranks(job, generation, 2)
    churn.check_training(*churn.end(job, stop, job.describe))
    expect(not any("lost" in line or "killed" in line for line in job.said()), job.describe())
    begins = [int(step) for step in re.findall(r"generation \d+: .* at (\d+)", job.out)]
    expect(begins == sorted(begins), f"steps were repeated\n{job.describe()}")


@world()
def test_a_host_that_does_not_commit_within_the_leave_grace_is_lost():
    job = Job("-np", 2, "--min-np", 1, "--leave-grace", 1, "-H", "a:1,b:1", PYTHON, RANK, 4, "--slow", 6)
    wait_for_generation(job, 0, 2)
    os.kill(max(agents("b")), signal.SIGTERM)
    wait_for_generation(job, 1, 1)
    job.ends_with(0)
    job.leaves_nothing()
    expect(any("host b was lost: the agent got signal 15, and the ranks have not committed within 1 s" in line
               for line in job.said()), job.describe())


@world()
def test_a_job_of_constant_size_is_not_resized():
    job = Job("-np", 2, "-H", "a:1,b:1", "sh", "-c", "echo ready; sleep 3")
    job.wait_for("ready", 2)
    wrong = ask("resize", 1)
    expect(wrong.returncode == 2 and "the number of ranks of this job is constant" in wrong.stderr, wrong)
    job.ends_with(0)
    job.leaves_nothing()


@world()
def test_ctrl_c_while_a_host_starts_leaves_nothing():
    folder = scratch()
    job = Job("-np", 1, *discovery(folder, "a:1"), PYTHON, RANK, 10000, "--import", 600)
    wait_for_generation(job, 0, 1)
    discovery(folder, "a:1", "b:1")
    time.sleep(2)
    job.signal(signal.SIGINT)
    job.ends_with(130)
    job.leaves_nothing()


def lose_no_committed_step(python, phases, *options):
    folder = scratch()
    folder.chmod(0o755)
    job = Job("-np", 4, "--min-np", 2, "--blacklist-cooldown-range", 1, 2, "-H", "a:2,b:2", python,
              WORKERS / "elastic_phases.py", folder, *options, *phases)
    job.ends_with(0, 100 + 100 * len(phases))
    job.leaves_nothing()
    begins = [tuple(map(int, numbers)) for numbers in
              re.findall(r"\d+ begins (\d+) (\d+)/(\d+) at (\d+), newest commit (-?\d+), source (\d+)", job.out)]
    failed = sorted({(generation, step, newest, source)
                     for generation, _, size, step, newest, source in begins if size == 2})
    expect(len(failed) == len(phases), f"{len(failed)} failures\n{job.describe()}")
    repeated = sum(newest - step for _, step, newest, _ in failed)
    expect(repeated == 0, f"{repeated} committed steps are repeated: {failed}\n{job.describe()}")
    for phase, (_, _, _, source) in zip(phases, failed):
        expect(phase != "stepped" or source == 1, f"rank 1 has the newest commit, not {source}\n{job.describe()}")
    ends = re.findall(r"ends after (\d+) steps, (\d+) batches, with (\w+)", job.out)
    expect(len(ends) == 2 and ends[0] == ends[1], f"two equal ends expected\n{job.describe()}")
    steps, batches, checksum = ends[0]
    expect(int(batches) == 4 * int(steps), f"buffers: {batches} batches in {steps} steps\n{job.describe()}")
    expect(f"alone {checksum}" in job.out, f"one process has other weights\n{job.describe()}")


PHASES = ["before", "between", "stepped", "user", "idle"]


@world()
def test_a_failure_repeats_no_committed_step():
    lose_no_committed_step(PYTHON, ["stepped"])


@world()
def test_a_failure_repeats_no_committed_step_without_snapshots():
    lose_no_committed_step(PYTHON, ["between", "stepped"], "--no-snapshot")


@world()
def test_failures_in_all_phases_repeat_no_committed_step():
    for python in [PYTHON, *more_interpreters()]:
        lose_no_committed_step(python, PHASES)
        lose_no_committed_step(python, PHASES, "--no-snapshot")


def more_interpreters():
    return [name for name in os.environ.get("HVD_TEST_PYTHONS", "").split(":") if name and name != PYTHON]


def interpreters(variable):
    found = [name for name in os.environ.get(variable, "").split(":") if name]
    if not found:
        raise Skip(f"{variable} names no interpreter")
    return found


def random_changes(program, check, seconds, pause, settled=45):
    """HVD_CHURN_SECONDS=1800 runs it for as long, and HVD_CHURN_SEED=N repeats the choices of a run."""
    seed = int(os.environ.get("HVD_CHURN_SEED", time.time_ns() % 100000))
    job = churn.Churn(seed, program, settled)
    try:
        job.wait_for_generation(-1)
        end = time.monotonic() + float(os.environ.get("HVD_CHURN_SECONDS", seconds))
        while time.monotonic() < end:
            job.step()
            time.sleep(job.random.uniform(0, 2 * pause))
        generations, (steps, weights) = job.members()[0] + 1, job.end()
        check(steps, weights)
    except Failure as failure:
        raise Failure(f"HVD_CHURN_SEED={seed}: {failure}") from failure
    print(f"{len(job.events)} events, {generations} generations, {steps} steps")


@world(churn.HOST_NAMES)
def test_random_changes_end_with_the_weights_of_one_process():
    random_changes([PYTHON, WORKERS / "churn_rank.py"], churn.check_numbers, 60, 2)


def random_changes_with(framework, python):
    # A rank that starts on a busy machine imports TensorFlow for half a minute.
    random_changes([python, TRAINING, framework], churn.check_training, 100, 10, 150)


@world(churn.HOST_NAMES)
def test_random_changes_with_pytorch_end_with_the_weights_of_one_process():
    random_changes_with("torch", PYTHON)


@world(churn.HOST_NAMES)
def test_random_changes_with_tensorflow_end_with_the_weights_of_one_process():
    random_changes_with("tensorflow", interpreters("HVD_TEST_TENSORFLOWS")[0])


@world(churn.HOST_NAMES)
def test_random_changes_with_keras_end_with_the_weights_of_one_process():
    random_changes_with("keras", interpreters("HVD_TEST_TENSORFLOWS")[0])


@world(churn.HOST_NAMES)
def test_random_changes_with_jax_end_with_the_weights_of_one_process():
    random_changes_with("jax", interpreters("HVD_TEST_JAX")[0])


@world()
def test_a_job_ends_when_no_rank_notices_a_loss():
    job = Job("-np", 2, "--min-np", 1, "-H", "a:1,b:1", "--elastic-timeout", 8, PYTHON, RANK, 4, "--slow", 1000)
    wait_for_generation(job, 0, 2)
    os.kill(max(running_on("b", RANK.name)), signal.SIGKILL)
    job.ends_with(137)
    job.leaves_nothing()
    expect(re.search(r"rank 1 on host b .*; rank 0 on host a has called nothing of Horovod within 8 s of that "
                     r"\(--elastic-timeout\)", job.err), job.describe())


@world()
def test_a_rank_that_fails_before_the_first_generation_leaves_the_others():
    job = Job("-np", 2, "--min-np", 1, "-H", "a:1,b:1", PYTHON, RANK, 20, "--vanish", "1@0", "--slow", 0.01)
    job.ends_with(0)
    job.leaves_nothing()
    expect(sums(job, 1) == 20, job.describe())


def grows_from_one_rank(python, mode):
    """Returns ranks 0's and 1's numbers: the first one has compiled at size 1, and the new one at size 2."""
    folder = scratch()
    environment = clean_environment(TF_CPP_MIN_LOG_LEVEL="3", TMPDIR=str(folder))
    job = Job("-np", 1, "--min-np", 1, *discovery(folder, "a:1"), "-x", "TF_CPP_MIN_LOG_LEVEL", "-x", "TMPDIR", python,
              WORKERS / "elastic_growth.py", mode, environment=environment)
    job.wait_for("0 begins 1", 1, 120)
    discovery(folder, "a:1", "b:1")
    job.wait_for("begins 2", 2, 120)
    job.ends_with(0, 60)
    job.leaves_nothing()
    return [found.split() for _, found in sorted(re.findall(r"(\d) ends with (.*)", job.out))]


@world()
def test_an_adasum_optimizer_made_for_one_rank_reduces_steps_of_two():
    first, second = grows_from_one_rank(PYTHON, "torch-adasum")
    expect(first == second, (first, second))


@world()
def test_a_compiled_adasum_optimizer_of_tensorflow_goes_on_with_two_ranks():
    first, second = grows_from_one_rank(interpreters("HVD_TEST_TENSORFLOWS")[0], "tensorflow-adasum")
    expect(first == second, (first, second))


@world()
def test_a_compiled_batch_normalization_goes_on_with_two_ranks():
    first, second = grows_from_one_rank(interpreters("HVD_TEST_TENSORFLOWS")[0], "tensorflow-norm")
    expect(first == second, (first, second))


@world()
def test_jax_traces_again_for_two_ranks():
    first, second = grows_from_one_rank(interpreters("HVD_TEST_JAX")[0], "jax")
    # The sum over both ranks' rows; the mean of the factors 1 and 2 as slope; half of the summed rows.
    expect(first == ["12.00000", *["1.50000"] * 4, "0.00000", "2.00000"], first)
    expect(second == ["24.00000", *["1.50000"] * 4, "4.00000", "6.00000"], second)


def trains(python, program, epochs):
    folder = scratch()
    # A killed process leaves TensorFlow's own files.
    environment = clean_environment(TF_CPP_MIN_LOG_LEVEL="3", TMPDIR=str(folder))
    job = Job("-np", 2, "--min-np", 1, *discovery(folder, "a:1", "b:1"), "-x", "TF_CPP_MIN_LOG_LEVEL",
              "-x", "TMPDIR", python, EXAMPLES / program, "--epochs", epochs, "--pause", 0.1, environment=environment)
    job.wait_for("of 2 begins", 2, 200)
    discovery(folder, "a:1", "b:1", "c:1")
    job.wait_for("of 3 begins", 3, 200)
    victims = [pid for pid in faults.processes("b") if program in faults.said_of(pid, "cmdline")
               and "agent" not in faults.said_of(pid, "comm")]
    expect(victims, f"no rank on host b\n{job.describe()}")
    os.kill(max(victims), signal.SIGKILL)
    job.wait_for("of 2 begins", 4, 200)
    discovery(folder, "c:1")
    job.wait_for("of 1 begins", 1, 200)
    discovery(folder, "a:1", "c:1")
    job.wait_for("of 2 begins", 6, 200)
    job.ends_with(0, 400)
    job.leaves_nothing()
    ends = re.findall(r"of 2 ends: test accuracy ([\d.]+), weights (\w+)", job.out)
    expect(len(ends) == 2 and ends[0] == ends[1], f"two equal ends expected\n{job.describe()}")
    expect(float(ends[0][0]) >= ENOUGH, job.describe())


@world("a b c")
def test_pytorch_trains_through_a_new_host_a_killed_rank_and_a_removed_host():
    for python in [PYTHON, *more_interpreters()]:
        trains(python, "torch_digits.py", 40)


@world("a b c")
def test_tensorflow_trains_through_a_new_host_a_killed_rank_and_a_removed_host():
    for python in interpreters("HVD_TEST_TENSORFLOWS"):
        trains(python, "tensorflow_digits.py", 40)


@world("a b c")
def test_keras_trains_through_a_new_host_a_killed_rank_and_a_removed_host():
    for python in interpreters("HVD_TEST_TENSORFLOWS"):
        trains(python, "keras_digits.py", 40)


@world("a b c")
def test_jax_trains_through_a_new_host_a_killed_rank_and_a_removed_host():
    for python in interpreters("HVD_TEST_JAX"):
        trains(python, "jax_digits.py", 40)


if __name__ == "__main__":
    main()
