#!/usr/bin/python3 -B
"""The version is defined once, in `project()` in CMakeLists.txt; all other places are generated from it or equal it.

usage: version_test.py PROGRAM...

Each PROGRAM prints the version for `--version`.
"""

import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = []
# Other places: the citation is read without a build; the changelogs name releases, and the list of symbols the release
# that introduced each symbol.
MAY_NAME_IT = {"CMakeLists.txt", "CITATION.cff", "CHANGELOG.md", "debian/changelog", "debian/libhorovod1.symbols"}
GENERATED = ("include/horovod/version.h.in", "python/horovod/_version.py.in", "packaging/cmake/horovod.pc.in")


def text(path):
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


def version():
    return re.search(r"^project\(horovod VERSION (\d+\.\d+\.\d+) ", text("CMakeLists.txt"), re.M)[1]


def files():
    """Copies the tree without build outputs."""
    for top in sorted(ROOT.iterdir()):
        if top.name.startswith((".git", "build")):
            continue
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(path.relative_to(ROOT))


class Version(unittest.TestCase):
    def test_scripts_that_want_a_newer_horovod_than_0_27_accept_it(self):
        self.assertGreaterEqual(tuple(map(int, version().split("."))), (0, 28, 0))

    def test_the_citation_has_the_same(self):
        self.assertRegex(text("CITATION.cff"), rf"(?m)^version: {re.escape(version())}$")

    def test_debian_s_changelog_begins_with_the_same(self):
        first = text("debian/changelog").splitlines()[0]
        self.assertRegex(first, rf"^horovod \({re.escape(version())}-\d+\) ")

    def test_no_other_file_repeats_it(self):
        pattern = re.compile(rf"(?<![\d.]){re.escape(version())}(?![\d.])")
        copies = [path for path in files() if path not in MAY_NAME_IT and pattern.search(text(path))]
        self.assertEqual(copies, [])

    def test_generated_files_take_it_from_the_project(self):
        for path in GENERATED:
            self.assertIn("@PROJECT_VERSION@", text(path), path)
        self.assertIn('dynamic = ["version"]', text("pyproject.toml"))
        pattern = re.search(r"(?m)^regex = '''(.+)'''$", text("pyproject.toml"))[1]
        self.assertEqual(re.search(pattern, text("CMakeLists.txt"))["value"], version())

    def test_python_code_defines_no_second_one(self):
        copies = [
            str(path)
            for path in (ROOT / "python").rglob("*.py")
            if re.search(r"(?m)^__version__ *=", path.read_text(encoding="utf-8"))
        ]
        self.assertEqual(copies, [])

    def test_the_programs_print_it(self):
        for program in PROGRAMS:
            done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=200)
            self.assertEqual(done.stdout.split()[-1], version(), program)


if __name__ == "__main__":
    PROGRAMS = sys.argv[1:]
    sys.exit(unittest.main(argv=sys.argv[:1]))
