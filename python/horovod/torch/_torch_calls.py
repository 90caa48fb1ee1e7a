"""The torch functions that reducers of gradients observe: backward, and functions that read gradients.

`torch.autograd.backward` reports the beginning and end of each pass. Functions that clip gradients, and GradScaler,
reduce the gradients of distributed optimizers before they read them. A reducer passed to `watch` has the methods
begin_pass, end_pass, fail_pass, explain, owned, owns_gradients, reduce_early, end_step and record_step.
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from typing import Any, Callable, Dict, Iterable, List, Set

import torch

from horovod._redirect import redirect
from horovod.torch import _adasum
from horovod.torch._step import STEPPED

try:
    from torch.amp.grad_scaler import GradScaler
except ImportError:  # before torch 2.3
    from torch.cuda.amp.grad_scaler import GradScaler

# In the order of creation, which is equal on all ranks. Stored in the function, so that a second import finds the list.
_watchers: List[weakref.ref] = vars(torch.autograd.backward).setdefault("_hvd_watchers", [])
_passes: Set[int] = set()  # the threads that run a backward pass
_task_id = getattr(torch._C, "_current_graph_task_id", None)  # torch 2.1 or later


class _State:
    is_installed = False


def watch(reducer: Any) -> None:
    """Registers `reducer`, whose methods the functions of this module call while the object lives."""
    _watchers.append(weakref.ref(reducer, _watchers.remove))


def watchers() -> List[Any]:
    """Returns the living reducers."""
    return [reducer for reducer in (reference() for reference in _watchers) if reducer is not None]


def _is_in_pass() -> bool:
    """Returns whether this thread runs within a backward pass, as its caller or as a thread of the autograd engine."""
    if not _passes:
        return False
    if threading.get_ident() in _passes:
        return True
    if _task_id is not None:
        return bool(_task_id() != -1)
    return isinstance(threading.current_thread(), threading._DummyThread)


def _backward(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    # Activation checkpointing runs one pass within another.
    if not _watchers or _is_in_pass():
        return original(*args, **kwargs)
    thread, reducers = threading.get_ident(), watchers()
    for reducer in reducers:
        reducer.begin_pass(thread)
    _passes.add(thread)
    try:
        result = original(*args, **kwargs)
    except BaseException as error:
        for reducer in reducers:
            reducer.fail_pass(thread)
        for reducer in reducers:
            reducer.explain(error)
        raise
    finally:
        _passes.discard(thread)
    for reducer in reducers:
        reducer.end_pass(thread)
    return result


def _owners(tensors: Iterable[torch.Tensor]) -> List[Any]:
    """Returns the reducers of these parameters or gradients."""
    ids = set(map(id, tensors))
    owned = {reducer: reducer.owned(ids) for reducer in watchers()}
    left = ids.difference(*owned.values())
    # Read gradients only if necessary, because another thread may be changing them.
    return [reducer for reducer in owned if owned[reducer] or (left and reducer.owns_gradients(left))]


def _reads_gradients(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Reduces the gradients of the parameters in the first argument, then calls `original`. During a backward pass, as
    in a hook that clips gradients, does not reduce first."""
    if _watchers and not _is_in_pass():
        if args:
            first, rest = args[0], args[1:]
        else:
            name = next(iter(inspect.signature(original).parameters))
            if name not in kwargs:
                return original(**kwargs)
            first, rest = kwargs.pop(name), ()
        tensors = [first] if isinstance(first, torch.Tensor) else list(first)
        owners = _owners(tensors)
        for reducer in owners:
            reducer.reduce_early()
        result = original(first if isinstance(first, torch.Tensor) else tensors, *rest, **kwargs)
        for reducer in owners:  # after a step, the function has changed the gradients of that step
            reducer.record_step()
        return result
    return original(*args, **kwargs)


def _params(optimizer: Any) -> List[torch.Tensor]:
    return [param for group in optimizer.param_groups for param in group["params"]]


def _unscale(
    original: Callable[..., Any], scaler: Any, optimizer: Any, *args: Any, **kwargs: Any
) -> Dict[Any, torch.Tensor]:
    for reducer in _owners(_params(optimizer)):
        reducer.reduce_early()
    found = original(scaler, optimizer, *args, **kwargs)
    if isinstance(optimizer, _adasum.AdasumMixin):
        optimizer._agree_on_overflow(found)
    return found


def _step(original: Callable[..., Any], scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    owners = _owners(_params(optimizer)) if scaler.is_enabled() else []
    for reducer in owners:  # not called by _unscale if the optimizer unscales
        reducer.reduce_early()
    result = original(scaler, optimizer, *args, **kwargs)
    for reducer in owners:
        reducer.end_step(STEPPED)  # the scaler may have skipped the step
        reducer.record_step()
    return result


def _wrap(method: str, call: Callable[..., Any]) -> None:
    """Makes a method of GradScaler and of its subclasses run `call(the original, ...)`."""
    current = getattr(GradScaler, method)
    original = getattr(current, "_hvd_original", current)  # this module may be imported again

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return call(original, *args, **kwargs)

    wrapped._hvd_original = original  # type: ignore[attr-defined]
    setattr(GradScaler, method, wrapped)


def install() -> None:
    """Changes the functions of torch, once."""
    if _State.is_installed:
        return
    _State.is_installed = True
    redirect(torch.autograd.backward, _backward)
    for name in ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"):
        if hasattr(torch.nn.utils, name):  # the last two names exist since torch 2.6
            redirect(getattr(torch.nn.utils, name), _reads_gradients)
    _wrap("_unscale_grads_", _unscale)
    _wrap("step", _step)
