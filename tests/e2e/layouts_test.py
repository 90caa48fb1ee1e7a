#!/usr/bin/python3 -B
"""Results do not depend on the layout of ranks over hosts: overflow, NaN, integers, the order of sums."""

from harness import *

RANK = WORKERS / "numeric_rank.py"


CHECKS = ("values", "rounding", "repetition", "memory")
# With at most four hosts, the message size selects one of these three algorithms.
LIMITS = ("HOROVOD_ALLREDUCE_WHOLE_LIMIT", "HOROVOD_ALLREDUCE_DOUBLING_LIMIT")
ALGORITHMS = {"one-shot": (1 << 40, -1), "recursive doubling": (-1, 1 << 40), "two-shot": (-1, -1)}


def values_are_right(hosts, ranks, checks=CHECKS, **environment):
    job = Job("-np", ranks, "-H", hosts, PYTHON, RANK, *checks, environment=clean_environment(**environment))
    job.ends_with(0)
    expect(job.out.count("done") == ranks, job.describe())


@world()
def test_four_ranks_on_two_hosts_compute_as_on_one():
    values_are_right("a:2,b:2", 4)


@world("a b c d")
def test_other_layouts_compute_alike():
    values_are_right("a:4", 4)
    values_are_right("a:1,b:1,c:1,d:1", 4)
    values_are_right("a:4,b:4", 8)


@world("a b c d")
def test_every_algorithm_of_a_few_hosts_computes_alike():
    for limits in ALGORITHMS.values():
        environment = {name: str(value) for name, value in zip(LIMITS, limits)}
        for hosts in ("a:2,b:2", "a:1,b:1,c:1,d:1"):
            values_are_right(hosts, 4, ("values", "rounding"), **environment)


@world("a b c d e")
def test_every_algorithm_of_many_hosts_computes_alike():
    for ring_from in ("-1", "1"):  # halving-doubling, and a ring
        values_are_right(
            "a:1,b:2,c:1,d:1,e:1",
            6,
            ("values", "rounding"),
            HOROVOD_ALLREDUCE_DOUBLING_LIMIT="-1",
            HOROVOD_ALLREDUCE_RING_FROM=ring_from,
        )


@world("a b c d e")
def test_five_hosts_sum_in_one_order_if_the_job_asks_for_it():
    for variable, words in (("0", "several orders"), ("1", "one order")):
        checks = ("order", "repetition") if variable == "1" else ("order",)
        job = Job(
            *"-np 5 -H a:1,b:1,c:1,d:1,e:1".split(),
            PYTHON,
            RANK,
            *checks,
            environment=clean_environment(HOROVOD_REPRODUCIBLE=variable),
        )
        job.ends_with(0)
        expect(words in job.out and job.out.count("done") == 5, job.describe())


@world()
def test_ranks_of_which_one_alone_sums_in_one_order_do_not_start():
    job = Job(
        *"-np 2 -H a:1,b:1".split(),
        "sh",
        "-c",
        f"HOROVOD_REPRODUCIBLE=$HOROVOD_RANK exec {PYTHON} {RANK} order",
        environment=clean_environment(),
    )
    expect(job.wait() != 0, job.describe())
    expect("HOROVOD_REPRODUCIBLE differs between the ranks" in job.out + job.err, job.describe())


if __name__ == "__main__":
    main()
