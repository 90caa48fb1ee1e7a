"""Idle time of the processors. A limit in idle time judges one program, however many programs run beside it."""

import os
import time


def idle():
    """Returns the seconds that each processor has been idle, on average. They grow like a clock's while a program
    waits on an idle machine, and slower or not at all on a busy machine."""
    with open("/proc/stat") as file:
        return int(file.readline().split()[4]) / os.sysconf("SC_CLK_TCK") / os.cpu_count()


def rest(seconds):
    """Sleeps `seconds`; on a busy machine longer, at most three times as long, until processors have had idle time."""
    began, unused = time.monotonic(), idle()
    while (past := time.monotonic() - began) < seconds or (idle() - unused < seconds / 2 and past < 3 * seconds):
        time.sleep(0.05)
