#!/bin/bash
# Installs what the tests need, builds, and runs all tests. Safe to repeat.
#
# usage: tests/run.sh [--quick] [--filter REGEX] [--fuzz] [--soak]
#   --quick         only the optimised build: no sanitizers, no clang
#   --filter REGEX  only tests whose names match
#   --fuzz          also each fuzzer for a minute
#   --soak          also the tests that run for long
#
# The last line counts: N passed, N failed, N skipped. With CI=true a test that tests/required.txt
# names must not be skipped.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

quick=0 filter=. fuzz=0 soak=0
while [[ $# -gt 0 ]]; do
  case $1 in
    --quick) quick=1 ;;
    --filter) filter=$2; shift ;;
    --fuzz) fuzz=1 ;;
    --soak) soak=1 ;;
    *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 2 ;;
  esac
  shift
done

results=$PWD/build/results
rm -rf "$results"
mkdir -p "$results"
steps=$results/steps.txt
touch "$steps"
jobs=$(nproc)
say() { printf '\n==> %s [%d s]\n' "$*" "$SECONDS"; }

# step NAME COMMAND...: a step of this script as a test of its own.
step() {
  local name=$1
  shift
  say "$name"
  if "$@"; then
    echo "PASS $name" >>"$steps"
  else
    echo "FAIL $name: $* (its output is above)" >>"$steps"
    return 1
  fi
}

# build PRESET TARGET...
build() {
  local preset=$1
  shift
  cmake --preset "$preset" -DBUILD_TESTING=ON >"$results/$preset.configure" 2>&1 ||
    { cat "$results/$preset.configure"; return 1; }
  cmake --build --preset "$preset" --target "$@" -- -k 0
}

# run_ctest RESULT BUILD_FOLDER ARGUMENT...: its verdicts are in the result's file.
run_ctest() {
  local result=$1 folder=$2
  shift 2
  ctest --test-dir "$folder" --output-junit "$results/$result.xml" --no-tests=ignore \
    --output-on-failure -R "$filter" "$@" || true
}

# The second PyTorch that the package must work with; the first one is Debian's.
torch=torch==2.13.0
venv=$PWD/build/venv-torch-2.13
install_torch() {
  if [[ ! -f $venv/ready ]]; then
    /usr/bin/python3 -m venv --clear "$venv" &&
      timeout 1200 "$venv/bin/pip" install --quiet "$torch" numpy cloudpickle &&
      touch "$venv/ready"
  fi
}

say "Debian packages"
packaging/install-packages.sh packaging/packages.txt
packaging/install-packages.sh packaging/packages-test.txt ||
  echo "going on without them: what needs them is skipped"

exec </dev/null
export HVD_TEST_PYTHONS=/usr/bin/python3
say "python.torch-2.13"
if install_torch >"$results/torch.log" 2>&1; then
  echo "PASS python.torch-2.13" >>"$steps"
  HVD_TEST_PYTHONS+=:$venv/bin/python3
else
  reason=$(grep -v '^ *$' "$results/torch.log" | tail -n 1)
  echo "SKIP python.torch-2.13: pip install $torch: ${reason:-timed out}" >>"$steps"
  tail -n 1 "$steps"
fi

if step build.release build release all; then
  run_ctest release build -LE 'e2e|soak' -j "$jobs"
  # Two at a time, except those that say otherwise: what happens on hosts is measured against the clock.
  run_ctest release-e2e build -L e2e -LE soak -j 2
  if ((soak)); then run_ctest release-soak build -L soak; fi
fi
if ((!quick)); then
  for sanitizer in asan tsan; do
    if step "build.$sanitizer" build "$sanitizer" unit_tests; then
      run_ctest "$sanitizer" "build-$sanitizer" -L unit -j "$jobs"
    fi
  done
  if command -v clang++-14 >/dev/null; then
    if step build.clang build clang all; then
      run_ctest clang build-clang -L unit -j "$jobs"
    fi
  else
    echo "SKIP build.clang: there is no clang++-14" >>"$steps"
  fi
fi
if ((fuzz)); then
  if step build.fuzz build fuzz fuzzers; then run_ctest fuzz build-fuzz -L fuzzing -j "$jobs"; fi
fi

say "summary"
strict=()
if [[ ${CI:-} == true && $quick == 0 && $filter == . ]]; then strict=(--strict); fi
code=0
/usr/bin/python3 -B tests/tools/summary.py --required tests/required.txt "${strict[@]}" \
  "$results"/*.txt "$results"/*.xml || code=$?
exit "$code"
