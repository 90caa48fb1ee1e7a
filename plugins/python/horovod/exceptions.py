"""The exceptions of Horovod."""


class HorovodInternalError(RuntimeError):
    """Work failed because a peer died or shut down, or because Horovod is not initialised.

    Every rank with pending work gets it, with the same first cause.
    """


class HorovodDisagreementError(HorovodInternalError, ValueError):
    """The ranks submitted different requests under one name.

    Every rank gets it with the same message, and Horovod stays usable.
    """


class HorovodUnimplementedError(HorovodInternalError, NotImplementedError):
    """This build does not have the feature. The message names an alternative."""


class HostsUpdatedInterrupt(RuntimeError):
    """For existing scripts that catch it. Never raised, because the hosts of a job do not change."""


class HorovodVersionMismatchError(ImportError):
    """For existing scripts that catch it. Never raised, because no code is compiled against one version
    of a framework."""
