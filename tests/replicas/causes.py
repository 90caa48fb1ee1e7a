"""The table of planted causes, and the check of the warnings and errors of a job's ranks."""

import argparse
import faulthandler
import os
import pathlib
import re
import sys
import warnings

SECONDS = 200  # limit of a cause, after which the watchdog ends the rank
os.environ["HOROVOD_CHECK_REPLICAS_STEPS"] = "2,4"
TABLE = []


def _add(kind, pattern=""):
    def add(plant):
        TABLE.append((kind, pattern, plant))
        return plant

    return add


def warns(pattern):
    return _add("warns", pattern)


def fails(pattern):
    return _add("fails", pattern)


silent = _add("silent")


def _run(plant, rank):
    """Returns (warnings of the check, error) of this rank."""
    error = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            plant(rank)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
    found = [each for each in caught if "HOROVOD_CHECK_REPLICAS" in str(each.message)]
    elsewhere = [each.filename for each in found if pathlib.Path(each.filename).parent != pathlib.Path(__file__).parent]
    if elsewhere:
        error += f" a warning names a line of {elsewhere}, not of the program"
    return [str(each.message) for each in found], error


def _judge(kind, pattern, outcomes):
    """Returns a complaint; empty if the ranks' outcomes are right."""
    told = [sentence for sentences, _ in outcomes for sentence in sentences]
    errors = [error for _, error in outcomes]
    if kind == "fails":
        wrong = [error for error in errors if not re.search(pattern, error)]
        return f"errors {errors}" if wrong else ""
    if any(errors):
        return f"errors {errors}"
    if kind == "silent":
        return f"warnings {told}" if told else ""
    matching = [sentence for sentence in told if re.search(pattern, sentence)]
    return "" if len(matching) == 1 and told == outcomes[0][0] else f"warnings {told}"


def main(hvd):
    """Runs the causes, and returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", metavar="REGEX", help="Run the causes with such names.")
    options = parser.parse_args()
    hvd.init()
    rows = [row for row in TABLE if re.search(options.only, row[2].__name__)]
    if os.environ.get("HVD_TEST_FEWER") and not options.only:
        rows = rows[::3]
    failed = []
    # Sort the causes of kind "fails" to the end, because their requests stay in flight.
    for kind, pattern, plant in sorted(rows, key=lambda row: row[0] == "fails"):
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        outcomes = hvd.allgather_object(_run(plant, hvd.rank()), name=f"outcome of {plant.__name__}")
        faulthandler.cancel_dump_traceback_later()
        wrong = _judge(kind, pattern, outcomes)
        failed += [plant.__name__] if wrong else []
        if hvd.rank() == 0:
            print(f"FAIL {plant.__name__}: {wrong}" if wrong else f"ok {plant.__name__}", flush=True)
    if hvd.rank() == 0:
        print(f"{len(rows) - len(failed)} of {len(rows)} causes gave what they must", flush=True)
    if not rows:
        print(f"no cause matches {options.only!r}", file=sys.stderr)
    return 1 if failed or not rows else 0
