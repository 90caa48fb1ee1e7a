"""A rank that joins one job after the other, by hvd.init(comm=[...]), and prints its place and the job's ranks.

usage: list_rank.py LISTS ...    "3,0/2,1" are two jobs at once; "all" is the job of all ranks; a rank in none
of the lists does not call hvd.init
"""

import os
import sys

import horovod.numpy as hvd

NUMBERS = ("HOROVOD_RANK", "PMIX_RANK", "SLURM_PROCID", "PMI_RANK", "RANK")
me = int(next(os.environ[name] for name in NUMBERS if name in os.environ))
for lists in sys.argv[1:]:
    ranks = [] if lists == "all" else [list(map(int, one.split(","))) for one in lists.split("/")]
    mine = next((one for one in ranks if me in one), None)
    if ranks and mine is None:
        continue
    hvd.init(comm=mine)
    members = hvd.allgather_object(me)
    sys.stdout.write(
        f"{me} of {lists}: {members}, place {hvd.rank()}, local {hvd.local_rank()} of {hvd.local_size()}\n"
    )
    sys.stdout.flush()
    hvd.shutdown()
