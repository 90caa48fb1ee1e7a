"""Turns errors of collectives inside a compiled program into the errors that scripts catch."""

from __future__ import annotations

import contextlib
import re
from typing import Iterator, Optional, Type

import jax

from horovod.exceptions import (
    HorovodDisagreementError,
    HorovodInternalError,
    HorovodUnimplementedError,
)

# JAX's own error class; older versions raise XLA's.
JaxRuntimeError: Type[Exception] = getattr(jax.errors, "JaxRuntimeError", RuntimeError)

# The message of jax_ops/handler.cpp, after XLA's name of the kind of error, and the last line of a
# callback's traceback.
_TEXT = re.compile(r"(?:(INVALID_ARGUMENT|UNIMPLEMENTED|INTERNAL)[^\n]*?: )?Horovod: (.*)", re.DOTALL)
_RAISED = re.compile(r"^(?:horovod\.exceptions\.)?(Horovod\w+): (.*)", re.MULTILINE)
_KINDS = {
    "INVALID_ARGUMENT": HorovodDisagreementError,
    "UNIMPLEMENTED": HorovodUnimplementedError,
    "HorovodDisagreementError": HorovodDisagreementError,
    "HorovodUnimplementedError": HorovodUnimplementedError,
}


def translated(error: BaseException) -> Optional[HorovodInternalError]:
    """Returns the error that a collective outside of compiled programs raises in this case. None if
    JAX's error does not come from a collective."""
    found = _RAISED.search(str(error)) or _TEXT.search(str(error))
    if found is None or not isinstance(error, JaxRuntimeError):
        return None
    return _KINDS.get(found[1], HorovodInternalError)(found[2])


@contextlib.contextmanager
def horovod_errors() -> Iterator[None]:
    """A `with` block, or a function decorated with `@hvd.horovod_errors()`, in which collectives of
    compiled programs fail as others do.

    JAX says by an error of its own, when it runs a program or when somebody looks at the results, that a
    collective inside `jax.jit` has failed. Here that becomes HorovodInternalError: a rank died or shut
    down; HorovodDisagreementError, a ValueError too: ranks disagree; or HorovodUnimplementedError. Other
    errors pass. Results that nobody has looked at inside of the block say it later: end it with
    `jax.block_until_ready`. `hvd.elastic.run` does this by itself.
    """
    try:
        yield
    except JaxRuntimeError as error:
        failure = translated(error)
        if failure is None:
            raise
        raise failure from error
