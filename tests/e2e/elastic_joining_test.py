#!/usr/bin/python3 -B
"""New processes of an elastic job prepare while the ranks train, and then join or fail."""

from harness import *

from elastic_jobs import RANK, begun, discovery, sums, wait_for_generation


def steps_of(folder):
    """Returns the number of steps of elastic_warm.py so far."""
    found = folder / "steps"
    return int(found.read_text()) if found.exists() else 0


def wait_for_steps(folder, job, more):
    """Waits until the ranks have made this many more steps."""
    goal = steps_of(folder) + more
    wait_until(lambda: steps_of(folder) >= goal, 60, lambda: f"step {goal}\n{job.describe()}")


def wait_for_sentence(job, words):
    wait_until(lambda: words in job.err, 60, lambda: f"{words}\n{job.describe()}")


def takes_in(entrance):
    """Two ranks of host a train while two new ranks of host b prepare and join."""
    folder = scratch()
    job = Job(
        *"-np 2 --min-np 1".split(),
        "--restart-ranks",
        *discovery(folder, "a:2"),
        PYTHON,
        WORKERS / "elastic_warm.py",
        folder,
        entrance,
    )
    job.wait_for(r"\d trains as \d of 2 after \[\]", 2)
    discovery(folder, "a:2", "b:2")
    job.wait_for(r"2 is 2 of 4|3 is 3 of 4", 2)
    wait_for_steps(folder, job, 100)
    expect(" of 4 after" not in job.out, job.describe())
    return job, folder


def ends_with_four(job, folder):
    (folder / "enter").touch()
    job.wait_for(r"\d trains as \d of 4 after ", 4)
    (folder / "end").touch()
    job.ends_with(0)
    job.leaves_nothing()
    expect(len(set(re.findall(r"\d ends at (\d+)", job.out))) == 1, job.describe())


@world()
def test_ranks_train_on_until_new_processes_enter_elastic_run():
    job, folder = takes_in("run")
    ends_with_four(job, folder)
    expect("2 trains as 2 of 4 after []" in job.out, job.describe())
    expect("0 trains as 0 of 4 after [4]" in job.out, job.describe())


@world()
def test_a_collective_a_process_set_and_places_work_before_a_new_process_has_joined():
    for entrance in ("collective", "set", "memory"):
        ends_with_four(*takes_in(entrance))


@world()
def test_a_void_plan_starts_new_processes_again_that_have_not_entered_elastic_run():
    job, folder = takes_in("run")
    (folder / "fail-3").touch()
    wait_for_sentence(
        job, "process 2 on host b is ended, because the place that hvd.init gave it has changed; another process starts"
    )
    job.wait_for("4 is 2 of 4|5 is 3 of 4", 2)
    wait_for_steps(folder, job, 20)
    expect("generation 1" not in job.err, job.describe())
    ends_with_four(job, folder)
    expect("4 trains as 2 of 4 after []" in job.out, job.describe())


@world()
def test_a_process_in_elastic_run_takes_another_place_when_a_rank_fails():
    job, folder = takes_in("run")
    (folder / "enter-2").touch()
    wait_for_steps(folder, job, 20)
    (folder / "fail-1").touch()
    job.wait_for(r"2 trains as 1 of \d after \[\d\]")
    wait_for_sentence(job, "process 3 on host b is ended, because the place that hvd.init gave it has changed")
    (folder / "end").touch()
    job.ends_with(0)
    job.leaves_nothing()


@world()
def test_a_job_that_ends_while_new_processes_wait_leaves_nothing():
    for number in signal.SIGINT, signal.SIGKILL:
        job, folder = takes_in("run")
        (folder / "enter-2").touch()  # process 2 then waits for process 3, which prepares
        wait_for_steps(folder, job, 20)
        job.signal(number)
        job.ends_with(128 + number)
        job.leaves_nothing()


@world()
def test_a_host_that_is_lost_while_its_processes_prepare_costs_the_ranks_nothing():
    job, folder = takes_in("run")
    os.kill(max(agents("b")["agent"]), signal.SIGKILL)
    wait_for_sentence(job, "host b")
    wait_for_steps(folder, job, 100)
    (folder / "end").touch()
    job.ends_with(0)
    job.leaves_nothing()
    expect("generation 1" not in job.err and " of 4 after" not in job.out, job.describe())


@world()
def test_a_new_process_that_fails_beside_ranks_of_its_host_costs_them_nothing():
    folder = scratch()
    job = Job("-np", 2, *discovery(folder, "a:1", "b:1"), PYTHON, WORKERS / "elastic_warm.py", folder, "run")
    job.wait_for(r"\d trains as \d of 2 after \[\]", 2)
    discovery(folder, "a:1", "b:2")
    job.wait_for("2 is 2 of 3")
    (folder / "fail-2").touch()
    wait_for_sentence(job, "exited with code 7; the job goes on without it, and starts another process there in 5 s")
    wait_for_steps(folder, job, 20)
    expect("generation 1" not in job.err, job.describe())
    job.wait_for("3 is 2 of 3")
    (folder / "enter").touch()
    job.wait_for(r"\d trains as \d of 3 after ", 3)
    (folder / "end").touch()
    job.ends_with(0)
    job.leaves_nothing()


@world()
def test_a_new_process_that_never_calls_init_is_given_up_and_another_one_joins():
    folder = scratch()
    job = Job("-np", 1, "--start-timeout", 5, *discovery(folder, "a:1"), PYTHON, RANK, 400, "--import", 1000)
    wait_for_generation(job, 0, 1)
    discovery(folder, "a:1", "b:1")
    wait_for_sentence(job, "; the job goes on without it, and starts another process there in 5 s")
    expect(re.search(r"process 1 on host b has not called hvd.init within \d+ s of its start", job.err), job.describe())
    discovery(folder, "a:1")
    job.ends_with(0)
    job.leaves_nothing()
    expect(sums(job, 1) == 400 and not begun(job, 1), job.describe())


@world()
def test_a_new_process_that_does_not_enter_elastic_run_is_given_up_and_costs_the_ranks_nothing():
    folder = scratch()
    job = Job("-np", 1, "--start-timeout", 7, *discovery(folder, "a:1"), PYTHON, RANK, 250, "--idle", "1@1000")
    wait_for_generation(job, 0, 1)
    discovery(folder, "a:1", "b:1")
    job.ends_with(0)
    job.leaves_nothing()
    named = (
        r"the next generation waits for process 1 on host b, which is new, to enter hvd.elastic.run, up to (7|8) s "
        r"after its hvd.init \(--start-timeout\)"
    )
    given_up = (
        r"process 1 on host b has not entered hvd.elastic.run, nor called a collective, within (7|8) s of its hvd.init "
        r"\(--start-timeout\)"
    )
    expect(re.search(named, job.err) and re.search(given_up, job.err), job.describe())
    expect(sums(job, 1) == 250 and not begun(job, 1), job.describe())


@world()
def test_a_new_rank_that_calls_a_collective_first_may_enter_elastic_run_later():
    folder = scratch()
    job = Job("-np", 1, "--start-timeout", 7, *discovery(folder, "a:1"), PYTHON, RANK, 60, "--idle", "1@10", "--pair")
    wait_for_generation(job, 0, 1)
    discovery(folder, "a:1", "b:1")
    wait_for_generation(job, 1, 2)
    job.ends_with(0)
    job.leaves_nothing()
    expect("1 has called a collective" in job.out, job.describe())
    expect(not begun(job, 2), job.describe())
    sums(job, 2)


if __name__ == "__main__":
    main()
