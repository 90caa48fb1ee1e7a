#!/bin/bash
# Makes the Debian packages of an existing build, without compiling again.
#
# usage: packaging/debian.sh BUILD_FOLDER OUTPUT_FOLDER
#
# Users run `dpkg-buildpackage -b` in a clone: it builds with Debian's flags, for Debian's folders, and also
# makes the -dbgsym packages.
set -euo pipefail
[[ $# -eq 2 ]] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
build=$(realpath "$1")
mkdir -p "$2"
output=$(realpath "$2")
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
[[ -f $build/CMakeCache.txt ]] || { echo "debian.sh: $build: not a build folder, since it has no CMakeCache.txt; name one that cmake made" >&2; exit 1; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/tree"
# The packages contain documentation and examples unchanged; all other files come from the build.
cp -a --parents debian docs examples README.md CHANGELOG.md packaging/kubernetes/base "$scratch/tree"
find "$scratch/tree" -name __pycache__ -prune -exec rm -rf {} +
cd "$scratch/tree"
# -d: nothing is compiled, so the compiler's packages may be missing.
HVD_BUILD_DIR=$build DEB_BUILD_OPTIONS=noautodbgsym dpkg-buildpackage -b -d -us -uc
mv ../*.deb ../*.changes ../*.buildinfo "$output"
