#!/usr/bin/python3 -B
"""The pages of docs make a site without a warning: each is in the tree of pages, and no link is broken.

Debian's Sphinx makes it, or with --newest that of HVD_TEST_SPHINX, an interpreter with packages of PyPI.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
IS_NEWEST = "--newest" in sys.argv
PYTHON = os.environ.get("HVD_TEST_SPHINX", "") if IS_NEWEST else "/usr/bin/python3"


def build(pages):
    """The exit code and warnings of the build of a folder of pages by the settings of docs, and its HTML files."""
    with tempfile.TemporaryDirectory() as site:
        done = subprocess.run(
            [
                PYTHON,
                "-B",
                "-m",
                "sphinx",
                "-n",
                "-W",
                "--keep-going",
                "-q",
                "-b",
                "html",
                "-c",
                ROOT / "docs",
                "-d",
                f"{site}/doctrees",
                pages,
                f"{site}/html",
            ],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        made = {
            str(path.relative_to(f"{site}/html")): path.read_text(encoding="utf-8")
            for path in pathlib.Path(site, "html").rglob("*.html")
        }
        return done.returncode, done.stderr, made


class SiteTest(unittest.TestCase):
    def test_the_pages_of_docs(self):
        code, warnings, made = build(ROOT / "docs")
        self.assertEqual((code, warnings), (0, ""))
        self.assertIn("index.html", made)
        self.assertIn('id="num-proc"', made["settings.html"])
        self.assertIn("copybutton.js", made["index.html"])
        for name, text in made.items():
            self.assertNotIn(str(ROOT), text, f"{name} has a path of this machine")
            self.assertNotIn("&lt;inline", text, f"{name} shows a node of docutils")

    def test_a_broken_link_and_a_page_outside_of_the_tree_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "index.md").write_text("# Pages\n\nSee [another](missing.md).\n")
            pathlib.Path(folder, "lost.md").write_text("# Lost\n")
            code, warnings, _ = build(folder)
        self.assertEqual(code, 1)
        self.assertRegex(warnings, r"reference target not found: '?missing\.md")
        self.assertIn("document isn't included in any toctree", warnings)


if __name__ == "__main__":
    modules = ("sphinx", "sphinx_copybutton", "myst_parser", "furo")
    if IS_NEWEST and not PYTHON:
        print(
            "SKIP: HVD_TEST_SPHINX names no interpreter with the newest sphinx, myst-parser, sphinx-copybutton and furo"
        )
        sys.exit(77)
    if IS_NEWEST:
        sys.argv.remove("--newest")
    if subprocess.run([PYTHON, "-c", f"import {', '.join(modules)}"], capture_output=True, check=False).returncode:
        print(
            f"SKIP: {PYTHON} lacks one of sphinx, sphinx_copybutton, myst_parser and furo (packaging/packages-test.txt)"
        )
        sys.exit(77)
    unittest.main()
