"""Operations of groups as events of torch's profiler, under the names that gloo's groups give them."""

from __future__ import annotations

import threading
from typing import Any, Optional, Sequence

import torch
import torch.autograd.profiler

if hasattr(torch.autograd.profiler, "_is_profiler_enabled"):

    def is_on() -> bool:
        """Whether a profiler runs."""
        return torch.autograd.profiler._is_profiler_enabled
else:
    is_on = torch.autograd._profiler_enabled

# Where torch's names are others than the function's.
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
    """Ends the event. On another thread: for the profiler the operation is then asynchronous, as it is."""
    thread = threading.Thread(target=torch.autograd._record_function_with_args_exit, args=(event,))
    thread.start()
    thread.join()
