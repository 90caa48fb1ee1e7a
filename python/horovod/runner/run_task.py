"""The program of each rank of `horovod.run`: takes the function from the store, calls it, stores the result."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from typing import Optional

from horovod.runner import _calls
from horovod.runner._store import Store, StoreError


# Seconds after the function until the rank prints why its process has not ended, and, if the function raised an
# exception, until the process ends itself, so that the other ranks end too.
_EXPLAIN_SECONDS = 5.0
_FAILED_SECONDS = 30.0


def main(addr: Optional[str] = None, port: Optional[int] = None) -> int:
    """Returns the rank's exit code: 0, or 1 if the function raised an exception, which the caller shows. The arguments
    have no effect: the environment names the store."""
    rank = int(os.environ.get("HOROVOD_ELASTIC_PROCESS") or os.environ["HOROVOD_RANK"])
    store = Store.of_environment()
    key = bytes.fromhex(os.environ.pop("HOROVOD_RESULT_KEY"))  # hidden from the function's own children
    failure: Optional[BaseException] = None
    process = os.getpid()
    try:
        path, first, call = _calls.unpack_call(store.get(_calls.FUNCTION))
        sys.path[:] = _calls.import_path(path, first, sys.path)
        store.close()  # the function may close descriptors, or fork
        value = call()
        try:
            outcome = _calls.pack_value(value)
        except BaseException as error:
            failure = error
            outcome = _calls.pack_error(error, f"The result, of type {type(value).__name__}, cannot be pickled.\n")
    except SystemExit:
        raise
    except BaseException as error:  # also asyncio.CancelledError and the program's own classes
        failure, outcome = error, _calls.pack_error(error)
    if os.getpid() != process:  # this is a forked child of the function, whose outcome is not the rank's outcome
        if failure is not None:
            traceback.print_exception(type(failure), failure, failure.__traceback__)
        return 0 if failure is None else 1
    try:
        store.put(_calls.result_key(rank), _calls.sign(outcome, key))
        # The launcher contains the store, and may end as soon as the last rank ends.
        store.get(_calls.taken_key(rank))
    except (OSError, StoreError):
        if failure is not None:  # the caller has not received the failure
            traceback.print_exception(type(failure), failure, failure.__traceback__)
        raise
    store.close()
    threading.Thread(target=_watch_end, args=(rank, failure is not None), daemon=True).start()
    return 0 if failure is None else 1


def _watch_end(rank: int, has_failed: bool) -> None:
    time.sleep(_EXPLAIN_SECONDS)
    found = [
        f"the thread {thread.name!r}, which is not a daemon thread"
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread()
    ]
    children = getattr(sys.modules.get("multiprocessing.process"), "_children", ())
    found += [f"the process {child.name!r}, which is not a daemon" for child in children if not child.daemon]
    sys.stderr.write(
        f"horovod.run: the function has {'raised' if has_failed else 'returned'} on rank {rank}, and its process does "
        f"not end yet: Python waits for {' and '.join(found) or 'a function of atexit'}"
        f"{f'; it is ended {_FAILED_SECONDS:g} s after the exception' if has_failed else ''}\n"
    )
    sys.stderr.flush()
    if has_failed:
        time.sleep(_FAILED_SECONDS - _EXPLAIN_SECONDS)
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
