"""Provides the ranks' places to `jax.distributed.initialize()` without arguments. JAX reads its coordinator's address
from JAX_COORDINATOR_ADDRESS, and gets the number of processes from the cluster environments that it knows, such as
Slurm's."""

from __future__ import annotations

import os
from typing import Any, Optional

_VARIABLES = "HOROVOD_RANK", "HOROVOD_SIZE", "MASTER_ADDR", "MASTER_PORT"


def register() -> None:
    """Registers `horovodrun` as the first cluster environment. Does nothing if this version of JAX has no such
    environments."""
    try:
        from jax._src.clusters import ClusterEnv
    except ImportError:
        return
    kinds = getattr(ClusterEnv, "_cluster_types", None)
    if not isinstance(kinds, list):
        return

    class HorovodCluster(ClusterEnv):
        name = "horovod"

        @classmethod
        def is_env_present(cls) -> bool:
            return all(os.environ.get(variable) for variable in _VARIABLES)

        @classmethod
        def get_coordinator_address(cls, *unused: Any, **unused_too: Any) -> str:
            return f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ["HOROVOD_SIZE"])

        @classmethod
        def get_process_id(cls) -> int:
            return int(os.environ["HOROVOD_RANK"])

        @classmethod
        def get_local_process_id(cls) -> Optional[int]:
            # A rank that is alone on its host, or has a separate GPU, uses all devices that it sees.
            is_alone = os.environ.get("HOROVOD_LOCAL_SIZE", "1") == "1"
            has_one = os.environ.get("CUDA_VISIBLE_DEVICES", ",").count(",") == 0
            return None if is_alone or has_one else int(os.environ["HOROVOD_LOCAL_RANK"])

    # JAX has appended this class to the list, after the environment of a Slurm allocation.
    if HorovodCluster in kinds:
        kinds.remove(HorovodCluster)
        kinds.insert(0, HorovodCluster)
