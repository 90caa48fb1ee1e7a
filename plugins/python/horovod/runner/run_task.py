"""What each rank of `horovod.run` executes: takes the function from the store, calls it, answers."""

from __future__ import annotations

import os
import sys
import traceback

from horovod.runner import _calls
from horovod.runner._store import Store


def main() -> int:
    """The rank's exit code: 0, or 1 after the function's traceback on standard error."""
    rank = int(os.environ["HOROVOD_RANK"])
    store = Store.of_environment()
    code = 0
    try:
        path, call = _calls.unpack_call(store.get(_calls.FUNCTION))
        sys.path.extend(place for place in path if place not in sys.path)
        outcome = _calls.pack_value(call())
    except (Exception, KeyboardInterrupt) as error:
        traceback.print_exc()
        outcome, code = _calls.pack_error(error), 1
    store.put(_calls.result_key(rank), outcome)
    # The launcher, which keeps it, may end as soon as the last rank does.
    store.get(_calls.taken_key(rank))
    store.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
