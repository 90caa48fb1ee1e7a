"""The backend ``horovod`` of torch.distributed: ``dist.init_process_group("horovod")``.

Importing this module registers the backend. From torch 2.5 on, torch registers an installed backend by itself
(`horovod_torch_backend`). docs/torch-distributed.md describes the backend.
"""

import horovod_torch_backend as _backend
import torch.distributed as _dist

from horovod.torch.distributed import _open_works
from horovod.torch.distributed._group import HorovodProcessGroup

__all__ = ["HorovodProcessGroup"]

_backend.register(_dist)
_open_works.keep_those_of_reducers()
