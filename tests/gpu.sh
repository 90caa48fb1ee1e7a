#!/bin/bash
# Runs each test that needs an NVIDIA GPU, in at most 9 minutes: tensors of PyTorch on GPUs by NCCL and through host
# memory, on one GPU and on all of several; streams and memory; times beside torch's own process group; the
# conformance of the NCCL plugin; compute-sanitizer, where it is installed. Needs no network.
#
# usage: tests/gpu.sh [--double] [--logs FOLDER] [BUILD_FOLDER]
#        tests/gpu.sh --bundle FOLDER|FILE.tar.gz [BUILD_FOLDER]
#
#   BUILD_FOLDER      default: build, built with BUILD_TESTING=ON
#   --logs FOLDER     gets the output of each test; default: BUILD_FOLDER/gpu
#   --double          with the test library of tests/plugins/nccl in place of CUDA and NCCL, and PyTorch on the CPU:
#                     shows that each test runs, and nothing of a GPU
#   --bundle          writes all that this script needs on a machine with GPUs, less than 64 MiB. There, PyTorch
#                     with CUDA and `bash tests/gpu.sh` suffice
#
#   HVD_GPU_PYTHON          a Python whose torch has CUDA; default python3
#   HOROVOD_NCCL_LIBRARY,   paths of libnccl.so.2 and libcudart.so; default those that torch loads
#   HOROVOD_CUDA_LIBRARY
#
# Two ranks share a GPU where there is only one: NCCL takes them for two hosts (NCCL_HOSTID). Where NCCL does not
# run so, the tests of two ranks by NCCL are skipped.
#
# The last line counts: N passed, N failed, N skipped. Exit code 0: all that this machine's GPUs allow
# passed; 1: a test failed, or found no time left; 2: something is missing; 77: this machine has no NVIDIA GPU.
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
  tests/python/gpu_sharing.py)

# make_bundle TARGET: this folder as far as the tests need it, with a build folder in it.
make_bundle() {
  local target=$1 folder size
  [[ ! -e $target ]] || refuse 2 "$target exists already"
  folder=$(mktemp -d)
  # shellcheck disable=SC2064 # the folder of now
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
  # The libraries that a machine may lack, beside those of the C and C++ compilers. It uses its own first.
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
if [[ -n $double ]]; then
  gpus=${HVD_DOUBLE_DEVICES:-1}
  export HVD_DOUBLE_DEVICES=$gpus
else
  shopt -s nullglob
  files=(/dev/nvidia[0-9]*)
  ((${#files[@]} > 0)) ||
    refuse 77 "SKIP: this machine has no NVIDIA GPU (no /dev/nvidia0); run it on a machine that has one"
  gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())' 2>/dev/null) || gpus=0
fi
[[ -x $build/bin/horovodrun && -d $build/python/horovod ]] ||
  refuse 2 "$build holds no build; run: cmake --preset release && ninja -C build"
((gpus > 0)) ||
  refuse 2 "$python has no torch that finds a GPU; name one that has by HVD_GPU_PYTHON"
"$python" -c 'import torch' 2>/dev/null || refuse 2 "$python has no torch; name one that has by HVD_GPU_PYTHON"

# A library of the bundle is used only where this machine has none of its name.
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
bring_libraries

# library NAME: the file of this name that torch loads.
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
under_test=()
if [[ -n $double ]]; then
  under_test=("$build/tests/libnccl_double.so")
  HOROVOD_NCCL_LIBRARY=${under_test[0]} HOROVOD_CUDA_LIBRARY=${under_test[0]}
else
  HOROVOD_NCCL_LIBRARY=${HOROVOD_NCCL_LIBRARY:-$(library libnccl.so)}
  HOROVOD_CUDA_LIBRARY=${HOROVOD_CUDA_LIBRARY:-$(library libcudart.so)}
fi
for name in HOROVOD_NCCL_LIBRARY HOROVOD_CUDA_LIBRARY; do
  if [[ -n ${!name} ]]; then export "${name?}"; else unset "$name"; fi
done
export PYTHONPATH=$build/python PYTHONDONTWRITEBYTECODE=1 HVD_BUILD=$build NCCL_DEBUG=${NCCL_DEBUG:-WARN}

mkdir -p "$logs"
rm -f "$logs/nccl_id"
end=$((SECONDS + 540)) passed=0 failed=0 skipped=0

skip() {
  skipped=$((skipped + 1))
  echo "SKIP $1: $2"
}

# try NAME SECONDS COMMAND...: one test, with a time limit; 77 is a skipped one.
try() {
  local name=$1 limit=$2 code=0 log=$logs/$1.txt begin=$SECONDS
  shift 2
  ((limit <= end - SECONDS)) || limit=$((end - SECONDS))
  if ((limit > 0)); then
    timeout --kill-after=10 "$limit" "$@" >"$log" 2>&1 || code=$?
  else
    echo "no time was left" >"$log"
    code=124
  fi
  case $code in
    0) passed=$((passed + 1)); echo "PASS $name [$((SECONDS - begin)) s]" ;;
    77) skip "$name" "$(grep -m 1 -o 'SKIP: .*' "$log" | cut -c 7-)" ;;
    124) failed=$((failed + 1)); echo "FAIL $name: its $limit s are over" ;;
    *) failed=$((failed + 1)); echo "FAIL $name: exit code $code" ;;
  esac
  if ((code == 0)); then
    grep -oE '(NCCL|staged) .* ratio .*|[0-9.]+ us for .*|[0-9]+ steps of .*' "$log" | sed 's/^/     /' || true
  elif ((code != 77)); then
    tail -n 30 "$log" | cut -c 1-200 | sed 's/^/     /'
  fi
  return 0
}

# start COUNT: the words before the command of COUNT ranks, in `start`. Each has a GPU of its own, or all use the
# first one.
start() {
  start=("$build/bin/horovodrun" -np "$1")
  (($1 <= gpus)) || start+=("${shared[@]}")
}
# shellcheck disable=SC2016 # each rank expands it
shared=(sh -c 'export HVD_TEST_SHARES_GPU=1 NCCL_HOSTID="rank$HOROVOD_RANK" NCCL_MULTI_RANK_GPU_ENABLE=1
  export NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MAX_CTAS=4
  exec "$@"' sh)

# conform RANKS: the suite of the NCCL plugin, with a GPU for each rank.
conform() {
  local folder rank pid code=0 pids=()
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

{
  uname -a
  nvidia-smi
  "$python" -c 'import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())'
  ldd --version | head -n 1
  df -h /dev/shm
  echo "locked memory: $(ulimit -l)"
  env | grep -E '^(NCCL|CUDA|HOROVOD|HVD)_' | sort
  command -v compute-sanitizer
} >"$logs/facts.txt" 2>&1 || true

required=CUDA,NCCL,PyTorch
[[ -z $double ]] || required=NCCL,PyTorch
test=$PWD/${tests[0]} hazards=$PWD/${tests[1]} speed=$PWD/${tests[2]} sharing=$PWD/${tests[3]}
try check_build 60 "$build/bin/horovodrun" --check-build --verbose --require "$required" "$python" x.py
try nccl.1_rank 90 "$python" "$test" "${under_test[@]}"
try nccl.hazards.1_rank 60 "$python" "$hazards" "${under_test[@]}"
try nccl.short_memory.1_rank 60 "$python" "$hazards" "${under_test[@]}" ShortMemoryTest
try staged.1_rank 60 "$python" "$test" "${under_test[@]}" staged
try staged.hazards.1_rank 60 "$python" "$hazards" "${under_test[@]}" staged
try speed.1_rank 60 "$python" "$speed" "${under_test[@]}"

sizes=(2)
((gpus <= 2)) || sizes+=("$gpus")
for ranks in "${sizes[@]}"; do
  start "$ranks"
  reason=''
  if ((ranks > gpus)) && ! timeout --kill-after=10 60 "${start[@]}" "$python" "$sharing" "$logs/nccl_id" \
    >"$logs/sharing.txt" 2>&1; then
    reason="NCCL does not run two ranks on one GPU here ($logs/sharing.txt)"
  fi
  for name in nccl nccl.hazards speed; do
    case $name in
      nccl) words=(90 "${start[@]}" "$python" "$test" "${under_test[@]}") ;;
      nccl.hazards) words=(90 env HVD_TEST_BATCHES_SECONDS=20 "${start[@]}" "$python" "$hazards" "${under_test[@]}") ;;
      *) words=(90 "${start[@]}" "$python" "$speed" "${under_test[@]}") ;;
    esac
    if [[ -z $reason ]]; then try "$name.${ranks}_ranks" "${words[@]}"; else skip "$name.${ranks}_ranks" "$reason"; fi
  done
  try "staged.${ranks}_ranks" 60 "${start[@]}" "$python" "$test" "${under_test[@]}" staged
  try "staged.hazards.${ranks}_ranks" 60 "${start[@]}" "$python" "$hazards" "${under_test[@]}" staged
done

if [[ -n ${HOROVOD_CUDA_LIBRARY:-} ]]; then
  try nccl_conforms 60 bash -c "conform $((gpus < 4 ? gpus : 4))"
else
  skip nccl_conforms "torch loads no libcudart.so; HOROVOD_CUDA_LIBRARY may name it"
fi
if command -v compute-sanitizer >/dev/null && [[ -z $double ]]; then
  try memcheck.1_rank 150 env HVD_TEST_SLEEP_CYCLES=1000000 compute-sanitizer --tool memcheck --error-exitcode 9 \
    "$python" "$hazards" HazardTest.test_inputs_that_are_written_late
else
  skip memcheck.1_rank "compute-sanitizer is not installed"
fi

echo
echo "$gpus GPUs${double:+ of the double}, $(date -u +%F): $passed passed, $failed failed, $skipped skipped"
((failed == 0))
