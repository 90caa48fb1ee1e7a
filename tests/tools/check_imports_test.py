#!/usr/bin/python3 -B
"""check_imports.py finds planted cycles."""

import pathlib
import tempfile

import check_imports

with tempfile.TemporaryDirectory() as folder:
    package = pathlib.Path(folder, "p")
    planted = {
        "__init__.py": "from p import base",
        "base.py": "import os",
        "a.py": "def late():\n    from p.sub import b",
        "sub/__init__.py": "from p import base",
        "sub/b.py": "from .. import a\nfrom . import c",
        "sub/c.py": "import p.base",
    }
    for name, text in planted.items():
        (package / name).parent.mkdir(exist_ok=True, parents=True)
        (package / name).write_text(text)
    count, found = check_imports.faults(package)
    assert count == 6, count
    assert found == ["modules import each other in a circle: p.a imports p.sub.b; p.sub.b imports p.a"], found
    (package / "a.py").write_text("from p.base import os")
    assert check_imports.faults(package) == (6, [])
