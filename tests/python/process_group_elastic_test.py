"""DDP on a group of this backend in an elastic job: a rank is killed, the survivors continue in their processes, and a
new rank joins.

process_group_elastic_test.py HOROVODRUN
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
from importlib import util
from pathlib import Path

LAUNCHER = sys.argv.pop(1)
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "elastic" / "torch_distributed_digits.py"
LIMIT = 200
ENOUGH = 0.9  # minimum test accuracy
if util.find_spec("torch") is None:
    print(f"SKIP: {sys.executable} has no torch")
    sys.exit(77)


class ElasticTest(unittest.TestCase):
    def begin(self, *command):
        self.job = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.addCleanup(self.job.kill)
        self.lines = []
        self.news = threading.Condition()
        reader = threading.Thread(target=self.read)
        reader.start()
        self.addCleanup(reader.join)

    def read(self):
        for line in self.job.stdout:
            with self.news:
                self.lines.append(line)
                self.news.notify_all()
        self.job.stdout.close()

    def found(self, pattern, count):
        """Waits until the output has this many matches, and returns them."""
        end = time.monotonic() + LIMIT
        with self.news:
            while True:
                matches = re.findall(pattern, "".join(self.lines))
                if len(matches) >= count:
                    return matches
                left = end - time.monotonic()
                if left <= 0 or not self.news.wait(left):
                    self.fail(f"no {count} of {pattern} in {''.join(self.lines)}")

    def test_a_killed_rank_and_a_new_one(self):
        self.begin(
            *(LAUNCHER, "-np", 3, "--min-np", 2, "--restart-ranks"),
            *(sys.executable, EXAMPLE, "--epochs", 12, "--pause", 0.03),
        )
        first = dict(self.found(r"rank (\d) of 3 begins in epoch 0, process (\d+)", 3))
        time.sleep(0.3)  # let the ranks train
        os.kill(int(first["1"]), signal.SIGKILL)
        second = dict(self.found(r"rank (\d) of 2 begins in epoch \d+, process (\d+)", 2))
        self.assertEqual(list(map(second.get, "01")), [first["0"], first["2"]])
        third = dict(self.found(r"rank (\d) of 3 begins in epoch \d+, process (\d+)", 6)[3:])
        self.assertEqual(list(map(third.get, "01")), [first["0"], first["2"]])
        ends = self.found(r"of 3 ends: test accuracy ([\d.]+), weights (\w+)", 3)
        self.assertEqual(self.job.wait(LIMIT), 0, "".join(self.lines))
        self.assertEqual(len(set(ends)), 1, ends)
        self.assertGreater(float(ends[0][0]), ENOUGH)


if __name__ == "__main__":
    unittest.main(verbosity=2)
