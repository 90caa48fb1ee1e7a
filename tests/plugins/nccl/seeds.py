#!/usr/bin/python3
"""usage: seeds.py COUNT COMMAND...

Runs COMMAND once with each of the seeds 1 to COUNT of the double's late operations (HVD_DOUBLE_SEED). Fails if
one of the runs fails, with the seeds and the output of the first such run.
"""

import os
import subprocess
import sys


def main():
    count, command = int(sys.argv[1]), sys.argv[2:]
    failed = []
    for seed in range(1, count + 1):
        ran = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            env=dict(os.environ, HVD_DOUBLE_SEED=str(seed)),
        )
        if ran.returncode == 77:
            print(ran.stdout)
            sys.exit(77)
        if ran.returncode != 0 and not failed:
            print(ran.stdout[-8000:], flush=True)
        if ran.returncode != 0:
            failed.append(seed)
    if failed:
        raise SystemExit(f"seeds.py: {len(failed)} of {count} seeds fail: {failed}")
    print(f"{count} seeds pass")


if __name__ == "__main__":
    main()
