"""Operations of groups as events of torch's profiler, with the same names as in groups of gloo."""

from __future__ import annotations

import threading
from typing import Any, Optional, Sequence

import torch
import torch.autograd.profiler

if hasattr(torch.autograd.profiler, "_is_profiler_enabled"):

    def is_on() -> bool:
        """Returns whether a profiler runs."""
        return torch.autograd.profiler._is_profiler_enabled
else:
    is_on = torch.autograd._profiler_enabled

# Operations whose name in the profiler differs from the function's name.
_TITLES = {
    "all_reduce_coalesced": "all_reduce",
    "all_gather_into_tensor": "_all_gather_base",
    "all_gather_coalesced": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "all_to_all_single": "all_to_all",
    "reduce_scatter_tensor": "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
}


def begin(backend: str, what: str, inputs: Sequence[Any]) -> Optional[Any]:
    """Begins an event, if a profiler runs."""
    tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
    title = f"{backend}:{_TITLES.get(what, what)}"
    return torch.autograd._record_function_with_args_enter(title, *tensors)


def end(event: Any) -> None:
    """Ends the event in another thread, so that the profiler shows the operation as asynchronous."""
    thread = threading.Thread(target=torch.autograd._record_function_with_args_exit, args=(event,))
    thread.start()
    thread.join()
