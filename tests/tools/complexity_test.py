#!/usr/bin/python3 -B
"""Counts the functions with a cyclomatic complexity above LIMIT, by folder: no count may grow.

lizard, a package of PyPI, counts. Lower a number in AT_MOST after dividing such a function.
"""

import collections
import subprocess
import sys

import lint

LIMIT = 15
AT_MOST = {"include": 0, "launcher": 5, "plugins": 3, "python": 1, "rendezvous": 3, "src": 9}


def main():
    program = lint.found("lizard")
    if not program:
        print("SKIP: there is no lizard: pip install lizard, or tests/run.sh --all")
        return lint.SKIPPED
    done = subprocess.run(
        [program, "--languages", "cpp", "--CCN", str(LIMIT), "--warnings_only", *AT_MOST],
        cwd=lint.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    warnings = [line for line in done.stdout.splitlines() if " warning: " in line]
    if done.stderr or (done.returncode != 0 and not warnings):
        print(f"{program} ended with {done.returncode}: {done.stderr}")
        return 1
    counts = collections.Counter(line.partition("/")[0] for line in warnings)
    wrong = [
        f"{folder} has {counts[folder]} functions of a complexity above {LIMIT}, and AT_MOST has {most}"
        for folder, most in AT_MOST.items()
        if counts[folder] > most
    ]
    print("\n".join([*warnings, *wrong] if wrong else [f"{sum(counts.values())} functions above {LIMIT}"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
