#!/usr/bin/python3 -B
"""check_language.py finds planted faults."""

import pathlib
import tempfile

import check_language

with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    planted = {
        "src/net/a.h": "// Who sends first waits. One.\nint a;  // of the link\n",
        "src/net/b.cpp": "// A queue. What it\n// holds is bounded.\nint b;\n",
        "python/c.py": "{0}Of a rank.{0}\n# So it ends.\n".format('"' * 3),
        "docs/d.md": "# So\n\nRanks meet. Whoever is late waits.\n\n    So --flag\n",
        "src/net/good.h": "// What is it? A link: what one sends, the other reads.\n",
        "tests/e.py": "# So what. A rank is told.\n",
        "rendezvous/f.cpp": '// The link is\n// told.\nfail("no key any "\n     "more");\nint is_told;\n',
        "rendezvous/h.h": "int rank = 0;  // who sends first\nint size = 0;  // of the link\n",
        "rendezvous/i.cpp": 'fail("what listens there is no server");\nfail("a port: what?");\n',
        "tests/net/j.cpp": 'TEST_CASE("What a link sends") {}\nTEST_CASE("it ends") { log("who is it"); }\n',
        "tests/e2e/k_test.py": "def test_of_two_links_one_is_closed():\n    pass\n\n\ndef test_a_rank_is_told():\n",
        "tests/quick.txt": "e2e.links.a_link_ends\ne2e.links.who_ends_it\n",
        "tests/net/run": "#!/usr/bin/python3 -B\n" + "{0}Of a rank.{0}\n".format('"' * 3),
        ".ci/run": "#!/bin/bash\n# So it runs.\n",
        "tests/fuzz/corpus/words": "# So it ends.\n",
        "docs/words.md": "A guardian ends ranks\nat the end of the lease, beside a `lease`.\nUse --lease; mend it.\n",
        "launcher/words.cpp": '// A guardian.\n#include "a/guardian.h"\nread("lease");\nfail("a world of one");\n',
        "rendezvous/g.h": "// A rank tells no more than it knows, nor any more than its agent.\n",
    }
    for name, text in planted.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    found = check_language.faults(root, [pathlib.Path(name) for name in planted])
    places = [each.split(": ")[0] for each in found]
    assert places == [
        "src/net/a.h:1",
        "src/net/b.cpp:1",
        "python/c.py:1",
        "python/c.py:2",
        "docs/d.md:3",
        "rendezvous/f.cpp:1",
        "rendezvous/f.cpp:3",
        "rendezvous/f.cpp:5",
        "rendezvous/h.h:1",
        "rendezvous/i.cpp:1",
        "tests/net/j.cpp:1",
        "tests/e2e/k_test.py:5",
        "tests/e2e/k_test.py:1",
        "tests/quick.txt:2",
        "tests/net/run:2",
        ".ci/run:2",
        "docs/words.md:1",
        "docs/words.md:2",
        "docs/words.md:2",
        "docs/words.md:3",
        "launcher/words.cpp:4",
    ], found
