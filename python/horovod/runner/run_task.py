"""The program of each rank of `horovod.run`: takes the function from the store, calls it, stores the result."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Optional

from horovod.runner import _calls
from horovod.runner._store import Store, StoreError


def main(addr: Optional[str] = None, port: Optional[int] = None) -> int:
    """The rank's exit code: 0, or 1 where the function raised, which the caller shows. The arguments have
    no effect: the environment names the store."""
    rank = int(os.environ.get("HOROVOD_ELASTIC_PROCESS") or os.environ["HOROVOD_RANK"])
    store = Store.of_environment()
    key = bytes.fromhex(os.environ.pop("HOROVOD_RESULT_KEY"))  # not for the function's own children
    failure: Optional[BaseException] = None
    try:
        path, call = _calls.unpack_call(store.get(_calls.FUNCTION))
        sys.path.extend(place for place in path if place not in sys.path)
        outcome = _calls.pack_value(call())
    except (Exception, KeyboardInterrupt) as error:
        failure, outcome = error, _calls.pack_error(error)
    try:
        store.put(_calls.result_key(rank), _calls.sign(outcome, key))
        # The launcher holds the store, and may end as soon as the last rank ends.
        store.get(_calls.taken_key(rank))
    except (OSError, StoreError):
        if failure is not None:  # the caller has not received it
            traceback.print_exception(type(failure), failure, failure.__traceback__)
        raise
    store.close()
    return 0 if failure is None else 1


if __name__ == "__main__":
    sys.exit(main())
