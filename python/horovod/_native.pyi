# The module that python/native compiles: its functions check what they take themselves.
from typing import Any

def __getattr__(name: str) -> Any: ...
