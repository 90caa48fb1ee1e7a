#!/usr/bin/python3
"""usage: must_find.py FINDING COMMAND...

Passes if COMMAND, a test with a planted bug, fails with the expected output: each line of FINDING is a regular
expression that its output must match. A race may need several runs.
"""

import re
import subprocess
import sys


RUNS = 5


def main():
    finding, command = sys.argv[1], sys.argv[2:]
    for _ in range(RUNS):
        ran = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
        )
        missing = [line for line in finding.splitlines() if not re.search(line, ran.stdout)]
        if ran.returncode != 0:
            break
    if ran.returncode != 0 and not missing:
        return
    print(ran.stdout[-8000:])
    if ran.returncode == 0:
        raise SystemExit(f"must_find.py: the test passed {RUNS} times: it does not see the planted bug")
    raise SystemExit(
        f"must_find.py: the test ended with {ran.returncode}, but without the finding: nothing matches {missing}"
    )


if __name__ == "__main__":
    main()
