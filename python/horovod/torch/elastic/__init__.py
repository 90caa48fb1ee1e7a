"""PyTorch programs that start again from their last commit: `hvd.elastic`.

See `run`, and docs/elastic.md.
"""

from horovod._basics import init as init, shutdown as shutdown
from horovod._elastic import ObjectState, State, leave_seconds
from horovod.torch.elastic._run import run, run_fn as run_fn
from horovod.torch.elastic.iterable import ElasticIterable
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState, get_handler_registry, set_handler_registry

__all__ = [
    "ElasticIterable",
    "ElasticSampler",
    "ObjectState",
    "State",
    "TorchState",
    "get_handler_registry",
    "leave_seconds",
    "run",
    "set_handler_registry",
]
