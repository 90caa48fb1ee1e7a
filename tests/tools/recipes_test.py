#!/usr/bin/python3 -B
"""The recipes of packaging agree with the tree: options of CMake, components, files, packages, placeholders. The tables
of frameworks agree: tested versions, extras of pip."""

import ast
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
NEVER_RUN = (
    "conda/recipe.yaml.in",
    "easybuild/Horovod-foss-2024a.eb.in",
    "eessi/easystack.yml.in",
    "oci/Dockerfile",
    "oci/apptainer.def",
    "rpm/horovod.spec.in",
    "spack/spack_repo/horovodrun/packages/horovodrun/package.py.in",
)
RECIPES = (*NEVER_RUN, "easybuild/Horovod.eb.in", "oci/image.sh")


def text(path):
    return path.read_text(encoding="utf-8")


def sources_of_cmake():
    return "".join(
        map(
            text,
            [
                ROOT / "CMakeLists.txt",
                *(ROOT / "cmake").glob("*.cmake"),
                *(
                    path
                    for folder in ("src", "launcher", "rendezvous", "plugins", "python", "include")
                    for path in (ROOT / folder).rglob("CMakeLists.txt")
                ),
            ],
        )
    )


class RecipesTest(unittest.TestCase):
    def test_a_recipe_that_nobody_has_run_says_so(self):
        for name in NEVER_RUN:
            self.assertRegex(text(PACKAGING / name), r"Recipe,\s+never\s+run", name)
        self.assertNotIn("never run", text(PACKAGING / "easybuild/Horovod.eb.in"))

    def test_each_recipe_is_listed_here_and_in_the_page_of_installing(self):
        found = {
            str(path.relative_to(PACKAGING))
            for folder in ("conda", "easybuild", "eessi", "oci", "rpm", "spack")
            for path in (PACKAGING / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        others = ("README.md", "repo.yaml", "pip.conf")
        self.assertEqual({name for name in found if not name.endswith(others)}, set(RECIPES))
        page = text(ROOT / "docs/installing.md")
        for name in NEVER_RUN:
            self.assertIn(f"(../packaging/{name})", page)

    def test_options_are_those_of_cmake(self):
        cmake = sources_of_cmake()
        count = 0
        for name in RECIPES:
            for option in re.findall(r"(?:-D|\b)(HVD_[A-Z_]+)", text(PACKAGING / name)):
                self.assertRegex(cmake, rf"(?:option\(|set\(){option} ", f"{name}: {option}")
                count += 1
        self.assertGreaterEqual(count, 9)

    def test_components_and_files_are_those_that_cmake_installs(self):
        cmake = sources_of_cmake()
        spec = text(PACKAGING / "rpm/horovod.spec.in")
        for component in re.search(r"for component in (.*);", spec)[1].split():
            self.assertRegex(cmake, rf"COMPONENT(?:_NAME)? {component}\b", component)
        targets = set(re.findall(r"add_executable\((horovod[\w-]*)", cmake))
        self.assertIn("horovodrun", targets)
        programs = set(re.findall(r"%\{_bindir\}/(\S+)", spec))
        for name in RECIPES:
            programs |= set(re.findall(r"'bin/([\w-]+)'", text(PACKAGING / name)))
        self.assertEqual(programs - targets, set())
        for file in re.findall(r"%\{_datadir\}/(\S+)", spec):
            folder, _, base = file.rpartition("/")
            self.assertIn(f"/{folder})", cmake)
            self.assertRegex(cmake, rf"RENAME {re.escape(base)}\n", file)

    def test_packages_of_the_image_are_those_of_debian(self):
        control = text(ROOT / "debian/control")
        names = re.findall(r"/source/([\w-]+)_\*\.deb", text(PACKAGING / "oci/Dockerfile"))
        self.assertEqual(len(names), 3)
        # The image that Debian's tools make has the same packages.
        image = text(PACKAGING / "oci/image.sh")
        self.assertEqual(set(re.search(r"for name in (.*); do", image)[1].split()), set(names))
        asked = re.search(r"python3-horovod_\*\.deb(.*?)&&", text(PACKAGING / "oci/Dockerfile"), re.S)[1]
        made = re.search(r"printf '%s\\n' \$needed(.*?)\|", image, re.S)[1]
        self.assertEqual(asked.replace("\\\n", "").split(), made.replace("\\\n", "").split())
        for name in names:
            self.assertIn(f"\nPackage: {name}\n", control)

    def test_lists_name_the_packages_of_a_release_and_no_other_tier_installs_those(self):
        lists = {
            name: set(re.findall(r"(?m)^[a-z][\w.+-]*", text(PACKAGING / f"{name}.txt")))
            for name in ("packages", "packages-test", "packages-release")
        }
        needed = set(re.findall(r"needs \S+ ([\w-]+)$", text(PACKAGING / "release.sh"), re.M))
        self.assertEqual(needed - set().union(*lists.values()), set())
        self.assertEqual(lists["packages-release"], {"lintian", "qemu-system-x86", "umoci"})
        self.assertEqual(lists["packages-release"] & (lists["packages"] | lists["packages-test"]), set())

    def test_the_dockerfile_gets_no_build_folder(self):
        left_out = text(ROOT / ".dockerignore").splitlines()
        for name in text(ROOT / ".gitignore").splitlines():
            if name != "*.pyc":
                self.assertTrue({name.rstrip("/"), f"**/{name.rstrip('/')}"} & set(left_out), name)

    def test_each_override_of_lintian_has_its_reason(self):
        files = sorted((ROOT / "debian").glob("*.lintian-overrides"))
        self.assertTrue(files)
        for path in files:
            package = path.name.partition(".")[0]
            said = False
            for line in text(path).splitlines():
                said = said or line.startswith("# ")
                self.assertTrue(said and (line.startswith("# ") or line.startswith(f"{package}: ")), f"{path}: {line}")

    def test_placeholders_are_those_that_a_release_fills(self):
        script = text(PACKAGING / "release.sh")
        for name in RECIPES:
            used = set(re.findall(r"@[A-Z_0-9]+@", text(PACKAGING / name)))
            self.assertEqual(bool(used), name.endswith(".in"), name)
            for placeholder in used:
                self.assertIn(f"s/{placeholder}/", script)

    def test_the_support_matrix_names_the_newest_tested_version_of_each_framework(self):
        (table,) = re.findall(r"^NEWEST = (\{.*\})$", text(ROOT / "python/horovod/_tested.py"), re.M)
        rows = dict(re.findall(r"^\| (\w+) \| ([^|]*) \|", text(ROOT / "docs/support-matrix.md"), re.M))
        names = {"jax": "JAX", "keras": "Keras", "mxnet": "MXNet", "tensorflow": "TensorFlow", "torch": "PyTorch"}
        for framework, version in ast.literal_eval(table).items():
            tested = re.findall(r"\d+\.\d+", rows[names[framework]])
            self.assertEqual(max(tested, key=lambda each: tuple(map(int, each.split(".")))), version, framework)

    def test_extras_bring_what_the_scripts_of_the_tutorials_import(self):
        import tomllib

        extras = tomllib.loads(text(ROOT / "pyproject.toml"))["project"]["optional-dependencies"]
        folder = ROOT / "examples/tutorials"

        def imports(script):
            """Returns modules that a script imports, also through scripts in its folder."""
            found = set()
            for node in ast.walk(ast.parse(text(script))):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    names = [each.name for each in node.names] if isinstance(node, ast.Import) else [node.module]
                    found |= {name.partition(".")[0] for name in names}
            own = {name for name in found if (folder / f"{name}.py").exists()}
            return (found - own).union(*(imports(folder / f"{name}.py") for name in own))

        # Keras comes with TensorFlow.
        for extra, start in (
            ("torch", "torch"),
            ("tensorflow", "tensorflow"),
            ("tensorflow", "keras"),
            ("jax", "jax"),
            ("mxnet", "mxnet"),
        ):
            brought = {re.match(r"[\w-]+", each)[0] for each in extras[extra]}
            needed = set().union(*(imports(script) for script in folder.glob(f"{start}_*.py")))
            self.assertLessEqual(needed - set(sys.stdlib_module_names) - {"horovod"}, brought, f"{start}_*.py")
        self.assertEqual(extras["pytorch"], extras["torch"])

    def test_the_package_of_spack_has_the_form_of_its_repositories(self):
        """Checks without Spack: the layout of `api: v2.0`, imports, names of directives, checksums of versions,
        tests."""
        path = next((PACKAGING / "spack").rglob("package.py.in"))
        repository = path.parents[2]
        self.assertEqual(path.parts[-5:-1], ("spack_repo", repository.name, "packages", "horovodrun"))
        self.assertEqual(text(repository / "repo.yaml"), f"repo:\n  namespace: {repository.name}\n  api: v2.0\n")
        self.assertLessEqual(max(map(len, text(path).splitlines())), 99)
        tree = ast.parse(text(path))
        modules = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
        self.assertEqual(modules, ["spack_repo.builtin.build_systems.cmake", "spack.package"])
        (package,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        self.assertEqual(package.name.lower(), path.parent.name)
        calls = [node.value for node in package.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
        known = {"conflicts", "depends_on", "extends", "generator", "license", "variant", "version"}
        self.assertEqual({call.func.id for call in calls}, known)
        types = {"build", "link", "run", "test"}
        for call in calls:
            given = {word.arg: word.value for word in call.keywords}
            if call.func.id == "version":
                self.assertIn("sha256", given)
            if call.func.id == "depends_on":
                self.assertLessEqual(given.keys(), {"type", "when"})
                value = ast.literal_eval(given["type"]) if "type" in given else ()
                self.assertLessEqual({value} if isinstance(value, str) else set(value), types)
        tests = [node for node in package.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
        self.assertEqual([ast.get_docstring(each) for each in tests], ["the launcher starts", "two ranks add up"])

    def test_recipes_in_python_are_python(self):
        for name in RECIPES:
            if name.endswith((".py.in", ".eb.in")):
                tree = ast.walk(ast.parse(text(PACKAGING / name)))
                names = {
                    target.id
                    for node in tree
                    if isinstance(node, ast.Assign)
                    for target in node.targets
                    if isinstance(target, ast.Name)
                }
                needed = (
                    {"homepage"}
                    if name.endswith(".py.in")
                    else {
                        "easyblock",
                        "name",
                        "version",
                        "homepage",
                        "description",
                        "toolchain",
                        "sources",
                        "checksums",
                        "sanity_check_paths",
                        "moduleclass",
                    }
                )
                self.assertLessEqual(needed, names, name)


if __name__ == "__main__":
    unittest.main()
