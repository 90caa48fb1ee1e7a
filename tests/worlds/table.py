"""Reads cells.txt."""

import pathlib
import re

FILE = pathlib.Path(__file__).resolve().parent / "cells.txt"
LINES = [line for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
ROWS = [line.split() for line in LINES if ":" not in line]


def surroundings():
    return ROWS[0][1:]


def detectors():
    return [row[0] for row in ROWS[1:]]


def mark(detector, surrounding):
    return ROWS[1 + detectors().index(detector)][1 + surroundings().index(surrounding)]


def cells(surrounding, tier):
    """Returns the detectors that a tier runs in a surrounding."""
    return [name for name in detectors() if mark(name, surrounding) in {"all": "ax", "release": "r"}[tier]]


def text_of(kind, name):
    """Returns the words of a detector or a surrounding, or the message that refuses a job there."""
    (found,) = [line for line in LINES if line.startswith(f"{kind} {name}: ")]
    return re.sub(r"^\S+ \S+: ", "", found)
