#!/bin/bash
# Runs each test that needs an NVIDIA GPU, in at most 8 minutes, on one GPU or on several. Needs no network.
#
# usage: tests/gpu.sh [--double] [--logs FOLDER] [BUILD_FOLDER]
#        tests/gpu.sh --bundle FOLDER|FILE.tar.gz [BUILD_FOLDER]
#
#   BUILD_FOLDER      default: build, built with BUILD_TESTING=ON
#   --logs FOLDER     gets the output of each test, and after each wave summary.txt; default: BUILD_FOLDER/gpu
#   --double          with the test library of tests/plugins/nccl in place of CUDA and NCCL, and PyTorch on the CPU:
#                     shows that each test runs, but tests no GPU; at most 40 minutes
#   --bundle          writes all that this script needs on a machine with GPUs, less than 64 MiB. There, PyTorch
#                     with CUDA and `bash tests/gpu.sh` suffice
#
#   HVD_GPU_PYTHON          a Python whose torch has CUDA; default python3
#   HOROVOD_NCCL_LIBRARY,   paths of libnccl.so.2 and libcudart.so; without them the tests search like a job, and
#   HOROVOD_CUDA_LIBRARY    only programs without torch get torch's libraries
#
# The tests run in waves: tests of one rank in parallel, then two ranks by NCCL, then host memory, then times, which
# need the whole machine. With a single GPU, two ranks share it: NCCL takes them for two hosts
# (NCCL_HOSTID). If NCCL does not support that, the tests of several ranks by NCCL are skipped.
#
# The last line counts: N passed, N failed, N skipped. Exit code 0: all that this machine's GPUs allow
# passed; 1: a test failed, or the time was over; 2: a requirement is missing; 77: this machine has no NVIDIA GPU, and
# the script names the tests that it would run.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

refuse() {
  echo "gpu.sh: $2" >&2
  exit "$1"
}

build=build logs='' bundle='' double=''
while (($# > 0)); do
  case $1 in
    --double) double=yes ;;
    --logs) logs=$2; shift ;;
    --bundle) bundle=$2; shift ;;
    -*) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
    *) build=$1 ;;
  esac
  shift
done
build=$(readlink -m "$build")
logs=$(readlink -m "${logs:-$build/gpu}")

programs=(bin/horovodrun bin/horovod-agent bin/horovod-rendezvous tests/backend_conformance)
tests=(tests/python/gpu_test.py tests/python/gpu_hazards_test.py tests/python/gpu_speed.py
  tests/python/gpu_sharing.py tests/python/gpu_probes.py)

# make_bundle TARGET: copies the parts of this folder that the tests need, with a build folder.
make_bundle() {
  local target=$1 folder size
  [[ ! -e $target ]] || refuse 2 "$target exists already"
  folder=$(mktemp -d)
  # shellcheck disable=SC2064 # expand the folder now
  trap "rm -rf '$folder'" EXIT
  mkdir -p "$folder"/{build/{bin,lib/horovod/ops,tests,libraries},tests/python}
  cp tests/gpu.sh "$folder/tests/"
  cp "${tests[@]}" tests/python/rank_{base,case}.py "$folder/tests/python/"
  for file in "${programs[@]}" tests/libnccl_double.so lib/horovod/ops/nccl.so; do
    cp -L "$build/$file" "$folder/build/$file"
    strip --strip-unneeded "$folder/build/$file"
  done
  cp -a "$build"/lib/libhorovod.so* "$folder/build/lib/"
  cp -a "$build/python" "$folder/build/"
  # Libraries that a machine may lack, besides those of the C and C++ compilers. The machine's own libraries come first.
  { for file in "${programs[@]}" lib/libhorovod.so; do ldd "$build/$file" 2>/dev/null || true; done; } |
    awk '$3 ~ "^/" && $1 !~ "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s)\\.so" { print $3 }' | sort -u |
    xargs -r cp -L --target-directory "$folder/build/libraries"
  size=$(du -sm "$folder" | cut -f 1)
  ((size < 64)) || refuse 2 "the bundle has $size MiB, and 64 are too many"
  if [[ $target == *.tar.gz ]]; then
    tar -czf "$target" -C "$folder" .
  else
    chmod 755 "$folder"
    mv "$folder" "$target"
  fi
  echo "$target has $size MiB; on a machine with a GPU: bash tests/gpu.sh --logs FOLDER"
}
if [[ -n $bundle ]]; then
  [[ -x $build/bin/horovodrun && -x $build/tests/backend_conformance ]] ||
    refuse 2 "$build holds no build with tests; run: cmake --preset release && ninja -C build"
  make_bundle "$bundle"
  exit
fi

python=${HVD_GPU_PYTHON:-python3}
dry=''
if [[ -n $double ]]; then
  gpus=${HVD_DOUBLE_DEVICES:-1}
  export HVD_DOUBLE_DEVICES=$gpus
else
  shopt -s nullglob
  files=(/dev/nvidia[0-9]*)
  gpus=${#files[@]}
  ((gpus > 0)) || dry=yes
fi
seconds=480
[[ -z $double ]] || seconds=2400  # the mocks run on a few cores, next to other work

# Use a library of the bundle only if this machine has none with its name.
bring_libraries() {
  local file missing
  for file in "${programs[@]}"; do
    while read -r missing; do
      [[ -e $build/libraries/$missing ]] ||
        refuse 2 "$file needs $missing, which is neither installed nor in $build/libraries"
      mkdir -p "$build/brought"
      ln -sf "../libraries/$missing" "$build/brought/"
    done < <(ldd "$build/$file" 2>/dev/null | awk '/not found/ { print $1 }')
  done
  if [[ -d $build/brought ]]; then
    export LD_LIBRARY_PATH=$build/brought${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  fi
}

# library NAME: prints the path of the file with this name that torch loads.
library() {
  "$python" - "$1" <<'PY'
import sys
import torch

torch.cuda.init()
with open("/proc/self/maps", encoding="utf-8") as maps:
    found = sorted({line.split(None, 5)[5].strip() for line in maps if f"/{sys.argv[1]}" in line})
print(found[0] if found else "")
PY
}

under_test=() libraries=() double_libraries=()
prepare() {
  [[ -x $build/bin/horovodrun && -d $build/python/horovod ]] ||
    refuse 2 "$build holds no build; run: cmake --preset release && ninja -C build"
  "$python" -c 'import torch' 2>/dev/null || refuse 2 "$python has no torch; name one that has by HVD_GPU_PYTHON"
  bring_libraries
  export PYTHONPATH=$build/python PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
  export HVD_BUILD=$build NCCL_DEBUG=${NCCL_DEBUG:-WARN} NCCL_RAS_ENABLE=0
  unset HOROVOD_GPU_OPERATIONS
  mkdir -p "$logs"
  rm -f "$logs"/{nccl_id,summary.txt}
  if [[ -n $double ]]; then
    under_test=("$build/tests/libnccl_double.so")
    libraries=(HOROVOD_NCCL_LIBRARY="${under_test[0]}" HOROVOD_CUDA_LIBRARY="${under_test[0]}")
    double_libraries=("${libraries[@]}")
    return
  fi
  gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())' 2>/dev/null) || gpus=0
  ((gpus > 0)) || refuse 2 "$python has no torch that finds a GPU; name one that has by HVD_GPU_PYTHON"
  libraries=(HOROVOD_NCCL_LIBRARY="${HOROVOD_NCCL_LIBRARY:-$(library libnccl.so)}"
    HOROVOD_CUDA_LIBRARY="${HOROVOD_CUDA_LIBRARY:-$(library libcudart.so)}")
}
[[ -n $dry ]] || prepare

end=$((SECONDS + seconds)) passed=0 failed=0 skipped=0
names=()  # tests of this wave
cores=$(nproc)

# run_test NAME SECONDS COMMAND...: writes the output to NAME.txt, and exit code and time to NAME.code.
run_test() {
  local name=$1 limit=$2 code=0 begin=$SECONDS left=$((end - SECONDS))
  shift 2
  ((limit <= left)) || limit=$left
  if ((limit > 5)); then
    timeout --kill-after=5 "$limit" "$@" >"$logs/$name.txt" 2>&1 || code=$?
  else
    echo "no time was left" >"$logs/$name.txt"
    code=124
  fi
  echo "$code $((SECONDS - begin))" >"$logs/$name.code"
}

# try NAME SECONDS COMMAND...: runs one test of the wave, in parallel if enough cores are free.
try() {
  if [[ -n $dry ]]; then
    echo "  $1, at most $2 s"
    return
  fi
  local name=$1 limit=$2
  shift 2
  [[ -z $double ]] || limit=$((5 * limit))
  names+=("$name")
  ((cores >= 8)) || wait
  run_test "$name" "$limit" "$@" &
}

# alone NAME SECONDS COMMAND...: runs a test after the end of all tests before it.
alone() {
  wait
  try "$@"
  wait
}

report() {
  local name=$1 code seconds
  read -r code seconds <"$logs/$name.code"
  rm "$logs/$name.code"
  case $code in
    0) passed=$((passed + 1)); echo "PASS $name [$seconds s]" ;;
    77) skipped=$((skipped + 1)); echo "SKIP $name: $(grep -m 1 -o 'SKIP: .*' "$logs/$name.txt" | cut -c 7-)" ;;
    124 | 137) failed=$((failed + 1)); echo "FAIL $name: its $seconds s are over" ;;
    *) failed=$((failed + 1)); echo "FAIL $name: exit code $code" ;;
  esac
  grep -ohE '(NCCL|staged) .* ratio .*|[0-9.]+ us for .*|[0-9]+ steps of .*|RESULT .*' "$logs/$name.txt" | cut -c 1-230 |
    sed 's/^/     /' || true
  ((code == 0 || code == 77)) || tail -n 30 "$logs/$name.txt" | cut -c 1-200 | sed 's/^/     /'
}

# wave NAME: ends the last wave, and names the next one.
wave() {
  local name
  wait
  if ((${#names[@]} > 0)); then
    for name in "${names[@]}"; do report "$name"; done >"$logs/wave.txt"
    tee -a "$logs/summary.txt" <"$logs/wave.txt"
    rm "$logs/wave.txt"
  fi
  names=()
  [[ $# == 0 ]] || echo "-- $1"
}

# Words before the command of one or more ranks. Each rank has its own GPU, or all use the first GPU.
one=("$python")
many=$((gpus > 2 ? gpus : 2))
several=("$build/bin/horovodrun" -np "$many")
# shellcheck disable=SC2016 # each rank expands it
shared=(sh -c 'export HVD_TEST_SHARES_GPU=1 NCCL_HOSTID="rank$HOROVOD_RANK" NCCL_MULTI_RANK_GPU_ENABLE=1
  export NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MAX_CTAS=4 NCCL_MNNVL_ENABLE=0
  exec "$@"' sh)
((many <= gpus)) || several+=("${shared[@]}")
several+=("$python")
losing=("${several[@]:0:1}" --on-failure wait --kill-grace 20 "${several[@]:1}")

# share MARKER COMMAND...: makes the file if the command shows that ranks can share a GPU.
share() {
  local marker=$1
  shift
  rm -f "$marker"
  "$@" || { echo "SKIP: NCCL does not run several ranks on one GPU here"; return 77; }
  touch "$marker"
}
export -f share

# lose COMMAND...: runs a job that loses a rank, and expects the lost rank's exit code.
lose() {
  local words
  words=$(mktemp)
  "$@" 2>&1 | tee "$words" || true
  grep -q 's until the error' "$words" && ! grep -q 'gpu_probes.py: ' "$words"
}
export -f lose

# conform RANKS: runs the suite of the NCCL plugin, with a GPU for each rank.
conform() {
  local folder rank pid code=0 pids=()
  if [[ -z $HOROVOD_CUDA_LIBRARY ]]; then
    echo "SKIP: torch loads no libcudart.so; HOROVOD_CUDA_LIBRARY may name it"
    return 77
  fi
  folder=$(mktemp -d)
  for ((rank = 0; rank < $1; ++rank)); do
    HVD_BACKEND=$HVD_BUILD/lib/horovod/ops/nccl.so HVD_WORLD_FOLDER=$folder HVD_WORLD_RANK=$rank \
      HVD_WORLD_SIZE=$1 HVD_BACKEND_DEVICE=$rank \
      "$HVD_BUILD/tests/backend_conformance" --no-colors=true '-tc=backend*' &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
  rm -rf "$folder"
  return "$code"
}
export -f conform

# memcheck: runs a test of streams and memory under compute-sanitizer.
memcheck() {
  if ! command -v compute-sanitizer >/dev/null || [[ $* == *libnccl_double.so* ]]; then
    echo "SKIP: compute-sanitizer is not installed, or sees no GPU"
    return 77
  fi
  HVD_TEST_SLEEP_CYCLES=1000000 compute-sanitizer --tool memcheck --error-exitcode 9 "$@" \
    HazardTest.test_inputs_that_are_written_late
}
export -f memcheck

# by_nccl NAME SECONDS COMMAND...: runs a test of several ranks alone; skips it if NCCL cannot share a GPU.
by_nccl() {
  if [[ -z $dry && $many -gt $gpus && ! -e $logs/shares_gpu ]]; then
    alone "$1" 10 sh -c "echo 'SKIP: NCCL does not run $many ranks on one GPU here ($logs/sharing.txt)'; exit 77"
  else
    alone "$@"
  fi
}

facts() {
  uname -a
  nvidia-smi
  "$python" -c 'import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())'
  ldd --version | head -n 1
  ls -l /dev/nvidia*
  df -h /dev/shm
  echo "locked memory: $(ulimit -l)"
  env | grep -E '^(NCCL|CUDA|HOROVOD|HVD)_' | sort
  ldconfig -p | grep -E 'libcuda.so|libnccl'
  command -v compute-sanitizer
}
[[ -n $dry ]] || facts >"$logs/facts.txt" 2>&1 || true

required=CUDA,NCCL,PyTorch
[[ -z $double ]] || required=NCCL,PyTorch
test=$PWD/${tests[0]} hazards=$PWD/${tests[1]} speed=$PWD/${tests[2]} sharing=$PWD/${tests[3]} probes=$PWD/${tests[4]}
plan() {
  wave "one rank: the search for libraries, streams, memory, both paths; whether NCCL lets ranks share a GPU"
  try check_build 60 env "${double_libraries[@]}" "$build/bin/horovodrun" --check-build --verbose --require "$required" \
    "$python" x.py
  try nccl.1_rank 60 "${one[@]}" "$test" "${under_test[@]}"
  try nccl.hazards.1_rank 60 "${one[@]}" "$hazards" "${under_test[@]}"
  try staged.1_rank 60 "${one[@]}" "$test" "${under_test[@]}" staged
  try staged.hazards.1_rank 60 "${one[@]}" "$hazards" "${under_test[@]}" staged
  try jax.1_rank 60 "${one[@]}" "$probes" jax
  if ((many > gpus)); then
    # shellcheck disable=SC2016 # bash -c expands it
    try sharing 50 env "${libraries[@]}" bash -c 'share "$@"' bash "$logs/shares_gpu" \
      "${several[@]}" "$sharing" "$logs/nccl_id"
  fi

  wave "$many ranks by NCCL: order, groups of calls, process sets"
  by_nccl "nccl.${many}_ranks" 60 "${several[@]}" "$test" "${under_test[@]}"
  by_nccl "nccl.hazards.${many}_ranks" 50 env HVD_TEST_BATCHES_SECONDS=10 "${several[@]}" "$hazards" "${under_test[@]}"

  wave "$many ranks: the choice without variables, and the loss of a rank"
  by_nccl "choice.${many}_ranks" 40 "${several[@]}" "$probes" choice "${under_test[@]}"
  # shellcheck disable=SC2016 # bash -c expands it
  by_nccl "abort.${many}_ranks" 40 bash -c 'lose "$@"' bash "${losing[@]}" "$probes" abort "${under_test[@]}"

  wave "$many ranks through host memory, and torch.distributed"
  try "staged.${many}_ranks" 50 "${several[@]}" "$test" "${under_test[@]}" staged
  try "staged.hazards.${many}_ranks" 50 "${several[@]}" "$hazards" "${under_test[@]}" staged
  try "jax.${many}_ranks" 50 "${several[@]}" "$probes" jax
  try "group.${many}_ranks" 50 "${several[@]}" "$probes" group "${under_test[@]}"

  wave "times and memory, one test after another"
  alone cost.1_rank 30 "${one[@]}" "$probes" cost "${under_test[@]}"
  alone speed.1_rank 30 "${one[@]}" "$speed" "${under_test[@]}"
  if ((many <= gpus)); then alone "speed.${many}_ranks" 30 "${several[@]}" "$speed" "${under_test[@]}"; fi
  alone "speed.staged.${many}_ranks" 30 "${several[@]}" "$speed" "${under_test[@]}" staged
  alone short_memory.1_rank 20 "${one[@]}" "$hazards" "${under_test[@]}" ShortMemoryTest

  wave "the conformance of the plugin, and memcheck"
  try nccl_conforms 40 env "${libraries[@]}" bash -c "conform $((gpus == 0 ? 1 : gpus < 4 ? gpus : 4))"
  # shellcheck disable=SC2016 # bash -c expands it
  try memcheck.1_rank 40 bash -c 'memcheck "$@"' bash "$python" "$hazards" "${under_test[@]}"
  wave
}
if [[ -n $dry ]]; then
  plan
  refuse 77 "SKIP: this machine has no NVIDIA GPU (no /dev/nvidia0); on one that has, the tests above take $seconds s at most"
fi
plan
echo
echo "$gpus GPUs${double:+ of the double}, $(date -u +%F): $passed passed, $failed failed, $skipped skipped"
((failed == 0))
