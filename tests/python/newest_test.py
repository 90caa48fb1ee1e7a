"""Checks that the tests have run the newest release of a framework that PyPI has for this interpreter.

newest_test.py FRAMEWORK [DISTRIBUTION]
"""

import sys
from importlib import metadata

from horovod import _tested

framework = sys.argv[1]
found = metadata.version(sys.argv[-1])
newest = _tested.NEWEST[framework]
if _tested._numbers(found) != _tested._numbers(newest):
    sys.exit(
        f"{framework} {found} is the newest, and python/horovod/_tested.py names {newest}: run the tests with it, then "
        "change that table and docs/support-matrix.md"
    )
print(framework, found)
