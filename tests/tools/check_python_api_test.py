"""check_python_api.py finds planted faults."""

import pathlib
import tempfile
import unittest

import check_python_api

INNER = '''"""Inner."""


def shown(a, b: int = 1) -> int:
    return a


def hidden(a):
    return a


class Kept:
    def method(self, a: int) -> None:
        """Does nothing."""

    def _own(self, a):
        pass
'''


class CheckTest(unittest.TestCase):
    def test_it_finds_what_is_missing_and_nothing_else(self):
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder, "package")
            package.mkdir()
            (package / "_inner.py").write_text(INNER)
            (package / "__init__.py").write_text("from package._inner import shown, Kept\n")
            found = [line.split(": ", 1)[1] for line in check_python_api.check(package)]
        self.assertEqual(
            found,
            [
                "the module has no docstring",
                "shown has no docstring",
                "shown has no type hint for a",
                "Kept has no docstring",
            ],
        )


if __name__ == "__main__":
    unittest.main()
