#!/usr/bin/python3 -B
"""The table of folders in docs/architecture.md: their lines, and the first sentence of their READMEs.

usage: folders_table.py [--write]

Without --write it fails if a folder is missing, or if a number is off by more than 200 lines and a fifth.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/architecture.md"
PRODUCT = ("launcher", "rendezvous", "src", "plugins", "python")
KINDS = (".h", ".hpp", ".c", ".cc", ".cpp", ".py", ".pyi", ".sh", ".in")
HEAD = "| folder | lines | holds |\n|---|---:|---|\n"


def sentence(folder):
    readme = ROOT / folder / "README.md"
    if not readme.exists():
        return f"is a part of `{folder.rpartition('/')[0]}`, whose README names its files"
    text = " ".join(readme.read_text(encoding="utf-8").split("\n\n")[1].split())
    first = re.split(r"(?<=[.:]) ", text)[0].rstrip(".:")
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", first).removeprefix("This folder ")


def rows():
    lines = {}
    for file in subprocess.check_output(["git", "ls-files", *PRODUCT], cwd=ROOT, text=True).splitlines():
        folder = "/".join(pathlib.Path(file).parts[:-1][:2])
        if file.endswith(KINDS):
            lines[folder] = lines.get(folder, 0) + len((ROOT / file).read_bytes().splitlines())
    return {folder: (round(count, -2), sentence(folder)) for folder, count in sorted(lines.items())}


def main():
    if not (ROOT / ".git").exists():
        print("SKIP: this tree is no clone, so which of its files belong to it is unknown")
        return 77
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(HEAD)
    now = rows()
    if "--write" in sys.argv:
        table = "".join(f"| `{folder}` | {count:,} | {holds} |\n" for folder, (count, holds) in now.items())
        PAGE.write_text(before + HEAD + table + rest[re.match(r"(\|.*\n)*", rest).end() :], encoding="utf-8")
        return 0
    listed = {row[0]: int(row[1].replace(",", "")) for row in re.findall(r"(?m)^\| `([^`]+)` \| ([\d,]+) \|", rest)}
    wrong = [
        f"{folder}: {listed.get(folder)} lines in docs/architecture.md, {now.get(folder, (None,))[0]} in the tree"
        for folder in sorted(listed.keys() ^ now.keys())
        + [each for each in now.keys() & listed.keys() if abs(now[each][0] - listed[each]) > 200 + now[each][0] / 5]
    ]
    print("\n".join([*wrong, "tests/tools/folders_table.py --write makes the table"] if wrong else []), end="")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
