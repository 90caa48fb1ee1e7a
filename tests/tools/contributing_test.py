#!/usr/bin/python3 -B
"""CONTRIBUTING.md names files that exist, each of its recipes is a list of at most ten steps, and three recipes name
exactly the files that a patch needs."""

import pathlib
import re
import shutil
import sys
import tempfile
import unittest

from contributing import recipes

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = ("a flag", "an observation", "a collective", "a backend", "a spawner", "a framework")


class Contributing(unittest.TestCase):
    def test_every_path_exists(self):
        paths = re.findall(r"`([\w.-]+(?:/[\w.-]+)+)`", TEXT)
        self.assertGreater(len(paths), 15)
        gone = [
            path
            for path in paths
            if "NAME" not in path and not path.startswith("build/") and not (ROOT / path).exists()
        ]
        self.assertEqual(gone, [])

    def test_every_recipe_is_there_and_has_at_most_ten_steps(self):
        guide = recipes.recipes(TEXT)
        self.assertEqual(tuple(guide), RECIPES)
        for name, steps in guide.items():
            self.assertEqual(list(steps), list(range(1, len(steps) + 1)), name)
            self.assertIn(len(steps), range(3, 11), name)

    def test_recipes_name_the_files_that_a_patch_changes_and_no_others(self):
        patches = recipes.patches()
        self.assertEqual(set(patches), {"collective", "flag", "observation", "spawner"})
        for name, patch in patches.items():
            self.assertTrue({f"a {name}", f"an {name}"} & set(patch.follows), name)
            self.assertEqual(list(recipes.faults(patch, recipes.recipes(TEXT))), [], name)

    def test_a_file_that_is_missing_in_a_recipe_or_in_a_patch_is_found(self):
        guide = {"a thing": {1: "Write `src/NAME.cpp` in `src/list.h`.\n", 2: "If it is large: `docs/large.md`.\n"}}
        for steps, files, found in [
            ("1", ["src/list.h", "src/new.cpp"], []),
            ("1", ["src/list.h"], ["src/NAME.cpp is named by a step, and is not changed"]),
            ("1", ["src/list.h", "src/new.cpp", "src/new.h"], ["src/new.h is changed, and no step names it"]),
            ("1 2", ["src/list.h", "src/new.cpp"], ["docs/large.md is named by a step, and is not changed"]),
            ("2", ["docs/large.md"], ["step 1 of a thing is left out: it begins with neither If nor For"]),
        ]:
            text = f"a thing: {steps}\n" + "".join(f"diff --git a/{file} b/{file}\n+++ b/{file}\n" for file in files)
            self.assertEqual(list(recipes.faults(recipes.Patch(text), guide)), found)

    def test_each_patch_applies(self):
        for name, patch in recipes.patches().items():
            with tempfile.TemporaryDirectory() as folder:
                for file in patch.files:
                    if (ROOT / file).exists():
                        pathlib.Path(folder, file).parent.mkdir(parents=True, exist_ok=True)
                        shutil.copy(ROOT / file, pathlib.Path(folder, file))
                self.assertIsNone(recipes.apply(name, folder))


if __name__ == "__main__":
    sys.exit(unittest.main())
