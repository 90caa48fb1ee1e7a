#!/usr/bin/python3 -B
"""The quick tier (tests/quick.txt) names tests that exist, and at least one test of each end-to-end file."""

import pathlib
import re
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
# All their cases take long, or need software that the quick tier does not install.
WITHOUT = {
    "gpu_bundle",
    "grid_engine",
    "link_faults",
    "live_line",
    "newer_slurm",
    "original_horovod",
    "pictures",
    "soak",
    "stacks",
    "stragglers",
    "yama",
}


def cases():
    """Returns each end-to-end file's stem with the names of its cases."""
    return {
        path.name.removesuffix("_test.py"): re.findall(r"(?m)^def test_(\w+)", path.read_text(encoding="utf-8"))
        for path in (TESTS / "e2e").glob("*_test.py")
    }


def chosen():
    lines = (TESTS / "quick.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


class QuickTier(unittest.TestCase):
    def test_each_name_is_a_test(self):
        names = {f"e2e.{area}.{case}" for area, found in cases().items() for case in found}
        self.assertEqual([name for name in chosen() if name not in names], [])

    def test_names_are_sorted_and_stand_once(self):
        self.assertEqual(chosen(), sorted(set(chosen())))

    def test_each_area_has_a_case(self):
        areas = {name.split(".")[1] for name in chosen()}
        self.assertEqual(set(cases()) - WITHOUT - areas, set())


if __name__ == "__main__":
    sys.exit(unittest.main())
