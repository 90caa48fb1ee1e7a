#!/usr/bin/python3 -B
"""Each shell block of the pages has a label (blocks.py), and pages include programs instead of copying them."""

import pathlib
import re
import subprocess
import unittest

from blocks import ROOT, blocks_of, difference, fences

# blocks_of has each page; the other pages are generated from tables and docstrings.
GENERATED = ("docs/settings.md", "docs/api/")


def pages():
    yield pathlib.Path("README.md")
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if not str(path.relative_to(ROOT)).startswith((*GENERATED, "docs/design/")):
            yield path.relative_to(ROOT)


class BlocksTest(unittest.TestCase):
    def test_each_block_of_the_pages_has_a_label(self):
        faults = [fault for page in pages() for fault in blocks_of(page, (ROOT / page).read_text("utf-8"))[1]]
        self.assertEqual(faults, [])

    def test_each_program_of_the_tutorials_is_included(self):
        text = "".join((ROOT / page).read_text("utf-8") for page in pages() if "tutorials" in page.parts)
        for program in sorted((ROOT / "examples/tutorials").glob("*.*")):
            if program.suffix != ".md" and program.name != "digits.py":
                self.assertIn(f"{{literalinclude}} ../../examples/tutorials/{program.name}\n", text)

    def test_no_page_copies_a_program(self):
        listed = subprocess.run(["git", "ls-files", "examples"], cwd=ROOT, capture_output=True, text=True, check=False)
        lines = {
            line
            for name in listed.stdout.splitlines()
            if name.endswith((".py", ".c", ".cpp", ".rs"))
            for line in (ROOT / name).read_text("utf-8").splitlines()
            if len(line.strip()) > 30
        }
        for page in pages():
            for line, info, content in fences((ROOT / page).read_text("utf-8")):
                if info and not info.startswith("{"):
                    copied = [each for each in content.splitlines() if each in lines]
                    self.assertLess(len(copied), 3, f"{page}:{line}: include the file: {copied[:3]}")

    def test_one_page_says_what_has_not_run(self):
        """Other pages link to the table of docs/support-matrix.md, and must not list the state of each part."""
        of_table = re.compile(r"not run yet|ha(s|ve) never run|nobody has (run|built)|no test runs|tests cannot", re.I)
        allowed = {"README.md", "docs/index.md", "docs/support-matrix.md"}
        faults = [
            f"{page}:{number}: link to support-matrix.md#not-run-yet instead: {line}"
            for page in pages()
            if str(page) not in allowed
            for number, line in enumerate((ROOT / page).read_text("utf-8").splitlines(), 1)
            if of_table.search(line)
        ]
        self.assertEqual(faults, [])

    def test_the_first_screen_of_the_readme_says_why(self):
        screen, *others = re.split(r"(?m)^## ", (ROOT / "README.md").read_text("utf-8"))
        reasons = re.findall(r"(?m)^- \*\*[^*]+\.\*\* (.+(?:\n  .+)*)", screen)
        self.assertEqual(len(reasons), 3, screen)
        for reason in reasons:
            self.assertRegex(reason, r"\d")
        self.assertLess(len(screen.splitlines()), 45)
        self.assertEqual([each.partition("\n")[0] for each in others[:3]], ["Install", "Try it", "Use"])

    def test_the_page_of_containers_begins_with_the_user_s_image(self):
        _, first, *_ = re.split(r"(?m)^## ", (ROOT / "docs/tutorials/containers.md").read_text("utf-8"))
        (block,) = re.findall(r"(?ms)^```dockerfile\n(.*?)^```", first)
        self.assertTrue(first.startswith("Your image and our wheel\n"), first)
        self.assertEqual([line.split()[0] for line in block.splitlines()], ["FROM", "COPY", "RUN", "COPY"])
        self.assertIn("pip install /tmp/horovodrun-*.whl", block)

    def test_each_library_of_hugging_face_has_a_command_and_its_output(self):
        page = (ROOT / "docs/tutorials/huggingface.md").read_text("utf-8")
        self.assertIn("| `accelerate launch ", page)
        sections = dict(re.findall(r"(?ms)^## ([^\n]+)\n(.*?)(?=^## |\Z)", page))
        for name in ("Accelerate", "Trainer", "Lightning"):
            run = r"(?s)```sh run python=\w+\n[^`]*horovodrun -np 2 .*?```\n\n```text unordered\n[^`]*test accuracy 0.9"
            self.assertRegex(sections[name], run, name)

    def fault(self, text):
        blocks, faults = blocks_of(pathlib.Path("page.md"), text)
        self.assertEqual(len(faults), 1, faults)
        return faults[0]

    def test_faults_are_found(self):
        self.assertIn(
            "page.md:3: one label of run, hosts, by, norun expected, found: none",
            self.fault("Text\n\n```sh\ntrue\n```\n"),
        )
        self.assertIn("found: run norun", self.fault('```sh run norun="x y"\ntrue\n```\n'))
        self.assertIn("unknown label fast", self.fault("```sh run fast\ntrue\n```\n"))
        self.assertIn("the label norun lacks its value", self.fault("```sh norun\ntrue\n```\n"))
        self.assertIn("does not name page.md", self.fault("```sh by=tests/docs/README.md\ntrue\n```\n"))
        self.assertIn("an indented block has no label", self.fault("Text\n\n    horovodrun\n"))
        self.assertIn("a block without a language", self.fault("```\ntrue\n```\n"))
        self.assertIn("instead of ```bash", self.fault("```bash\ntrue\n```\n"))

    def test_sentences_without_a_fault(self):
        blocks, faults = blocks_of(
            pathlib.Path("page.md"),
            "- Item\n\n    of a list\n\n```sh run fails=3\nexit 3\n"
            "```\n\n```text unordered\nb\na\n```\n\n```json\n{}\n```\n",
        )
        self.assertEqual(faults, [])
        self.assertEqual(
            (blocks[0].labels, blocks[0].expected, blocks[0].is_unordered),
            ({"run": "", "fails": "3"}, ["b", "a"], True),
        )
        blocks, faults = blocks_of(pathlib.Path("page.md"), "```sh run\ntrue\n```\n\nWords.\n\n```text\nb\n```\n")
        self.assertEqual((faults, blocks[0].expected), ([], None))

    def test_the_output_of_a_block(self):
        same = [
            (["a", "b"], ["a", "b "], False),
            (["a …d", "…"], ["a b c d", "e", "f"], False),
            (["…", "z"], ["z"], False),
            (["b", "a"], ["a", "b"], True),
            (["a…", "…", "ab"], ["ab", "ac", "x"], True),
        ]
        for expected, printed, is_unordered in same:
            self.assertIsNone(difference(expected, printed, is_unordered), expected)
        different = [
            (["a"], ["a", "b"], False),
            (["a", "b"], ["b", "a"], False),
            (["a+"], ["aa"], False),
            (["…", "z"], ["y"], False),
            (["a"], ["a", "a"], True),
            (["a", "a"], ["a"], True),
            ([], ["x"], False),
        ]
        for expected, printed, is_unordered in different:
            self.assertIsNotNone(difference(expected, printed, is_unordered), expected)


if __name__ == "__main__":
    unittest.main()
