#!/usr/bin/python3 -B
"""Each row of tests/not_emulated.txt that leaves out a case names an existing case."""

import fnmatch
import pathlib
import re
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]


def titles():
    """Returns the cases of doctest, and the subcases as the table names them."""
    found = []
    for path in (*TESTS.rglob("*.cpp"), *TESTS.rglob("*.h")):
        text = re.sub(r'"\s*\n\s*"', "", path.read_text(encoding="utf-8"))
        for kind, title in re.findall(r'\b(TEST_CASE|SUBCASE)\(\s*"((?:[^"\\]|\\.)*)"', text):
            found.append(title if kind == "TEST_CASE" else f"subcase: {title}")
    return found


known = titles()
wrong = []
for line in (TESTS / "not_emulated.txt").read_text(encoding="utf-8").splitlines():
    if line.startswith("#"):
        continue
    _, case, _ = line.split(" | ")
    if case != "*" and not any(fnmatch.fnmatchcase(title.lower(), case.lower()) for title in known):
        wrong.append(f"{line}: no case has the title '{case}'")
print("\n".join(wrong) or f"{len(known)} cases, each row of not_emulated.txt leaves out one or more")
sys.exit(1 if wrong else 0)
