#!/usr/bin/python3 -B
"""Counts the tests of build folders by area and tier, as tests/run.sh runs them.

usage: tier_counts.py BUILD...    such as build build-asan build-tsan build-fuzz

An area is a label of ctest; tests of a sanitized folder are counted under the folder's name. The
counts are those of ctest: a doctest program with many cases is one test. The tests for 64-bit ARM
(tests/cross.sh) are not counted.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys

AREAS = ("soak", "e2e", "python", "tools", "bench", "fuzz", "unit")
TIERS = ("quick", "all", "release")


def tests_of(folder):
    """Returns each test's name and labels."""
    listed = subprocess.run(
        ["ctest", "--test-dir", folder, "--show-only=json-v1"], stdout=subprocess.PIPE, check=True
    ).stdout
    for test in json.loads(listed)["tests"]:
        labels = [each["value"] for each in test["properties"] if each["name"] == "LABELS"]
        yield test["name"], set(labels[0]) if labels else set()


def tiers_of(labels):
    """Returns the tiers of the release build that run a test."""
    tiers = {"release"}
    if not labels & {"soak", "release"}:
        tiers.add("all")
    if "quick" in labels or "unit" in labels:
        tiers.add("quick")
    return tiers


def area_of(labels):
    return next((area for area in AREAS if area in labels), "other")


def count(folder, counts):
    name = pathlib.Path(folder).name
    for _, labels in tests_of(folder):
        if name == "build":
            for tier in tiers_of(labels):
                counts[area_of(labels)][tier] += 1
        elif "fuzzing" in labels:
            counts[name.removeprefix("build-")]["release"] += 1
        elif name != "build-fuzz" and "unit" in labels:
            for tier in ("all", "release"):
                counts[name.removeprefix("build-")][tier] += 1
        elif name != "build-fuzz" and "not_sanitized" in labels:
            counts[name.removeprefix("build-")]["release"] += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", nargs="+")
    counts = collections.defaultdict(collections.Counter)
    for folder in parser.parse_args().build:
        count(folder, counts)
    print("| area |", " | ".join(TIERS), "|")
    print("|---" * (len(TIERS) + 1) + "|")
    for area in sorted(counts):
        print("|", area, "|", " | ".join(str(counts[area][tier]) for tier in TIERS), "|")
    print("| sum |", " | ".join(str(sum(each[tier] for each in counts.values())) for tier in TIERS), "|")


if __name__ == "__main__":
    sys.exit(main())
