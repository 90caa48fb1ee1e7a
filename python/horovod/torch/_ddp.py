"""Support for torch's DistributedDataParallel: its process group, and the parameters that it reduces.

Some scripts for Horovod also wrap their model in DistributedDataParallel without a process group. This module creates a
process group with the first such model, unless the script has created one. Only DistributedDataParallel then reduces
the parameters of its model: the distributed optimizer calls `owns`, and receives a call of `released` when a model
takes over parameters.
"""

from __future__ import annotations

import datetime
import functools
import os
import socket
import warnings
import weakref
from typing import Any, Iterable, List, Optional, Tuple

import torch
import torch.distributed as dist

from horovod import _basics, _objects

# The key is the id of a parameter: a module keeps its parameters alive, so the ids stay unique.
_owners: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_watchers: weakref.WeakSet[Any] = weakref.WeakSet()


class _State:
    has_warned = False
    has_group = False  # this module has created the process group


def owns(param: torch.Tensor) -> bool:
    """Returns whether a DistributedDataParallel module reduces this parameter's gradient."""
    return id(param) in _owners


def watch(watcher: Any) -> None:
    """Registers `watcher`, whose method `released()` is called whenever a module has taken over parameters, while the
    object lives."""
    _watchers.add(watcher)


def warn_about(params: Iterable[torch.Tensor]) -> None:
    """Warns once, on rank 0, that Horovod does not reduce these parameters."""
    count = len(list(params))
    if count and not _State.has_warned and _basics.rank() == 0:
        _State.has_warned = True
        warnings.warn(
            f"hvd.DistributedOptimizer leaves {count} parameters to the DistributedDataParallel "
            "module that has them, which averages their gradients over its process group; op, "
            "compression and the other arguments do not concern them.",
            stacklevel=2,
        )


def _take(module: Any) -> None:
    ignored = set(getattr(module, "parameters_to_ignore", ()))
    taken = [param for name, param in module.module.named_parameters() if param.requires_grad and name not in ignored]
    for param in taken:
        _owners[id(param)] = module
    for watcher in list(_watchers):
        watcher.released()


def _is_wanted() -> bool:
    return os.environ.get("HOROVOD_TORCH_PROCESS_GROUP", "1").strip().lower() not in ("0", "false", "no", "off")


def _meet(timeout: datetime.timedelta) -> Any:
    """Returns the store through which the group's ranks find each other."""
    if _basics.size() == 1:
        return dist.HashStore()
    is_first = _basics.rank() == 0
    # The launcher has tested that this host can reach rank 0's host by this address.
    address = os.environ.get("MASTER_ADDR")
    if is_first:
        offer: Tuple[Optional[str], int] = (None, 0)
        failure: Optional[Exception] = None
        for port in (int(os.environ.get("MASTER_PORT") or 0), 0):
            try:
                store = dist.TCPStore(
                    address or socket.gethostname(), port, _basics.size(), True, timeout, wait_for_workers=False
                )
                offer, failure = (socket.gethostname(), store.port), None
                break
            except RuntimeError as error:  # another program uses the port
                failure = error
        _objects.broadcast_object(offer, 0, "horovod.torch.process_group")
        if failure is not None:
            raise failure
        return store
    name, port = _objects.broadcast_object(None, 0, "horovod.torch.process_group")
    if not port:
        raise RuntimeError("Rank 0 could not open a port for torch's process group; its own exception says why.")
    return dist.TCPStore(address or name, port, _basics.size(), False, timeout)


def _backend(is_on_gpu: bool) -> str:
    """Returns the backend of the group. `is_on_gpu`: the module has parameters on a GPU."""
    own = "gloo" if os.environ.get("HOROVOD_TORCH_BACKEND", "").strip().lower() == "gloo" else "horovod"
    if not dist.is_nccl_available():
        return own
    if not hasattr(dist.ProcessGroup, "_register_backend"):  # before torch 2.0, a group has one backend
        return "nccl" if is_on_gpu else own
    # A later module may be on a GPU. NCCL starts only with the first tensor on a GPU.
    return f"cpu:{own},cuda:nccl" if is_on_gpu or torch.cuda.is_available() else own


def _make_group(module: Any) -> None:
    from horovod.torch.distributed import _rendezvous  # imported here, because that module imports this package

    backend = _backend(any(param.is_cuda for param in module.parameters()))
    if _basics.is_elastic():  # MASTER_ADDR may name a lost host
        store: Any = _rendezvous.of_job()[0]
    else:
        seconds = float(os.environ.get("HOROVOD_START_TIMEOUT") or 30)
        store = _meet(datetime.timedelta(seconds=max(seconds, 30)))
    dist.init_process_group(backend, store=store, rank=_basics.rank(), world_size=_basics.size())
    _State.has_group = True
    _basics.after_shutdown(_end_group)


def _end_group() -> None:
    if _State.has_group and dist.is_initialized():
        dist.destroy_process_group()
    _State.has_group = False


def _serve(ddp: Any) -> None:
    """Patches the class: its modules create or use a process group, and register their parameters."""
    plain = getattr(ddp.__init__, "_hvd_original", ddp.__init__)  # this module may be imported again

    @functools.wraps(plain)
    def __init__(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        given: List[Any] = [*args[4:5], kwargs.get("process_group"), kwargs.get("device_mesh")]
        if (
            not dist.is_initialized()
            and all(group is None for group in given)
            and _is_wanted()
            and _basics.is_initialized()
        ):
            _make_group(module)
        plain(self, module, *args, **kwargs)
        _take(self)

    __init__._hvd_original = plain  # type: ignore[attr-defined]
    ddp.__init__ = __init__


if dist.is_available():
    _serve(torch.nn.parallel.DistributedDataParallel)
