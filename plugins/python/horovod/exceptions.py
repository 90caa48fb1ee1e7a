"""The exceptions that Horovod raises beside the built-in ones."""


class HorovodInternalError(RuntimeError):
    """Work could not be done: a peer died or shut down, or Horovod is not initialised.

    Every rank with pending work gets it, with the same first cause.
    """


class HorovodDisagreementError(HorovodInternalError, ValueError):
    """The ranks submitted different things under one name.

    Every rank gets it with the same sentence, and Horovod stays usable.
    """


class HorovodUnimplementedError(HorovodInternalError, NotImplementedError):
    """This build cannot do it; the message says what would."""


class HostsUpdatedInterrupt(RuntimeError):
    """For existing scripts that catch it; hosts do not change, so that nothing raises it."""


class HorovodVersionMismatchError(ImportError):
    """For existing scripts that catch it; nothing is compiled against a framework's version."""
