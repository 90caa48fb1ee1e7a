"""Creates groups for torch: collects data that torch does not pass to the constructor, and the backends of other
devices."""

from __future__ import annotations

import contextlib
import datetime
import functools
import inspect
import sys
import threading
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

import torch
import torch.distributed as dist

from horovod import _identity
from horovod._redirect import redirect
from horovod.torch.distributed import _ranks, _store
from horovod.torch.distributed._group import HorovodProcessGroup

c10d = dist.distributed_c10d


class Wish(NamedTuple):
    """One call of torch that creates a group for this rank."""

    name: str
    label: str  # the name, and the description if the group has one
    ranks: List[int]  # ranks of the default group; empty for the default group itself
    others: Dict[str, str]  # the backends of other devices, by device
    options: Any
    store: Any  # the default group's store, as torch made it


class _Current(threading.local):
    wish: Optional[Wish] = None


_current = _Current()


class _State:
    has_said_so = False


def create(original: Callable[..., Any], stands_for_gloo: bool, args: Any, kwargs: Any) -> Any:
    """Runs torch's function that creates a group, and records its arguments for `make_group`."""
    given = inspect.signature(original).bind(*args, **kwargs)
    given.apply_defaults()
    values = given.arguments
    backends = _backends(values["backend"])
    if backends is not None:
        own = backends.get("cpu")
        if own != "horovod" and not (stands_for_gloo and own == "gloo" and _may_replace_gloo(values)):
            return original(*args, **kwargs)
        if values.get("enable_reconfigure"):
            raise RuntimeError(
                "horovod: the backend horovod cannot reconfigure a group in place: leave out enable_reconfigure, and "
                "after a failure destroy the group and make a new one, or use the backend gloo"
            )
        if len(backends) > 1 and ":" in str(values["backend"]):
            # torch takes the first backend that is a complete group, and does not create the backends after it.
            order = sorted(backends.items(), key=lambda item: item[0] != "cpu")
            values["backend"] = dist.Backend(",".join(f"{device}:{backend}" for device, backend in order))
    others = {
        device: backend
        for device, backend in (backends or {}).items()
        if device != "cpu" and backend != "horovod" and (backend != own or getattr(torch, device).is_available())
    }
    if not values["global_ranks_in_group"] and _store.Watched.is_possible:
        # Groups of some ranks use the default group's store, which is already wrapped.
        values["store"] = _store.Watched(values["store"], values.get("timeout") or c10d.default_pg_timeout)
    name = values.get("group_name") or str(getattr(c10d, "_group_count", 0))
    description = values.get("group_desc") or ("undefined" if values["global_ranks_in_group"] else "default_pg")
    options = values.get("backend_options", values.get("pg_options"))
    label = str(name) if description in ("undefined", str(name)) else f"{name} ({description})"
    _current.wish = Wish(
        str(name), label, list(values["global_ranks_in_group"]), others, options, _unwatched(values["store"])
    )
    try:
        with _adapted(stands_for_gloo):
            made = original(*given.args, **given.kwargs)
    finally:
        _current.wish = None
    _keep(made, values["store"])
    return made


def _may_replace_gloo(values: Any) -> bool:
    """Returns whether this backend may replace gloo for a group. Only gloo can reconfigure a group in place. A subgroup
    of another backend's default group needs hvd.init, because its ranks are unknown to the runtime."""
    if values.get("enable_reconfigure"):
        return False
    return not values["global_ranks_in_group"] or _identity.is_initialized()


def _unwatched(store: Any) -> Any:
    """Returns the default group's store as torch made it. `store`: the store of the group that torch creates."""
    if dist.is_initialized():
        store = getattr(c10d._get_default_group(), "_watched", store)
    return store._inner if isinstance(store, _store.Watched) else store


def _keep(made: Any, store: Any) -> None:
    """Keeps the store's Python object alive: C++ keeps only the store, without its Python functions."""
    group = made[0] if isinstance(made, tuple) else made
    if isinstance(group, HorovodProcessGroup):
        group._watched = store


def _backends(backend: Any) -> Optional[Dict[str, str]]:
    """Returns the names of the backends by device; None for a torch whose groups have one backend."""
    if not hasattr(c10d, "BackendConfig"):
        return None
    found = c10d.BackendConfig(dist.Backend(str(backend) if backend is not None else "undefined"))
    return {device: str(name) for device, name in found.get_device_backend_map().items()}


def _code_of(holder: Any) -> Iterator[Any]:
    """Yields the code objects of a module's or class's functions, and of the functions within them."""
    for value in list(vars(holder).values()):
        if isinstance(value, (property, functools.cached_property)):
            value = getattr(value, "fget", None) or getattr(value, "func", None)
        value = getattr(value, "__func__", value)
        if inspect.isclass(value) and value.__module__ == getattr(holder, "__name__", None):
            yield from _code_of(value)
        found = [value.__code__] if inspect.isfunction(value) else []
        while found:
            code = found.pop()
            yield code
            found += filter(inspect.iscode, code.co_consts)


@functools.lru_cache(maxsize=None)
def _stay_uncompiled() -> None:
    """Keeps torch.compile from compiling this package's functions, which use groups. torch.compile knows groups as C++
    objects, and refuses members that these objects lack."""
    frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    skip = getattr(frames, "skip_code", None)
    if hasattr(frames, "set_code_exec_strategy"):  # newer versions of torch
        action = frames._FrameAction.SKIP
        strategy = frames._FrameExecStrategy(action, action)  # for the function and its callees
        skip = lambda code: frames.set_code_exec_strategy(code, strategy)  # noqa: E731
    if skip is None:  # torch before 2.1
        return
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "horovod" and module is not None:
            for code in _code_of(module):
                skip(code)


def make_group(store: Any, rank: int, size: int, timeout: datetime.timedelta, kind: Any = HorovodProcessGroup) -> Any:
    """Returns this rank's process group object for the group that torch is creating."""
    _stay_uncompiled()
    wish = _current.wish
    if wish is None:
        raise RuntimeError(
            "horovod: a group was made without torch's own functions; call dist.init_process_group or dist.new_group"
        )
    place = _ranks.join(store, rank, size, wish.ranks, wish.name, wish.label, timeout)
    group = HorovodProcessGroup.__new__(kind)
    HorovodProcessGroup.__init__(group, place, store, rank, size, timeout)
    for device, backend in wish.others.items():
        # A thread of NCCL must not wait for Python, as it would with a wrapped store.
        own = dist.PrefixStore(f"{wish.name}/{device}/", wish.store)
        group._add_backend(torch.device(device), *_make_other(backend, own, group, timeout, wish))
    return group


def _make_other(name: str, store: Any, group: HorovodProcessGroup, timeout: datetime.timedelta, wish: Wish) -> Any:
    """Returns the kind of a backend of torch, and the backend."""
    kinds = dist.ProcessGroup.BackendType
    rank, size = group.getRank(), group.getSize()
    if name == "gloo":
        return kinds.GLOO, _gloo(store, rank, size, timeout=timeout)
    if name == "nccl" and not hasattr(dist, "ProcessGroupNCCL"):
        raise RuntimeError("horovod: the group needs nccl for tensors on cuda, and this torch was built without it")
    if hasattr(dist.Backend, "_ensure_backend_registered"):  # torch 2.15 registers its own backends as plugins
        dist.Backend._ensure_backend_registered(name)
    plugin = dist.Backend._plugins.get(name.upper())
    if plugin is None and name == "nccl":
        options = wish.options or dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        for attribute, value in (("global_ranks_in_group", wish.ranks), ("group_name", wish.name)):
            if hasattr(options, attribute):
                setattr(options, attribute, value)
        return kinds.NCCL, dist.ProcessGroupNCCL(store, rank, size, options)
    if plugin is None:
        raise ValueError(
            f"horovod: the backend {name} cannot be joined with horovod; use nccl, or another one that "
            "was registered with torch.distributed"
        )
    if not plugin.extended_api:
        return kinds.CUSTOM, plugin.creator_fn(store, rank, size, timeout)
    given = c10d._DistributedBackendOptions()
    given.store, given.group_rank, given.group_size, given.timeout = store, rank, size, timeout
    given.group_id, given.global_ranks_in_group = wish.name, wish.ranks
    if hasattr(given, "process_group"):
        given.process_group = group
    kind = getattr(dist.Backend, "backend_type_map", {}).get(name, kinds.CUSTOM)
    return kind, plugin.creator_fn(given, wish.options)


def _destroy(original: Callable[..., None], group: Any = None) -> None:
    """Ends a group: torch before 2 only forgets it."""
    is_all = group is None or group == dist.GroupMember.WORLD
    ended = [one for one in (list(c10d._pg_map) if is_all else [group]) if isinstance(one, HorovodProcessGroup)]
    original(group)
    for one in ended:
        one.shutdown()


if not hasattr(dist.ProcessGroup, "shutdown"):
    redirect(dist.destroy_process_group, _destroy)


def _batch(original: Callable[..., Any], p2p_op_list: Any) -> Any:
    """Starts the operations of a batch as one, as NCCL requires. torch's own function does so only for groups of
    torch's class."""
    first = p2p_op_list[0]
    group = first.group or c10d._get_default_group()
    device = first.tensor.device
    if not isinstance(group, HorovodProcessGroup) or device.type == "cpu":
        return original(p2p_op_list)
    if not getattr(group._get_backend(device), "supports_coalescing", False):
        return original(p2p_op_list)
    c10d._check_p2p_op_list(p2p_op_list)
    with c10d._coalescing_manager(group, device, async_ops=True) as manager:
        for one in p2p_op_list:
            one.op(one.tensor, one.peer, one.group, one.tag)
    return manager.works


if "async_ops" in inspect.signature(getattr(c10d, "_coalescing_manager", _batch)).parameters:  # torch 2.1
    redirect(dist.batch_isend_irecv, _batch)

_gloo: Any = getattr(dist, "ProcessGroupGloo", None)


class GlooStandIn(HorovodProcessGroup):
    """A group of this backend that reports the name gloo."""

    _backend_name = "gloo"

    def __new__(cls, store: Any, rank: int, size: int, timeout: Any = c10d.default_pg_timeout, **_: Any) -> Any:
        # The keywords are options of gloo.
        is_first = _current.wish is not None and not _current.wish.ranks and rank == 0
        if not _State.has_said_so and is_first:
            _State.has_said_so = True
            print(
                "horovod: torch.distributed uses horovod in place of gloo in this program (HOROVOD_TORCH_BACKEND)",
                file=sys.stderr,
                flush=True,
            )
        return make_group(store, rank, size, timeout, cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass  # make_group has initialised it


@contextlib.contextmanager
def _adapted(stands_for_gloo: bool) -> Iterator[None]:
    """Makes torch create groups of this backend within the block."""
    # torch's flight recorder queries C++ for the name of the group, which has no C++ backend.
    functions: Dict[str, Any] = {"_maybe_attach_flight_recorder": lambda *_, **__: None}
    if stands_for_gloo:
        functions["ProcessGroupGloo"] = GlooStandIn
        # With TORCH_DISTRIBUTED_DEBUG=DETAIL, torch before 2 compares calls through another group; the runtime always
        # compares them.
        functions["_create_process_group_wrapper"] = lambda wrapped_pg, **_: wrapped_pg
    originals = {name: getattr(c10d, name) for name in functions if hasattr(c10d, name)}
    vars(c10d).update({name: functions[name] for name in originals})
    try:
        yield
    finally:
        vars(c10d).update(originals)
