#!/usr/bin/python3 -B
"""Runs a checker over the tree, with the settings in its root (.codespellrc, pyproject.toml).

usage: lint.py codespell|shellcheck|ruff|mypy

ruff and mypy come from PyPI: searched next to the interpreter $HVD_TEST_MYPY, in the environment of tests/run.sh --all,
and in PATH.
"""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = [
    ".ci",
    "cmake",
    "debian",
    "docs",
    "examples",
    "launcher",
    "packaging",
    "plugins",
    "python",
    "rendezvous",
    "src",
    "tests",
]
SHELLS = (b"#!/bin/sh", b"#!/bin/bash", b"#!/usr/bin/env bash")
SKIPPED = 77
ARGUMENTS = {
    "codespell": [[]],
    "shellcheck": [["--severity=warning"]],
    "ruff": [["check", "--no-cache", "--quiet"], ["format", "--no-cache", "--check"]],
    "mypy": [["--no-error-summary", "--cache-dir", "build/cache-mypy"]],
}


def found(name):
    beside = [os.path.dirname(os.environ.get("HVD_TEST_MYPY", "")), str(ROOT / "build/venv-mypy/bin")]
    return shutil.which(name, path=os.pathsep.join([*filter(None, beside), os.environ["PATH"]]))


def is_script(path):
    if not path.is_file() or path.suffix not in ("", ".sh"):
        return False
    try:
        with open(path, "rb") as file:
            return path.suffix == ".sh" or file.readline().rstrip().startswith(SHELLS)
    except OSError:  # another test has removed the file
        return False


def scripts():
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if is_script(path)]


def main(name):
    program = found(name)
    if not program:
        where = (
            "packaging/packages-test.txt names its package"
            if name in ("codespell", "shellcheck")
            else f"pip install {name}, or tests/run.sh --all"
        )
        print(f"SKIP: there is no {name}: {where}")
        return SKIPPED
    files = scripts() if name == "shellcheck" else []
    codes = [subprocess.run([program, *words, *files], cwd=ROOT, check=False).returncode for words in ARGUMENTS[name]]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
