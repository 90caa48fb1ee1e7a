"""Objects as base64 text, under the name that scripts import."""

from __future__ import annotations

import base64
import pickle
from typing import Any, Union

from horovod.runner import _calls


def dumps_base64(obj: Any, to_ascii: bool = True) -> Union[str, bytes]:
    """Returns an object, pickled by cloudpickle, as base64: as text, or as bytes."""
    packed = base64.b64encode(_calls.cloudpickle().dumps(obj))
    return packed.decode("ascii") if to_ascii else packed


def loads_base64(encoded: Union[str, bytes]) -> Any:
    """Returns the object of `dumps_base64`. Unpickling runs code: pass only text that this program made."""
    return pickle.loads(base64.b64decode(encoded))
