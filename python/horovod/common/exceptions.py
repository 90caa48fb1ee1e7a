"""Horovod's exceptions, under the module name that scripts import."""

from horovod.exceptions import (
    HorovodArgumentError,
    HorovodDisagreementError,
    HorovodInternalError,
    HorovodUnimplementedError,
    HorovodVersionMismatchError,
    HostsUpdatedInterrupt,
    get_version_mismatch_message,
)

__all__ = [
    "HorovodArgumentError",
    "HorovodDisagreementError",
    "HorovodInternalError",
    "HorovodUnimplementedError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "get_version_mismatch_message",
]
