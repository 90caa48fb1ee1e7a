#!/usr/bin/python3 -B
"""Autotuning during a job: results stay correct, and the log lists the tried parameters."""

import csv

from harness import *

LOG = "/tmp/e2e-autotune.csv"


def tuned(hosts, *flags, steps=400, environment=None):
    pathlib.Path(LOG).unlink(missing_ok=True)
    job = Job(
        "-np",
        2,
        "-H",
        hosts,
        "--autotune",
        "--autotune-log-file",
        LOG,
        *"--autotune-warmup-samples 1 --autotune-steps-per-sample 3 --autotune-bayes-opt-max-samples 6".split(),
        *flags,
        PYTHON,
        WORKERS / "autotuned_rank.py",
        steps,
        environment=environment,
    )
    job.ends_with(0)
    expect(job.out.count("done") == 2, job.describe())
    with open(LOG, encoding="ascii") as file:
        return list(csv.DictReader(file, skipinitialspace=True))


def parameters(row):
    return {name: value for name, value in row.items() if name != "score"}


@world()
def test_two_ranks_on_two_hosts_end_with_the_best_of_what_they_tried():
    rows = tuned("a:1,b:1")
    expect(
        list(rows[0])[:7]
        == [
            "hierarchical_allreduce",
            "hierarchical_allgather",
            "torus_allreduce",
            "cache_enabled",
            "cycle_time_ms",
            "tensor_fusion_threshold",
            "score",
        ],
        rows[0],
    )
    expect(len(rows) == 7, f"6 points and the best were expected: {rows}")
    best = max(rows[:-1], key=lambda row: float(row["score"]))
    expect(rows[-1] == best, f"the last is not the best: {rows}")
    for name in ("cycle_time_ms", "tensor_fusion_threshold", "whole_limit"):
        expect(len({row[name] for row in rows}) > 1, f"{name} did not vary: {rows}")


@world()
def test_a_fixed_parameter_stays():
    rows = tuned("a:1,b:1", "--cycle-time-ms", "2", environment=clean_environment(HOROVOD_ALLREDUCE_WHOLE_LIMIT="2048"))
    expect({row["cycle_time_ms"] for row in rows} == {"2"}, rows)
    expect({row["whole_limit"] for row in rows} == {"2048"}, rows)
    expect(len({row["tensor_fusion_threshold"] for row in rows}) > 1, rows)


@world()
def test_a_run_that_ends_before_its_last_sample_is_no_trouble():
    rows = tuned("a:1,b:1", steps=20)
    expect(len(rows) < 7, rows)


if __name__ == "__main__":
    main()
