#!/usr/bin/python3 -B
"""Finds comments, docstrings, Markdown sentences and names of tests that do not name their subject first, errors
that begin with "what" or "who", phrases to avoid, and words that no engineer uses in texts for users.

usage: check_language.py [ROOT]

A sentence must not begin with Who, What, Whose, Whoever, Of or So. CLEAN lists the folders and pages
that keep this rule; add a folder once it does. PHRASES must not occur there, in error texts and identifiers
neither: a_key_is_told counts as "a key is told". WORDS must not occur in FOR_USERS and in strings of PRODUCT.
"""

import pathlib
import re
import subprocess
import sys

CLEAN = (
    ".ci/",
    "debian/",
    "README.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CMakeLists.txt",
    "cmake/",
    "docs/",
    "examples/",
    "include/",
    "launcher/",
    "packaging/",
    "plugins/",
    "python/",
    "rendezvous/",
    "src/",
    "tests/CMakeLists.txt",
    "tests/README.md",
    "tests/tiers.md",
    "tests/doctest_main.cpp",
    "tests/fewer.h",
    "tests/open_descriptors.h",
    "tests/cross.sh",
    "tests/emulate.sh",
    "tests/gpu.sh",
    "tests/not_emulated.txt",
    "tests/not_sanitized.txt",
    "tests/quick.txt",
    "tests/required.txt",
    "tests/run.sh",
    "tests/attack/",
    "tests/base/",
    "tests/bench/",
    "tests/collectives/",
    "tests/conformance/",
    "tests/e2e/",
    "tests/equivalence/",
    "tests/fuzz/",
    "tests/hosts/",
    "tests/launcher/",
    "tests/net/",
    "tests/plants/",
    "tests/plugin/",
    "tests/plugins/",
    "tests/python/",
    "tests/rendezvous/",
    "tests/replicas/",
    "tests/runtime/",
    "tests/tools/",
    "tests/worlds/",
)
NOT_YET = ("docs/design/",)
# Third-party text, or text that a test reads verbatim.
FOREIGN = ("tests/fuzz/corpus/", "debian/copyright", "debian/changelog", "debian/source/", "debian/control")
READ = (".h", ".hpp", ".c", ".cpp", ".py", ".md", ".sh", ".cmake", ".txt", "")
# These files contain the phrases themselves.
WORD_LISTS = ("tests/tools/check_language.py", "tests/tools/check_language_test.py")

PHRASES = re.compile(r"\b(?:(?:is|are|was|were)\s+(?:told|said\s+to)|in\s+vain|any\s+more(?!\s+than)|shall)\b", re.I)
FOR_USERS = (
    "docs/",
    "examples/",
    "k8s/",
    "packaging/INSTALL.md.in",
    "packaging/man/",
    "packaging/oci/",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
)
PRODUCT = ("src/", "launcher/", "rendezvous/", "plugins/", "python/")
# Exceptions: the flag, its variable, its key, and leases of etcd.
WORDS = {
    r"(?<![-/\w`\"#])leases?(?![\w`\"]| of etcd)": "heartbeat timeout",
    r"(?<![\w/])guardians?(?!\w|\.h)": "watchdog",
    r"(?<!\w)spool(?:s|ed)?(?!\w)": "log buffer",
    r"\bworlds? of one\b": "single-process job",
    r"\bdoubles? (?:of|for) (?:CUDA|NCCL|both|them)\b": "mock",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\bbeside\b": "next to",
}
WORD = re.compile("|".join(f"({each})" for each in WORDS), re.I)
QUOTED = re.compile(r'"((?:[^"\\\n]|\\.)*)"')

# The end of a line inside a comment, or between two parts of a string.
LINE_END = re.compile(r'"?\n[ \t]*(?:(?://|#|\*)[ \t]*|")?')

BEGINS = re.compile(r"(?:^|(?<=[.!?]\s))(?:Who|What|Whose|Whoever|Of|So)\b[^?.]*(?:[?.]|$)")
# A trailing comment, and a string: also in lower case.
LOWER = re.compile(r"(?:what|who|whose|whoever)\b(?!\s+is\b[^?]*\?)")
STRING = re.compile(r'"(?:[:;,] )?((?:what|who|whose|whoever)\s[^"]*)"')
TEST_NAME = re.compile(
    r'(?:\b(?:TEST_CASE|SUBCASE)\w*\s*\([^"]*(?:"[^"]*"\s+)?"(?:: )?|name\s+": |\bdef test_|'
    r'^(?:e2e|attack)\.\w+\.)((?:who|what|whose|whoever|of|so)\b[^"(]*|(?:who|what|whose|whoever|of|so)_\w*)',
    re.I | re.M,
)
COMMENT = re.compile(r"^\s*(?://|#)\s?(.*)$")
TRAILING = re.compile(r"\s(?://|#)\s(?!include|define|if|el|endif)(.*)$")
DOCSTRING = re.compile(r'"""(.*?)"""', re.S)


def blocks(path, text):
    """Yields (line, text) of each comment block, docstring or paragraph."""
    if path.suffix == ".md":
        text = re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), text, flags=re.S | re.M)
        for match in re.finditer(r"(?:^(?! {4}|[|#]).*\S.*\n?)+", text, re.M):
            yield text.count("\n", 0, match.start()) + 1, re.sub(r"(?m)^\s*[-*] ", "", match[0])
        return
    if text.startswith("#!"):
        path, text = path.with_suffix(".py" if "python" in text.partition("\n")[0] else ".sh"), text[1:]
        text = text[text.find("\n") :]
    if path.suffix == ".py":
        for match in DOCSTRING.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, match[1]
    block, first = [], 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        match = COMMENT.match(line)
        if match:
            first = first if block else number
            block.append(match[1])
            continue
        if block:
            yield first, "\n".join(block)
            block = []
        if path.suffix != ".py" and (trailing := TRAILING.search(line)):
            yield number, trailing[1]


def names(path, text):
    """Yields (line, text) of each test name, string or trailing comment that begins with such a word."""
    for match in TEST_NAME.finditer(text):
        yield text.count("\n", 0, match.start(1)) + 1, match[1].replace("_", " ")
    if path.suffix in (".h", ".hpp", ".c", ".cpp", ".py"):
        for number, line in enumerate(text.splitlines(), 1):
            trailing = TRAILING.search(line)
            if trailing and not COMMENT.match(line) and LOWER.match(trailing[1]):
                yield number, trailing[1]
            for string in STRING.finditer(line) if not str(path).startswith("tests/") else ():
                yield number, string[1]


def phrases(text):
    """Yields (line, phrase) of each phrase to avoid, also across a line break."""
    joined = LINE_END.sub(lambda end: "\n" + " " * (len(end[0]) - 1), text).replace("_", " ")
    for match in PHRASES.finditer(joined):
        yield joined.count("\n", 0, match.start()) + 1, " ".join(match[0].split())


def private_words(name, text):
    """Yields (line, word, better word) of each word in texts for users that has a better word."""
    if name.startswith(FOR_USERS):
        parts = [(0, text)]
    elif name.startswith(PRODUCT) and name.endswith((".h", ".cpp", ".py")):
        no_text = r"(?m)^\s*(?://|#).*|\"{3}(?s:.*?)\"{3}"
        code = re.sub(no_text, lambda found: "\n" * found[0].count("\n"), text)
        # A string with a blank is a sentence or a part of one.
        parts = [(code.count("\n", 0, found.start()), found[1]) for found in QUOTED.finditer(code) if " " in found[1]]
    else:
        return
    for before, part in parts:
        for match in WORD.finditer(part):
            line = before + part.count("\n", 0, match.start()) + 1
            yield line, " ".join(match[0].split()), list(WORDS.values())[match.lastindex - 1]


def faults(root, paths):
    """Returns one message per fault in the files `paths` below `root`."""
    found = []
    for path in paths:
        name = str(path)
        if path.suffix not in READ or name.startswith(FOREIGN):
            continue
        text = (root / path).read_text(encoding="utf-8")
        if name.startswith(CLEAN) and not name.startswith((*NOT_YET, *WORD_LISTS)):
            found += [f"{path}:{line}: say it without '{phrase}'" for line, phrase in phrases(text)]
            for line, word, better in private_words(name, text):
                found.append(f"{path}:{line}: write '{better}', not '{word}'")
        if not name.startswith(CLEAN) or name.startswith(NOT_YET):
            continue
        for line, block in blocks(path, text):
            for match in BEGINS.finditer(" ".join(block.split())):
                if not match[0].endswith("?"):
                    found.append(f"{path}:{line}: name the subject first: {match[0][:60]}")
        if not name.startswith(WORD_LISTS):
            found += [f"{path}:{line}: name the subject first: {words[:60]}" for line, words in names(path, text)]
    return found


def main(root="."):
    root = pathlib.Path(root)
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        print("not a clone with git: which files are tracked is unknown")
        return 77
    paths = [pathlib.Path(name) for name in listed.stdout.splitlines() if (root / name).is_file()]
    found = faults(root, paths)
    print("\n".join(found) or f"{len(CLEAN)} folders and pages: each sentence names its subject first")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
