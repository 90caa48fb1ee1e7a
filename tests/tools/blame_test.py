#!/usr/bin/python3 -B
"""Each commit that .git-blame-ignore-revs names is an ancestor of HEAD."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)


def main():
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        print("SKIP: this is no clone with its whole history")
        return SKIPPED
    lines = (ROOT / ".git-blame-ignore-revs").read_text(encoding="utf-8").splitlines()
    commits = [line for line in lines if line and not line.startswith("#")]
    gone = [commit for commit in commits if git("merge-base", "--is-ancestor", commit, "HEAD").returncode]
    for commit in gone:
        print(f".git-blame-ignore-revs: {commit} is no ancestor of HEAD")
    return 1 if gone or not commits else 0


if __name__ == "__main__":
    sys.exit(main())
