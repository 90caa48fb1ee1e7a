"""Imports a framework for the module that needs it, or raises an error of one sentence."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from typing import Any, Tuple


def _numbers(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in re.split(r"[^0-9.]", version)[0].split(".") if part)


def need(name: str, title: str, module: str, oldest: str, advice: str) -> Any:
    """Returns the framework `name` (`title` in messages) of version `oldest` or later. Raises ImportError for `module`
    if the framework is missing, unloadable or too old; `advice` names a remedy.
    """
    try:
        found = importlib.import_module(name)
    except Exception as error:  # a broken library may raise OSError or another error
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            spec = None
        where = f", though it is in {spec.origin}" if spec is not None and spec.origin else ""
        words = " ".join(str(error).split()) or type(error).__name__
        raise ImportError(
            f"{module} needs {title}, which {sys.executable} cannot import ({words}){where}; {advice}."
        ) from None
    version = str(getattr(found, "__version__", ""))
    if not _numbers(version):
        place = (list(getattr(found, "__path__", None) or []) or ["?"])[0]
        raise ImportError(
            f"{module} needs {title} {oldest} or later, and what {sys.executable} imports "
            f"from {place} is none; {advice}."
        )
    if _numbers(version) < _numbers(oldest):
        raise ImportError(
            f"{module} needs {title} {oldest} or later, and {sys.executable} has {version} in "
            f"{found.__file__}; {advice}."
        )
    return found
