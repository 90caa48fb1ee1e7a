"""Programs of other packages, unmodified, compute the same numbers on this backend as on gloo.

process_group_programs_test.py HOROVODRUN PACKAGE [TEST...]
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from importlib import util
from pathlib import Path

LAUNCHER, PACKAGE = sys.argv.pop(1), sys.argv.pop(1)
PROGRAMS = Path(__file__).with_name("process_group_programs.py")
LIMIT = 300
if util.find_spec(PACKAGE) is None:
    print(f"SKIP: {sys.executable} has no {PACKAGE}")
    sys.exit(77)


def of(package):
    """Skips the test in runs for other packages."""
    return (lambda test: test) if package == PACKAGE else lambda test: None


class ProgramsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.extensions = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.extensions.cleanup)

    def run_on(self, backend, name, ranks=2, **variables):
        """Returns the numbers of each rank."""
        done = subprocess.run(
            [LAUNCHER, "-np", str(ranks), "--torch-backend", backend, sys.executable, PROGRAMS, name],
            # DeepSpeed calls programs in the interpreter's folder, and compiles a part of itself at its first start.
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "TORCH_EXTENSIONS_DIR": self.extensions.name,
                **variables,
            },
            timeout=LIMIT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        results = sorted(json.loads(text) for text in re.findall(r"result (.*)", done.stdout))
        self.assertEqual(len(results), ranks, done.stdout)
        self.assertEqual({said for _, _, said, _ in results}, {"gloo"})
        # torch's own gloo groups have the class ProcessGroup, or ProcessGroupGloo before torch 2.
        self.assertEqual({"GlooStandIn" == group for _, group, _, _ in results}, {backend == "horovod"}, results)
        return [numbers for *_, numbers in results]

    def compare(self, ours, theirs):
        self.assertGreater(len(ours[0]), 2)
        for mine, other in zip(ours, theirs):
            self.assertEqual(len(mine), len(other))
            for one, two in zip(mine, other):
                self.assertAlmostEqual(one, two, delta=1e-5 * max(1, abs(two)))

    def agrees(self, name):
        self.compare(self.run_on("horovod", name), self.run_on("gloo", name))

    @of("accelerate")
    def test_accelerate(self):
        self.agrees("accelerate")

    @of("lightning_fabric")
    def test_lightning_fabric(self):
        self.agrees("lightning_fabric")

    @of("torchmetrics")
    def test_torchmetrics(self):
        self.agrees("torchmetrics")

    @of("transformers")
    def test_the_trainer_of_transformers(self):
        self.agrees("trainer")

    @of("deepspeed")
    def test_deepspeed_zero_1(self):
        self.agrees("zero1")

    @of("deepspeed")
    def test_deepspeed_zero_2(self):
        self.agrees("zero2")

    @of("torch")
    def test_a_checkpoint_of_4_ranks_is_loaded_on_2(self):
        with tempfile.TemporaryDirectory() as folder:
            saved = self.run_on("horovod", "save", 4, CHECKPOINT=folder)
            ours = self.run_on("horovod", "load", 2, CHECKPOINT=folder)
            self.compare(ours, saved[:2])
            self.compare(ours, self.run_on("gloo", "load", 2, CHECKPOINT=folder))


if __name__ == "__main__":
    unittest.main(verbosity=2)
