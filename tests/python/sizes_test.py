"""Every interpreter with the tests of a framework's table runs them on 2, 3 and 4 ranks.

sizes_test.py CTEST FOLDER    FOLDER: the build
"""

import collections
import json
import os
import re
import subprocess
import sys

FILES = {"ops_test.py", "numpy_test.py", "tensorflow_test.py", "jax_test.py", "mxnet_test.py", "keras_test.py"}

here = os.path.dirname(os.path.abspath(__file__))
ctest, folder = sys.argv[1:]
listed = subprocess.run([ctest, "--test-dir", folder, "--show-only=json-v1"], check=True, stdout=subprocess.PIPE)
found = collections.defaultdict(set)
for test in json.loads(listed.stdout)["tests"]:
    command = test.get("command", [])
    at = next(
        (i for i, word in enumerate(command) if os.path.dirname(word) == here and os.path.basename(word) in FILES), None
    )
    if at is None:
        continue
    python = next(word for word in command if re.search(r"/python[0-9.]*$", word))
    rest = [word for word in command[at + 1 :] if not word.endswith("TableTest")]
    backend = rest[0] if rest else "tensorflow"
    ranks = command[command.index("-np") + 1] if "-np" in command else "1"
    found[python, os.path.basename(command[at]), backend].add(int(ranks))
lacking = [
    f"{file} ({backend}) with {python}: {sorted(ranks)}"
    for (python, file, backend), ranks in sorted(found.items())
    if not {2, 3, 4} <= ranks
]
print("\n".join(lacking) or f"{len(found)} tables, each on 2, 3 and 4 ranks")
sys.exit(1 if lacking or len(found) < 2 else 0)
