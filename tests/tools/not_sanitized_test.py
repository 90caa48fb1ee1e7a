#!/usr/bin/python3 -B
"""Each row of tests/not_sanitized.txt has a sanitizer, unit tests that exist, and a reason.

usage: not_sanitized_test.py CTEST BUILD
"""

import json
import pathlib
import re
import subprocess
import sys

ctest, build = sys.argv[1:]
listed = subprocess.run([ctest, "--test-dir", build, "--show-only=json-v1"], check=True, stdout=subprocess.PIPE)
units = {
    test["name"]
    for test in json.loads(listed.stdout)["tests"]
    for each in test.get("properties", [])
    if each["name"] == "LABELS" and {"unit", "left_to_asan"} & set(each["value"])
}
table = pathlib.Path(__file__).resolve().parents[1] / "not_sanitized.txt"
wrong = []
for line in table.read_text(encoding="utf-8").splitlines():
    if line.startswith("#"):
        continue
    row = re.fullmatch(r"(thread|address) \| (\S+) \| (\S.*)", line)
    if not row:
        wrong.append(f"{line}: is not 'thread | test | why' or 'address | test | why'")
        continue
    if row[2].startswith("tests/"):
        if not (table.parents[1] / row[2]).is_dir():
            wrong.append(f"{line}: there is no folder {row[2]}")
        continue
    group = re.search(r"\(([^()]*)\)", row[2])  # each alternative of the pattern names a test
    for each in group[1].split("|") if group else [""]:
        pattern = row[2].replace(group[0], each) if group else row[2]
        if not any(re.fullmatch(pattern, name) for name in units):
            wrong.append(f"{line}: no unit test has the name {pattern}")
print("\n".join(wrong) or f"{len(units)} unit tests, each alternative in {table.name} names one or more")
sys.exit(1 if wrong else 0)
