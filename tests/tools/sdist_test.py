#!/usr/bin/python3 -B
"""The sdist has the repository's files with their contents, and nothing else of the folder.

HVD_TEST_WHEEL names an interpreter that has scikit-build-core.
"""

import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("HVD_TEST_WHEEL", "")
BUILD = "import sys, scikit_build_core.build as backend; backend.build_sdist(sys.argv[1])"


def files_of_the_repository():
    # Uncommitted files that git does not ignore go into an sdist too.
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    return {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}


class SdistTest(unittest.TestCase):
    def test_it_holds_the_repository(self):
        expected = files_of_the_repository()
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [PYTHON, "-c", BUILD, folder], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
            )
            self.assertEqual(done.returncode, 0, done.stderr[-2000:])
            (path,) = pathlib.Path(folder).glob("horovodrun-*.tar.gz")
            with tarfile.open(path) as sdist:
                held = {member.name.partition("/")[2]: member for member in sdist if member.isfile() or member.issym()}
                self.assertEqual(set(held) - {"PKG-INFO"}, expected)
                for name, member in held.items():
                    if name != "PKG-INFO":
                        self.assertEqual(sdist.extractfile(member).read(), (ROOT / name).read_bytes(), name)
                self.assertIn(b"\nName: horovodrun\n", b"\n" + sdist.extractfile(held["PKG-INFO"]).read())


if __name__ == "__main__":
    if not pathlib.Path(PYTHON).is_file():
        print("SKIP: HVD_TEST_WHEEL names no interpreter that has scikit-build-core")
        sys.exit(77)
    if files_of_the_repository() is None:
        print("SKIP: the tree is no clone of git")
        sys.exit(77)
    unittest.main()
