"""Compares frameworks' modules with api_table.py, and the pages of docs/api with generated ones.

api_test.py FRAMEWORK...            check, for example: torch numpy
api_test.py --write FRAMEWORK...    refresh the table and the pages for these frameworks
"""

import importlib
import pathlib
import re
import sys
import textwrap
import types
import unittest

import api_reference as reference
import api_table as table
import rank_base

HERE = pathlib.Path(__file__).resolve().parent
PAGES = HERE.parents[1] / "docs" / "api"
ADVICE = "run tests/python/api_test.py --write"


def by_framework():
    """Returns the table as {name: {framework: signature}}."""
    return {
        name: {
            framework: signature
            for words, signature in forms.items()
            for framework in (table.FRAMEWORKS if words == "all" else words.split())
        }
        for name, forms in table.SIGNATURES.items()
    }


def faults_of_names(framework, module, signatures):
    """Returns errors about names of the module that differ from the table, and about missing docstrings."""
    found = reference.public_names(module)
    listed = {name for name, forms in signatures.items() if framework in forms}
    for name in sorted(listed - set(found)):
        yield f"the table has {name}, and horovod.{framework} has not"
    for name in reference.left_out(module):
        yield f"horovod.{framework} shows {name}, and __all__ has it not: give it an underscore"
    for name, thing in sorted(found.items()):
        signature = reference.signature_of(thing)
        if name not in listed:
            yield f"horovod.{framework}.{name} is not in the table: {ADVICE} {framework}"
        elif signatures[name][framework] != signature:
            yield f"horovod.{framework}.{name} takes {signature}, and the table says {signatures[name][framework]}"
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
        yield f"ABSENT says that horovod.{framework} lacks {name}: the table has it, or nobody has"
    for name, framework in sorted({each for each in explained if explained.count(each) > 1}):
        yield f"ABSENT names {name} for {framework} twice"


def faults_of_page(path, text):
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        yield f"{path} is stale: {ADVICE}"


def rows(signatures):
    """Returns the lines of SIGNATURES: one signature for all frameworks that share it."""
    for name, forms in sorted(signatures.items()):
        lines = []
        for signature in dict.fromkeys(forms[each] for each in table.FRAMEWORKS if each in forms):
            words = [each for each in table.FRAMEWORKS if forms.get(each) == signature]
            key = '"all"' if words == table.FRAMEWORKS else f'"{" ".join(words)}"'
            if len(f'        {key}: "{signature}",') <= 120:
                lines.append(f'{key}: "{signature}",')
            else:
                parts = textwrap.wrap(signature, 100, drop_whitespace=False, break_on_hyphens=False)
                lines += [f"{key}:", *(f'    "{part}"' for part in parts)]
                lines[-1] += ","
        if len(lines) == 1 and len(name) + len(lines[0]) < 108:
            yield f'    "{name}": {{{lines[0][:-1]}}},'
        else:
            yield from (f'    "{name}": {{', *(f"        {line}" for line in lines), "    },")


def write(modules):
    signatures = by_framework()
    for framework, module in modules.items():
        for forms in signatures.values():
            forms.pop(framework, None)
        for name, thing in reference.public_names(module).items():
            signatures.setdefault(name, {})[framework] = reference.signature_of(thing)
        (PAGES / f"{framework}.md").write_text(reference.page(framework, module, table.VALUES), encoding="utf-8")
    signatures = {name: forms for name, forms in signatures.items() if forms}
    path = HERE / "api_table.py"
    text = path.read_text(encoding="utf-8")
    fresh = "SIGNATURES = {\n" + "".join(f"{line}\n" for line in rows(signatures)) + "}\n"
    path.write_text(re.sub(r"(?ms)^SIGNATURES = \{\n.*?^\}\n", lambda _: fresh, text), encoding="utf-8")
    (PAGES / "README.md").write_text(reference.index(table.FRAMEWORKS, signatures, table.ABSENT), encoding="utf-8")
    print("\n".join(faults_of_reasons(signatures, table.ABSENT)) or "each lack has its reason")


class TableTest(unittest.TestCase):
    maxDiff = None

    def test_names_signatures_and_docstrings_are_those_of_the_table(self):
        for framework, module in MODULES.items():
            self.assertEqual(list(faults_of_names(framework, module, by_framework())), [])

    def test_each_name_that_a_framework_lacks_has_a_reason(self):
        self.assertEqual(list(faults_of_reasons(by_framework(), table.ABSENT)), [])

    def test_the_pages_are_fresh(self):
        index = reference.index(table.FRAMEWORKS, by_framework(), table.ABSENT)
        self.assertEqual(list(faults_of_page(PAGES / "README.md", index)), [])
        for framework, module in MODULES.items():
            text = reference.page(framework, module, table.VALUES)
            self.assertEqual(list(faults_of_page(PAGES / f"{framework}.md", text)), [])


class PlantedTest(unittest.TestCase):
    """Finds each planted fault."""

    def setUp(self):
        def send(tensor: int, name: str = "a", *, op: int = 1) -> int:
            """Sends."""

        self.module = types.ModuleType("planted", "A module.")
        self.module.__all__ = ["send"]
        self.module.send = send
        self.signatures = {"send": {"numpy": "(tensor, name='a', *, op=Sum)"}}

    def faults(self):
        return list(faults_of_names("numpy", self.module, self.signatures))

    def test_names(self):
        self.assertEqual(self.faults(), [])
        self.signatures["receive"] = {"numpy": "()"}
        self.assertRegex("\n".join(self.faults()), "^the table has receive, and horovod.numpy has not$")
        del self.signatures["receive"]
        self.module.wait = lambda: None
        self.assertRegex("\n".join(self.faults()), "^horovod.numpy shows wait")
        self.module.__all__ += ["wait"]
        self.assertRegex("\n".join(self.faults()), "^horovod.numpy.wait is not in the table.*\n.*no docstring$")
        del self.module.__all__[1], self.module.wait
        self.signatures["send"]["numpy"] = "(tensor)"
        self.assertRegex("\n".join(self.faults()), r"^horovod.numpy.send takes \(tensor, name='a', .*\(tensor\)$")

    def test_reasons(self):
        others = " ".join(each for each in table.FRAMEWORKS if each != "numpy")
        right = (others, "send", "it is planted")
        self.assertEqual(list(faults_of_reasons(self.signatures, [right])), [])
        self.assertEqual(len(list(faults_of_reasons(self.signatures, []))), len(others.split()))
        for wrong, words in [("numpy", "the table has it"), ("torch", "send for torch twice")]:
            found = list(faults_of_reasons(self.signatures, [right, (wrong, "send", "")]))
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
