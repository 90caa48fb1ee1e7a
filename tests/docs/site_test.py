#!/usr/bin/python3 -B
"""The pages of docs make a site without a warning: each page is in the tree of pages, and no link is broken.

Debian's Sphinx builds it, or with --newest the Sphinx of HVD_TEST_SPHINX, an interpreter with packages of PyPI.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
IS_NEWEST = "--newest" in sys.argv
PAGES_OF_WORDS = {
    "hang": "observe",
    "permission denied": "troubleshooting",
    "no module": "environments",
    "out of memory": "troubleshooting",
    "exit code": "troubleshooting",
    "kubernetes": "tutorials/kubernetes",
    "slurm": "tutorials/slurm",
    "docker": "tutorials/containers",
    "checkpoint": "data-and-checkpoints",
    "ddp": "torch-distributed",
    "slow": "observe",
    "nccl": "gpus",
}
PYTHON = os.environ.get("HVD_TEST_SPHINX", "") if IS_NEWEST else "/usr/bin/python3"


def build(pages):
    """Builds a folder of pages with the settings of docs. Returns the exit code, the warnings, and the HTML files."""
    with tempfile.TemporaryDirectory() as site:
        done = subprocess.run(
            [
                PYTHON,
                *"-B -m sphinx -n -W --keep-going -q -b html".split(),
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
            for path in pathlib.Path(site, "html").rglob("*")
            if path.suffix == ".html" or path.name == "searchindex.js"
        }
        return done.returncode, done.stderr, made


def search(index, words, english):
    """Returns the pages that the site's search (searchtools.js) finds for these words, best first."""
    scores = {}

    def add(page, score):
        scores[page] = max(scores.get(page, 0), score)

    for names in (index["alltitles"], index["indexentries"]):
        for name, places in names.items():
            if words in name.lower() and len(words) >= len(name) / 2:
                for place in places:
                    add(place[0], round(100 * len(words) / len(name)))
    found = []
    for word in (english.stem(word) for word in words.split() if word not in english.stopwords):
        of_word = {}
        for table, score in ((index["terms"], 5), (index["titleterms"], 15)):
            files = table.get(word, [])
            of_word |= dict.fromkeys([files] if isinstance(files, int) else files, score)
        for term, files in index["terms"].items() if word not in index["terms"] else ():
            if word in term:
                of_word |= dict.fromkeys([files] if isinstance(files, int) else files, 2)
        found.append(of_word)
    for file in set.intersection(*map(set, found)):
        add(file, max(of_word[file] for of_word in found))
    order = sorted(scores, key=lambda file: (-scores[file], index["titles"][file].lower()))
    return [index["docnames"][file] for file in order]


class SiteTest(unittest.TestCase):
    def test_the_pages_of_docs(self):
        code, warnings, made = build(ROOT / "docs")
        self.assertEqual((code, warnings), (0, ""))
        index = json.loads(re.fullmatch(r"Search\.setIndex\((.*)\)", made.pop("searchindex.js"), re.S)[1])
        if not IS_NEWEST:
            self.check_search(index)
        self.check_sidebar(made["index.html"])
        self.check_moved_pages(made)
        self.assertIn("index.html", made)
        self.assertIn('id="num-proc"', made["settings.html"])
        self.assertIn("copybutton.js", made["index.html"])
        for name, text in made.items():
            self.assertNotIn(str(ROOT), text, f"{name} has a path of this machine")
            self.assertNotIn("&lt;inline", text, f"{name} shows a node of docutils")

    def check_search(self, index):
        from sphinx.search.en import SearchEnglish

        english = SearchEnglish({})
        for words, page in PAGES_OF_WORDS.items():
            with self.subTest(words=words):
                self.assertIn(page, search(index, words, english)[: 1 if words == "hang" else 3])

    def check_sidebar(self, page):
        """At most nine entries in each of four groups."""
        tree = page[page.index('class="sidebar-tree"') :].partition("sidebar-drawer")[0]
        groups = re.split(r'<p class="caption"', tree)[1:]
        counts = [len(re.findall(r'<li class="toctree-l1', group)) for group in groups]
        self.assertEqual(len(counts), 4)
        self.assertLessEqual(max(counts), 9, counts)
        self.assertGreater(min(counts), 3, counts)

    def check_moved_pages(self, made):
        """The old place of a moved page has one line, which links to a heading that exists."""
        moved = [page for page in (ROOT / "docs").glob("*.md") if page.read_text("utf-8").startswith("Moved to ")]
        self.assertIn("stall.md", [page.name for page in moved])
        for page in moved:
            target = re.search(r'rel="canonical" href="([^"#]*)#?([^"]*)"', made[f"{page.stem}.html"])
            self.assertIn(target[1], made, page.name)
            self.assertIn(f'id="{target[2]}"', made[target[1]] if target[2] else 'id=""', page.name)

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
