#!/usr/bin/python3 -B
"""tidy.py finds planted faults in plain and in unity builds, and nothing else."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent
ROOT = TOOLS.parents[1]
CLEAN = "int twice(int number) { return 2 * number; }\n"
# This code triggers bugprone-branch-clone.
PLANTED = "int seven(bool is_so) {\n  if (is_so)\n    return 7;\n  else\n    return 7;\n}\n"


class Tidy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copy(ROOT / ".clang-tidy", self.root)

    def tidied(self, **compiled):
        """Returns the exit code and the output for compiled files, by path."""
        commands = []
        for name, text in compiled.items():
            path = self.root / name.replace("__", "/").replace("_cpp", ".cpp")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            commands.append(
                {"directory": str(self.root), "file": str(path), "command": f"clang++-14 -std=c++20 -c {path}"}
            )
        (self.root / "compile_commands.json").write_text(json.dumps(commands))
        ran = subprocess.run(
            [TOOLS / "tidy.py", "--root", self.root, self.root, "src"],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=200,
        )
        return ran.returncode, ran.stdout

    def test_a_clean_tree_has_no_findings(self):
        self.assertEqual(self.tidied(src__clean_cpp=CLEAN), (0, "clang-tidy: 0 findings in 1 files\n"))

    def test_a_finding_is_printed_and_counted(self):
        code, output = self.tidied(src__clean_cpp=CLEAN, src__planted_cpp=PLANTED)
        self.assertEqual(code, 1)
        self.assertIn("src/planted.cpp:2:3: error: if with identical then and else branches", output)
        self.assertIn("clang-tidy: 1 findings in 2 files\n", output)

    def test_a_source_of_a_unity_build_is_read(self):
        source = self.root / "src/planted.cpp"
        code, output = self.tidied(
            build__Unity__unity_cpp=f'#include "{source}"\n', tests__x_cpp=PLANTED, src__planted_cpp=PLANTED
        )
        self.assertEqual(code, 1)
        self.assertIn("clang-tidy: 1 findings in 1 files\n", output)

    def test_another_folder_and_what_is_generated_are_left_out(self):
        code, output = self.tidied(src__clean_cpp=CLEAN, build__generated_cpp=PLANTED)
        self.assertEqual((code, output), (0, "clang-tidy: 0 findings in 1 files\n"))

    def test_a_file_that_does_not_compile_is_named(self):
        code, output = self.tidied(src__broken_cpp="int broken( {\n")
        self.assertEqual(code, 1)
        self.assertIn("src/broken.cpp:1:", output)


if __name__ == "__main__":
    if not shutil.which("clang-tidy-14"):
        print("SKIP: there is no clang-tidy-14: packaging/packages-test.txt names its package")
        sys.exit(77)
    unittest.main()
