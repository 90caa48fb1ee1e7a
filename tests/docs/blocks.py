#!/usr/bin/python3 -B
"""Runs the shell blocks of README.md or of a page of docs in their order, in one shell, and compares what they print.

usage: blocks.py PAGE

A block of shell commands begins with a label:

    ```sh run                    runs on this machine
    ```sh hosts=a,b              runs on a machine that reaches these hosts by ssh
    ```sh by=tests/x_test.py     another test runs it
    ```sh norun="the reason"     nothing runs it

The first two take more labels: `fails=N` is the exit code, `python=NAME` requires a python3 with this framework
(torch2: PyTorch 2), `slurm` requires hosts that are nodes of a Slurm cluster, and `bare` requires hosts without a
shared disk and without this project.
A block of `text` after it is its expected output: … stands for any characters, and alone in a line for any
lines. ```text unordered compares lines in any order.

The shell begins in an empty folder with copies of examples and of examples/tutorials/train.py, and a link to the
build; PATH names horovodrun, and $PREFIX an installation, which is made for a page that uses it.
HVD_TEST_INSTALLED=VENV takes horovodrun and Python from this virtual environment, and nothing from the build.
"""

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HVD_BUILD", ROOT / "build"))
INSTALLED = pathlib.Path(os.environ["HVD_TEST_INSTALLED"]) if "HVD_TEST_INSTALLED" in os.environ else None
HOSTS = ROOT / "tests" / "hosts" / "hosts"
NO_WORLD = 125
SKIPPED = 77
SECONDS = 600
KINDS = ("run", "hosts", "by", "norun")
FENCE = re.compile(r"^( *)(```+|:::+)\s*(\S.*)?$")


class Block:
    """A block of sh, its labels, and its expected output."""

    def __init__(self, page, line, info, text):
        self.page, self.line, self.text = page, line, text
        words = shlex.split(info)[1:]
        self.labels = dict(word.partition("=")[::2] for word in words)
        self.expected = None
        self.is_unordered = False

    @property
    def place(self):
        return f"{self.page}:{self.line}"

    @property
    def runs(self):
        return "run" in self.labels or "hosts" in self.labels

    def fault(self):
        """Returns an error about contradictory labels, or None."""
        kinds = [kind for kind in KINDS if kind in self.labels]
        others = set(self.labels) - set(KINDS) - {"fails", "python", "slurm", "bare"}
        if len(kinds) != 1:
            return f"one label of {', '.join(KINDS)} expected, found: {' '.join(self.labels) or 'none'}"
        if others:
            return f"unknown label {', '.join(sorted(others))}"
        if kinds[0] != "run" and not self.labels[kinds[0]]:
            return f"the label {kinds[0]} lacks its value"
        if kinds[0] == "by" and self.page.name not in read_if_there(ROOT / self.labels["by"]):
            return f"{self.labels['by']} is missing, or does not name {self.page.name}"
        if self.expected is not None and not self.runs:
            return "a block that does not run has an expected output"
        return None


def read_if_there(path):
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def fences(text):
    """Yields (line, info, content) of each fenced block, and (line, None, content) of each indented block."""
    lines = text.splitlines()
    at, before, in_list = 0, "", False
    while at < len(lines):
        line = lines[at]
        if opening := FENCE.match(line):
            end = at + 1
            while end < len(lines) and lines[end].strip() != opening[2]:
                end += 1
            indent = len(opening[1])
            yield at + 1, opening[3] or "", "\n".join(each[indent:] for each in lines[at + 1 : end])
            at = end
        elif re.match(r" {4}\S", line) and not before and not in_list:
            yield at + 1, None, line
        if line.strip():
            in_list = bool(re.match(r"\s*([-*]|\d+\.)\s", line)) or (in_list and line.startswith(" "))
        before = lines[at].strip() if at < len(lines) else ""
        at += 1


def blocks_of(page, text):
    """Returns (blocks of sh, faults) of a page."""
    blocks, faults, last, end = [], [], None, 0
    lines = text.splitlines()
    for line, info, content in fences(text):
        # Only blank lines may separate a block from its output.
        is_next = not "".join(lines[end : line - 1]).strip()
        end = line + len(content.splitlines()) + 1
        language = (info or "").split(" ")[0]
        if info is None:
            faults.append(f"{page}:{line}: an indented block has no label: write ```sh or another language")
        elif not info:
            faults.append(f"{page}:{line}: a block without a language: write ```sh, ```text or another one")
        elif language in ("bash", "shell", "console"):
            faults.append(f"{page}:{line}: write ```sh instead of ```{language}")
        elif language == "sh":
            last = Block(page, line, info, content)
            blocks.append(last)
            continue
        elif language == "text" and last is not None and last.runs and is_next:
            last.expected = content.splitlines()
            last.is_unordered = info.endswith(" unordered")
        last = None
    faults += [f"{block.place}: {fault}" for block in blocks if (fault := block.fault())]
    return blocks, faults


def pattern_of(line):
    return re.compile(".*".join(map(re.escape, line.rstrip().split("…"))))


def difference(expected, printed, is_unordered=False):
    """Returns a description of the first line that differs; None if all lines are as expected."""
    printed = [line.rstrip() for line in printed]
    if is_unordered:
        left = list(printed)
        # Match lines without … first: a pattern must not take them.
        for line in sorted((each for each in expected if each.strip() != "…"), key=lambda each: "…" in each):
            found = next((each for each in left if pattern_of(line).fullmatch(each)), None)
            if found is None:
                return f"no line is {line!r}"
            left.remove(found)
        return f"surplus line {left[0]!r}" if left and "…" not in map(str.strip, expected) else None
    text = "".join(r"(?:.*\n)*?" if line.strip() == "…" else pattern_of(line).pattern + r"\n" for line in expected)
    if re.fullmatch(text, "".join(f"{line}\n" for line in printed)):
        return None
    return "expected\n" + "\n".join(expected)


def script_of(blocks, folder):
    """Returns the commands of all blocks; the output of block N goes to FOLDER/N.out, its end makes FOLDER/N.done."""
    parts = ["set -e"]
    for number, block in enumerate(blocks):
        parts.append(f"exec >{folder}/{number}.out 2>&1")
        code = block.labels.get("fails")
        if code:
            parts += ["set +e", block.text, f"[ $? = {code} ] || exit 1", "set -e"]
        else:
            parts.append(block.text)
        parts.append(f": >{folder}/{number}.done")
    return "\n".join(parts) + "\n"


def interpreter(name):
    """Returns the interpreter that has a framework, or None."""
    if name == "tensorflow":
        # The interpreter with Keras 2 also has the names of TensorFlow 1.
        found = os.environ.get("HVD_TEST_TENSORFLOWS", "").split(":")[0]
    elif name == "torch":
        found = "/usr/bin/python3"
    elif name == "torch2":
        # The last interpreter, because the first is Debian's, with PyTorch 1.
        found = os.environ.get("HVD_TEST_PYTHONS", "").partition(":")[2].split(":")[-1]
    else:
        found = os.environ.get(f"HVD_TEST_{name.upper()}", "")
    return found if found and pathlib.Path(found).is_file() else None


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(SKIPPED)


@contextlib.contextmanager
def cluster(hosts):
    """Returns the variables by which commands of Slurm find a cluster of these hosts."""
    sys.path.insert(0, str(HOSTS.parent))
    import slurm

    try:
        made = slurm.Cluster(hosts)
    except slurm.Missing as missing:
        skip(str(missing))
    with made:
        yield made.environment


def run(page):
    text = page.read_text(encoding="utf-8")
    blocks, faults = blocks_of(page, text)
    if faults:
        sys.exit("\n".join(["FAIL", *faults]))
    blocks = [block for block in blocks if block.runs]
    hosts = sorted({name for block in blocks for name in block.labels.get("hosts", "").split(",") if name})
    if hosts and "HVD_IN_WORLD" not in os.environ:
        is_bare = any("bare" in block.labels for block in blocks)
        done = subprocess.run(
            [
                HOSTS,
                "run",
                "--root",
                *(["--bare"] if is_bare else []),
                "--names",
                " ".join(hosts),
                "--",
                sys.executable,
                "-B",
                __file__,
                page,
            ],
            env={**os.environ, "HVD_IN_WORLD": "1"},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        sys.stderr.write(done.stderr)
        if done.returncode == NO_WORLD:
            skip((done.stderr.strip().splitlines() or ["hosts cannot be made"])[-1].removeprefix("hosts: "))
        sys.exit(done.returncode)
    names = {block.labels["python"] for block in blocks if "python" in block.labels} or {"torch"}
    if len(names) > 1:
        sys.exit(f"FAIL {page}: one framework for a page, not {', '.join(sorted(names))}")
    name = names.pop()
    python = INSTALLED / "bin/python3" if INSTALLED else interpreter(name)
    if python is None:
        skip(f"there is no interpreter with {name}")
    needs_slurm = any("slurm" in block.labels for block in blocks)
    place = INSTALLED.parent if INSTALLED else BUILD / "tests"
    with tempfile.TemporaryDirectory(dir=place, prefix="docs-") as folder, cluster(
        hosts
    ) if needs_slurm else contextlib.nullcontext({}) as variables:
        code = run_blocks(blocks, pathlib.Path(folder), python, "$PREFIX" in text, variables)
    sys.exit(code)


def run_blocks(blocks, folder, python, needs_prefix, variables):
    work, programs = folder / "work", folder / "programs"
    programs.mkdir()
    for called in ("python", "python3"):
        # Copy the program instead of linking it: an environment finds itself by its path.
        (programs / called).write_text(f'#!/bin/sh\nexec {python} "$@"\n')
        (programs / called).chmod(0o755)
    shutil.copytree(ROOT / "examples", work / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "examples" / "tutorials" / "train.py", work)
    if not INSTALLED:
        (work / "build").symlink_to(BUILD)
    search = f"{programs}:{(INSTALLED or BUILD) / 'bin'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment = {name: os.environ[name] for name in ("HOME", "USER", "LOGNAME", "LANG") if name in os.environ}
    environment |= {"PATH": search, "PYTHONDONTWRITEBYTECODE": "1", "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    if not INSTALLED:
        environment["PYTHONPATH"] = str(BUILD / "python")
    if needs_prefix:
        prefix = folder / "prefix"
        subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], stdout=subprocess.DEVNULL, check=True)
        environment |= {"PREFIX": str(prefix), "PATH": f"{prefix / 'bin'}:{search}"}
    script = folder / "script"
    script.write_text(script_of(blocks, folder))
    shell = subprocess.Popen(
        ["bash", script], cwd=work, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        shell.wait(SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
    for number, block in enumerate(blocks):
        printed = read_if_there(folder / f"{number}.out").splitlines()
        has_ended = (folder / f"{number}.done").exists()
        wrong = "the block failed" if not has_ended else None
        if has_ended and block.expected is not None:
            wrong = difference(block.expected, printed, block.is_unordered)
        if wrong:
            print(f"FAIL {block.place}: {wrong}\n$ {block.text}\n" + "\n".join(printed))
            return 1
        print(f"PASS {block.place}")
    return 0


if __name__ == "__main__":
    run(pathlib.Path(sys.argv[1]))
