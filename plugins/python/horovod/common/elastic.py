"""States and the loop of elastic training, under the name that scripts import."""

from horovod._elastic import ObjectState, State, run_fn

__all__ = ["ObjectState", "State", "run_fn"]
