#!/usr/bin/python3 -B
"""hvd.init(comm=[...]): its ranks form a separate job that needs no other rank of the launcher's job. Ranks 0 and 1 run
on host a, 2 and 3 on host b."""

from harness import *

import bootstrap_test as bootstrap
import network

RANK = (PYTHON, WORKERS / "list_rank.py")
OURS = ("horovodrun", "-np", 4, "-H", "a:2,b:2", "--tag", "none")
STEP = ("srun", "-N2", "--ntasks-per-node=2")
# Only the members of a list call hvd.init(). Some lists form jobs at the same time, or of ranks that have met before.
LISTS = ("2,1", "1", "3,0/2,1", "2,3", "1,3", "0,2", "all", "2,1", "0,2,3", "1,2/3,0", "all", "0,1,2,3")


def start(program, *arguments, **more):
    path = shutil.which(program, path=f"{LAUNCHER.parent}:/usr/bin:/bin")
    if path is None:
        raise Skip(f"there is no {program}: packaging/packages-test.txt names its package")
    return Job(*arguments, program=path, environment=clean_environment(**more))


def members_alone_are_a_job(*command, lists=LISTS, **variables):
    job = start(*command, *RANK, *lists, **variables)
    job.ends_with(0)
    check(job.out, lists, job.describe)
    job.leaves_nothing()


def check(out, lists, say):
    expected = []
    for words in lists:
        for ranks in ["0,1,2,3"] if words == "all" else words.split("/"):
            members = list(map(int, ranks.split(",")))
            for place, rank in enumerate(members):
                here = [each for each in members if each // 2 == rank // 2]
                local = f"local {here.index(rank)} of {len(here)}"
                expected.append(f"{rank} of {words}: {members}, place {place}, {local}")
    expect(sorted(out.splitlines()) == sorted(expected), say())


def wrong_lists_are_refused(*command, **variables):
    for ranks, words in (
        ("0,1,0", r"rank 0 is twice in hvd.init\(comm=\[0, 1, 0\]\)"),
        ("0,7", r"rank 7 is in hvd.init\(comm=\[0, 7\]\), but the job has the ranks 0 to 3"),
    ):
        job = start(*command, *RANK, ranks, **variables)
        expect(job.wait() != 0 and re.search(words, job.err), job.describe())
    job = start(*command, PYTHON, "-c", "import horovod.numpy as hvd; hvd.init(comm=[1, 2])", **variables)
    expect(job.wait() != 0, job.describe())
    expect(re.search(r"rank [03] is not in hvd.init\(comm=\[1, 2\]\)", job.err), job.describe())


def a_member_that_never_calls_is_named(*command, first="rank 2 on host b has not", **variables):
    """The missing rank is in a list after other ranks, or first in it, and then the others need its address."""
    # Open MPI ends a job if one of its processes ends without PMIx_Init.
    script = f'case ${{PMIX_RANK:-$SLURM_PROCID}} in 1|2) exec sleep 20;; esac; exec {" ".join(map(str, RANK))} "$@"'
    for ranks, late, error in (
        ("3,2,0", r"rank 2 has not called hvd.init\(comm=\[3, 2, 0\]\)", r"within 8 s; every rank of the job must"),
        ("2,3,0", first, r"(come|answer on .*); all 3 ranks of \[2, 3, 0\] must call hvd.init\(\) with this list"),
    ):
        job = start(*command, "sh", "-c", script, "sh", ranks, HOROVOD_INIT_TIMEOUT="8", **variables)
        expect(job.wait() != 0, job.describe())
        line = rf"\[warning\] .*{late}.* for 4 s, and (the others wait|rank \d waits) there"
        expect(re.search(line, job.err) and re.search(f"Error: .*{late} {error}", job.err), job.describe())


@world("a b", "--no-decoys")
def test_pmix_of_slurm():
    with bootstrap.cluster() as variables:
        step = (*STEP, "--mpi=pmix")
        members_alone_are_a_job(*step, **variables)
        wrong_lists_are_refused(*step, **variables)
        a_member_that_never_calls_is_named(*step, "-K", **variables)


@world("a b", "--no-decoys")
def test_a_plain_step_of_slurm():
    with bootstrap.cluster() as variables:
        members_alone_are_a_job(*STEP, **variables)
        wrong_lists_are_refused(*STEP, **variables)
        a_member_that_never_calls_is_named(*STEP, "-K", first="rank 2 .*", **variables)


@world("a b", "--no-decoys")
def test_pmix_of_open_mpi():
    pathlib.Path("/tmp/hostfile").write_text("a slots=2\nb slots=2\n")
    mpirun = ("mpirun.openmpi", *bootstrap.ON_TWO_HOSTS)
    members_alone_are_a_job(*mpirun)
    wrong_lists_are_refused(*mpirun)
    a_member_that_never_calls_is_named(*mpirun, "-x", "HOROVOD_INIT_TIMEOUT")


@world()
def test_our_agents():
    members_alone_are_a_job(*OURS)


@world()
def test_variables_of_the_original():
    out = bootstrap.output_by_hand(("--insecure-compat",), bootstrap.variables_of_the_original, (*RANK, *LISTS))
    check(out, LISTS, lambda: out)


@world()
def test_wrong_lists_under_our_agents():
    wrong_lists_are_refused(*OURS)


@world()
def test_ranks_of_hydra_say_that_all_must_come():
    """PMI-1 has fences of all ranks only. Ranks of an earlier job need no other rank for the next one."""
    command = ("mpiexec.hydra", "-iface", network.BRIDGE, "-np", 4, "-hosts", "a:2,b:2")
    members_alone_are_a_job(*command, lists=("3,0/2,1", "all", "2,1", "all"))
    script = f"[ $PMI_RANK != 3 ] || exec sleep 8; exec {' '.join(map(str, RANK))} 0,1/2"
    job = start(*command, "sh", "-c", script, HOROVOD_INIT_TIMEOUT="6")
    expect(job.wait() != 0, job.describe())
    expect(
        "all 4 ranks must call hvd.init(), also those that form no job with this one, within 6 s" in job.err,
        job.describe(),
    )


if __name__ == "__main__":
    main()
