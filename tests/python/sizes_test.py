"""Checks that every interpreter with tests of a framework's table runs them on 2, 3 and 4 ranks.

sizes_test.py CTEST FOLDER    FOLDER: the build
"""

import collections
import json
import os
import re
import subprocess
import sys

FILES = {"ops_test.py", "numpy_test.py", "tensorflow_test.py", "jax_test.py", "mxnet_test.py", "keras_test.py"}
BACKENDS = {"jax", "tensorflow", "torch"}

here = os.path.dirname(os.path.abspath(__file__))
ctest, folder = sys.argv[1:]
listed = subprocess.run([ctest, "--test-dir", folder, "--show-only=json-v1"], check=True, stdout=subprocess.PIPE)
found = collections.defaultdict(set)
for test in json.loads(listed.stdout)["tests"]:
    command = test.get("command", [])
    for word in command:
        # A file, or one of several files with its arguments (files.py).
        file, *rest = word.split(",")
        if os.path.basename(file) not in FILES or os.path.dirname(file) not in ("", here):
            continue
        python = next(word for word in command if re.search(r"/python[0-9.]*$", word))
        rest = [each for each in rest or command[command.index(word) + 1 :] if each in BACKENDS]
        backend = rest[0] if rest else "tensorflow"
        ranks = command[command.index("-np") + 1] if "-np" in command else "1"
        found[python, os.path.basename(file), backend].add(int(ranks))
lacking = [
    f"{file} ({backend}) with {python}: {sorted(ranks)}"
    for (python, file, backend), ranks in sorted(found.items())
    if not {2, 3, 4} <= ranks
]
print("\n".join(lacking) or f"{len(found)} tables, each on 2, 3 and 4 ranks")
sys.exit(1 if lacking or len(found) < 2 else 0)
