#!/usr/bin/python3 -B
"""The cells of Slurm 24.11. tests/e2e/newer_slurm_test.py runs this file in a root of Debian 13, which has that Slurm,
Open MPI 5.0 and MPICH 4.2."""

import worlds_test
from harness import LAUNCHER, main
from slurm_test import on_cluster
from worlds_test import check


@on_cluster()
def test_sbatch(cluster):
    check("newer-sbatch", "release", worlds_test.by_sbatch(cluster, LAUNCHER))


@on_cluster()
def test_salloc(cluster):
    check("newer-salloc", "release", worlds_test.by_salloc(cluster))


@on_cluster()
def test_srun_alone(cluster):
    check("newer-srun-alone", "release", worlds_test.by_srun(cluster), at_once=False)


if __name__ == "__main__":
    main()
