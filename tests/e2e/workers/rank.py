#!/usr/bin/python3 -S
"""A rank without a framework. It prints "ready", and waits for the file of --go, if given. The rank that
--rank names then acts; the other ranks continue forever.

usage: rank.py [--rank N] [--then HOW] [--go FILE] [--nasty] [--seconds S]
  HOW: "exitCODE" such as "exit3", "kill", "segv", "abort", or "sleep" (default, forever)
  --nasty: first start children that hide and refuse to end (see hide())
  --seconds S: a rank that does not act ends with code 0 after S seconds
"""

import argparse
import os
import signal
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int, default=0)
parser.add_argument("--then", default="sleep")
parser.add_argument("--go")
parser.add_argument("--nasty", action="store_true")
parser.add_argument("--seconds", type=float, default=600)
options = parser.parse_args()


def refuse():
    for number in (
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGPIPE,
        signal.SIGUSR1,
        signal.SIGUSR2,
    ):
        signal.signal(number, signal.SIG_IGN)


def child(*steps):
    """Forks a child that runs these steps and then sleeps, and ignores every signal that it can."""
    if os.fork() == 0:
        refuse()
        for step in steps:
            step()
        time.sleep(600)
        os._exit(0)


def fork_and_leave():
    if os.fork() != 0:
        os._exit(0)


def close_everything():
    os.closerange(0, 1024)


def hide():
    child()  # a child that ignores signals
    child(os.setsid)  # a child in its own session
    child(os.setsid, fork_and_leave)  # an orphan in its own session
    child(fork_and_leave, os.setsid, fork_and_leave, close_everything, lambda: os.chdir("/"))
    child(lambda: os.environ.clear(), os.setsid, fork_and_leave)
    child(lambda: os.execv("/bin/sh", ["sleepy", "-c", "trap '' TERM; sleep 600; sleep 600"]))


if options.nasty:
    hide()
    refuse()
print("ready", flush=True)
mine = os.environ.get("HOROVOD_RANK") == str(options.rank)
deadline = time.monotonic() + options.seconds
while options.go and not os.path.exists(options.go):
    time.sleep(0.01)
    if time.monotonic() > deadline:
        sys.exit(0)
if mine and options.then.startswith("exit"):
    os._exit(int(options.then[4:]))
if mine and options.then != "sleep":
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "segv": signal.SIGSEGV, "abort": signal.SIGABRT}[options.then])
time.sleep(max(0, deadline - time.monotonic()))
print("done", flush=True)
