"""Repeats a random round of a test in several worlds at the same time. A round mostly waits.

HVD_FAULTS=1000 requests 1,000 rounds instead of the time; HVD_SEED repeats a run.
"""

import random

from harness import *

RUN = "--rounds"


def repeat(round_of, start=lambda: None):
    """Calls round_of(chance, start()) in a world, for as long or as often as run_in_worlds requests."""
    seed, seconds, wanted = sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    chance, count = random.Random(seed), 0
    try:
        state = start()
        deadline = time.monotonic() + seconds
        while count < wanted if wanted else time.monotonic() < deadline:
            round_of(chance, state)
            remove_folders()
            count += 1
    except Failure as failure:
        print(f"round {count} of HVD_SEED={seed}: {failure}")
        sys.exit(1)
    print(f"{count} rounds")


def run_in_worlds(names, worlds, seconds):
    """Calls the script with RUN in each world."""
    wanted = int(os.environ.get("HVD_FAULTS", "0"))
    seed = os.environ.get("HVD_SEED", str(time.time_ns()))
    # A seed from an earlier output has a "-" and belongs to one world.
    seeds = [seed] if "-" in seed else [f"{seed}-{number}" for number in range(worlds)]
    running = [
        subprocess.Popen(
            [
                HOSTS,
                "run",
                "--root",
                "--names",
                names,
                "--",
                PYTHON,
                "-B",
                sys.argv[0],
                RUN,
                each,
                str(seconds),
                str(-(-wanted // len(seeds))),
            ],
            env={**os.environ, "HVD_IN_WORLD": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for each in seeds
    ]
    said = [each.communicate()[0] for each in running]
    if any(each.returncode == NO_WORLD for each in running):
        raise Skip(said[0].strip().rpartition("\n")[2].removeprefix("hosts: "))
    expect(not any(each.returncode for each in running), "\n".join(said))
    count = sum(int(number) for text in said for number in re.findall(r"(?m)^(\d+) rounds$", text))
    print(f"{count} rounds")
    expect(count >= len(seeds), f"a world has run nothing: {said}")
