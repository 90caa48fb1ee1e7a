#!/usr/bin/python3
"""usage: side_by_side.py PROGRAM SUITE

Runs each case of a suite of a doctest program in a separate process, all at the same time. If a case fails, fails with
its output.
"""

import re
import subprocess
import sys


def main():
    program, suite = sys.argv[1:]
    listed = subprocess.run(
        [program, f"--test-suite={suite}", "--count"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    count = int(re.search(r"passing the current filters: (\d+)", listed)[1])
    if count == 0:
        raise SystemExit(f"side_by_side.py: {program} has no suite {suite}")
    runs = [
        subprocess.Popen(
            [program, f"--test-suite={suite}", f"--first={i}", f"--last={i}"],
            text=True,
            errors="replace",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for i in range(1, count + 1)
    ]
    failed = 0
    for run in runs:
        output, _ = run.communicate()
        if run.returncode != 0 or not re.search("assertions: +[1-9]", output):
            failed += 1
            print(output)
    if failed:
        raise SystemExit(f"side_by_side.py: {failed} of {count} cases fail")
    print(f"{count} cases pass")


if __name__ == "__main__":
    main()
