"""States and the loop of elastic training, under the name that scripts import."""

from horovod._elastic import ObjectState, State, run_fn
from horovod._notices import HostUpdateResult as HostUpdateResult, notification_manager

__all__ = ["ObjectState", "State", "notification_manager", "run_fn"]
