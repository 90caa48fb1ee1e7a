#!/usr/bin/python3
"""usage: seeds.py COUNT AT_ONCE COMMAND...

Runs COMMAND once with each seed from 1 to COUNT for the double's delays (HVD_DOUBLE_SEED), AT_ONCE at a time. If runs
fail, prints their seeds and the output of the first failure.
"""

import concurrent.futures
import os
import subprocess
import sys
import time

SKIPPED = 77


def run(command, seed):
    return subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        env=dict(os.environ, HVD_DOUBLE_SEED=str(seed)),
    )


def main():
    count, at_once, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    began = time.monotonic()
    failed = []
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        runs = {pool.submit(run, command, seed): seed for seed in range(1, count + 1)}
        for done in concurrent.futures.as_completed(runs):
            ran = done.result()
            if ran.returncode == SKIPPED:
                print(ran.stdout)
                pool.shutdown(cancel_futures=True)
                sys.exit(SKIPPED)
            if ran.returncode != 0 and not failed:
                print(f"seed {runs[done]} ends with {ran.returncode}:\n{ran.stdout[-8000:]}", flush=True)
            if ran.returncode != 0:
                failed.append(runs[done])
    if failed:
        raise SystemExit(f"seeds.py: {len(failed)} of {count} seeds fail: {sorted(failed)}")
    print(f"{count} seeds pass in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
