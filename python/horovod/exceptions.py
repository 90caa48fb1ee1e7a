"""The exceptions of Horovod."""

from typing import Any, Optional, Tuple


class HorovodInternalError(RuntimeError):
    """Work failed because a peer died or shut down, or because Horovod is not initialised.

    Every rank with pending work gets it, with the same first cause.
    """


class HorovodDisagreementError(HorovodInternalError, ValueError):
    """The ranks submitted different requests under one name.

    Every rank gets it with the same message, and Horovod stays usable.
    """


class HorovodArgumentError(ValueError, RuntimeError):
    """One rank can see that a request is invalid. Horovod stays usable.

    It is a RuntimeError as well, since Horovod raises that for some of these requests.
    """


class HorovodUnimplementedError(HorovodInternalError, NotImplementedError):
    """This build lacks the feature. The message names an alternative."""


class HostsUpdatedInterrupt(RuntimeError):
    """Hosts join or leave the job. `State.check_host_updates` raises this exception on all ranks at once, and
    `hvd.elastic.run` then continues with the next generation of ranks."""

    def __init__(self, skip_sync: bool = False) -> None:
        """`skip_sync`: the states of all ranks are equal, so that `run` need not synchronise them."""
        super().__init__(skip_sync)
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """For existing scripts that catch or raise it. Horovod never raises it, because none of its code is compiled
    against one version of a framework."""

    def __init__(self, name: str, version: Optional[str], installed_version: Optional[str]) -> None:
        """`version`: the version of the framework for which code was compiled; `installed_version`: the installed
        version."""
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version

    def __reduce__(self) -> Tuple[Any, ...]:
        # By default, pickle would create the exception from its message alone.
        return type(self), (self.name, self.version, self.installed_version)


def get_version_mismatch_message(name: str, version: Optional[str], installed_version: Optional[str]) -> str:
    """Returns the message of HorovodVersionMismatchError."""
    return (
        f"Horovod was compiled for {name} {version}, and {name} {installed_version} is installed: "
        "install Horovod again."
    )
