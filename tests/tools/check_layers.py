#!/usr/bin/python3 -B
"""Walks the sources and prints lines that break the order of the layers.

usage: check_layers.py [ROOT]

A lower layer never includes a higher one. The tables below are the rule; all other code here reads them.
"""

import collections
import pathlib
import re
import sys

SUFFIXES = {".h", ".hpp", ".c", ".cpp"}

# Folder -> the other folders whose headers it may include.
LAYERS = {
    "include": [],
    "src/base": ["include"],
    "src/net": ["include", "src/base"],
    "rendezvous": ["include", "src/base", "src/net"],
    "src/collectives": ["include", "src/base", "src/net"],
    "src/plugin": ["include", "src/base"],
    "src/runtime": ["include", "src/base", "src/net", "rendezvous", "src/collectives", "src/plugin"],
    "plugins": ["include", "src/base", "src/net", "src/collectives"],
    "python": ["include", "src/base"],
    "launcher": ["include", "src/base", "src/net", "rendezvous", "src/plugin"],
}

# Sub-folder -> the sub-folders of its own layer whose headers it may include. "." is the layer's root. The rows form no
# cycle: tests/tools/check_layers_test.py checks it.
SUBFOLDERS = {
    "src/net": {
        ".": [],
        "tls": ["."],
    },
    "src/base": {
        ".": [],
        "files": ["."],
        "limits": ["."],
        "log": ["."],
        "metrics": [".", "operations"],
        "names": ["."],
        "operations": ["."],
        "process": ["."],
        "secrets": ["."],
        "wait": ["."],
        "wire": ["."],
    },
    "src/collectives": {
        "shm": [],
        "kernels": [],
        "mesh": ["shm"],
        "algorithms": ["kernels", "mesh", "shm"],
    },
    "src/runtime": {
        "settings": [],
        "wire": [],
        "progress": [],
        "plugins": ["progress", "settings", "wire"],
        "bootstrap": ["plugins", "settings", "wire"],
        "submission": ["wire"],
        "negotiation": ["submission", "wire"],
        "point_to_point": ["submission"],
        "telemetry": ["negotiation", "submission", "wire"],
        "execution": ["plugins", "submission", "telemetry", "wire"],
        "core": [
            "execution",
            "negotiation",
            "plugins",
            "point_to_point",
            "progress",
            "submission",
            "telemetry",
            "wire",
        ],
        "stall": ["core", "settings", "telemetry", "wire"],
        "autotune": ["core", "settings", "telemetry", "wire"],
        ".": ["autotune", "bootstrap", "core", "plugins", "progress", "settings", "stall", "submission", "telemetry"],
        "capi": [".", "bootstrap", "plugins", "settings", "submission"],
    },
    "rendezvous": {
        "store": [],
        "wire": ["store"],
        "etcd": ["store"],
        "client": ["store", "wire"],
        "server": ["store", "wire"],
        ".": ["etcd", "server", "wire"],
    },
    "launcher": {
        "protocol": [],
        "spawn": [],
        "spawn/ssh": ["spawn"],
        "pmix": [],
        "plan": ["protocol"],
        "allocation": ["plan", "spawn"],
        "link": ["plan", "protocol", "spawn"],
        "hosts": ["link", "plan", "protocol", "spawn"],
        "output": ["hosts", "link", "plan", "protocol"],
        "elastic": ["allocation", "hosts", "link", "output", "plan", "protocol"],
        "observe/rules": ["hosts", "output", "plan", "protocol"],
        "doctor": ["observe/rules", "output", "protocol"],
        "state": ["output", "plan", "protocol"],
        "cli": ["allocation", "elastic", "output", "plan", "state"],
        "observe/views": ["hosts", "output", "plan", "protocol", "state"],
        "reach": [
            "allocation",
            "cli",
            "doctor",
            "elastic",
            "hosts",
            "link",
            "output",
            "plan",
            "pmix",
            "protocol",
            "spawn",
            "spawn/ssh",
        ],
        "observe": [
            "elastic",
            "hosts",
            "observe/rules",
            "observe/views",
            "output",
            "plan",
            "protocol",
            "reach",
            "spawn",
            "state",
        ],
        "job": [
            "elastic",
            "hosts",
            "link",
            "observe",
            "observe/rules",
            "output",
            "plan",
            "protocol",
            "reach",
        ],
        "mpirun": ["allocation", "output", "plan", "protocol", "spawn"],
        "check": ["allocation", "cli", "doctor", "job", "output", "plan", "protocol", "spawn/ssh"],
        ".": [
            "allocation",
            "check",
            "cli",
            "doctor",
            "elastic",
            "job",
            "link",
            "mpirun",
            "observe/views",
            "output",
            "plan",
            "protocol",
            "reach",
            "state",
        ],
        "agent/link": ["agent/host", "protocol"],
        "agent/host": ["protocol"],
        "agent/binding": ["protocol"],
        "agent/ranks": ["agent/binding", "agent/host", "agent/link", "protocol"],
        "agent/doctor": ["agent/host", "protocol"],
        "agent/preflight": ["agent/doctor", "agent/host", "agent/ranks", "protocol"],
        "agent/stacks": ["agent/host", "agent/preflight", "agent/ranks", "protocol"],
        "agent": [
            "agent/binding",
            "agent/doctor",
            "agent/host",
            "agent/link",
            "agent/preflight",
            "agent/ranks",
            "agent/stacks",
            "pmix",
            "protocol",
        ],
    },
}

# A folder with more C++ files than this has more than one topic.
CPP_FILES = 40

# A folder of code shared by several plugins, and the folders that may include it.
SHARED = {
    "plugins/mpi": {"plugins/bootstrap/mpi", "plugins/controllers/mpi", "plugins/ops/mpi"},
    "plugins/ops/common": {
        "plugins/mpi",
        "plugins/ops/ccl",
        "plugins/ops/cpu",
        "plugins/ops/gloo",
        "plugins/ops/mpi",
        "plugins/ops/nccl",
    },
}

# The launcher needs only the list of plugins, not their run-time code.
PARTIAL = {("launcher", "src/plugin"): {"plugin/catalogue.h"}}

# Third-party headers: pattern -> files and folders that may include them, and the number of files in which the pattern
# may occur (None: any number).
THIRD_PARTY = [
    (r"spdlog/.*", ["src/base/log/log.cpp"], None),
    (r"fmt/.*", ["launcher"], None),
    (r"openssl/.*", ["src/base", "src/net/tls"], None),
    (r"dlfcn\.h", ["src/base", "src/plugin", "python/tensorflow_ops/tf_api.cpp"], None),
    (r"boost/pfr\.hpp", ["src/base/wire"], 1),
    (r"boost/(?!pfr).*", ["src/net"], None),
    (r"nlohmann/.*", ["rendezvous", "launcher"], None),
    (r"Eigen/.*", ["src/runtime/autotune/autotuner.cpp"], 1),
    (r"CLI/.*", ["rendezvous/main.cpp"], None),
    (r"libssh/.*", ["launcher/spawn"], 1),
    (r"hwloc\.h", ["launcher/agent/binding"], 1),
    (r"yaml-cpp/.*", ["launcher"], 1),
    (r"pmix.*\.h", ["plugins/bootstrap/pmix", "launcher"], 2),
    (r"Python\.h", ["python"], None),
    (r"mpi\.h", ["plugins/mpi"], None),
    (r"gloo/.*", ["plugins/ops/gloo"], None),
    (r"tensorflow/.*", ["python/tensorflow_ops/async_kernels.cpp"], 1),
]

# The system's own headers: C and C++ (no slash, no suffix or a C name), POSIX and Linux.
SYSTEM = re.compile(
    r"[a-z_0-9]+|(assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|setjmp"
    r"|signal|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|string|time|wchar"
    r"|dirent|fcntl|fnmatch|glob|grp|ifaddrs|netdb|poll|pthread|pwd|sched|semaphore|spawn|syslog"
    r"|termios|unistd|cpuid|cxxabi|elf|link|features|emmintrin|immintrin|x86intrin|arm_neon)\.h"
    r"|(sys|arpa|netinet|net|linux|asm)/[a-z_0-9]+\.h"
)

ENVIRONMENT = re.compile(r"\b(?:secure_)?getenv\s*\(|\benviron\b")
ENVIRONMENT_HOME = "src/base/settings.cpp"
OF_NEWER_GLIBC = re.compile(r"\brandom_device\b")
CONDITIONAL = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b(?!.*__cplusplus)")
# Users compile these headers with other compilers.
CONDITIONAL_HOME = re.compile(r"src/base/platform_.*|include/horovod/.*")
# Files with global state: the runtime behind the C ABI, the log sink, the descriptors that a forked child must close
# (fork handlers take no argument), and the last message to PMI when the process ends.
STATE_HOMES = (
    "src/runtime/capi/api.cpp",
    "src/runtime/capi/api_call.h",
    "src/base/log/log.cpp",
    "src/base/fork_guard.cpp",
    "launcher/output/terminal.cpp",  # for the handler of deadly signals
    "launcher/observe/views/full_screen.cpp",  # for the handler of deadly signals, too
    "launcher/output/report.cpp",  # colors and copies of the sentences that any function prints
    "plugins/bootstrap/pmi/pmi_bootstrap.cpp",
)

README_LINES = 25


def layer_of(path):
    """Returns the row of LAYERS for a file; a plugin is a separate layer."""
    parts = path.split("/")
    if parts[0] == "plugins":
        return "/".join(parts[:3]) if len(parts) > 3 else "plugins"
    for layer in LAYERS:
        if path.startswith(layer + "/"):
            return layer
    return None


def allowed(layer):
    return LAYERS["plugins" if layer.startswith("plugins") else layer]


def target_of(root, file, name):
    """Returns the file of a quoted include, by the include path of the build."""
    if name == "horovod/version.h":
        return "include/horovod/version.h"  # generated by the build
    for base in (str(pathlib.PurePosixPath(file).parent), "include", "src", ".", "plugins"):
        candidate = root / base / name
        if candidate.is_file():
            return candidate.resolve().relative_to(root.resolve()).as_posix()
    return None


def subfolder_of(layer, path):
    """Returns the row of SUBFOLDERS[layer] for a file, or None if the table has no row."""
    folder = str(pathlib.PurePosixPath(path).parent)[len(layer) + 1 :] or "."
    return folder if folder in SUBFOLDERS[layer] else None


def check_subfolder(layer, file, target, name):
    here, there = subfolder_of(layer, file), subfolder_of(layer, target)
    for path, folder in ((file, here), (target, there)):
        if folder is None:
            return f"{path} lies in a folder that SUBFOLDERS does not name"
    if here != there and there not in SUBFOLDERS[layer][here]:
        return f'{layer}: {here} may not include {there} ("{name}")'
    return None


def is_in(file, places):
    return any(file == place or file.startswith(place + "/") for place in places)


def check_quoted(root, file, name):
    target = target_of(root, file, name)
    if target is None:
        return f'"{name}" is no file of this tree'
    here, there = layer_of(file), layer_of(target)
    if there is None:
        return f'"{name}" is in no layer'
    if here == there:
        return check_subfolder(here, file, target, name) if here in SUBFOLDERS else None
    if there == "plugins" and pathlib.PurePosixPath(target).parent == pathlib.PurePosixPath(here).parent:
        return None  # a folder of one kind of plugins holds their shared code
    sharing = SHARED.get(str(pathlib.PurePosixPath(target).parent), ())
    if here in sharing or str(pathlib.PurePosixPath(file).parent) in sharing:
        return None
    if there not in allowed(here):
        return f'{here} may not include {there} ("{name}")'
    partial = PARTIAL.get((here, there))
    if partial is not None and name not in partial:
        return f'{here} may include of {there} only {", ".join(sorted(partial))}, not "{name}"'
    return None


def check_angled(file, name, seen):
    if file.startswith("include/") and not file.endswith(".hpp"):
        if name not in ("stdint.h", "stddef.h"):
            return f"<{name}>: C headers include only <stdint.h>, <stddef.h> and each other"
        return None
    for pattern, places, count in THIRD_PARTY:
        if not re.fullmatch(pattern, name):
            continue
        if not is_in(file, places):
            return f"<{name}> is included in {', '.join(places)} only"
        files = seen.setdefault(pattern, set())
        files.add(file)
        if count is not None and len(files) > count:
            return f"<{name}> is included in {count} file at most; also in {sorted(files)}"
        return None
    if name.startswith("horovod/"):
        return f"<{name}>: headers of this tree are included in quotes"
    if not SYSTEM.fullmatch(name):
        return f"<{name}> has no folder named for it: add a row to THIRD_PARTY"
    return None


def without_comments(text):
    """Returns the text with comments and strings blanked, and lines kept."""

    def blank(match):
        found = match.group(0)
        if found[0] in "\"'":
            return found[0] + " " * (len(found) - 2) + found[-1]
        if found.startswith('R"'):
            return '""' + re.sub(r"[^\n]", " ", found[2:])
        return re.sub(r"[^\n]", " ", found)

    return re.sub(
        r'//[^\n]*|/\*.*?\*/|R"([^\s()\\]{0,16})\(.*?\)\1"'
        r'|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
        blank,
        text,
        flags=re.S,
    )


CONSTANT = re.compile(r"\b(?:constexpr|constinit\s+const)\b|\*\s*const\b")
NO_VARIABLE = re.compile(
    r"^(?:\[\[.*?\]\]\s*)*(?:using|typedef|template|struct|class|enum|union|friend|static_assert"
    r"|namespace|extern\s+\"|public|private|protected|requires|concept|asm|HVD_|TEST_CASE)"
)


def declares_state(statement):
    """Returns whether a statement at namespace scope (or after `static`) defines mutable state.

    A declaration with a parenthesis before its initializer counts as a function: this tree initializes with = or
    braces.
    """
    head = re.split(r"=(?!=)|\{", statement, maxsplit=1)[0].strip()
    if not head or NO_VARIABLE.match(head) or "(" in head or "operator" in head:
        return False
    if not re.search(r"[\w>\]&*]\s+[*&]*\s*[\w:]+\s*(\[[^]]*\]\s*)*$", head):
        return False
    if CONSTANT.search(head):
        return False
    # `const T x` is constant, but `const T* x` can be reassigned.
    return not (re.search(r"\bconst\b", head) and "*" not in head)


def mutable_state(text):
    """Returns line numbers of namespace-scope and static variables that are not constant."""
    text = re.sub(r"(?m)^\s*#.*(?:\\\n.*)*$", "", without_comments(text))
    found, scopes, statement, start, line = [], [], "", 1, 1
    for character in text:
        if character == "\n":
            line += 1
        at_namespace = all(scope == "namespace" for scope in scopes)
        if character == "{":
            opens_namespace = re.match(r"\s*(?:(?:inline\s+)?namespace\b|extern\s+\"\s*\"\s*$)", statement)
            kind = "namespace" if at_namespace and opens_namespace else "other"
            if (
                kind == "other"
                and statement.strip()
                and "(" not in statement
                and not NO_VARIABLE.match(statement.strip())
            ):
                kind = "initializer" if at_namespace or "static" in statement else "other"
            scopes.append(kind)
            if kind == "initializer":
                statement += character
            else:
                statement = ""
        elif character == "}":
            closed = scopes.pop() if scopes else "namespace"
            if closed == "initializer":
                statement += character
            else:
                statement = ""
        elif character == ";":
            words = statement.strip()
            is_static = re.match(r"(?:inline\s+)?(?:static|thread_local)\b", words)
            if (at_namespace or is_static) and declares_state(words):
                found.append(start)
            if not (scopes and scopes[-1] == "initializer"):
                statement = ""
        else:
            if not statement.strip() and not character.isspace():
                start = line
            statement += character
    return found


def check_file(root, file, seen):
    text = (root / file).read_text(encoding="utf-8")
    plain = without_comments(text)
    for number, (line, code) in enumerate(zip(text.splitlines(), plain.splitlines()), 1):
        if match := re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line):
            if not code.strip():
                continue
            quoted, name = match.groups()
            problem = check_quoted(root, file, name) if quoted == '"' else check_angled(file, name, seen)
            if problem:
                yield number, problem
        elif CONDITIONAL.match(code) and not CONDITIONAL_HOME.fullmatch(file):
            yield number, "#if belongs in src/base/platform_*; a feature is a folder"
        if file != ENVIRONMENT_HOME and ENVIRONMENT.search(code):
            yield number, f"the environment is read in {ENVIRONMENT_HOME} only"
        if OF_NEWER_GLIBC.search(code):
            yield number, "std::random_device asks for glibc 2.36: call random_number() of base/secrets/secret.h"
    if file not in STATE_HOMES:
        for number in mutable_state(text):
            yield number, "state that outlives a call: construct it in main and pass it down"


def sources(root):
    for layer in LAYERS:
        for path in sorted((root / layer).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path.relative_to(root).as_posix()


def folders(root):
    """Returns the folders that need a README.md, which states their purpose."""
    tops = [
        "include/horovod",
        "src",
        "launcher",
        "rendezvous",
        "plugins",
        "tests",
        "packaging",
        "docs",
        "examples",
        "cmake",
    ]
    for top in tops:
        if holds_files(root / top):
            yield top
    for layer, rows in SUBFOLDERS.items():
        for row in rows:
            if row != "." and holds_files(root / layer / row):
                yield f"{layer}/{row}"
    for parent in ("src", "plugins/controllers", "plugins/ops", "plugins/bootstrap", "plugins/frameworks"):
        for path in sorted((root / parent).glob("*/")):
            if any(child.is_file() for child in path.iterdir()) and path.name != "__pycache__":
                yield path.relative_to(root).as_posix()
    for name in (
        *SHARED,
        "python",
        "tests/attack",
        "tests/hosts",
        "tests/e2e",
        "tests/fuzz",
        "tests/bench",
        "tests/conformance",
        "tests/tools",
        "tests/worlds",
    ):
        if holds_files(root / name):
            yield name


def holds_files(folder):
    return any(path.is_file() for path in folder.rglob("*") if "__pycache__" not in path.parts)


def check_readmes(root):
    for folder in folders(root):
        readme = root / folder / "README.md"
        if not readme.is_file():
            yield folder, 0, "has no README.md that says what may enter it"
        elif (count := len(readme.read_text(encoding="utf-8").splitlines())) > README_LINES:
            yield f"{folder}/README.md", count, f"has more than {README_LINES} lines"


def check_crowds(root):
    counts = collections.Counter(str(pathlib.PurePosixPath(file).parent) for file in sources(root))
    for folder, count in sorted(counts.items()):
        if count > CPP_FILES:
            yield folder, count, f"has more than {CPP_FILES} C++ files: a second idea hides there"


def dead_permissions(root):
    """Returns rows and places of THIRD_PARTY that no file of the tree uses."""
    included = [
        (file, name)
        for file in sources(root)
        for name in re.findall(r"(?m)^\s*#\s*include\s*<([^>]+)>", (root / file).read_text())
    ]
    for pattern, places, _ in THIRD_PARTY:
        for place in places:
            if not any(is_in(file, [place]) and re.fullmatch(pattern, name) for file, name in included):
                yield "tests/tools/check_layers.py", 0, f"THIRD_PARTY lets {place} include {pattern}, and no file does"


def check(root):
    seen = {}
    problems = [(file, number, problem) for file in sources(root) for number, problem in check_file(root, file, seen)]
    return problems + list(check_crowds(root)) + list(check_readmes(root))


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2])
    problems = [*check(root), *dead_permissions(root)]
    for file, number, problem in problems:
        print(f"{file}:{number}: {problem}")
    print(f"{sum(1 for _ in sources(root))} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
