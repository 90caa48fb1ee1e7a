#!/usr/bin/python3 -B
"""tests/gpu.sh with mocks of CUDA and NCCL: here, and its bundle on another Debian without this project's libraries."""

import glob

import roots
from harness import *

SCRIPT = ROOT / "tests/gpu.sh"
# Tests that cannot use mocks: twice JAX, torch.distributed, torch's profiler and compute-sanitizer.
LAST = r"(?m)^1 GPUs of the double, \S+: (\d+) passed, 0 failed, 5 skipped\n\Z"


def passes(code, words):
    last = re.search(LAST, words)
    expect(code == 0 and last and int(last[1]) >= 13, f"exit code {code}:\n{words}")


def test_each_test_of_a_gpu_runs_on_the_double():
    if roots.call("/usr/bin/python3", "-c", "import torch", seconds=60)[0] != 0:
        raise Skip("/usr/bin/python3 has no torch")
    with tempfile.TemporaryDirectory(dir=BUILD) as logs:
        code, words = roots.call(
            SCRIPT,
            "--double",
            "--logs",
            logs,
            BUILD,
            seconds=560,
            env=clean_environment(HVD_GPU_PYTHON="/usr/bin/python3"),
        )
        passes(code, words)
        # An NCCL that takes two ranks for ranks on one host, whatever NCCL_HOSTID is.
        code, words = roots.call(
            SCRIPT,
            "--double",
            "--logs",
            logs,
            BUILD,
            seconds=560,
            env=clean_environment(HVD_GPU_PYTHON="/usr/bin/python3", HVD_DOUBLE_HOST="one"),
        )
        reason = "2_ranks: NCCL does not run 2 ranks on one GPU here"
        expect(
            code == 0 and words.count(reason) == 4 and " 0 failed, 10 skipped" in words, f"exit code {code}:\n{words}"
        )


def test_a_bundle_runs_on_another_debian():
    if os.getuid() != 0 or not shutil.which("mmdebstrap"):
        raise Skip("a root of Debian 13 needs root and mmdebstrap")
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="e2e-", ignore_cleanup_errors=True) as path:
        root = pathlib.Path(path) / "root"
        roots.make_root(root, ("python3", "python3-numpy", "python3-torch"), is_kept=True, suite="trixie")
        code, words = roots.call(SCRIPT, "--bundle", root / "opt/gpu", BUILD, seconds=120)
        expect(code == 0, words)
        there = ("bash", "/opt/gpu/tests/gpu.sh")
        if not glob.glob("/dev/nvidia[0-9]*"):
            code, words = roots.run_on_another_debian(root, *there, seconds=60, mounts=())
            expect(
                code == 77 and "no NVIDIA GPU" in words and "  abort.2_ranks, at most " in words,
                f"exit code {code}:\n{words}",
            )
        code, words = roots.run_on_another_debian(
            root, *there, "--double", "--logs", "/opt/logs", seconds=560, mounts=()
        )
        passes(code, words)


if __name__ == "__main__":
    main()
