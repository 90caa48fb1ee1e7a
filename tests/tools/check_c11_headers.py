#!/usr/bin/python3 -B
"""Compiles each public header alone, as C11 and as C++20, and fails on a warning.

usage: check_c11_headers.py CC CXX INCLUDE_FOLDER...
"""

import pathlib
import subprocess
import sys


def compiles(command, folders, header):
    arguments = [argument for folder in folders for argument in ("-I", str(folder))]
    source = f'#include "{header}"\ntypedef int one_declaration;\n'  # C needs a declaration in each unit
    done = subprocess.run(
        [*command, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", *arguments, "-"],
        input=source,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode != 0:
        print(f"{header} with {' '.join(command)}:\n{done.stdout}")
    return done.returncode == 0


def main():
    c_compiler, cxx_compiler, *folders = sys.argv[1:]
    headers = sorted(
        {
            path.relative_to(folder).as_posix()
            for folder in folders
            for path in pathlib.Path(folder).rglob("horovod/*.h")
        }
    )
    faults = [header for header in headers if not compiles([c_compiler, "-std=c11", "-x", "c"], folders, header)]
    faults += [header for header in headers if not compiles([cxx_compiler, "-std=c++20", "-x", "c++"], folders, header)]
    print(f"{len(headers)} headers, {len(faults)} faults")
    return 1 if faults or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
