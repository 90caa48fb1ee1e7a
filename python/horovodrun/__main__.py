"""`python3 -m horovodrun ...` is `horovodrun ...`, even after another distribution has removed that command.

Both distributions named horovod, the original and this project's, also own the command, and remove it when they are
uninstalled.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from importlib import metadata
from typing import Iterator, List

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_PROGRAMS = os.path.join(_PACKAGE, "bin")
_SITE = os.path.join(_PACKAGE, "site")


def _commands() -> List[str]:
    """Returns the paths of this distribution's installed commands, read from its list of files; horovodrun is the
    first."""
    found = metadata.Distribution.discover(name="horovodrun", path=[os.path.dirname(_PACKAGE)])
    aside = os.path.join(os.path.dirname(_PACKAGE), "bin")  # with `pip install --target`, the list names another folder
    paths = [
        os.path.join(
            aside
            if os.path.exists(os.path.join(aside, file.name))
            else os.path.realpath(os.path.dirname(file.locate())),
            file.name,
        )
        for distribution in found
        for file in distribution.files or []
        # The bash completion has the name of the command.
        if file.name in os.listdir(_PROGRAMS) and file.parts[0] != "horovodrun" and "share" not in file.parts[:-1]
    ]
    return sorted(paths, key=lambda path: os.path.basename(path) != "horovodrun")


def _is_ours(command: str) -> bool:
    if os.path.realpath(command).startswith(_PROGRAMS + os.sep):
        return True  # the link that restores it
    with open(command, "rb") as file:
        return b"the package horovodrun" in file.read(4096)


def _sentences() -> Iterator[str]:
    """Yields a sentence for each missing part of this installation, with its remedy."""
    commands = _commands()
    restore = f"ln -sf {shlex.quote(_PROGRAMS)}/* {shlex.quote(os.path.dirname(commands[0]))}" if commands else ""
    lost = [command for command in commands if not os.path.exists(command)]
    foreign = [command for command in commands if os.path.exists(command) and not _is_ours(command)]
    if foreign:
        yield (
            f"{foreign[0]} is a program of another distribution: uninstall the original Horovod (pip uninstall "
            f"horovod), and then restore the command: {restore}"
        )
    elif lost:
        yield f"{lost[0]} is missing, since another distribution had it and was uninstalled; restore it: {restore}"
    if importlib.util.find_spec("horovod") is None:
        yield (
            f"this Python does not read {os.path.dirname(_PACKAGE)}/horovodrun.pth: jobs of horovodrun find the "
            f"package horovod, and other programs need PYTHONPATH={_SITE}"
        )


def main() -> None:
    """Replaces this process by the launcher, with this process's arguments."""
    for sentence in _sentences():
        print(f"horovodrun: {sentence}", file=sys.stderr, flush=True)
    program = os.path.join(_PROGRAMS, "horovodrun")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
