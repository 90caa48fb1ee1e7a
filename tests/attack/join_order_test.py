#!/usr/bin/python3 -B
"""Attacks on the link of a joining agent that change no byte: another order, a delay, a cut."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import *

from join_test import BY_AGENT, BY_LAUNCHER, TICKS, expect_altered, in_order, joining


def ticks_further(job, number):
    job.job.wait_for("tick", job.job.out.count("tick") + number)


def test_bytes_in_another_order_end_the_connection():
    for way, words in ("up", BY_LAUNCHER), ("down", BY_AGENT):
        with joining("sh", "-c", "trap '' USR1; " + TICKS) as job:
            agent = job.join()
            job.job.wait_for("tick 3")
            getattr(job.relay, way).reorder()
            job.job.signal(signal.SIGUSR1)  # the launcher forwards the signal to the rank
            expect_altered(job, agent, words)


def test_neither_a_delay_nor_a_cut_loses_a_line():
    with joining("sh", "-c", TICKS) as job:
        job.join()
        job.job.wait_for("tick 3")
        for direction in job.relay.up, job.relay.down:
            direction.passes.clear()
            time.sleep(1)
            direction.passes.set()
        ticks_further(job, 20)
        job.relay.cut()
        job.relay.heal()
        ticks_further(job, 20)
        in_order(job)


if __name__ == "__main__":
    main()
