"""Environment variables of ranks, under the name that scripts import."""

from __future__ import annotations

import os
from typing import Tuple

_NAMES = (("HOROVOD_RANK", "HOROVOD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))


def get_env_rank_and_size() -> Tuple[int, int]:
    """Returns the rank and the number of ranks from the variables of horovodrun, Open MPI or PMI; 0 and 1 without them.
    Raises ValueError for a value that is not a number."""
    for rank, size in _NAMES:
        if os.environ.get(rank) and os.environ.get(size):
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1
