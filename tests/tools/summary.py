#!/usr/bin/python3 -B
"""Counts what ran: names every failure and every skip, and judges skips of required tests.

usage: summary.py --required FILE [--strict] RESULT...

A RESULT is a JUnit file as ctest writes it (its tests' names get the file's stem and a dot in
front, unless that is "release"), or a .txt file with lines "PASS name", "FAIL name: reason" and
"SKIP name: reason". NAME.alone.xml holds what failed in NAME.xml and ran again with nothing beside
it: a pass there counts, and is named with what was said at first; but not after a crash or a
sanitizer's report, which need no load to be wrong.
The last line printed is "N passed, N failed, N skipped".
"""
import argparse
import fnmatch
import pathlib
import re
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
            # A test whose program was not built did not choose to be skipped.
            if said:
                yield name, "SKIP", said.group(1)
            else:
                yield name, "FAIL", case.find("skipped").get("message") or "did not run"
        else:
            yield name, "PASS", ""


def read(paths):
    """Each test's name with its verdict and the reason; and the first reasons of those that passed
    only alone."""
    results, late = [], {}
    for path in sorted(paths, key=lambda each: each.stem.endswith(".alone")):
        found = read_lines(path) if path.suffix == ".txt" else read_junit(path)
        for name, verdict, reason in found:
            if path.stem.endswith(".alone"):
                [[place, (_, first, said)]] = [(number, result) for number, result
                                               in enumerate(results) if result[0] == name]
                if verdict != "PASS" or first != "FAIL":
                    continue
                late[name] = said
                results[place] = name, verdict, reason
            else:
                results.append((name, verdict, reason))
    return [(name, "FAIL" if verdict == "CRASH" else verdict, reason)
            for name, verdict, reason in results], late


def last_lines(output, count=15):
    return "\n    ".join(["", *output.strip().splitlines()[-count:]])


def read_patterns(path):
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    patterns = [line for line in lines if line]
    return ([p for p in patterns if not p.startswith("!")],
            [p[1:] for p in patterns if p.startswith("!")])


def judge_required(results, patterns, exempt):
    """Required tests that were skipped, and required ones that do not exist."""
    skipped = {name for name, verdict, _ in results if verdict == "SKIP"}
    names = {name for name, _, _ in results}
    for pattern in patterns:
        matches = [name for name in names if fnmatch.fnmatchcase(name, pattern)
                   and not any(fnmatch.fnmatchcase(name, out) for out in exempt)]
        if not matches:
            yield pattern, "is required, but there is no such test"
        for name in sorted(skipped.intersection(matches)):
            yield name, "is required, but was skipped"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--required", type=pathlib.Path, required=True)
    parser.add_argument("--strict", action="store_true", help="a required test must run")
    parser.add_argument("results", nargs="*", type=pathlib.Path)
    options = parser.parse_args()

    results, late = read(options.results)
    broken = {}
    if options.strict:
        broken = dict(judge_required(results, *read_patterns(options.required)))
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

    counts = {verdict: sum(1 for _, got, _ in results if got == verdict)
              for verdict in ("PASS", "FAIL", "SKIP")}
    counts["SKIP"] -= len({name for name, verdict, _ in results if verdict == "SKIP"} & set(broken))
    counts["FAIL"] += len(broken)
    print(f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped")
    return 1 if counts["FAIL"] or not counts["PASS"] else 0


if __name__ == "__main__":
    sys.exit(main())
