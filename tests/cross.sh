#!/bin/bash
# Builds everything for 64-bit ARM with Debian's crossbuild packages, and runs the unit tests by
# qemu-user. Needs root to install the compiler. Safe to repeat.
#
# usage: tests/cross.sh [--filter REGEX] [--junit FILE]
#   --filter REGEX  only tests whose names match
#   --junit FILE    where the verdicts are written to
#
# tests/not_emulated.txt names what is left out, and why. An emulated processor that runs on another
# one keeps that one's order of memory: what a weaker order would break is not found here.
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

packaging/install-packages.sh packaging/packages.txt packaging/packages-cross.txt
mkdir -p build-aarch64
packaging/sysroot.sh arm64 build-aarch64/sysroot packaging/packages-aarch64.txt
cmake --preset aarch64 -DBUILD_TESTING=ON
cmake --build --preset aarch64 --target all unit_tests -- -k 0

export HVD_TEST_LEAVES_OUT=$PWD/tests/not_emulated.txt HVD_TEST_WATCHDOG_SECONDS=600
without=$(awk -F ' *[|] *' '!/^#/ && $2 == "*" {printf "%s%s", (n++ ? "|" : ""), $1}' "$HVD_TEST_LEAVES_OUT")
grep '^[^#]' "$HVD_TEST_LEAVES_OUT" | sed 's/^/SKIP /'
tests/emulate.sh build-aarch64/sysroot \
  ctest --test-dir build-aarch64 -L unit -R "$filter" -E "^($without)\$" --output-on-failure \
  --output-junit "$junit" -j "$(nproc)"
