"""What the tests of all frameworks share: they run as one process alone, or as every rank of a job.

A rank that waits for another that has failed would wait for ever, so that each test gets a
watchdog that says where everybody stands and ends the process.
"""

import faulthandler
import importlib
import os
import sys
import unittest

SKIPPED = 77  # the exit code by which ctest knows a skipped test
SECONDS = float(os.environ.get("HVD_TEST_SECONDS", "240"))


def need(module):
    """The module, or the end of this program as a skipped test."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        print(f"SKIP: {sys.executable} has no {module}: {error}")
        sys.exit(SKIPPED)


class RankBase(unittest.TestCase):
    """A test that every rank runs at the same time."""

    @classmethod
    def setUpClass(cls):
        from horovod import _basics

        _basics.init()
        cls.rank, cls.size = _basics.rank(), _basics.size()

    def setUp(self):
        faulthandler.dump_traceback_later(SECONDS, exit=True)

    def tearDown(self):
        faulthandler.cancel_dump_traceback_later()


def main():
    """unittest's main; only rank 0 and failures are heard."""
    rank = int(os.environ.get("HOROVOD_RANK", "0"))
    unittest.main(module="__main__", verbosity=2 if rank == 0 else 0)
