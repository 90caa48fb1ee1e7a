#!/usr/bin/python3 -B
"""summary.py counts ctest's results, and fails if a required test did not run."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

JUNIT = """<testsuite>
<testcase name="good" status="run"><system-out>fine</system-out></testcase>
<testcase name="bad" status="fail"><failure message=""/><system-out>why it failed</system-out>
</testcase>
<testcase name="away" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>
<system-out>SKIP: no such device</system-out></testcase>
<testcase name="unbuilt" status="notrun"><skipped message="Unable to find executable"/>
<system-out></system-out></testcase>
</testsuite>
"""


class Summary(unittest.TestCase):
    def summary(self, files, *options, required="*\n"):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "required").write_text(required)
            for name, text in files.items():
                (folder / name).write_text(text)
            done = subprocess.run(
                [
                    sys.executable,
                    "-B",
                    pathlib.Path(__file__).with_name("summary.py"),
                    "--required",
                    folder / "required",
                    *options,
                    *(folder / name for name in files),
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            return done.returncode, done.stdout

    def test_counts_and_reasons(self):
        code, output = self.summary({"asan.xml": JUNIT})
        self.assertEqual(code, 1)
        self.assertIn("SKIP asan.away: no such device\n", output)
        self.assertIn("why it failed", output)
        self.assertTrue(output.endswith("1 passed, 2 failed, 1 skipped\n"), output)

    def alone(self, first, *options):
        again = '<testsuite><testcase name="bad" status="run"/></testsuite>'
        only = f'<testsuite><testcase name="bad" status="fail">{first}</testcase></testsuite>'
        return self.summary({"release-e2e.xml": only, "release-e2e.alone.xml": again}, *options)

    def test_a_test_that_passes_only_alone_is_named(self):
        code, output = self.alone("<failure/><system-out>took too long</system-out>")
        self.assertEqual((code, output.splitlines()[-1]), (0, "1 passed, 0 failed, 0 skipped"))
        self.assertIn("PASSED ONLY ALONE bad; beside others: \n    took too long\n", output)

    def test_a_test_that_passes_only_alone_fails_a_release(self):
        code, output = self.alone("<failure/><system-out>took too long</system-out>", "--no-flaky")
        self.assertEqual((code, output.splitlines()[-1]), (1, "0 passed, 1 failed, 0 skipped"))
        self.assertIn("FAIL bad: passes only alone: ", output)

    def test_the_slowest_tests_are_listed(self):
        suite = (
            '<testsuite><testcase name="fast" status="run" time="0.1"/>'
            '<testcase name="slow" status="run" time="71.25"/></testsuite>'
        )
        _, output = self.summary({"tsan.xml": suite})
        self.assertLess(output.index("71.2 tsan.slow\n"), output.index("0.1 tsan.fast\n"))

    def test_tests_that_the_tier_left_out_are_counted(self):
        with tempfile.TemporaryDirectory() as build:
            pathlib.Path(build, "CTestTestfile.cmake").write_text(
                "\n".join(f"add_test({name} true)" for name in ("good", "e2e.a.b", "e2e.a.c"))
            )
            suite = '<testsuite><testcase name="good" status="run"/></testsuite>'
            _, output = self.summary({"release.xml": suite}, "--left-out-of", build)
        self.assertIn("Left out: 2 of e2e of this build;", output)

    def test_a_crash_is_not_forgiven(self):
        for first in (
            '<failure message="SEGFAULT"/>',
            "<failure/><system-out>WARNING: ThreadSanitizer: data race</system-out>",
        ):
            code, output = self.alone(first)
            self.assertEqual((code, output.splitlines()[-1]), (1, "0 passed, 1 failed, 0 skipped"))

    def test_a_test_that_fails_alone_too_failed(self):
        code, output = self.summary({"asan.xml": JUNIT, "asan.alone.xml": JUNIT})
        self.assertEqual((code, output.splitlines()[-1]), (1, "1 passed, 2 failed, 1 skipped"))

    def test_a_skip_alone_is_no_failure(self):
        code, output = self.summary({"a.txt": "PASS one\nSKIP gpu: no GPU here\n"})
        self.assertEqual((code, output.splitlines()[-1]), (0, "1 passed, 0 failed, 1 skipped"))

    def test_a_required_skip_fails(self):
        files = {"a.txt": "PASS one\nSKIP two: no hosts\n"}
        code, output = self.summary(files, "--strict")
        self.assertEqual((code, output.splitlines()[-1]), (1, "1 passed, 1 failed, 0 skipped"))
        code, _ = self.summary(files, "--strict", required="*\n!two\n")
        self.assertEqual(code, 0)

    def test_a_required_test_that_is_gone_fails(self):
        code, output = self.summary({"a.txt": "PASS one\n"}, "--strict", required="one\nthree\n")
        self.assertEqual(code, 1)
        self.assertIn("FAIL three: is required, but there is no such test", output)

    def test_nothing_run_is_a_failure(self):
        self.assertEqual(self.summary({"a.txt": ""})[0], 1)


if __name__ == "__main__":
    unittest.main()
