"""Deadlines, under the name that scripts import."""

from __future__ import annotations

import time


class TimeoutException(Exception):
    """The time of a `Timeout` has passed."""


class Timeout:
    """A deadline."""

    def __init__(self, timeout: float, message: str) -> None:
        """`timeout`: seconds from now. `message`: the message of the exception, which contains "{activity}"."""
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._message = message

    def remaining(self) -> float:
        """Returns the seconds until the deadline, at least 0."""
        return max(0.0, self._deadline - time.monotonic())

    def timed_out(self) -> bool:
        """Returns whether the deadline has passed."""
        return time.monotonic() > self._deadline

    def check_time_out_for(self, activity: str) -> None:
        """Raises TimeoutException after the deadline."""
        if self.timed_out():
            message = self._message.format(activity=activity)
            raise TimeoutException(f"{message} Timeout after {self._timeout} seconds.")
