"""An identifier of this host, under the name that scripts import."""

from __future__ import annotations

import hashlib
import os
import socket
from typing import Any, Optional


def _namespace(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/ns/{name}")
    except OSError:
        return ""


def host_hash(salt: Optional[Any] = None) -> str:
    """Returns a text that is equal for all processes with the same salt that share this host's memory and network.
    Containers on one machine are different hosts."""
    name = socket.gethostname()
    parts = [name, _namespace("ipc"), _namespace("net"), "" if salt is None else str(salt)]
    return f"{name.split('.')[0]}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]}"
