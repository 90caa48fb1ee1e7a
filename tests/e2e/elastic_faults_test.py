#!/usr/bin/python3 -B
"""Faults of all kinds in elastic jobs: the surviving ranks continue to train."""

import clock_test

from harness import *

from elastic_jobs import RANK, begun, discovery, running_on, sums, wait_for_generation
from random_faults import check_writers
from slow_link import SlowLink

TELL, COMMITTED = ("--tell", 3), r"\d has committed 3"


def four(steps):
    """Starts one rank on each of four hosts."""
    return Job("-np", 4, "--min-np", 1, "-H", "a:1,b:1,c:1,d:1", PYTHON, RANK, steps, *TELL)


def kill_ranks(*names):
    for name in names:
        for pid in running_on(name, RANK.name):
            os.kill(pid, signal.SIGKILL)


def goes_on(job, generation, ranks):
    """Expects that the ranks continue from their commits, and all end with the same sum."""
    found = wait_for_generation(job, generation, ranks)
    job.ends_with(0)
    job.leaves_nothing()
    expect(all(step > 0 for _, _, _, step in found), job.describe())
    sums(job, ranks)


@world()
def test_a_guardian_that_is_killed_takes_its_host_out():
    job = Job("-np", 4, "--min-np", 2, "-H", "a:2,b:2", PYTHON, RANK, 60, *TELL)
    job.wait_for(COMMITTED, 4)
    for pid in agents("b")["guardian"]:
        os.kill(pid, signal.SIGKILL)
    goes_on(job, 1, 2)
    expect(any("host b" in line for line in job.said()), job.describe())


@world()
def test_a_host_whose_processes_are_all_stopped_is_lost():
    job = Job("-np", 4, "--min-np", 2, "-H", "a:2,b:2", PYTHON, RANK, 100, *TELL)
    job.wait_for(COMMITTED, 4)
    faults.freeze("b")
    try:
        found = wait_for_generation(job, 1, 2)
        expect(sorted(process for process, *_ in found) == [0, 1], job.describe())
        job.ends_with(0)
    finally:
        faults.thaw("b")
    sums(job, 2)
    expect(any("host b was lost" in line for line in job.said()), job.describe())
    job.leaves_nothing()


def states_on(*names):
    """Returns the states of the ranks' processes from /proc: T is stopped."""
    return [said[2] for said in (faults.said_of(pid, "stat").rpartition(")") for pid in ranks_on(*names)) if said[2]]


def ranks_on(*names):
    return [pid for name in names for pid in running_on(name, RANK.name)]


def are_stopped(count, *names):
    states = states_on(*names)
    return len(states) == count and all(state.split()[0] == "T" for state in states)


def silence_until(silence, speak, is_there, job):
    """Silences the launcher until the condition is true."""
    silence()
    try:
        wait_until(is_there, 60, job.describe)
    finally:
        speak()


def stands_still(job):
    return lambda: os.kill(job.process.pid, signal.SIGSTOP), lambda: os.kill(job.process.pid, signal.SIGCONT)


def is_cut(*names):
    def each(change):
        return lambda: [change(name, "launcher") for name in names]

    return each(faults.cut), each(faults.heal)


@world()
def test_a_launcher_that_stands_still_stops_the_ranks_and_costs_no_host():
    job = Job("-np", 4, "--min-np", 1, "-H", "a:2,b:2", PYTHON, RANK, 60, *TELL)
    job.wait_for(COMMITTED, 4)
    silence_until(*stands_still(job), lambda: are_stopped(4, "a", "b"), job)
    job.ends_with(0)
    job.leaves_nothing()
    expect(sums(job, 4) == 240 and not begun(job, 1) and job.said() == [], job.describe())


@world()
def test_a_switch_that_fails_between_the_launcher_and_all_hosts_costs_no_host():
    job = Job("-np", 4, "--min-np", 1, "-H", "a:2,b:2", PYTHON, RANK, 60, *TELL)
    job.wait_for(COMMITTED, 4)
    silence_until(*is_cut("a", "b"), lambda: are_stopped(4, "a", "b"), job)
    job.ends_with(0)
    job.leaves_nothing()
    expect(sums(job, 4) == 240 and not begun(job, 1) and job.said() == [], job.describe())


@world()
def test_a_launcher_that_stands_still_for_longer_than_the_lease_is_named():
    elastic = ("--min-np", 1), (PYTHON, RANK, 1000, *TELL)
    constant = (), ("sh", "-c", "echo 1 has committed 3; sleep 1000; :", RANK.name)
    for flags, program in (elastic, constant):
        job = Job("-np", 2, *flags, "-H", "a:1,b:1", "--lease", 4, *program)
        job.wait_for(COMMITTED, 2)
        silence_until(*stands_still(job), lambda: not ranks_on("a", "b"), job)
        job.ends_with(1)
        one_sentence(job, "^the launcher stood still for [0-9]+ s, longer than --heartbeat-timeout 4 s$")
        job.leaves_nothing()


@world()
def test_a_host_that_is_cut_off_writes_nothing_beside_others_and_is_used_again():
    job = Job("-np", 2, "--min-np", 1, "-H", "a:1,b:1", "--kill-grace", 600, PYTHON, RANK, 300, *TELL)
    job.wait_for(COMMITTED, 2)
    faults.cut("b", "launcher")
    found = wait_for_generation(job, 1, 1)
    expect([process for process, *_ in found] == [0] and are_stopped(1, "b"), job.describe())
    expect(any("host b was lost: the host did not answer for" in line for line in job.said()), job.describe())
    faults.heal("b", "launcher")
    found = wait_for_generation(job, 2, 2)
    expect(sorted(process for process, *_ in found) == [0, 2] and len(ranks_on("b")) == 1, job.describe())
    job.ends_with(0)
    job.leaves_nothing()
    sums(job, 2)


@world()
def test_ranks_that_leave_or_are_excluded_end_before_others_go_on():
    """A thread and a SIGTERM handler of rank 0 still save when rank 1 of its host has failed, its guardian was killed,
    a script removes its host, or a user removes it from a host that stays."""
    program = WORKERS / "chaos_rank.py"
    for cause in ("failure", "guardian", "script", "remove"):
        folder = scratch()
        hosts = discovery(folder, "a:2", "b:1") if cause == "script" else ("-H", "a:2,b:1")
        job = Job("-np", 3, "--min-np", 1, *hosts, PYTHON, program, "elastic", 100, folder, 1.5)
        job.wait_for(">:trains", 3)
        if cause == "failure":
            os.kill(max(running_on("a", program.name)), signal.SIGKILL)
        elif cause == "guardian":
            os.kill(*agents("a")["guardian"], signal.SIGKILL)
        elif cause == "script":
            discovery(folder, "b:1")
        else:
            ask("remove", 0)
        job.ends_with(0)
        job.leaves_nothing()
        expect("generation 1: " in job.err, job.describe())
        expect(check_writers(folder, job.describe) == 2, job.describe())


@world("a b c d")
def test_two_ranks_that_fail_in_the_same_step():
    job = four(60)
    job.wait_for(COMMITTED, 4)
    kill_ranks("b", "d")
    job.wait_for(r"[02] begins [12] ./2 at [1-9]", 2)
    job.ends_with(0)
    job.leaves_nothing()
    sums(job, 2)


@world("a b c")
def test_a_rank_that_fails_in_a_reset_callback_is_left_out():
    job = Job("-np", 3, "--min-np", 1, "-H", "a:1,b:1,c:1", PYTHON, RANK, 60, *TELL, "--fail-in-reset", "0@1")
    job.wait_for(COMMITTED, 3)
    kill_ranks("b")
    job.wait_for(r"2 begins [23] 0/1 at [1-9]", 1)
    job.ends_with(0)
    job.leaves_nothing()
    expect(any("rank 0 on host a exited with code 1" in line for line in job.said()), job.describe())


@world("a b c")
def test_a_rank_that_fails_while_it_gives_its_state_is_left_out():
    job = Job("-np", 3, "--min-np", 1, "-H", "a:1,b:1,c:1", PYTHON, RANK, 60, *TELL, "--lose", "0@1")
    job.wait_for(COMMITTED, 3)
    kill_ranks("b")
    job.wait_for(r"2 begins [23] 0/1 at [1-9]", 1)
    job.ends_with(0)
    job.leaves_nothing()
    expect(any("rank 0 on host a was killed by signal 9" in line for line in job.said()), job.describe())


@world()
def test_a_script_that_replaces_all_hosts_loses_nothing():
    folder = scratch()
    job = Job("-np", 1, "--max-np", 1, *discovery(folder, "a:1"), PYTHON, RANK, 100)
    wait_for_generation(job, 0, 1)
    discovery(folder, "b:1")
    expect(sorted(process for process, *_ in wait_for_generation(job, 1, 2)) == [0, 1], job.describe())
    found = wait_for_generation(job, 2, 1)
    job.ends_with(0)
    job.leaves_nothing()
    process, _, _, step = found[-1]
    expect(process == 1 and sums(job, 1) == 100 + step - begun(job, 1)[0][3], job.describe())


@world()
def test_a_host_behind_a_link_with_a_delay_of_2_s_is_not_lost():
    with SlowLink("b", 2):
        job = Job("-np", 2, "--min-np", 1, "-H", "a:1,b:1", "--start-timeout", 240, PYTHON, RANK, 4)
        job.ends_with(0, 300)
        job.leaves_nothing()
    expect(not begun(job, 1) and sums(job, 2) == 8, job.describe())
    expect(not any("lost" in line for line in job.said()), job.describe())


@world("a b c")
def test_a_clock_that_is_set_back_between_a_removal_and_a_replacement_hides_neither():
    folder, clock = scratch(), clock_test.Clock()
    variables = {"LD_PRELOAD": clock_test.preloaded(), "E2E_CLOCK": str(clock.path)}
    job = Job(
        *"-np 2 --min-np 1".split(),
        *discovery(folder, "a:1", "b:1"),
        *"-x LD_PRELOAD -x E2E_CLOCK".split(),
        PYTHON,
        RANK,
        250,
        environment=clean_environment(**variables),
    )
    wait_for_generation(job, 0, 2)
    discovery(folder, "a:1")
    wait_for_generation(job, 1, 1)
    clock.step(-1)
    discovery(folder, "a:1", "c:1")
    wait_for_generation(job, 2, 2)
    clock.step(-2)
    discovery(folder, "b:1", "c:1")
    job.wait_for(r"3 begins \d \d/2 ", 1)
    job.ends_with(0)
    job.leaves_nothing()
    sums(job, 2)
    expect(not any("lost" in line or "pauses" in line for line in job.said()), job.describe())


def outputs(folder):
    return {path.parent.name: path.read_text().splitlines() for path in folder.glob("rank.*/stdout")}


@world()
def test_a_slot_that_two_processes_used_has_an_output_file_of_each():
    folder = scratch() / "out"
    job = Job(
        *"-np 2 --min-np 1 --blacklist-cooldown-range 1 2 -H a:1,b:1".split(),
        "--output-filename",
        folder,
        PYTHON,
        RANK,
        100,
        "--kill",
        "1@5",
    )
    wait_for_generation(job, 2, 2)
    job.ends_with(0)
    job.leaves_nothing()
    found = outputs(folder)
    expect(
        found == {f"rank.{process}": re.findall(rf"^\[{process}\]<stdout>:.*", job.out, re.M) for process in range(3)},
        f"{found}\n{job.describe()}",
    )
    expect(found["rank.1"] == ["[1]<stdout>:1 begins 0 1/2 at 0"] and "2 begins 2 1/2" in found["rank.2"][0], found)


def test_an_operation_that_waits_for_a_lost_rank_ends_and_training_goes_on():
    for mode, flags in (("handle", ()), ("join", ("--autotune",)), ("fp16", ()), ("adasum", ())):
        job = Job("--min-np", 1, *flags, "-H", "localhost:1,127.0.0.1:2", PYTHON, WORKERS / "elastic_pending.py", mode)
        job.ends_with(0)
        job.leaves_nothing()
        caught = re.findall(r"(\d) caught (\w+)", job.out)
        expect(
            sorted(caught)
            == ([("1", "HorovodInternalError"), ("2", "HorovodInternalError")] if mode in ("handle", "join") else []),
            job.describe(),
        )
        ends = re.findall(r"(\d) ends with (\S+) of 2", job.out)
        expect({process for process, _ in ends} == {"1", "2"} and len({end for _, end in ends}) == 1, job.describe())


if __name__ == "__main__":
    main()
