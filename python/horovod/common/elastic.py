"""States and the loop of elastic training, under the name that scripts import."""

from horovod._elastic import ObjectState, State, leave_seconds, run_fn
from horovod._notices import HostUpdateResult as HostUpdateResult, notification_manager

__all__ = ["ObjectState", "State", "leave_seconds", "notification_manager", "run_fn"]
