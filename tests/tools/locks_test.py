#!/usr/bin/python3 -B
"""Locks are Mutex of src/base/mutex.h, and clang refuses an unguarded access."""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLANG = "clang++-14"
FOLDERS = ("src", "rendezvous", "launcher", "plugins", "python")
HEADER = "src/base/mutex.h"
PROGRAM = """
#include "base/mutex.h"
struct Counter {{
  void add() {{ {before} ++count_; }}
  hvd::Mutex mutex_;
  int count_ HVD_GUARDED_BY(mutex_) = 0;
}};
"""


def compiled(before):
    return subprocess.run(
        [CLANG, "-std=c++20", f"-I{ROOT}/src", "-Wthread-safety", "-Werror", "-fsyntax-only", "-x", "c++", "-"],
        input=PROGRAM.format(before=before),
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


class Locks(unittest.TestCase):
    def test_no_other_mutex_is_declared(self):
        declared = []
        for folder in FOLDERS:
            for path in (ROOT / folder).rglob("*"):
                name = str(path.relative_to(ROOT))
                if path.suffix not in (".h", ".cpp") or name == HEADER:
                    continue
                code = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
                if re.search(r"std::(?:(?:shared_|recursive_|timed_)?mutex [a-z]|lock_guard|scoped_lock)", code):
                    declared.append(name)
        self.assertEqual(declared, [], f"use Mutex and MutexLock of {HEADER}")

    def test_no_comment_stands_for_an_annotation(self):
        commented = []
        for folder in (*FOLDERS, "tests"):
            for path in (ROOT / folder).rglob("*"):
                if path.suffix in (".h", ".cpp") and re.search(
                    r"//.*\b(guarded by \w*mutex|guards all below)", path.read_text(encoding="utf-8")
                ):
                    commented.append(str(path.relative_to(ROOT)))
        self.assertEqual(commented, [], "say HVD_GUARDED_BY(mutex) in place of the comment")

    @unittest.skipUnless(shutil.which(CLANG), f"there is no {CLANG}")
    def test_clang_refuses_an_access_without_the_lock(self):
        guarded = compiled("hvd::MutexLock lock(mutex_);")
        self.assertEqual(guarded.returncode, 0, guarded.stderr)
        unguarded = compiled("")
        self.assertNotEqual(unguarded.returncode, 0)
        self.assertIn("requires holding mutex 'mutex_'", unguarded.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
