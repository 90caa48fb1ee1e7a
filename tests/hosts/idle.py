"""Time that a busy machine does not count: limits for it judge a program alone, however many run beside it."""

import os
import time


def idle():
    """Seconds that each processor of the machine has had nothing to do. They pass with those of a clock while a
    program waits on an idle machine, and slower or not at all on a busy one."""
    with open("/proc/stat") as file:
        return int(file.readline().split()[4]) / os.sysconf("SC_CLK_TCK") / os.cpu_count()


def rest(seconds):
    """Sleeps so long, and on a busy machine until others could use a processor as well, for five times as long."""
    began, unused = time.monotonic(), idle()
    while (past := time.monotonic() - began) < seconds or (idle() - unused < seconds / 2 and past < 5 * seconds):
        time.sleep(0.05)
