#!/usr/bin/python3 -B
"""Checks that the sources contain each message of docs/troubleshooting.md, so that a search finds it."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("launcher", "plugins", "python", "rendezvous", "src")
# A literal that continues on the next line, and a value between two literals of one message.
BROKEN = re.compile(r'"\s*\n\s*"')


def messages(page):
    """Returns the first cells of the tables of messages, without the dots that stand for names."""
    found = []
    for line in page.splitlines():
        cell = re.match(r"\| (`[^`]+`)(?: …)? \|", line)
        if cell:
            found += [part.strip() for part in cell[1].strip("`").split("…")]
    return [part for part in found if part]


def missing(parts, sources):
    return [part for part in parts if part not in sources]


class TroubleshootingTest(unittest.TestCase):
    def test_every_message_is_in_the_sources(self):
        sources = "\n".join(
            BROKEN.sub("", path.read_text(encoding="utf-8")).replace('\\"', '"')
            for folder in FOLDERS
            for path in sorted((ROOT / folder).rglob("*"))
            if path.suffix in (".cpp", ".h", ".py")
        )
        parts = messages((ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8"))
        self.assertGreater(len(parts), 20)
        self.assertEqual(missing(parts, sources), [])

    def test_the_message_of_the_module_files_is_theirs(self):
        page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
        sentence = re.search(r"^\| Lmod, Environment Modules \| `([^`]+)` \|", page, re.M)[1]
        for name in ("module.lua.in", "module.tcl.in"):
            self.assertIn(sentence, (ROOT / "packaging/modulefiles" / name).read_text(encoding="utf-8"))

    def test_a_message_that_is_not_there_is_found(self):
        page = "| message | meaning |\n|---|---|\n| `is here … and not there` | x |\n| `here` … | y |\n"
        self.assertEqual(messages(page), ["is here", "and not there", "here"])
        self.assertEqual(missing(messages(page), 'cat("this is here", name)'), ["and not there"])


if __name__ == "__main__":
    unittest.main()
