"""The benchmark lines about slow ranks: the launcher must name a slow rank within two windows after the first 100
steps, and must never name a healthy rank.

A step is a timed sleep, as in tests/e2e/workers/late_rank.py. 64 Python ranks need more processor time in a step than
two processors have, so every rank would be late at times. Jobs above 16 ranks therefore run a C++ program.
"""

import os
import random
import re
import subprocess
import tempfile
import threading

from driver import teams
from driver.lines import Line, Result

WORKER = teams.ROOT / "tests" / "e2e" / "workers" / "late_rank.py"
LIGHT_WORKER = teams.BUILD / "bench" / "late_worker"
LAUNCHER = teams.BUILD / "bin" / "horovodrun"
WINDOW, FIRST = 50, 100
SHARE = 0.15
SENTENCE = re.compile(r"^horovodrun: (?:\S+ )?ranks? [-,\d]+ on .* late .*|^horovodrun: all ranks are slower.*", re.M)


def sentences(bench, ranks, steps, seconds, *late):
    """Returns the launcher's messages about late ranks in a job."""
    with tempfile.TemporaryDirectory() as state:
        environment = {**os.environ, "PYTHONPATH": str(teams.BUILD / "python"), "HOROVOD_STATE_DIR": state}
        program = [LIGHT_WORKER] if ranks > 16 else [bench.python, "-B", WORKER]
        done = subprocess.run(
            [str(word) for word in (LAUNCHER, "-np", ranks, *program, steps, seconds, *late)],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=120 + 10 * steps * seconds,
        )
    return SENTENCE.findall(done.stderr)


def planted(bench, ranks):
    """Plants a rank that sleeps 15 % longer. The launcher must name this rank and no other."""
    choose = random.Random(ranks)
    episodes = 2 * bench.rounds
    found, wrong = 0, []
    for _ in range(episodes):
        seconds = choose.uniform(0.03 if ranks > 4 else 0.02, 0.05)
        rank = choose.randrange(ranks)
        # The warm-up steps, two windows, and the delay until the launcher checks.
        steps = FIRST + 2 * WINDOW + 10 + int(2.5 / seconds)
        said = sentences(bench, ranks, steps, seconds, rank, SHARE)
        named = [each for each in said if each.startswith(f"horovodrun: rank {rank} on ")]
        found += bool(named)
        wrong += [each for each in said if each not in named and "run delay" not in each]
    note = f"{found} of {episodes} episodes; other sentences: {wrong or 'none'}"
    return Result("%", 100 * found / episodes, {}, "≥ 80 %, no other rank", found >= 0.8 * episodes and not wrong, note)


def healthy(bench):
    """Runs four punctual ranks next to a busy compiler. Messages may name the delay by the compiler."""
    over = threading.Event()

    def compile_again():
        source = '#include <regex>\n#include <map>\nint main() { std::regex r("a*"); }\n'
        while not over.is_set():
            subprocess.run(["g++", "-O2", "-x", "c++", "-", "-o", "/dev/null"], input=source, text=True, check=False)

    compilers = [threading.Thread(target=compile_again) for _ in range(2)]
    for each in compilers:
        each.start()
    seconds, windows = 0.02, 20 if bench.rounds < 9 else 500
    try:
        said = sentences(bench, 4, WINDOW * windows, seconds)
    finally:
        over.set()
        for each in compilers:
            each.join()
    wrong = [each for each in said if "run delay" not in each]
    note = f"{windows} windows; all sentences: {said or 'none'}"
    return Result("per 1,000", 1000 * len(wrong) / windows, {}, "≤ 1", 1000 * len(wrong) <= windows, note)


def of_ranks(ranks):
    return Line(f"late-{ranks}", f"planted ranks that are 15 % late, of {ranks}", lambda bench: planted(bench, ranks))


LINES = [of_ranks(4), of_ranks(16), of_ranks(64), Line("late-none", "false sentences beside a compiler", healthy)]
