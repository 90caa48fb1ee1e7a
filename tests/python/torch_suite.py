"""Runs torch's own suite of torch.distributed (torch.testing._internal.distributed.distributed_test) on this backend in
place of gloo, and on gloo: each test that passes on gloo must pass here, and no test may be skipped.

torch_suite.py RANKS [--match REGEX] [--only gloo|horovod]

Needs expecttest from PyPI. The ranks are forked, so that no test imports torch again.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings
from importlib import metadata

SKIPPED = 77
IS_OLD = metadata.version("torch").startswith("1.")

# Tests of features that a group in Python cannot have (docs/torch-distributed.md).
EXCUSED = {
    # DDP's logger in C++ casts a group named gloo to the C++ class of gloo.
    "test_ddp_logging_data_cpu",
}
# The profiler of torch before 2 accepts an operation's end only from a C++ thread.
EXCUSED_BEFORE_2 = "_profiler$"


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("ranks", type=int)
    parser.add_argument("--match", default="", help="tests whose names match")
    parser.add_argument("--only", choices=["gloo", "horovod"])
    parser.add_argument("--run", action="store_true", help="run one backend in this process, and print JSON")
    return parser.parse_args()


def is_excused(name):
    return name in EXCUSED or IS_OLD and re.search(EXCUSED_BEFORE_2, name) is not None


class Results(unittest.TestResult):
    """Records and prints the result of each test."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def note(self, test, what, why=""):
        self.found[test._testMethodName] = what
        print(f"{what} {test._testMethodName} {why}", file=sys.stderr, flush=True)

    def addSuccess(self, test):
        self.note(test, "passed")

    def addSkip(self, test, reason):
        self.note(test, "skipped", reason)

    def addFailure(self, test, error):
        self.note(test, "FAILED", self._exc_info_to_string(error, test))

    addError = addFailure


def run(ranks, match):
    """Runs the tests with the backend of this environment."""
    folder = tempfile.mkdtemp()
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(ranks), TEMP_DIR=folder, INIT_METHOD=f"file://{folder}/shared")
    import horovod_torch_backend

    horovod_torch_backend.load()  # torch before 2.5 does not
    import torch
    from torch.testing._internal.distributed import distributed_test as suite

    if IS_OLD and horovod_torch_backend.stands_for_gloo():
        suite.PROFILING_SUPPORTED_BACKENDS = []

    class TestGroups(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    names = [name for name in unittest.TestLoader().getTestCaseNames(TestGroups) if re.search(match, name)]
    results = Results()
    try:
        unittest.TestSuite(map(TestGroups, names)).run(results)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return results.found


def run_apart(backend, given):
    """Returns the results of `run` in a new process."""
    variables = {**os.environ, "HOROVOD_TORCH_BACKEND": backend}
    command = [sys.executable, __file__, str(given.ranks), "--run", "--match", given.match]
    process = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True)
    if process.returncode != 0:
        sys.exit(f"the suite with {backend} ended with {process.returncode}")
    return json.loads(process.stdout.splitlines()[-1])


def main():
    given = options()
    interpreter = os.environ.get("HVD_TEST_EXPECTTEST")
    if interpreter:  # an environment that has only expecttest (tests/run.sh)
        sys.path += map(str, pathlib.Path(interpreter).parents[1].glob("lib/python3*/site-packages"))
    try:
        import expecttest  # noqa: F401
    except ImportError:
        print("SKIP: expecttest, which torch's suite needs, is not installed")
        sys.exit(SKIPPED)
    warnings.simplefilter("ignore")
    if given.run:
        print(json.dumps(run(given.ranks, given.match)))
        return
    if given.only:
        found = run_apart(given.only, given)
        for what in sorted(set(found.values())):
            print(f"{given.only}: {list(found.values()).count(what)} {what}")
        sys.exit("FAILED" in found.values())
    theirs, ours = run_apart("gloo", given), run_apart("horovod", given)
    passed = [name for name, what in theirs.items() if what == "passed"]
    worse = {name: ours.get(name) for name in passed if ours.get(name) != "passed" and not is_excused(name)}
    print(
        f"{given.ranks} ranks: {len(passed)} of {len(theirs)} tests pass on gloo, and "
        f"{len(passed) - len(worse)} of these on horovod: {worse or 'all'}"
    )
    sys.exit(bool(worse))


if __name__ == "__main__":
    main()
