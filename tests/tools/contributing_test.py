#!/usr/bin/python3 -B
"""CONTRIBUTING.md names files that exist, and each of its recipes is a list of at most ten steps."""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = ("a flag", "a collective", "a backend", "a spawner", "a framework")


class Contributing(unittest.TestCase):
    def test_every_path_exists(self):
        paths = re.findall(r"`([\w.-]+(?:/[\w.-]+)+)`", TEXT)
        self.assertGreater(len(paths), 15)
        gone = [path for path in paths if "NAME" not in path and not path.startswith("build/")
                and not (ROOT / path).exists()]
        self.assertEqual(gone, [])

    def test_every_recipe_is_there_and_has_at_most_ten_steps(self):
        sections = dict(re.findall(r"(?ms)^## How to add ([^\n]+)\n(.*?)(?=^## |\Z)", TEXT))
        self.assertEqual(tuple(sections), RECIPES)
        for name, body in sections.items():
            steps = [int(number) for number in re.findall(r"(?m)^(\d+)\. ", body)]
            self.assertEqual(steps, list(range(1, len(steps) + 1)), name)
            self.assertIn(len(steps), range(3, 11), name)


if __name__ == "__main__":
    sys.exit(unittest.main())
