#!/usr/bin/python3 -B
"""Lists the parts of other projects in the programs and libraries of a build, as CycloneDX JSON.

usage: sbom.py BUILD_FOLDER [--check DOCUMENT]

Reads the link commands and the headers of each object from ninja, so that nothing is listed by hand but the
licences. With --check it prints nothing, and fails if DOCUMENT (docs/third-party-licenses.md) lacks a
package. Debian's package manager names the packages.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys

# SPDX, by Debian's source package.
LICENCES = {
    "boost1.81": "BSL-1.0",
    "cli11": "BSD-3-Clause",
    "eigen3": "MPL-2.0",
    "fmtlib": "MIT",
    "gcc-12": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "glibc": "LGPL-2.1-or-later",
    "hwloc": "BSD-3-Clause",
    "nlohmann-json3": "MIT",
    "openssl": "Apache-2.0",
    "spdlog": "MIT",
    "yaml-cpp": "MIT",
}
# Only declarations come from these packages: programs open or link their libraries at run time.
RUN_TIME = {
    "linux",
    "glibc",
    "gcc-12",
    "openssl",
    "yaml-cpp",
    "libssh",
    "pmix",
    "openmpi",
    "mpich",
    "gloo",
    "python3.11",
    "libxcrypt",
}


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def installed_files(build):
    """Returns the programs and libraries that `cmake --install` would copy, by their names in ninja."""
    names = set()
    for script in build.rglob("cmake_install.cmake"):
        for path in re.findall(r'"(/[^"]+)"', script.read_text()):
            path = pathlib.Path(path)
            if path.is_relative_to(build) and path.is_file() and not path.is_symlink():
                with open(path, "rb") as file:
                    if file.read(4) == b"\x7fELF":
                        names.add(str(path.relative_to(build)))
    return names


class Build:
    def __init__(self, folder):
        self.folder = folder
        self.links = {}  # output: (inputs, text of its variables)
        text = (folder / "build.ninja").read_text().replace("$\n", "")
        pattern = (
            r"^build ([^:|\n]+?)(?: \|[^:\n]*)?: \S*(?:LINKER|OBJECT|COMPILER)\S* ([^\n]*)\n"
            r"((?:  [^\n]*\n)*)"
        )
        for outputs, inputs, variables in re.findall(pattern, text, re.M):
            for output in outputs.split():
                self.links[output] = (inputs.split("||")[0].replace("|", " ").split(), variables)
        self.headers = {}
        for entry in run("ninja", "-C", str(folder), "-t", "deps").split("\n\n"):
            lines = entry.splitlines()
            if lines:
                self.headers[lines[0].split(":")[0]] = [line.strip() for line in lines[1:]]

    def parts(self, output):
        """Returns all objects and archives in a file, and its link flags."""
        found, left = set(), [output]
        while left:
            name = left.pop()
            if name in found:
                continue
            found.add(name)
            inputs, variables = self.links.get(name, ([], ""))
            libraries = re.findall(r"\S+\.a\b", variables)
            left += [each for each in inputs + libraries if each.endswith((".o", ".a"))]
        return found, self.links[output][1]


def packages_of(paths):
    """Returns the Debian packages of files."""
    paths = sorted({str(pathlib.Path(path).resolve()) for path in paths})
    found = set()
    for at in range(0, len(paths), 500):
        done = subprocess.run(["dpkg", "-S", *paths[at : at + 500]], capture_output=True, text=True, check=False)
        found |= {line.split(": ")[0].split(",")[0] for line in done.stdout.splitlines()}
    return found


def library_file(name):
    return run("gcc", f"-print-file-name={name}").strip()


def components(build):
    """Returns a dict of package: (source, version, files of the build that contain it)."""
    found = {}
    for output in sorted(installed_files(build.folder)):
        if output not in build.links:
            continue
        parts, flags = build.parts(output)
        archives = {part for part in parts if part.startswith("/") and part.endswith(".a")}
        if re.search(r"-static(?![-\w])", flags):
            archives |= {library_file(name) for name in ("libc.a", "libstdc++.a", "libgcc.a")}
        elif "-static-libstdc++" in flags:
            archives |= {library_file(name) for name in ("libstdc++.a", "libgcc.a")}
        headers = {
            header for part in parts for header in build.headers.get(part, ()) if header.startswith("/usr/include/")
        }
        for package, is_archive in [
            *((each, True) for each in packages_of(archives)),
            *((each, False) for each in packages_of(headers)),
        ]:
            source, version = run("dpkg-query", "-W", "-f", "${source:Package} ${Version}", package).split()
            if is_archive or source not in RUN_TIME:
                found.setdefault(package, (source, version, set()))[2].add(pathlib.Path(output).name)
    return found


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    if not (folder / "build.ninja").is_file() or not shutil.which("dpkg-query"):
        print(f"SKIP: {folder} was not made by ninja on Debian")
        sys.exit(77)
    build = Build(folder)
    found = components(build)
    unknown = sorted({source for source, _, _ in found.values()} - set(LICENCES))
    if unknown:
        sys.exit(f"sbom.py: LICENCES has no row for {', '.join(unknown)}: read their copyright files and add them")
    if sys.argv[2:3] == ["--check"]:
        text = pathlib.Path(sys.argv[3]).read_text()
        rows = dict(re.findall(r"^\| `([^`]+)` \| [^|]* \| ([^|]+?) \|", text, re.M))
        wrong = [
            source for source in sorted({each[0] for each in found.values()}) if rows.get(source) != LICENCES[source]
        ]
        if wrong or not found:
            sys.exit(f"sbom.py: {sys.argv[3]} has no row with the licence of {', '.join(wrong) or 'any library'}")
        return
    text = (build.folder / "python/horovod/_version.py").read_text()
    version = re.search(r'__version__ = "([^"]+)"', text)[1]
    print(
        json.dumps(
            {
                "bomFormat": "CycloneDX",
                "specVersion": "1.5",
                "version": 1,
                "metadata": {
                    "component": {
                        "type": "application",
                        "name": "horovodrun",
                        "version": version,
                        "licenses": [{"expression": "Apache-2.0"}],
                    }
                },
                "components": [
                    {
                        "type": "library",
                        "name": source,
                        "version": number,
                        "licenses": [{"expression": LICENCES[source]}],
                        "purl": f"pkg:deb/debian/{package.split(':')[0]}@{number}",
                        "properties": [{"name": "horovod:inside", "value": name} for name in sorted(files)],
                    }
                    for package, (source, number, files) in sorted(found.items())
                ],
            },
            indent=2,
        )
    )


main()
