"""Names that scripts import from here; their own modules document them."""

import importlib
from typing import Any

_MODULES = ("basics", "elastic", "exceptions", "process_sets", "util")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"horovod.common.{name}")
    raise AttributeError(f"module 'horovod.common' has no attribute '{name}'")
