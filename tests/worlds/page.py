#!/usr/bin/python3 -B
"""Generates docs/frameworks-and-launchers.md from cells.txt.

usage: page.py [--write]

Without --write it fails if the page is out of date, or if a row or column lacks a detector or a test.
"""

import pathlib
import re
import sys

import table

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/frameworks-and-launchers.md"
HEAD = """\
# Frameworks and launchers

Each framework looks for its rank in variables of its own, and each launcher and scheduler sets others. Where they
disagree, ranks die at their start, or train in several worlds. This page is made of the file that the tests read
(`tests/worlds/cells.txt`): a cell says what its test has shown on two hosts, or on one in the first column of results.

- **yes**: the framework found one world: each rank once, its size, its rank on the host, and the sum over all ranks.
  The test runs on every change.
- *yes*: the same, by a test before a release.
- refused: no rank starts, and one sentence says why.
- An empty cell was not run: it says nothing.

With PyTorch 2.13, Lightning 2.6, Accelerate 1.15, transformers 5.24, ignite 0.5, DeepSpeed 0.19, TensorFlow 2.21 and
JAX 0.5; on Debian 12 with Open MPI 4.1, MPICH 4.0 and Slurm 22.05; on Debian 13 with Slurm 24.11, Open MPI 5.0 and
MPICH 4.2.

"""
# Columns per table: more do not fit on a page.
WIDTH = 5
WORDS = {"a": "**yes**", "r": "*yes*", "x": "refused", "-": ""}


def tables():
    names = table.surroundings()
    for first in range(0, len(names), WIDTH):
        part = names[first : first + WIDTH]
        yield "| | " + " | ".join(table.text_of("surrounding", name) for name in part) + " |\n"
        yield "|---|" + "---|" * len(part) + "\n"
        for detector in table.detectors():
            words = (WORDS[table.mark(detector, name)] for name in part)
            yield f"| {table.text_of('detector', detector)} | " + " | ".join(words) + " |\n"
        yield "\n"


def page():
    refused = [name for name in table.surroundings() if "x" in {table.mark(each, name) for each in table.detectors()}]
    sentences = "".join(
        f"{table.text_of('surrounding', name)} is refused: `{table.text_of('refused', name)}`.\n" for name in refused
    )
    return HEAD + "".join(tables()) + sentences


def lacks():
    """Returns rows without a detector, and columns without a test in one of their tiers."""
    detectors = (ROOT / "tests/worlds/detectors.py").read_text()
    tests = "".join((ROOT / "tests/worlds" / name).read_text() for name in ("worlds_test.py", "newer_slurm.py"))
    for name in table.detectors():
        function = name.replace(".", "__").replace("-", "_")
        if f"def {function}(" not in detectors and f'"{name}"' not in tests:
            yield f"no detector {name}"
    for name in table.surroundings():
        for tier in ("all", "release"):
            is_tested = re.search(rf'check\(\s*"{name}",\s*"{tier}"', tests) or f'cells("{name}", "{tier}")' in tests
            if table.cells(name, tier) and not is_tested:
                yield f"no test of {name} in {tier}"


def main():
    if "--write" in sys.argv:
        PAGE.write_text(page())
    problems = list(lacks())
    if PAGE.read_text() != page():
        problems.append("docs/frameworks-and-launchers.md is not that of cells.txt: tests/worlds/page.py --write")
    print("\n".join(problems) or f"{len(table.ROWS) - 1} detectors in {len(table.surroundings())} surroundings")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
