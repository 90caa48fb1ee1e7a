"""Base class for the tests of all frameworks. They run as a single process, or as each rank of a job.

A rank would wait forever for a failed rank. Each test therefore has a watchdog, which prints the stack of every thread
and ends the process.
"""

import faulthandler
import importlib
import os
import sys
import unittest

SKIPPED = 77  # the exit code of a skipped test for ctest
SECONDS = float(os.environ.get("HVD_TEST_SECONDS", "240"))


def need(module):
    """Returns the module, or ends this program as a skipped test."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        print(f"SKIP: {sys.executable} has no {module}: {error}")
        sys.exit(SKIPPED)


def some(rows):
    """Returns all rows, or every sixth row if HVD_TEST_FEWER is set, as in the tier of CI; the release tier tests the
    other rows."""
    rows = list(rows)
    return rows[::6] if os.environ.get("HVD_TEST_FEWER") else rows


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
    """Calls unittest's main; ranks other than 0 print only failures."""
    rank = int(os.environ.get("HOROVOD_RANK", "0"))
    unittest.main(module="__main__", verbosity=2 if rank == 0 else 0)
