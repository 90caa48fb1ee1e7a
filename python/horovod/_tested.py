"""The newest versions of frameworks used in tests of this release.

docs/support-matrix.md names the same versions, and a test compares them. Tests of a release use the newest versions on
PyPI.
"""

from __future__ import annotations

import re
import sys
from typing import Optional, Set, Tuple

from horovod._version import __version__

NEWEST = {"jax": "0.12", "keras": "3.15", "mxnet": "1.9", "tensorflow": "2.21", "torch": "2.15"}

_named: Set[str] = set()


def note(framework: str, version: str) -> Optional[str]:
    """Returns a sentence about a version that is newer than the tested versions, or None."""
    newest = NEWEST.get(framework, "")
    if _numbers(version) <= _numbers(newest):
        return None
    return (
        f"{framework} {version} is newer than {newest}, the newest that Horovod {__version__} was tested with; where "
        f"something fails, upgrade Horovod or try {framework} {newest}"
    )


def note_once() -> None:
    """Prints the sentences about the frameworks that this process uses."""
    for framework in NEWEST:
        if f"horovod.{framework}" in sys.modules and framework not in _named:
            _named.add(framework)
            sentence = note(framework, getattr(sys.modules.get(framework), "__version__", ""))
            if sentence:
                print(f"horovod: {sentence}", file=sys.stderr, flush=True)


def _numbers(version: str) -> Tuple[int, int]:
    """Returns the major and minor number; other parts of a version never make it newer."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)
