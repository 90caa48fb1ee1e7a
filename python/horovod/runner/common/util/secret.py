"""Secrets of jobs, under the name that scripts import."""

from __future__ import annotations

import hmac
import os

HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"
DIGEST_LENGTH = 32


def make_secret_key() -> bytes:
    """Returns a new random key."""
    return os.urandom(DIGEST_LENGTH)


def compute_digest(key: bytes, msg: bytes) -> bytes:
    """Returns the HMAC-SHA256 of a message."""
    return hmac.new(key, msg, "sha256").digest()


def check_digest(key: bytes, msg: bytes, digest: bytes) -> bool:
    """Returns whether `digest` is the message's HMAC-SHA256."""
    return hmac.compare_digest(compute_digest(key, msg), digest)
