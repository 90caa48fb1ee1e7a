"""Tests that one build works with every installed Python since 3.8, without packages.

interpreters_test.py LAUNCHER

Searches PATH and the folders of pyenv for python3.8 and later.
"""

import glob
import os
import re
import shutil
import subprocess
import sys

RANK = """
import sys
from horovod import _common as hvd

hvd.init()
assert hvd.allgather_object({"rank": hvd.rank()}) == [{"rank": rank} for rank in range(hvd.size())]
assert hvd.broadcast_object(sys.version if hvd.rank() == 0 else None) == sys.version
if hvd.size() > 1:
    last = hvd.add_process_set([hvd.size() - 1])
    assert last.included() == (hvd.rank() == hvd.size() - 1)
    assert hvd.remove_process_set(last)
try:
    hvd.add_process_set([hvd.size()])
except ValueError as error:
    assert "invalid rank" in str(error), error
else:
    raise AssertionError("a rank that there is not was taken")
hvd.barrier()
hvd.shutdown()
hvd.init()
hvd.barrier()
"""


def found():
    """Returns interpreters by version."""
    places = glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"))
    places += [shutil.which(f"python3.{minor}") for minor in range(8, 30)]
    interpreters = {}
    for place in filter(None, ["/usr/bin/python3", *places]):
        done = subprocess.run([place, "--version"], capture_output=True, text=True, check=False)
        version = re.fullmatch(r"Python (3)\.(\d+)\.(\d+)\S*", done.stdout.strip())
        if done.returncode == 0 and version and int(version[2]) >= 8:
            interpreters.setdefault(tuple(map(int, version.groups())), place)
    return interpreters


def main(launcher):
    interpreters = found()
    for version, place in sorted(interpreters.items()):
        for words in ([], [launcher, "-np", "2", "--no-omp-default"]):
            done = subprocess.run(
                [*words, place, "-X", "dev", "-W", "error", "-c", RANK],
                capture_output=True,
                text=True,
                check=False,
                timeout=200,
            )
            assert done.returncode == 0 and not done.stderr, (place, words, done)
        print("Python", ".".join(map(str, version)), "in", place)


main(*sys.argv[1:])
