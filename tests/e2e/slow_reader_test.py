#!/usr/bin/python3 -B
"""Readers that are slower than their writers for longer than a lease: every byte arrives, no lease ends."""

import hashlib

from harness import *

LEASE = ("--lease", 3)
SLOWLY = """
import hashlib, os, time
got = hashlib.sha256()
while piece := os.read(0, 1 << 16):
    got.update(piece)
    time.sleep(0.15)
print(got.hexdigest())
"""


@world()
def test_a_slow_reader_of_the_output_gets_every_line():
    process = subprocess.Popen(
        [
            LAUNCHER,
            *"-np 2 -H a:1,b:1".split(),
            *map(str, LEASE),
            PYTHON,
            "-c",
            "for i in range(4000): print(f'{i:0399d}')",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
        cwd=ROOT,
        process_group=0,
    )
    pieces = []
    while piece := os.read(process.stdout.fileno(), 1 << 15):
        pieces.append(piece)
        time.sleep(0.1)  # the reader's pace is the test's parameter
    expect(process.wait(LONG) == 0 and b"heartbeat" not in process.stderr.read(), f"exit code {process.returncode}")
    lines = b"".join(pieces).decode().splitlines()
    for rank in range(2):
        tag = f"[{rank}]<stdout>:"
        expect(
            [line[len(tag) :] for line in lines if line.startswith(tag)] == [f"{i:0399d}" for i in range(4000)],
            f"rank {rank}'s lines are not what it wrote",
        )


@world()
def test_a_slow_reader_of_the_input_gets_every_byte():
    data = os.urandom(3 << 20)
    done = run_to_end(
        [LAUNCHER, "-np", "2", "-H", "a:1,b:1", *map(str, LEASE), "--stdin", "all", PYTHON, "-c", SLOWLY],
        input=data,
        env=clean_environment(),
        cwd=ROOT,
        text=False,
    )
    said = hashlib.sha256(data).hexdigest()
    expect(done.returncode == 0 and done.stdout.decode().count(said) == 2, done)


if __name__ == "__main__":
    main()
