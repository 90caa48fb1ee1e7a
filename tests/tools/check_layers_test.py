#!/usr/bin/python3 -B
"""check_layers finds planted faults, and nothing in a correct tree."""

import graphlib
import pathlib
import tempfile
import unittest

import check_layers

ORDERLY = {
    "include/horovod/types.h": "#pragma once\n#include <stdint.h>\n",
    "src/base/status.h": '#pragma once\n#include <string>\n#include "horovod/types.h"\n',
    "src/base/settings.cpp": '#include "base/status.h"\nchar* f() { return getenv("A"); }\n',
    "src/net/asio.h": "#pragma once\n#include <boost/asio.hpp>\n",
    "src/plugin/catalogue.h": "#pragma once\n",
    "src/plugin/library.h": "#pragma once\n",
    "src/runtime/capi/api.cpp": "static Runtime* runtime = nullptr;\n",
    "src/collectives/ring.h": "#pragma once\n",
    "rendezvous/store/store.h": "#pragma once\n",
    "launcher/plan/hosts.cpp": '#include "plugin/catalogue.h"\n#include "rendezvous/store/store.h"\n',
    "plugins/ops/cpu/cpu.cpp": '#include "cpu.h"\n#include "collectives/ring.h"\n',
    "plugins/ops/cpu/cpu.h": "#pragma once\n",
    "plugins/controllers/tcp/tcp.h": "#pragma once\n",
}


class CheckLayers(unittest.TestCase):
    def problems(self, planted=None, check=check_layers.check):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {**ORDERLY, **(planted or {})}.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            for name in check_layers.folders(root):
                if not (root / name / "README.md").exists():
                    (root / name / "README.md").write_text("# it\n")
            return list(check(root))

    def finds(self, file, text, words):
        problems = self.problems({file: text})
        self.assertTrue(
            any(where == file and words in what for where, _, what in problems),
            f"{words!r} in {file} is not among {problems}",
        )

    def test_a_tree_in_order_has_no_problem(self):
        self.assertEqual(self.problems(), [])

    def test_a_permission_that_no_file_uses_is_found(self):
        dead = [what for _, _, what in self.problems(check=check_layers.dead_permissions)]
        self.assertTrue(any("lets launcher include fmt" in what for what in dead), dead)
        self.assertFalse(any("lets src/net include boost" in what for what in dead), dead)

    def test_a_back_edge_is_found(self):
        self.finds("src/base/a.h", '#include "net/asio.h"\n', "src/base may not include src/net")
        self.finds("src/net/a.h", '#include "rendezvous/store/store.h"\n', "may not include rendezvous")
        self.finds("src/plugin/a.h", '#include "net/asio.h"\n', "may not include src/net")

    def test_the_launcher_and_the_runtime_do_not_know_each_other(self):
        self.finds("launcher/a.cpp", '#include "runtime/capi/api.cpp"\n', "may not include src/runtime")
        self.finds("src/runtime/a.cpp", '#include "launcher/plan/hosts.cpp"\n', "not include launcher")

    def test_a_plugin_knows_neither_runtime_nor_rendezvous_nor_another_plugin(self):
        file = "plugins/ops/cpu/a.cpp"
        self.finds(file, '#include "runtime/capi/api.cpp"\n', "may not include src/runtime")
        self.finds(file, '#include "rendezvous/store/store.h"\n', "may not include rendezvous")
        self.finds(file, '#include "plugins/controllers/tcp/tcp.h"\n', "may not include plugins/controllers/tcp")

    def test_backends_share_a_folder_that_others_may_not_include(self):
        shared = {"plugins/ops/common/queue.h": "#pragma once\n"}
        text = '#include "ops/common/queue.h"\n'
        for file in ("plugins/ops/cpu/a.cpp", "plugins/ops/gloo/a.cpp", "plugins/mpi/a.cpp"):
            self.assertEqual(self.problems({**shared, file: text}), [])
        for file in ("plugins/controllers/tcp/a.cpp", "python/native/a.cpp"):
            problems = self.problems({**shared, file: text})
            self.assertTrue(any("may not include plugins/ops/common" in what for _, _, what in problems), problems)
        problems = self.problems(
            {
                **shared,
                "plugins/ops/gloo/b.h": "#pragma once\n",
                "plugins/ops/common/a.cpp": '#include "ops/gloo/b.h"\n',
            }
        )
        self.assertIn("plugins/ops/common may not include plugins/ops/gloo", problems[0][2])

    def test_a_back_edge_between_sub_folders_is_found(self):
        self.finds("rendezvous/store/a.h", '#include "rendezvous/server/b.h"\n', "is no file of this tree")
        problems = self.problems(
            {"rendezvous/server/b.h": "#pragma once\n", "rendezvous/store/a.h": '#include "rendezvous/server/b.h"\n'}
        )
        self.assertIn("rendezvous: store may not include server", problems[0][2])

    def test_a_sub_folder_without_a_row_is_found(self):
        problems = self.problems(
            {"rendezvous/other/b.h": "#pragma once\n", "rendezvous/server/a.h": '#include "rendezvous/other/b.h"\n'}
        )
        self.assertIn("SUBFOLDERS does not name", problems[0][2])

    def test_the_rows_of_sub_folders_have_no_cycle(self):
        for layer, rows in check_layers.SUBFOLDERS.items():
            graphlib.TopologicalSorter(rows).prepare()
            for row, others in rows.items():
                self.assertEqual([name for name in others if name not in rows], [], (layer, row))

    def test_nothing_but_the_agent_includes_the_agent(self):
        for row, others in check_layers.SUBFOLDERS["launcher"].items():
            if row.split("/")[0] != "agent":
                self.assertEqual([name for name in others if name.split("/")[0] == "agent"], [], row)
        problems = self.problems(
            {
                "launcher/agent/host/b.h": "#pragma once\n",
                "launcher/check/a.cpp": '#include "launcher/agent/host/b.h"\n',
            }
        )
        self.assertIn("launcher: check may not include agent/host", problems[0][2])

    def test_a_crowded_folder_is_found(self):
        planted = {f"src/net/file{n}.h": "#pragma once\n" for n in range(40)}
        problems = self.problems(planted)  # the correct tree has asio.h, too
        self.assertEqual([where for where, _, _ in problems], ["src/net"])

    def test_the_launcher_sees_only_the_catalogue_of_plugins(self):
        self.finds("launcher/a.cpp", '#include "plugin/library.h"\n', "only plugin/catalogue.h")

    def test_a_relative_include_is_followed(self):
        self.finds("src/base/a.h", '#include "../net/asio.h"\n', "may not include src/net")

    def test_c_headers_include_only_fixed_width_types_and_each_other(self):
        self.finds("include/horovod/a.h", "#include <stdio.h>\n", "C headers include only")

    def test_a_third_party_header_stays_in_its_folder(self):
        self.finds("src/net/a.cpp", "#include <spdlog/spdlog.h>\n", "src/base/log/log.cpp only")
        self.finds("launcher/job/job.cpp", "#include <CLI/CLI.hpp>\n", "rendezvous/main.cpp")
        self.finds("src/base/a.cpp", "#include <boost/asio.hpp>\n", "src/net")
        self.finds("src/base/a.cpp", "#include <zlib.h>\n", "no folder named for it")

    def test_libssh_is_included_in_one_file(self):
        problems = self.problems(
            {
                "launcher/spawn/a.cpp": "#include <libssh/libssh.h>\n",
                "launcher/spawn/b.cpp": "#include <libssh/libssh.h>\n",
            }
        )
        self.assertEqual([where for where, _, _ in problems], ["launcher/spawn/b.cpp"])

    def test_the_environment_is_read_in_one_file(self):
        self.finds("src/net/a.cpp", 'auto x = std::getenv("A");\n', "settings.cpp only")
        self.finds("launcher/a.cpp", "f(environ);\n", "settings.cpp only")

    def test_random_numbers_come_from_the_kernel(self):
        self.finds("launcher/a.cpp", "std::random_device random;\n", "asks for glibc 2.36")

    def test_comments_and_strings_are_no_code(self):
        text = '// getenv(1)\n/* #if 0\nenviron */\nauto f() { return "getenv("; }\n'
        self.assertEqual(self.problems({"src/net/a.cpp": text}), [])

    def test_conditionals_belong_to_platform_files(self):
        self.finds("src/net/a.cpp", "#ifdef __linux__\n#endif\n", "platform_")
        planted = {
            "src/base/platform_linux.cpp": "#ifdef __linux__\n#endif\n",
            "include/horovod/a.h": "#ifdef __cplusplus\n#endif\n",
        }
        self.assertEqual(self.problems(planted), [])

    def test_state_at_namespace_scope_is_found(self):
        for text in (
            "namespace a { int count = 0; }",
            "std::atomic<int> count{0};",
            "static Foo* foo = nullptr;",
            "void f() { static int n; }",
            'const char* name = "x";',
            "namespace {\nstd::mutex lock;\n}",
            "void f() {\n  static std::map<int, int> cache = {{1, 2}};\n}",
            "thread_local int depth;",
            "struct A { static int n; };",
        ):
            self.finds("src/net/a.cpp", text + "\n", "outlives a call")

    def test_constants_and_declarations_are_no_state(self):
        for text in (
            "constexpr int kA = 1;",
            'const std::string kB = "x";',
            "int f(int a);",
            'constexpr Row kRows[] = {{1, "a"}, {2, "b"}};',
            "struct A;",
            "using B = int;",
            "class C final : public D { int n_ = 0; static int f(); };",
            "template <class T> T g(T a) { T b = a; return b; }",
            "enum class E : int { kA = 1, kB };",
            "bool operator==(A a, B b);",
            "void f() { static const int n = 3; for (int i = 0; i < n; ++i) { g(i); } }",
            "void f() { static constexpr int n = 3; }",
            "A::A() : b_{1}, c_(2) {}",
            "auto f() -> int { int a{3}; return a; }",
            "[[nodiscard]] int f();",
            'constexpr const char* kName = "x";',
            'const char* const kName = "x";',
            "struct A { int x; int y = 0; };",
            'extern "C" { int hvd_init(int a); }',
            'extern "C" const A* f(void);\nextern "C" const A* f(void) { return &k; }',
        ):
            self.assertEqual(self.problems({"src/net/a.cpp": text + "\n"}), [], text)

    def test_a_long_readme_and_a_missing_one_are_found(self):
        self.finds("src/net/README.md", "line\n" * 26, "more than 25 lines")


if __name__ == "__main__":
    unittest.main()
