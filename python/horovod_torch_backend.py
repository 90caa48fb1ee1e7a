"""Registers the backend ``horovod`` of torch.distributed, in every program that imports torch.

The entry point ``torch.backends`` runs `load` at the end of ``import torch`` (torch 2.5 and later). An exception in
`load` would end the import, so this module imports only torch.distributed, and raises no exception. The first group
imports the backend itself, `horovod.torch.distributed`.
"""

import functools
import os
import sys

NAME = "horovod"


def load():
    """Registers the backend if it can be registered."""
    try:
        import torch.distributed as dist

        register(dist)
    except BaseException:
        pass


def register(dist):
    """Adds the backend to torch.distributed, once. Does nothing if torch lacks torch.distributed."""
    if not dist.is_available() or hasattr(dist.Backend, NAME.upper()):
        return
    if hasattr(dist.Backend, "backend_capability"):  # torch 2.0
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
    else:
        dist.Backend.register_backend(NAME, _create, extended_api=True)
    c10d = dist.distributed_c10d
    original = c10d._new_process_group_helper

    @functools.wraps(original)
    def new_process_group(*args, **kwargs):
        backend = str(args[3] if len(args) > 3 else kwargs.get("backend")).lower()
        replaces = stands_for_gloo()
        if NAME not in backend and not (replaces and ("gloo" in backend or backend in ("none", "undefined"))):
            return original(*args, **kwargs)
        from horovod.torch.distributed import _creation

        return _creation.create(original, replaces, args, kwargs)

    c10d._new_process_group_helper = new_process_group
    handlers = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers
    read_environment = handlers["env"]

    @functools.wraps(read_environment)
    def meet(url, *args, **kwargs):
        if "HOROVOD_ELASTIC_PROCESS" in os.environ and "horovod" in sys.modules:
            from horovod.torch.distributed import _rendezvous

            found = _rendezvous.of_environment(url)
            if found is not None:
                return iter([found])
        return read_environment(url, *args, **kwargs)

    handlers["env"] = meet


def stands_for_gloo():
    """Returns whether this backend replaces gloo for new groups."""
    return os.environ.get("HOROVOD_TORCH_BACKEND", "").strip().lower() == NAME


def _create(options, backend_options=None):
    from horovod.torch.distributed import _creation

    return _creation.make_group(options.store, options.group_rank, options.group_size, options.timeout)
