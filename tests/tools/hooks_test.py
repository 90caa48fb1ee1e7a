#!/usr/bin/python3 -B
"""Each hook of .pre-commit-config.yaml calls a check of this tree that is also a test.

usage: hooks_test.py CTEST BUILD
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def commands(ctest, build):
    """Returns the words of each test's command after the interpreter, with paths relative to the root."""
    done = subprocess.run(
        [ctest, "--test-dir", build, "--show-only=json-v1", "-L", "tools"], check=True, capture_output=True, text=True
    )
    for test in json.loads(done.stdout)["tests"]:
        words = [word.replace(f"{ROOT}/", "").replace(str(ROOT), ".") for word in test["command"]]
        yield " ".join(words[words.index("-B") + 1 :])


def main(ctest, build):
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    hooks = dict(re.findall(r"(?ms)^ *- id: (\S+)$.*?^ *entry: ([^\n]+)$", text))
    tests = set(commands(ctest, build))
    problems = [
        f"hook {name}: no test runs {entry}: add one to tests/tools/CMakeLists.txt"
        for name, entry in hooks.items()
        if entry not in tests
    ]
    sources = re.findall(r"(?m)^ *- repo: (\S+)$", text)
    problems += [f"repo {source} is not local: a hook must not fetch code" for source in sources if source != "local"]
    if len(hooks) < 4:
        problems.append(f"there are hooks only for {', '.join(hooks)}")
    print("\n".join(problems) or f"{len(hooks)} hooks are tests too")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
