"""The rendezvous of groups in an elastic job: it uses the runtime's ranks, which change, and the job's own store."""

from __future__ import annotations

import urllib.parse
from typing import Any, Optional, Tuple

import torch.distributed as dist

from horovod import _basics, _identity
from horovod.torch.distributed import _store


class _State:
    generation = -1
    ends_with_runtime = False
    groups = 0  # number of default groups that this process has made in that generation


def of_environment(url: str) -> Optional[Tuple[Any, int, int]]:
    """Returns store, rank and size for ``env://``. None: torch's own rendezvous works, because RANK, WORLD_SIZE,
    MASTER_ADDR and MASTER_PORT have their values of the launch, or the program sets its rank itself."""
    named = urllib.parse.parse_qs(urllib.parse.urlparse(url).query)
    if not _identity.is_elastic() or not _identity.is_initialized() or "rank" in named or "world_size" in named:
        return None
    return of_job()


def of_job() -> Tuple[Any, int, int]:
    """Returns store, rank and size in an elastic job with a started runtime."""
    _basics.complete_init()
    generation, rank = _basics.generation(), _identity.rank()
    if generation != _State.generation:
        _State.generation, _State.groups = generation, 0
    _State.groups += 1
    return _store.in_job(generation, _State.groups, rank == 0), rank, _identity.size()


def end_with_runtime() -> None:
    """Makes torch's groups end when `hvd.elastic.run` ends the runtime; the program creates them again."""
    if not _State.ends_with_runtime:
        _State.ends_with_runtime = True
        _basics.after_shutdown(_end)


def _end() -> None:
    _State.ends_with_runtime = False
    if _basics.is_restart() and dist.is_initialized():
        dist.destroy_process_group()
