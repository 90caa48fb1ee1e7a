#!/usr/bin/python3 -B
"""Names the C and C++ files that clang-format would change.

usage: check_format.py [--fix]
"""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUFFIXES = {".h", ".hpp", ".c", ".cpp"}
# Other versions format differently.
PROGRAM = "clang-format-14"
SKIPPED = 77


def sources():
    for top in ("include", "src", "rendezvous", "launcher", "plugins", "python", "examples", "tests"):
        yield from sorted(path for path in (ROOT / top).rglob("*") if path.suffix in SUFFIXES)


def main():
    if not shutil.which(PROGRAM):
        print(f"SKIP: there is no {PROGRAM}: packaging/packages-test.txt names its package")
        return SKIPPED
    how = ["-i"] if "--fix" in sys.argv[1:] else ["--dry-run", "-Werror"]
    done = subprocess.run([PROGRAM, *how, *sources()], stderr=subprocess.PIPE, text=True, check=False)
    for line in done.stderr.splitlines():
        if "[-Wclang-format-violations]" in line:
            print(line)
    if done.returncode:
        print("run: tests/tools/check_format.py --fix")
    return 1 if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
