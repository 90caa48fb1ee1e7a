#!/bin/bash
# Makes the wheels of a release, horovodrun for machines with glibc 2.34 or later and horovod for all, and the sdist;
# checks them.
#
# usage: packaging/wheel.sh [--aarch64] OUTPUT_FOLDER [PYTHON]
#
# --aarch64 cross-builds the wheel horovodrun for 64-bit ARM alone, by the packages of packages-cross.txt, against a
# sysroot in build-aarch64, for which apt downloads those of packages-aarch64.txt.
# PYTHON has the packages of PyPI that the script names; without it, the script installs them into build/venv-release.
# BUILD_DIR=FOLDER builds there, and again only what has changed since the last time.
set -euo pipefail
processor=$(uname -m)
if [[ ${1:-} == --aarch64 ]]; then
  processor=aarch64
  shift
fi
[[ $# -ge 1 && $1 != -* ]] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
mkdir -p "$1"
output=$(realpath "$1")
python=${2:-build/venv-release/bin/python3}
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
if [[ $# -lt 2 && ! -f build/venv-release/ready ]]; then
  python3 -m venv build/venv-release
  "$python" -m pip install --quiet build scikit-build-core wheel auditwheel abi3audit check-wheel-contents twine
  touch build/venv-release/ready
fi
glibc=2_34
tag=manylinux_${glibc}_$processor
# ccache passes relative paths to the compiler, which -ffile-prefix-map does not match: the bytes would differ.
export CCACHE_DISABLE=1
build=${BUILD_DIR:-}
flags=(-C cmake.define.HVD_WERROR=ON -C cmake.define.HVD_PORTABLE=ON -C cmake.define.HVD_STATIC_AGENT=ON)
if [[ $processor != "$(uname -m)" ]]; then
  packaging/sysroot.sh arm64 build-aarch64/sysroot packaging/packages-aarch64.txt
  build=${build:-build-wheel-aarch64}
  flags+=(-C cmake.define.CMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake")
fi
if [[ -n $build ]]; then flags+=(-C build-dir="$build"); fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$python" -m build --wheel --no-isolation --outdir "$scratch" "${flags[@]}" . >"$scratch/log" ||
  { cat "$scratch/log"; exit 1; }
# auditwheel checks that the files need no newer system than the tag states. The wheel contains no copied libraries.
"$python" -m wheel tags --remove --platform-tag "$tag" "$scratch"/*.whl >/dev/null
wheel=$(ls "$scratch"/horovodrun-*.whl)
"$python" -m auditwheel show "$wheel" | tee "$scratch/shown"
grep -q "\"$tag\"" "$scratch/shown" || {
  echo "wheel.sh: $(basename "$wheel") needs more than $tag, by the symbols above; link their libraries statically" >&2
  exit 1
}
"$python" -m abi3audit --assume-minimum-abi3 3.8 "$wheel"
"$python" -m check_wheel_contents --ignore W002 "$wheel"  # modules with only the same docstring
if [[ $processor != "$(uname -m)" ]]; then  # the wheel horovod and the sdist are equal for all processors
  "$python" -m twine check --strict "$wheel"
  mv "$wheel" "$output"
  ls "$output"
  exit
fi
horovod=$("$python" -B packaging/wheel_files.py horovod "$wheel" "$scratch")
"$python" -m build --quiet --sdist --no-isolation --outdir "$scratch" .
"$python" -m twine check --strict "$scratch"/*.whl "$scratch"/*.tar.gz
"$python" -m check_wheel_contents --ignore W002,W007 "$horovod"  # no modules, and one script with four names
mv "$scratch"/*.whl "$scratch"/*.tar.gz "$output"
ls "$output"
