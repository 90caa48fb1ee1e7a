#!/usr/bin/python3 -B
"""docs/c-api.md has each public header, and the headers explain each function and each struct."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = sorted((ROOT / "include" / "horovod").glob("*.h*"))
EXPORTS = ROOT / "src" / "runtime" / "libhorovod.map"
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
DECLARATION = re.compile(r"^(?:HVD_API [^;]*?\b(hvd_\w+)\(|typedef (?:struct|enum) (hvd_\w+) \{)", re.M)


def unexplained(text):
    """Returns functions and types without a comment of their own, of their paragraph or of its heading."""
    for found in DECLARATION.finditer(text):
        above = text[: found.start()]
        paragraph = above[above.rfind("\n\n") + 1 :]
        heading = above.rstrip().endswith("---- */")
        body = text[found.end() : text.find("}", found.end())] if found[2] else ""
        fields = [line for line in body.splitlines() if line.strip()]
        line = text[found.start() : text.find("\n", found.start())]
        names_values = found[2] and all("=" in field for field in fields)
        if not (COMMENT.search(paragraph + line + body) or heading or names_values):
            yield found[1] or found[2]


class HeadersTest(unittest.TestCase):
    def test_the_page_includes_each_header(self):
        page = (ROOT / "docs" / "c-api.md").read_text("utf-8")
        included = re.findall(r"```\{literalinclude\} \.\./include/horovod/(\S+)\n:language: (c|cpp)\n```\n", page)
        names = [path.name for path in HEADERS if path.suffix in (".h", ".hpp")]
        self.assertGreaterEqual(len(names), 7)
        self.assertEqual(sorted(name for name, _ in included), names)

    def test_functions_and_types_are_explained(self):
        for path in HEADERS:
            self.assertEqual(list(unexplained(path.read_text("utf-8"))), [], path.name)

    def test_the_header_declares_what_the_library_exports(self):
        declared = {
            found[1]
            for found in DECLARATION.finditer((ROOT / "include/horovod/horovod.h").read_text("utf-8"))
            if found[1]
        }
        exported = set(re.findall(r"\bhvd_\w+", EXPORTS.read_text("utf-8")))
        self.assertGreater(len(declared), 30)
        self.assertEqual(declared - exported, set())
        self.assertIn("hvd_wait", declared & exported)

    def test_a_function_without_a_comment_is_found(self):
        text = "/* Waits. */\nHVD_API int hvd_wait(void);\n\nHVD_API int hvd_poll(int32_t* done,\n  int size);\n"
        self.assertEqual(list(unexplained(text)), ["hvd_poll"])
        text = "\ntypedef struct hvd_pair {\n  int a;\n  int b;\n} hvd_pair;\n"
        self.assertEqual(list(unexplained(text)), ["hvd_pair"])


if __name__ == "__main__":
    unittest.main()
