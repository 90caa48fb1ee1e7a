#!/usr/bin/python3 -B
"""Follows a recipe of CONTRIBUTING.md in a copy of the tree, builds it, and runs the new tests.

usage: follow_test.py collective|flag|observation|spawner FOLDER

The copy is FOLDER/NAME; a copy of an earlier run is updated and built incrementally.
"""

import filecmp
import os
import pathlib
import re
import shutil
import subprocess
import sys

import recipes

PYTHON = "/usr/bin/python3"
# Checks on every rank that hvd.shift returns the rows of the previous rank.
SHIFTED = """
import numpy, horovod.numpy as hvd
hvd.init()
rank, size = hvd.rank(), hvd.size()
previous = (rank - 1) % size
got = hvd.shift(numpy.full((rank + 1, 3), rank, "int64"))
assert got.tolist() == [[previous] * 3] * (previous + 1), got
hvd.shutdown()
print("shifted")
"""


class Tree:
    def __init__(self, name, folder):
        self.name = name
        self.path = pathlib.Path(folder, name)
        self.build = self.path / "build"

    def run(self, *command, fails=False, **options):
        command = [str(word) for word in command]
        print("$", *command, flush=True)
        environment = {**os.environ, "PYTHONPATH": str(self.build / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            command,
            cwd=self.path,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            **options,
        )
        if (done.returncode != 0) != fails:
            sys.exit(f"exit code {done.returncode}\n{done.stdout[-8000:]}")
        return done.stdout

    def copy(self):
        """Updates the copy. Unchanged files keep their times, so that they are not compiled again."""
        fresh = self.path.with_name(f"{self.name}.fresh")
        shutil.rmtree(fresh, ignore_errors=True)
        files = subprocess.check_output(["git", "ls-files", "-z"], cwd=recipes.ROOT, text=True).split("\0")
        for file in filter(None, files):
            source, to = recipes.ROOT / file, fresh / file
            if source.exists() or source.is_symlink():
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, to, follow_symlinks=False)
        if conflict := recipes.apply(self.name, fresh):
            sys.exit(conflict)
        if self.build.exists():
            for to in (path for path in fresh.rglob("*") if path.is_file() and not path.is_symlink()):
                old = self.path / to.relative_to(fresh)
                if old.is_file() and filecmp.cmp(to, old, shallow=False):
                    shutil.copystat(old, to)
            self.build.rename(fresh / "build")
        shutil.rmtree(self.path, ignore_errors=True)
        fresh.rename(self.path)

    def compile(self, *targets):
        self.run("cmake", "--preset", "release")
        self.run("ninja", "-C", self.build, *targets)

    def horovodrun(self, *arguments, fails=False):
        return self.run(self.build / "bin/horovodrun", *arguments, fails=fails, timeout=120)

    def test(self, name, *arguments):
        out = self.run(self.build / "tests" / name, *arguments, timeout=900)
        expect("[doctest]" not in out or re.search(r"test cases: +[1-9]", out), f"no test of {name} ran\n{out}")


def expect(claim, text):
    if not claim:
        sys.exit(f"not as expected:\n{text}")


def lines_of_ranks(text):
    return sorted(re.findall(r"(?m)^\[\d+\]<stdout>:.*$", text))


def follow_collective(tree):
    tree.compile(
        "horovodrun",
        "horovod-agent",
        "horovod",
        "python_package",
        "base_test",
        "collectives_test",
        "builtin_plugins_test",
        "runtime_random_test",
        "runtime_fuzz_corpora",
    )
    out = tree.horovodrun("-np", 2, PYTHON, "-c", SHIFTED)
    expect(lines_of_ranks(out) == ["[0]<stdout>:shifted", "[1]<stdout>:shifted"], out)
    tree.horovodrun("-np", 2, PYTHON, "tests/python/numpy_test.py", "NumpyTableTest")
    tree.run(PYTHON, "tests/python/api_test.py", "numpy")
    tree.test("base_test", "--test-case=each operation has a row*")
    tree.test("collectives_test", "--test-case=a shift *")
    tree.test("builtin_plugins_test", "--test-case=cpu: every operation*")
    tree.test("runtime_random_test")
    tree.test("runtime_fuzz_corpora", "plan_application", "tests/fuzz/corpus/plan_application")


def follow_flag(tree):
    tree.compile("horovodrun", "horovod-agent", "agent_protocol_test")
    usual = os.nice(0)
    expect(usual <= 12, f"the nice value of this test is {usual}: 7 more is above 19")
    out = tree.horovodrun("-np", 2, "--nice", 7, PYTHON, "-c", "import os; print(os.nice(0))")
    expect(lines_of_ranks(out) == [f"[{rank}]<stdout>:{usual + 7}" for rank in (0, 1)], out)
    out = tree.horovodrun("-np", 2, "--nice", 20, "true", fails=True)
    expect("--nice 20" in out and "between 0 and 19" in out, out)
    tree.test("agent_protocol_test")


def follow_observation(tree):
    tree.compile("horovodrun", "horovod-agent", "agent_protocol_test", "launcher_test")
    test = "test_a_rank_with_many_open_files_is_named_and_has_a_column"
    out = tree.run("env", f"HVD_BUILD={tree.build}", PYTHON, "-B", "tests/e2e/flags_test.py", test)
    expect(f"PASS {test}" in out, out)
    tree.test("agent_protocol_test")
    tree.test("launcher_test", "--test-case=a frame has *")


def follow_spawner(tree):
    tree.compile("horovodrun", "horovod-agent", "spawn_test")
    command = ["-np", 2, "-H", "nowhere-1:1,nowhere-2:1", "--start-timeout", 20]
    out = tree.horovodrun(*command, "--simulate-hosts", "--verbose", "echo", "started")
    expect(lines_of_ranks(out) == ["[0]<stdout>:started", "[1]<stdout>:started"], out)
    expect("host nowhere-2: it is simulated by this machine" in out, out)
    tree.horovodrun(*command, "echo", "started", fails=True)
    tree.test("spawn_test", "--test-case=the simulated spawner *")


FOLLOW = {
    "collective": follow_collective,
    "flag": follow_flag,
    "observation": follow_observation,
    "spawner": follow_spawner,
}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in FOLLOW:
        sys.exit(__doc__)
    if not (recipes.ROOT / ".git").exists():
        print("SKIP: this tree is no clone, so which of its files belong to it is unknown")
        sys.exit(77)
    tree = Tree(*sys.argv[1:])
    tree.copy()
    FOLLOW[tree.name](tree)
    expect(tree.horovodrun("--manual", "markdown") == (tree.path / "docs/settings.md").read_text(), "docs/settings.md")


if __name__ == "__main__":
    main()
