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

# Matches the message of jax_ops/handler.cpp, after XLA's name of the kind of error. The next pattern matches the last
# line of a callback's traceback.
_TEXT = re.compile(r"(?:(INVALID_ARGUMENT|UNIMPLEMENTED|INTERNAL)[^\n]*?: )?Horovod: (.*)", re.DOTALL)
_RAISED = re.compile(r"^(?:horovod\.exceptions\.)?(Horovod\w+): (.*)", re.MULTILINE)
_KINDS = {
    "INVALID_ARGUMENT": HorovodDisagreementError,
    "UNIMPLEMENTED": HorovodUnimplementedError,
    "HorovodDisagreementError": HorovodDisagreementError,
    "HorovodUnimplementedError": HorovodUnimplementedError,
}


def translated(error: BaseException) -> Optional[HorovodInternalError]:
    """Returns the error that the same collective would raise outside of compiled programs; None if the JAX error does
    not come from a collective."""
    found = _RAISED.search(str(error)) or _TEXT.search(str(error))
    if found is None or not isinstance(error, JaxRuntimeError):
        return None
    return _KINDS.get(found[1], HorovodInternalError)(found[2])


@contextlib.contextmanager
def horovod_errors() -> Iterator[None]:
    """A `with` block, or a function decorated with `@hvd.horovod_errors()`, in which collectives of compiled programs
    raise the same errors as other collectives.

    When a collective inside `jax.jit` has failed, JAX raises its own error, when it runs the program or when the
    program reads the results. In the block this error becomes HorovodInternalError (a rank died or shut down),
    HorovodDisagreementError (ranks disagree; also a ValueError) or HorovodUnimplementedError. Other errors pass.
    Results read after the block raise JAX's error later: end the block with `jax.block_until_ready`. `hvd.elastic.run`
    does this by itself.
    """
    try:
        yield
    except JaxRuntimeError as error:
        failure = translated(error)
        if failure is None:
            raise
        raise failure from error
