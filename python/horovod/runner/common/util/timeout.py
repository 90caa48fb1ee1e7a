"""Deadlines, under the name that scripts import."""

from __future__ import annotations

import time


class TimeoutException(Exception):
    """The time of a `Timeout` is over."""


class Timeout:
    """A deadline."""

    def __init__(self, timeout: float, message: str) -> None:
        """`timeout`: seconds from now. `message`: that of the exception, with "{activity}" in it."""
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._message = message

    def remaining(self) -> float:
        """Returns the seconds until the deadline, at least 0."""
        return max(0.0, self._deadline - time.monotonic())

    def timed_out(self) -> bool:
        """Whether the deadline is over."""
        return time.monotonic() > self._deadline

    def check_time_out_for(self, activity: str) -> None:
        """Raises TimeoutException after the deadline."""
        if self.timed_out():
            message = self._message.format(activity=activity)
            raise TimeoutException(f"{message} Timeout after {self._timeout} seconds.")
