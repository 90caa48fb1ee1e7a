#!/bin/bash
# Makes horovod-VERSION-linux-PROCESSOR.tar.gz of an existing build: unpacked anywhere, and moved later, it runs.
#
# usage: packaging/tarball.sh BUILD_FOLDER OUTPUT_FOLDER
#
# Configure the build with -DHVD_PORTABLE=ON for machines with older libraries than this one.
set -euo pipefail
[[ $# -eq 2 ]] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
build=$(realpath "$1")
mkdir -p "$2"
output=$(realpath "$2")
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
version=$(sed -n 's/^project(horovod VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=horovod-$version-linux-$(uname -m)

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$build" --prefix "$scratch/$name" --strip >/dev/null
mkdir -p "$scratch/$name/share/doc/horovod"
cp -a LICENSE CHANGELOG.md docs/third-party-licenses.md examples "$scratch/$name/share/doc/horovod"
# Horovod's guides use this file name.
mkdir "$scratch/$name/share/doc/horovod/k8s"
cp packaging/kubernetes/base/horovod-job.yaml "$scratch/$name/share/doc/horovod/k8s"
find "$scratch/$name" -name __pycache__ -prune -exec rm -rf {} +
# The same build produces the same bytes, at any time and for any user.
tar -C "$scratch" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
  --mtime="${SOURCE_DATE_EPOCH:+@}${SOURCE_DATE_EPOCH:-2026-01-01}" -c "$name" | gzip -n >"$output/$name.tar.gz"
echo "$output/$name.tar.gz"
