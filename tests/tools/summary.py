#!/usr/bin/python3 -B
"""Counts test results: names every failure and every skip, and judges skips of required tests.

usage: summary.py --required FILE [--strict] [--no-flaky] [--left-out-of BUILD] RESULT...

A RESULT is a JUnit file from ctest (its tests' names get the file's stem and a dot as a prefix, unless that is
"release"), or a .txt file with lines "PASS name", "FAIL name: reason" and "SKIP name: reason". NAME.alone.xml has the
tests that failed in NAME.xml and ran again alone: a pass there counts, and is listed with the first reason; but not
after a crash or a sanitizer's report, which do not depend on load. With --no-flaky such a pass is a failure.
--left-out-of names a build folder: its tests without a RESULT are counted. The slowest tests are listed. The last line
printed is "N passed, N failed, N skipped".
"""

import argparse
import collections
import fnmatch
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as xml


WRONG_ANYWHERE = re.compile(r"Sanitizer|runtime error: |SEGFAULT|SIG(?:SEGV|ABRT|BUS|ILL|FPE)")


def read_lines(path):
    for line in path.read_text().splitlines():
        verdict, _, rest = line.partition(" ")
        name, _, reason = rest.partition(": ")
        yield name, verdict, reason


def read_junit(path):
    stem = path.stem.removesuffix(".alone")
    prefix = "" if stem.startswith("release") else stem + "."
    for case in xml.parse(path).getroot().iter("testcase"):
        name = prefix + case.get("name")
        output = case.findtext("system-out") or ""
        failure = case.find("failure")
        if failure is not None or case.get("status") == "fail":
            how = failure.get("message") or "" if failure is not None else ""
            wrong = WRONG_ANYWHERE.search(f"{how}\n{output}")
            yield name, "CRASH" if wrong else "FAIL", last_lines(output)
        elif case.find("skipped") is not None:
            said = re.search(r"(?m)^SKIP: (.*)$", output)
            # If the program was not built, the test prints no reason.
            if said:
                yield name, "SKIP", said.group(1)
            else:
                yield name, "FAIL", case.find("skipped").get("message") or "did not run"
        else:
            yield name, "PASS", ""


def slowest(paths, count=50):
    """Returns the slowest tests, as (seconds, name)."""
    times = []
    for path in paths:
        if path.suffix == ".xml" and not path.stem.endswith(".alone"):
            prefix = "" if path.stem.startswith("release") else path.stem + "."
            times += [
                (float(case.get("time") or 0), prefix + case.get("name"))
                for case in xml.parse(path).getroot().iter("testcase")
            ]
    return sorted(times, reverse=True)[:count]


def count_left_out(build, names):
    """Returns the number of a build folder's tests that are not among these names, by area."""
    listed = subprocess.run(
        ["ctest", "--test-dir", build, "--show-only=json-v1"], stdout=subprocess.PIPE, check=True
    ).stdout
    left = [test["name"] for test in json.loads(listed)["tests"] if test["name"] not in names]
    return collections.Counter(name.partition(".")[0] if "." in name else "unit" for name in left)


def read(paths):
    """Returns (name, verdict, reason) of each test, and the first failure's reason, by name, of each test that passed
    only when it ran alone."""
    results, late = [], {}
    for path in sorted(paths, key=lambda each: each.stem.endswith(".alone")):
        found = read_lines(path) if path.suffix == ".txt" else read_junit(path)
        for name, verdict, reason in found:
            if path.stem.endswith(".alone"):
                [[place, (_, first, said)]] = [
                    (number, result) for number, result in enumerate(results) if result[0] == name
                ]
                if verdict != "PASS" or first != "FAIL":
                    continue
                late[name] = said
                results[place] = name, verdict, reason
            else:
                results.append((name, verdict, reason))
    return [(name, "FAIL" if verdict == "CRASH" else verdict, reason) for name, verdict, reason in results], late


def last_lines(output, count=15):
    return "\n    ".join(["", *output.strip().splitlines()[-count:]])


def read_patterns(path):
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    patterns = [line for line in lines if line]
    return ([p for p in patterns if not p.startswith("!")], [p[1:] for p in patterns if p.startswith("!")])


def judge_required(results, patterns, exempt):
    """Returns required tests that were skipped or do not exist."""
    skipped = {name for name, verdict, _ in results if verdict == "SKIP"}
    names = {name for name, _, _ in results}
    for pattern in patterns:
        matches = [
            name
            for name in names
            if fnmatch.fnmatchcase(name, pattern) and not any(fnmatch.fnmatchcase(name, out) for out in exempt)
        ]
        if not matches:
            yield pattern, "is required, but there is no such test"
        for name in sorted(skipped.intersection(matches)):
            yield name, "is required, but was skipped"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--required", type=pathlib.Path, required=True)
    parser.add_argument("--strict", action="store_true", help="a required test must run")
    parser.add_argument("--no-flaky", action="store_true", help="a test that passes only alone is a failure")
    parser.add_argument("--left-out-of", metavar="BUILD", help="count its tests that did not run")
    parser.add_argument("results", nargs="*", type=pathlib.Path)
    options = parser.parse_args()

    results, late = read(options.results)
    broken = {}
    if options.strict:
        broken = dict(judge_required(results, *read_patterns(options.required)))
    if options.no_flaky:
        broken.update((name, f"passes only alone: {reason}") for name, reason in late.items())
    if times := slowest(options.results):
        print("The slowest tests, in seconds:")
        for seconds, name in times:
            print(f"{seconds:8.1f} {name}")
    if options.left_out_of:
        left = count_left_out(options.left_out_of, {name for name, _, _ in results})
        areas = ", ".join(f"{count} of {area}" for area, count in sorted(left.items()))
        print(
            f"Left out: {areas or 'no test'} of this build; the sanitizers and the frameworks of "
            "PyPI. tests/run.sh --all runs them; tests/run.sh --release adds soak tests, fuzzers "
            "and 64-bit ARM."
        )
    for name, verdict, reason in results:
        if verdict == "SKIP":
            print(f"SKIP {name}: {reason}")
    for name, reason in late.items():
        print(f"PASSED ONLY ALONE {name}; beside others: {reason}")
    for name, verdict, reason in results:
        if verdict == "FAIL":
            print(f"FAIL {name}: {reason}")
    for name, reason in broken.items():
        print(f"FAIL {name}: {reason}")

    counts = {verdict: sum(1 for _, got, _ in results if got == verdict) for verdict in ("PASS", "FAIL", "SKIP")}
    for verdict in ("PASS", "SKIP"):
        counts[verdict] -= len({name for name, got, _ in results if got == verdict} & set(broken))
    counts["FAIL"] += len(broken)
    print(f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped")
    return 1 if counts["FAIL"] or not counts["PASS"] else 0


if __name__ == "__main__":
    sys.exit(main())
