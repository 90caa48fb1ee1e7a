#!/usr/bin/python3 -B
"""A failed rank ends the job on all hosts before the end of a lease, and the error names the rank."""

from harness import *

GO = "/tmp/e2e-go"


def fails(program, how, code, cause, ready=60, **options):
    """Rank 2, the first on host b, ends as `how` names while all other ranks are busy."""
    job = Job(
        "-np", 4, "-H", "a:2,b:2", PYTHON, program, "--rank", 2, "--then", how, "--go", GO, *options.get("more", ())
    )
    job.wait_for("ready", 4, ready)
    pathlib.Path(GO).touch()
    job.ends_with(code, PROMPT)
    job.leaves_nothing()
    one_sentence(job, r"\brank 2\b", r"\bhost b\b|\bon b\b", cause)


@world()
def test_a_rank_that_exits_3():
    fails(WORKERS / "rank.py", "exit3", 3, r"\b3\b")


@world()
def test_a_rank_that_is_killed():
    fails(WORKERS / "rank.py", "kill", 137, "SIGKILL")


@world()
def test_a_rank_that_segfaults():
    fails(WORKERS / "rank.py", "segv", 139, "SIGSEGV")


@world()
def test_a_rank_that_aborts():
    fails(WORKERS / "rank.py", "abort", 134, "SIGABRT")


@world()
def test_a_rank_that_exits_3_among_ranks_that_hide_and_refuse_to_end():
    fails(WORKERS / "rank.py", "exit3", 3, r"\b3\b", more=["--nasty"])


@world()
def test_a_reducing_rank_that_exits_3_while_its_child_keeps_its_sockets():
    fails(WORKERS / "reducing_rank.py", "exit3", 3, r"\b3\b", ready=60)


@world()
def test_a_reducing_rank_that_leaves_with_3_is_named_and_not_the_ranks_that_fail_without_it():
    fails(WORKERS / "reducing_rank.py", "leave3", 3, r"\b3\b", ready=60)


@world()
def test_a_reducing_rank_that_is_killed_while_its_child_keeps_its_sockets():
    fails(WORKERS / "reducing_rank.py", "kill", 137, "SIGKILL", ready=60)


@world()
def test_a_reducing_rank_that_segfaults_while_its_child_keeps_its_sockets():
    fails(WORKERS / "reducing_rank.py", "segv", 139, "SIGSEGV", ready=60)


@world()
def test_a_broken_link_has_one_cause_that_all_ranks_say():
    # A failed rank sleeps instead of ending: the launcher lets the others print their error.
    job = Job("-np", 4, "-H", "a:2,b:2", "sh", "-c", f"{BUILD / 'tests' / 'runtime_worker'} steps-for-ever; sleep 600")
    job.wait_for("ready", 4)
    killed = run_to_end(
        ["nsenter", "-t", str(faults.running("b")), "-n", "ss", "-K", "-H", "-t", "dst", faults.address_of("a")]
    )
    if killed.returncode != 0 or not killed.stdout.strip():
        raise Skip("the kernel ends no connections for ss (CONFIG_INET_DIAG_DESTROY)")

    def said():
        return re.findall(r"^\[\d\]<stderr>:rank \d: allreduce: (.*)", job.err, re.M)

    wait_until(lambda: len(said()) == 4, PROMPT, job.describe)
    expect(
        len(set(said())) == 1
        and re.match(
            r"(rank \d: )?the connection between rank [01] on host a and rank [23] on host b was reset; ", said()[0]
        ),
        job.describe(),
    )
    job.signal(signal.SIGINT)
    job.wait()


@world()
def test_a_rank_that_ends_well_before_the_others_is_no_failure():
    job = Job("-np", 4, "-H", "a:2,b:2", PYTHON, WORKERS / "rank.py", "--rank", 1, "--then", "exit0", "--seconds", 2)
    job.ends_with(0)
    job.leaves_nothing()
    expect(job.said() == [], f"nothing to say was expected\n{job.describe()}")


if __name__ == "__main__":
    main()
