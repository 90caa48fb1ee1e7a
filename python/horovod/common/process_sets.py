"""Process sets, under the name that scripts import."""

from horovod import process_sets as _sets
from horovod.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]

# Existing code calls the function by this name, with the id of a set.
_temp_process_set_object = _sets.registered
