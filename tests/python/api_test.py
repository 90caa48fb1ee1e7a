"""Compares the pages of docs/api with the frameworks' modules: every public name, its signature and docstring.

api_test.py FRAMEWORK...            check, for example: torch numpy
api_test.py --write FRAMEWORK...    refresh the pages for these frameworks
"""

import difflib
import importlib
import pathlib
import sys
import types
import unittest

import api_reference as reference
import api_table as table
import rank_base

HERE = pathlib.Path(__file__).resolve().parent
ADVICE = "run tests/python/api_test.py --write"


def faults_of_names(framework, module):
    """Returns errors about names of the module that `__all__` lacks, and about missing docstrings."""
    for name in reference.left_out(module):
        yield f"horovod.{framework} shows {name}, and __all__ has it not: give it an underscore"
    for name, thing in sorted(reference.public_names(module).items()):
        if not (reference.words_of(thing) or table.VALUES.get(name)):
            yield f"horovod.{framework}.{name} has no docstring"


def faults_of_reasons(signatures, absent):
    """Returns errors about names that a framework lacks without a reason, and about stale reasons."""
    lacking = {
        (name, framework)
        for name, forms in signatures.items()
        for framework in table.FRAMEWORKS
        if framework not in forms
    }
    explained = [
        (name, framework)
        for frameworks, names, _ in absent
        for name in names.split()
        for framework in frameworks.split()
    ]
    for name, framework in sorted(lacking - set(explained)):
        yield f"ABSENT has no reason why horovod.{framework} lacks {name}"
    for name, framework in sorted(set(explained) - lacking):
        yield f"ABSENT says that horovod.{framework} lacks {name}: the page has it, or nobody has"
    for name, framework in sorted({each for each in explained if explained.count(each) > 1}):
        yield f"ABSENT names {name} for {framework} twice"


def faults_of_page(path, text):
    old = path.read_text(encoding="utf-8") if path.is_file() else ""
    if old != text:
        yield f"{path} is stale: {ADVICE}"
        yield from difflib.unified_diff(old.splitlines(), text.splitlines(), "page", "module", lineterm="", n=0)


def index():
    return reference.index(table.FRAMEWORKS, table.signatures(), table.ABSENT)


def write(modules):
    for framework, module in modules.items():
        (table.PAGES / f"{framework}.md").write_text(reference.page(framework, module, table.VALUES), encoding="utf-8")
    (table.PAGES / "README.md").write_text(index(), encoding="utf-8")
    print("\n".join(faults_of_reasons(table.signatures(), table.ABSENT)) or "each lack has its reason")


class PagesTest(unittest.TestCase):
    maxDiff = None

    def test_names_are_exported_and_have_docstrings(self):
        for framework, module in MODULES.items():
            self.assertEqual(list(faults_of_names(framework, module)), [])

    def test_each_name_that_a_framework_lacks_has_a_reason(self):
        self.assertEqual(list(faults_of_reasons(table.signatures(), table.ABSENT)), [])

    def test_the_pages_are_fresh(self):
        self.assertEqual(list(faults_of_page(table.PAGES / "README.md", index())), [])
        for framework, module in MODULES.items():
            text = reference.page(framework, module, table.VALUES)
            self.assertEqual(list(faults_of_page(table.PAGES / f"{framework}.md", text)), [])


class PlantedTest(unittest.TestCase):
    """Finds each planted fault."""

    def setUp(self):
        def send(tensor: int, name: str = "a", *, op: int = 1) -> int:
            """Sends."""

        self.module = types.ModuleType("planted", "A module.")
        self.module.__all__ = ["send"]
        self.module.send = send

    def test_names(self):
        self.assertEqual(list(faults_of_names("numpy", self.module)), [])
        self.module.wait = lambda: None
        self.assertRegex("\n".join(faults_of_names("numpy", self.module)), "^horovod.numpy shows wait")
        self.module.__all__ += ["wait"]
        self.assertEqual(list(faults_of_names("numpy", self.module)), ["horovod.numpy.wait has no docstring"])

    def test_reasons(self):
        others = " ".join(each for each in table.FRAMEWORKS if each != "numpy")
        right = (others, "send", "it is planted")
        signatures = {"send": {"numpy": "(tensor, name='a', *, op=Sum)"}}
        self.assertEqual(list(faults_of_reasons(signatures, [right])), [])
        self.assertEqual(len(list(faults_of_reasons(signatures, []))), len(others.split()))
        for wrong, words in [("numpy", "the page has it"), ("torch", "send for torch twice")]:
            found = list(faults_of_reasons(signatures, [right, (wrong, "send", "")]))
            self.assertRegex("\n".join(found), f"^ABSENT.*{words}[^\n]*$")

    def test_pages(self):
        text = reference.page("numpy", self.module, {})
        self.assertIn("    hvd.send(tensor: int, name: str = 'a', *, op: int = Sum) -> int\n\nSends.\n", text)
        self.assertRegex("".join(faults_of_page(HERE / "api_test.py", text)), "api_test.py is stale")


if __name__ == "__main__":
    NAMES = [each for each in sys.argv[1:] if each != "--write"]
    MODULES = {each: rank_base.need(each) and importlib.import_module(f"horovod.{each}") for each in NAMES}
    if "--write" in sys.argv:
        write(MODULES)
    else:
        unittest.main(argv=sys.argv[:1], verbosity=2)
