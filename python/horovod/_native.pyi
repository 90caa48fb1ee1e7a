# The module that python/native compiles: its functions check their own arguments.
from typing import Any

def __getattr__(name: str) -> Any: ...
