#!/usr/bin/python3 -B
"""Elastic jobs: ranks fail, hosts join, leave and are lost, and the training continues in the same processes."""

import json

from harness import *

from elastic_jobs import RANK, begun, discovery, leave_nothing_behind, running_on, sums, wait_for_generation


def check_shrunk(job, processes):
    """Two of four ranks continue after the fifth of 20 steps, or after the fourth if the other ranks ended before the
    sum of the fifth reached the survivors. No step is lost or repeated."""
    found = sorted(begun(job, 1))
    step = found[0][3]
    expect(
        step in (4, 5) and found == [(process, rank, 2, step) for rank, process in enumerate(processes)], job.describe()
    )
    expect(sums(job, 2) == step * 4 + (20 - step) * 2, job.describe())


@world()
def test_a_killed_rank_takes_its_host_out_and_the_others_go_on_in_their_processes():
    job = Job("-np", 4, "--min-np", 2, "-H", "a:2,b:2", PYTHON, RANK, 20, "--kill", "2@5")
    job.ends_with(0)
    job.leaves_nothing()
    check_shrunk(job, [0, 1])
    expect(
        any(
            "rank 2 on host b was killed by signal 9" in line and "host b is not used again" in line
            for line in job.said()
        ),
        job.describe(),
    )


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
    expect(
        [process for process, rank, _, _ in sorted(wait_for_generation(job, 1, 3), key=lambda one: one[1])]
        == [0, 1, 2],
        job.describe(),
    )
    discovery(folder, "b:2", "c:1")
    # Both changes may come together, or one after the other.
    job.wait_for(r"\d+ begins \d+ \d+/3 at", 6)
    job.wait_for(r"[1-3] ends with", 3, 180)
    job.ends_with(0)
    job.leaves_nothing()
    expect(not re.search(r"^.*\b0 ends with", job.out, re.M), job.describe())
    sums(job, 3)


@world("a b")
def test_a_rank_that_comes_later_has_the_hashes_of_the_others():
    folder = scratch()
    words = f"echo seed $PYTHONHASHSEED; exec {PYTHON} {RANK} 400 --slow 0.05"
    job = Job("-np", 1, *discovery(folder, "a:1"), "sh", "-c", words)
    wait_for_generation(job, 0, 1)
    discovery(folder, "a:1", "b:1")
    wait_for_generation(job, 1, 2)
    job.ends_with(0)
    seeds = re.findall(r"seed (\d+)$", job.out, re.M)
    expect(len(seeds) == 2 and len(set(seeds)) == 1, job.describe())


@world("a b c")
def test_an_empty_answer_and_one_with_other_hosts_alone_lose_nothing():
    folder = scratch()
    job = Job("-np", 2, *discovery(folder, "a:1", "b:1"), PYTHON, RANK, 400, "--slow", 0.05)
    wait_for_generation(job, 0, 2)
    discovery(folder)
    wait_until(
        lambda: any("the job pauses: it has 0 of at least 2 ranks" in line for line in job.said()), 60, job.describe
    )
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
def test_a_job_begins_without_a_host_that_cannot_be_reached_where_others_suffice():
    by_script = discovery(scratch(), "nowhere.invalid:1", "a:1")
    for hosts, count, steps in ((by_script, 2, 150), (("-H", "nowhere.invalid:1,a:1"), 1, 30)):
        job = Job("-np", 2, "--min-np", 1, *hosts, PYTHON, RANK, steps)
        job.ends_with(0)
        tries = re.findall("nowhere.invalid.*tries it again in (?:5|10) s", job.err)
        expect(len(tries) >= count and " begins 0 0/1 at 0\n" in job.out, job.describe())
        job.leaves_nothing()
        few = Job("-np", 2, *hosts, *(("--min-np", 2) if "-H" in hosts else ()), PYTHON, RANK, 100)
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
    expect("hvd.elastic.run: no remaining rank has the training state." in job.err, job.describe())


@world("a b c")
def test_the_same_exception_on_a_second_host_ends_the_job():
    job = Job("-np", 3, "--min-np", 1, "-H", "a:1,b:1,c:1", PYTHON, RANK, 20, "--raise-as-rank", "1@5")
    job.ends_with(1)
    job.leaves_nothing()
    expect(
        any(
            "rank 2 on host c exited with code 1; rank 1 on host b had failed with the same exception "
            "(ValueError: no such sample) in generation 0, and no rank has committed since" in line
            for line in job.said()
        ),
        job.describe(),
    )


@world("a b c")
def test_the_same_exception_after_a_few_commits_ends_the_job():
    job = Job("-np", 3, "--min-np", 1, "-H", "a:1,b:1,c:1", PYTHON, RANK, 20, "--raise-as-rank", "2@5,1@7")
    job.ends_with(1)
    job.leaves_nothing()
    expect(
        any(
            "rank 1 on host b exited with code 1; rank 2 on host c had failed with the same exception "
            "(ValueError: no such sample) in generation 0, and the ranks have committed 2 times since" in line
            for line in job.said()
        ),
        job.describe(),
    )


@world("a b c")
def test_the_same_exception_after_many_commits_excludes_the_next_host():
    job = Job("-np", 3, "--min-np", 1, "-H", "a:1,b:1,c:1", PYTHON, RANK, 20, "--raise-as-rank", "2@5,1@12")
    wait_for_generation(job, 2, 1)
    job.ends_with(0)
    job.leaves_nothing()


@world()
def test_an_error_message_of_the_script_changes_no_host():
    folder = scratch()
    job = Job("-np", 2, "--min-np", 2, *discovery(folder, "a:1", "b:1"), PYTHON, RANK, 40)
    wait_for_generation(job, 0, 2)
    discovery(folder, "Error from server (ServiceUnavailable): the server is currently unable")
    wait_until(lambda: any("no line of its output names a host" in line for line in job.said()), 30, job.describe)
    job.ends_with(0)
    expect(not any("pauses" in line for line in job.said()) and len(begun(job, 0)) == 2, job.describe())
    sums(job, 2)


WORKER_ERROR = """
import os, torch.utils.data
import horovod.torch as hvd
hvd.init()
state = hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, step=0)
class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, index):
        if hvd.rank() == 1 and hvd.size() > 1:
            raise (OSError(116, "Stale file handle") if hvd.size() == 3 else ConnectionError("s3: reset"))
        return index
@hvd.elastic.run
def train(state):
    hvd.allreduce(torch.ones(1), name="x")
    for _ in torch.utils.data.DataLoader(Data(), num_workers=1): pass
    hvd.allreduce(torch.ones(1), name="y")
    print("trained by", hvd.size(), flush=True)
train(state)
"""


@world("a b c")
def test_different_errors_of_workers_of_a_dataloader_are_no_repetition():
    job = Job("-np", 3, "--min-np", 1, "-H", "a:1,b:1,c:1", PYTHON, "-c", WORKER_ERROR)
    job.ends_with(0)
    expect("trained by 1" in job.out and "same exception" not in job.err, job.describe())


@world("a b c")
def test_a_rank_that_dies_before_it_connects_voids_its_generation_at_once():
    job = Job("-np", 4, "--min-np", 2, "-H", "a:2,b:1,c:1", PYTHON, RANK, 20, "--kill", "2@5", "--vanish", "3@1")
    wait_until(lambda: "generation 1: 3 ranks" in job.said(), 60, job.describe)
    before = idle()
    wait_for_generation(job, 2, 2)
    seconds = idle() - before
    print(f"the next generation began after {seconds:.2f} s")
    job.ends_with(0)
    job.leaves_nothing()
    expect(seconds < 5, f"the ranks waited {seconds:.1f} s for a dead one\n{job.describe()}")
    expect(not begun(job, 1), job.describe())
    expect(any("on host c was killed by signal 9" in line for line in job.said()), job.describe())


def get_process_sets_back(*options):
    job = Job(
        *"-np 4 --min-np 2 --blacklist-cooldown-range 1 2 -H a:2,b:2".split(),
        PYTHON,
        RANK,
        100,
        "--kill",
        "2@5",
        "--sets",
        *options,
    )
    wait_for_generation(job, 2, 4)
    job.ends_with(0)
    job.leaves_nothing()

    def found(generation):
        return sorted(re.findall(rf"\d+ has (\[.*?\]) in {generation} as (\w+): (.*)", job.out))

    missed = (
        "ProcessSet(process_set_id=None, ranks=[2, 3]) cannot be used now: the job's ranks have changed, and it "
        "has ranks 0 to 1."
    )
    whole = sorted(
        2 * [("[0, 1]", "1", "2"), ("[0, 1]", "1", "no member"), ("[2, 3]", "2", "2"), ("[2, 3]", "2", "no member")]
    )
    expect(found(0) == whole, f"{found(0)}\n{job.describe()}")
    # The set of all ranks has id 0.
    expect(found(1) == 2 * [("[0, 1]", "0", "2")] + 2 * [("[2, 3]", "None", missed)], f"{found(1)}\n{job.describe()}")
    expect(found(2) == whole, f"{found(2)}\n{job.describe()}")
    expect(
        job.err.count(
            "The job has 2 ranks now. These process sets cannot be used until their ranks are back: [2, 3] (id 2)."
        )
        == 1,
        job.describe(),
    )


@world()
def test_process_sets_come_back_with_their_ranks():
    get_process_sets_back()


@world()
def test_reset_callbacks_may_remove_process_sets_and_add_them_again():
    get_process_sets_back("--sets-again")


@world()
def test_a_hundred_generations_leave_nothing_behind():
    leave_nothing_behind(100)


@world("a")
def test_on_a_single_host_a_failed_rank_is_started_again():
    job = Job("-np", 3, "--min-np", 2, "-H", "a:3", PYTHON, RANK, 200, "--kill", "1@5")
    wait_for_generation(job, 1, 2)
    new = wait_for_generation(job, 2, 3)
    expect(3 in [process for process, *_ in new], job.describe())
    # The new process has another agent.
    seen = ask("ps").stdout
    expect([row.split()[4] for row in seen.splitlines()[1:]] == ["STATE", "in_job", "in_job", "in_job"], seen)
    job.ends_with(0)
    job.leaves_nothing()


@world()
def test_with_restart_ranks_a_killed_rank_is_started_again_on_its_host():
    job = Job("-np", 4, "--min-np", 2, "--restart-ranks", "-H", "a:2,b:2", PYTHON, RANK, 200, "--kill", "2@5")
    wait_for_generation(job, 1, 3)
    new = wait_for_generation(job, 2, 4)
    expect(sorted(process for process, *_ in new) == [0, 1, 3, 4], job.describe())
    expect(
        any(
            "rank 2 on host b was killed by signal 9" in line and "started again in 1 s" in line for line in job.said()
        ),
        job.describe(),
    )
    job.ends_with(0)
    job.leaves_nothing()
    sums(job, 4)


def pids():
    """Returns the agents by rank. A restarted rank has another agent."""
    ranks = [rank for host in json.loads(ask("ps", "--json").stdout)["hosts"] for rank in host["ranks"]]
    return [rank["pid"] for rank in sorted((one for one in ranks if "rank" in one), key=lambda one: one["rank"])]


@world()
def test_the_wait_of_restart_ranks_is_forgotten_after_commits():
    flags = ("-np", 2, "--min-np", 2, "--restart-ranks", "-H", "localhost:2", PYTHON, RANK)
    job = Job(*flags, 30, "--slow", 0.2, "--tell", 20)

    def kill_rank_1(generation, seconds):
        wait_for_generation(job, generation, 2)
        os.kill(pids()[1], signal.SIGKILL)
        waits = [*seconds]
        wait_until(lambda: re.findall(r"started again in (\d+) s", job.err) == waits, 30, job.describe)

    kill_rank_1(0, "1")
    job.wait_for("0 has committed 20")
    # The launcher learns of the commits when the ranks request their next places.
    kill_rank_1(1, "12")
    kill_rank_1(2, "121")
    job.ends_with(0)
    job.leaves_nothing()


@world()
def test_a_job_says_that_the_last_rank_with_the_state_is_lost():
    """Rank 0 is killed while rank 1 waits for its restart."""
    flags = ("-np", 2, "--min-np", 1, "--restart-ranks", "-H", "localhost:2")
    job = Job(*flags, PYTHON, RANK, 3000)
    wait_for_generation(job, 0, 2)
    first, second = pids()
    os.kill(second, signal.SIGKILL)
    wait_until(lambda: "started again in 1 s" in job.err, 30, job.describe)
    os.kill(first, signal.SIGKILL)
    job.ends_with(137)
    end = "no remaining rank has the training state: start the job again from its checkpoint"
    expect(job.said()[-1].endswith(end), job.describe())
    job.leaves_nothing()


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
    job.leaves_nothing()


@world()
def test_a_rank_that_returns_before_the_others_ends_the_job_with_a_sentence():
    job = Job("-np", 2, "--min-np", 1, "-H", "a:1,b:1", PYTHON, RANK, 20, "--early", "0@5")
    job.ends_with(1)
    job.leaves_nothing()
    one_sentence(job, "^rank 0 on host a exited with code 0, but rank 1 on host b has not finished training; ")


@world()
def test_too_few_ranks_without_hope_end_the_job_at_once():
    job = Job("-np", 2, "--min-np", 2, "-H", "a:1,b:1", PYTHON, RANK, 20, "--kill", "1@5")
    job.ends_with(137)
    job.leaves_nothing()
    expect("--min-np" in job.said()[-1], job.describe())


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


@world()
def test_a_job_ends_when_no_rank_notices_a_loss():
    job = Job("-np", 2, "--min-np", 1, "-H", "a:1,b:1", "--elastic-timeout", 8, PYTHON, RANK, 4, "--slow", 1000)
    wait_for_generation(job, 0, 2)
    os.kill(max(running_on("b", RANK.name)), signal.SIGKILL)
    job.ends_with(137)
    job.leaves_nothing()
    expect(
        re.search(
            r"rank 1 on host b .*; rank 0 on host a has not called Horovod within 8 s of that "
            r"\(--elastic-timeout\)",
            job.err,
        ),
        job.describe(),
    )


@world()
def test_a_rank_that_fails_before_the_first_generation_leaves_the_others():
    job = Job("-np", 2, "--min-np", 1, "-H", "a:1,b:1", PYTHON, RANK, 20, "--vanish", "1@0", "--slow", 0.01)
    job.ends_with(0)
    job.leaves_nothing()
    expect(sums(job, 1) == 20, job.describe())


AFTER_TRAINING = """
import os, signal, sys, time
import numpy
import horovod.numpy as hvd
from horovod import _elastic
hvd.init()
state = _elastic.ObjectState(step=0)
@_elastic.run
def train(state):
    while state.step < 5:
        hvd.allreduce(numpy.ones(3))
        state.step += 1
        state.commit()
train(state)
rank = hvd.rank()
hvd.shutdown()
print("trained", flush=True)
while not os.path.exists(os.path.join(sys.argv[1], str(rank))):
    time.sleep(0.02)
if rank == 2:
    os.kill(os.getpid(), signal.SIGSEGV)
print("saved", rank, flush=True)
"""


@world("a b c")
def test_a_rank_that_fails_after_training_ends_no_other_one_and_gives_the_job_its_code():
    for order in ((2, 1, 0), (1, 2, 0), (1, 0, 2)):
        folder = scratch()
        job = Job("-np", 3, "--min-np", 1, "-H", "a:1,b:1,c:1", PYTHON, "-c", AFTER_TRAINING, folder)
        job.wait_for("trained", 3)
        for rank in order:
            (folder / str(rank)).touch()
            if rank == 2:
                wait_until(lambda: "rank 2 on host c was killed by signal 11" in job.err, 60, job.describe)
            else:
                job.wait_for(f"saved {rank}")
        job.ends_with(139)
        expect(
            re.search(
                "^training was over; rank [01] on host [ab], rank [01] on host [ab] exited with code 0; "
                r"rank 2 on host c was killed by signal 11 \(SIGSEGV\) after it",
                job.said()[-1],
            ),
            job.describe(),
        )
        job.leaves_nothing()


if __name__ == "__main__":
    main()
