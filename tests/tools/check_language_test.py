#!/usr/bin/python3 -B
"""check_language.py finds what is planted."""
import pathlib
import tempfile

import check_language

with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    planted = {
        "src/net/a.h": "// Who sends first waits. One.\nint a;  // of the link\n",
        "src/net/b.cpp": "// A queue. What it\n// holds is bounded.\nint b;\n",
        "plugins/python/c.py": '{0}Of a rank.{0}\n# So it ends.\n'.format('"' * 3),
        "docs/d.md": "# So\n\nRanks meet. Whoever is late waits.\n\n    So --flag\n",
        "src/net/good.h": "// What is it? A link: what one sends, the other reads.\n",
        "tests/e.py": "# So what. A rank is told.\n",
        "rendezvous/f.cpp": '// The link is\n// told.\nfail("no key any "\n     "more");\nint is_told;\n',
        "rendezvous/g.h": "// A rank tells no more than it knows, nor any more than its agent.\n",
    }
    for name, text in planted.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    found = check_language.faults(root, [pathlib.Path(name) for name in planted])
    places = [each.split(": ")[0] for each in found]
    assert places == ["src/net/a.h:1", "src/net/b.cpp:1", "plugins/python/c.py:1", "plugins/python/c.py:2",
                      "docs/d.md:3", "rendezvous/f.cpp:1", "rendezvous/f.cpp:3"], found
