#!/usr/bin/python3 -B
"""check_words.py finds planted faults."""

import pathlib
import tempfile

import check_words

with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    planted = {
        "src/collectives/shm/arena.h": "class Arena {\n};\n",
        "src/a.h": "struct Task {\n};\n",
        "launcher/b.cpp": "namespace {\nclass Task final : public Base {\n};\n}\nstruct Plugin {\n};\n",
        "launcher/e.cpp": "struct Plugin {\n};\nenum class Phase : int { kOne };\n",
        "launcher/f.h": "class Outer {\n  struct Task {\n  };\n};\nstruct StackChannel {\n};\n",
        "src/g.h": "enum Phase {\n};\n",
        "tests/h.h": "struct Phase {\n};\n",
        "launcher/lobby.py": "",
        "src/c.h": "class Engine;\nstruct Entry {\n};\n// a baton, a trial, an arena\n",
        "src/d.cpp": 'int kBatonSize = 1;  // a lobby\nint the_guest_;\nfail("in a baton");\nint again_vainly;\n',
        "src/i.cpp": "int said_;  // as it says\n",
        "tests/i.cpp": "int said_;\n",
    }
    for name, text in planted.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    found = check_words.faults(root, [pathlib.Path(name) for name in planted])
    assert len(found) == 10, found
    assert found[0] == "src/collectives/shm/arena.h: the name arena is replaced by: shared_region"
    assert found[1].startswith("src/collectives/shm/arena.h:1: Arena: 'arena'"), found
    assert found[2].startswith("src/collectives/shm/arena.h:1: the class name Arena"), found
    assert found[3].startswith("launcher/lobby.py: the name lobby"), found
    assert found[4] == "src/d.cpp:1: kBatonSize: 'baton' is replaced by: progress_lock", found
    assert found[5].startswith("src/d.cpp:2: the_guest_: 'guest'"), found
    assert found[6].startswith("src/i.cpp:1: said_: 'said' is replaced by"), found
    assert found[7].startswith("class Phase has 2 definitions (launcher/e.cpp, src/g.h)"), found
    assert found[8].startswith("class Task has 2 definitions (launcher/b.cpp, src/a.h)"), found
    assert found[9] == "class StackChannel has one definition: take it from SAME_NAME", found
