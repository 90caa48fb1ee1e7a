#!/bin/bash
# Builds everything for 64-bit ARM with Debian's crossbuild packages, and runs by qemu-user: the unit
# tests, the Python package's with NumPy, and --check-build, which opens MPI and PMIx of that processor.
# Needs root to install the compiler. Safe to repeat.
#
# usage: tests/cross.sh [--filter REGEX] [--junit FILE]
#   --filter REGEX  only tests whose names match
#   --junit FILE    where the verdicts are written to
#
# The script names parts that it does not build, and tests that tests/not_emulated.txt leaves out. An emulated
# processor has the memory order of the machine's processor: the tests cannot find bugs that only a
# weaker order reveals.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

filter=. junit=$PWD/build-aarch64/results.xml
while [[ $# -gt 0 ]]; do
  case $1 in
    --filter) filter=$2; shift ;;
    --junit) junit=$(realpath "$2"); shift ;;
    *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 2 ;;
  esac
  shift
done

# step WORDS: prints the elapsed time and the next step.
step() { printf '== %d:%02d %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"; }

build=$PWD/build-aarch64
step "packages"
packaging/install-packages.sh packaging/packages.txt packaging/packages-cross.txt
mkdir -p "$build"
packaging/sysroot.sh arm64 "$build/sysroot" packaging/packages-aarch64.txt

step "build"
# Other tests cover this machine's own tools.
unset HVD_TEST_TENSORFLOWS HVD_TEST_JAX HVD_TEST_MXNET
export HVD_TEST_PYTHONS=$build/sysroot/usr/bin/python3
cmake --preset aarch64 -DBUILD_TESTING=ON | tee "$build/configured.txt"
cmake --build --preset aarch64 --target all unit_tests -- -k 0

step "tests"
export HVD_TEST_LEAVES_OUT=$PWD/tests/not_emulated.txt HVD_TEST_WATCHDOG_SECONDS=600
without=$(awk -F ' *[|] *' '!/^#/ && $2 == "*" {printf "%s%s", (n++ ? "|" : ""), $1}' "$HVD_TEST_LEAVES_OUT")
code=0
tests/emulate.sh "$build/sysroot" \
  ctest --test-dir "$build" -L 'unit|python|emulated' -R "$filter" -E "^($without)\$" \
  --output-on-failure --output-junit "$junit" -j "$(nproc)" || code=$?
if ((code == 77)); then exit 77; fi

step "summary"
sed -nE 's/^-- (.* (not built|not held against .*))$/NOT BUILT \1/p' "$build/configured.txt"
grep '^[^#]' "$HVD_TEST_LEAVES_OUT" | sed 's/^/LEFT OUT /'
tests/tools/summary.py --required tests/required.txt "$junit" || true
step "done"
exit "$code"
