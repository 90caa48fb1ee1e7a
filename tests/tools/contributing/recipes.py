"""The recipes of CONTRIBUTING.md, and the patches of this folder, which follow them.

A patch begins with lines like "a flag: 1 2 4 6 8": the recipes that it follows, and their steps. It may leave out only
steps that begin with "If" or "For". A path in a step is `code`: a file, a folder with a file to change, or a pattern in
which NAME stands for the added name.
"""

import os
import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+|[A-Z]+\.md)`")


def recipes(text):
    """Returns {"a flag": {1: the text of step 1, ...}, ...}."""
    sections = re.findall(r"(?ms)^## How to add ([^\n]+)\n(.*?)(?=^## |\Z)", text)
    return {
        name: {int(number): step for number, step in re.findall(r"(?ms)^(\d+)\. (.*?)(?=^\d+\. |\Z)", body)}
        for name, body in sections
    }


class Patch:
    def __init__(self, text):
        self.follows = {
            name: [int(step) for step in steps.split()]
            for name, steps in re.findall(r"(?m)^(an? \w+): ([\d ]+)$", text.partition("diff --git")[0])
        }
        self.files = re.findall(r"(?m)^\+\+\+ b/(.+)$", text)


def patches():
    return {path.stem: Patch(path.read_text(encoding="utf-8")) for path in sorted(HERE.glob("*.patch"))}


def apply(name, folder):
    """Applies a patch to the files in the folder. Returns None, or git's error about a conflict."""
    # Prevents git from applying the patch to the clone around the folder.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(pathlib.Path(folder).resolve().parent)}
    done = subprocess.run(
        ["git", "apply", "-C1", HERE / f"{name}.patch"],
        cwd=folder,
        env=environment,
        text=True,
        stderr=subprocess.PIPE,
        check=False,
    )
    return done.stderr or "it does not apply" if done.returncode else None


def is_optional(step):
    return step.startswith(("If ", "For "))


def is_in(file, path):
    return re.match(re.escape(path).replace("NAME", r"[^/]+") + r"(/|$)", file) is not None


def faults(patch, guide):
    """Returns errors about steps that the patch leaves out, and about files that differ between patch and recipes."""
    paths = set()
    for name, steps in patch.follows.items():
        recipe = guide[name]
        for number, step in recipe.items():
            if number in steps:
                paths |= set(PATH.findall(step))
            elif not is_optional(step):
                yield f"step {number} of {name} is left out: it begins with neither If nor For"
        for number in set(steps) - set(recipe):
            yield f"{name} has no step {number}"
    for file in patch.files:
        if not any(is_in(file, path) for path in paths):
            yield f"{file} is changed, and no step names it"
    for path in sorted(paths):
        if "NAME" not in path:
            needed = any(is_in(file, path) for file in patch.files)
        else:
            needed = any(is_in(file, path) for file in patch.files if file not in paths)
        if not needed:
            yield f"{path} is named by a step, and is not changed"
