#!/bin/bash
# Runs each test that needs an NVIDIA GPU: tensors of PyTorch on GPUs by NCCL and through host memory, and
# the conformance of the NCCL plugin. Needs no network.
#
# usage: tests/gpu.sh [BUILD_FOLDER]     default: build, which must be built with BUILD_TESTING=ON
#
#   HVD_GPU_PYTHON          a Python whose torch has CUDA; default python3
#   HOROVOD_NCCL_LIBRARY,   paths of libnccl.so.2 and libcudart.so; default those of that Python's packages
#   HOROVOD_CUDA_LIBRARY    and then those of the system
#
# The last line counts: N passed, N failed, N skipped. Exit code 0: all that this machine's GPUs allow
# passed; 1: a test failed, or took longer than the 10 minutes that all have; 2: something is missing;
# 77: this machine has no NVIDIA GPU.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

refuse() {
  echo "gpu.sh: $2" >&2
  exit "$1"
}

build=$(readlink -m "${1:-build}")
python=${HVD_GPU_PYTHON:-python3}
shopt -s nullglob
gpus=(/dev/nvidia[0-9]*)
((${#gpus[@]} > 0)) ||
  refuse 77 "SKIP: this machine has no NVIDIA GPU (no /dev/nvidia0); run it on a machine that has one"
[[ -x $build/bin/horovodrun && -d $build/python/horovod ]] ||
  refuse 2 "$build holds no build; run: cmake --preset release && ninja -C build"
found=$("$python" -c 'import torch; print(torch.cuda.device_count())' 2>/dev/null) || found=0
((found > 0)) ||
  refuse 2 "$python has no torch that finds a GPU; name one that has by HVD_GPU_PYTHON"

# library PATTERN...: the first file of these in the Python's package nvidia.
library() {
  "$python" - "$@" <<'PY'
import glob, importlib.util, os, sys
spec = importlib.util.find_spec("nvidia")
for folder in spec.submodule_search_locations if spec else []:
    for pattern in sys.argv[1:]:
        for path in sorted(glob.glob(os.path.join(folder, pattern))):
            print(path)
            sys.exit()
PY
}
HOROVOD_NCCL_LIBRARY=${HOROVOD_NCCL_LIBRARY:-$(library 'nccl/lib/libnccl.so.2')}
HOROVOD_CUDA_LIBRARY=${HOROVOD_CUDA_LIBRARY:-$(library '*/lib/libcudart.so.*')}
for name in HOROVOD_NCCL_LIBRARY HOROVOD_CUDA_LIBRARY; do
  if [[ -n ${!name} ]]; then export "${name?}"; else unset "$name"; fi
done

end=$((SECONDS + 600)) passed=0 failed=0 skipped=0
# try NAME COMMAND...: one test; 77 is a skipped one.
try() {
  local name=$1 code=0 left=$((end - SECONDS))
  shift
  printf '\n==> %s [%d s]\n' "$name" "$SECONDS"
  if ((left > 0)); then timeout --kill-after=10 "$left" "$@" || code=$?; else code=124; fi
  case $code in
    0) passed=$((passed + 1)); echo "PASS $name" ;;
    77) skipped=$((skipped + 1)); echo "SKIP $name" ;;
    124) failed=$((failed + 1)); echo "FAIL $name: the 10 minutes are over" ;;
    *) failed=$((failed + 1)); echo "FAIL $name: exit code $code" ;;
  esac
}

export PYTHONPATH=$build/python PYTHONDONTWRITEBYTECODE=1 HVD_BUILD=$build
launch=("$python" tests/python/launch.py --gpus)
try check_build "$build/bin/horovodrun" --check-build --verbose --require CUDA,NCCL,PyTorch "$python" x.py
try torch.1_rank "$python" tests/python/gpu_test.py
for ranks in 2 4; do
  try "torch.${ranks}_ranks" "${launch[@]}" "$ranks" "$build/bin/horovodrun" -np "$ranks" -- \
    tests/python/gpu_test.py
done
try nccl_conforms_with_one_rank_for_each_gpu \
  /usr/bin/python3 -B tests/e2e/backends_test.py nccl_conforms_with_one_rank_for_each_gpu

echo
echo "${#gpus[@]} GPUs, $(date -u +%F): $passed passed, $failed failed, $skipped skipped"
((failed == 0))
