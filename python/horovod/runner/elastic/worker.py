"""Notices of changed hosts, under the name that scripts import."""

from horovod._notices import HostUpdateResult, WorkerNotificationManager

__all__ = ["HostUpdateResult", "WorkerNotificationManager"]
