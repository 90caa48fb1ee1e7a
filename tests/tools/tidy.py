#!/usr/bin/python3 -B
"""Runs clang-tidy with the checks of .clang-tidy over the sources that a build folder compiles.

usage: tidy.py [-j N] [--root ROOT] BUILD [FOLDER...]

BUILD was configured with clang (the preset asan is). A FOLDER is relative to ROOT, the tree's root;
without one it reads those of FOLDERS. A unity build costs one reading of the headers for all sources of
a file. Prints each finding once; the exit code is 1 if there is one.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

CLANG_TIDY = "clang-tidy-14"
SKIPPED = 77
FOLDERS = ["src", "rendezvous", "plugins", "python", "launcher"]


def sources_of(entry):
    """Returns the sources of a compiler command: its file, or the files that a unity file includes."""
    path = pathlib.Path(entry["directory"], entry["file"])
    if path.parent.name != "Unity":
        return frozenset([str(path)])
    return frozenset(re.findall(r'#include "(.*)"', path.read_text(encoding="utf-8")))


def chosen(build, folders):
    """Returns a file for each set of sources in these folders that the build compiles, the largest first."""
    files = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        sources = sources_of(entry)
        if any(pathlib.Path(source).is_relative_to(folder) for source in sources for folder in folders):
            files.setdefault(sources, entry["file"])
    return [file for _, file in sorted(files.items(), key=lambda item: -len(item[0]))]


def findings_in(root, build, file):
    """Returns the findings in one file and its includes: each with its place and the lines below it."""
    ran = subprocess.run(
        [CLANG_TIDY, "--quiet", f"--config-file={root}/.clang-tidy", "-p", build, file],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    found = re.split(r"(?m)^(?=\S+:\d+:\d+: (?:error|warning): )", ran.stdout)[1:]
    if ran.returncode and not found:
        found = [f"{file}: {CLANG_TIDY} ended with {ran.returncode}:\n{ran.stdout}"]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-j", type=int, default=os.cpu_count())
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folders", nargs="*", default=FOLDERS)
    arguments = parser.parse_args()
    if not shutil.which(CLANG_TIDY):
        print(f"SKIP: there is no {CLANG_TIDY}: packaging/packages-test.txt names its package")
        return SKIPPED
    files = chosen(arguments.build, [arguments.root / folder for folder in arguments.folders])
    if not files:
        print(f"{arguments.build} compiles nothing in {', '.join(arguments.folders)}")
        return 2
    with concurrent.futures.ThreadPoolExecutor(arguments.j) as pool:
        results = pool.map(lambda file: findings_in(arguments.root, arguments.build, file), files)
        found = sorted({finding for result in results for finding in result})
    print("".join(found), end="")
    print(f"clang-tidy: {len(found)} findings in {len(files)} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
