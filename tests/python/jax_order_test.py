"""Two JAX programs that ranks run in different order wait for each other: the stall report names both.

python3 jax_order_test.py LAUNCHER
"""

import subprocess
import sys
import unittest

import rank_base

rank_base.need("jax")

LAUNCHER = sys.argv.pop(1)
SCRIPT = """
import jax, jax.numpy as jnp, horovod.jax as hvd
hvd.init()

@jax.jit
def forward(x):
    return hvd.allreduce(x, name="f", op=hvd.Sum)

@jax.jit
def backward(x):
    return hvd.allreduce(x, name="b", op=hvd.Sum)

if hvd.rank() == 1:
    backward.lower(jnp.ones(7))  # compiles this program for one more shape
programs = [forward, backward] if hvd.rank() == 0 else [backward, forward]
results = [program(jnp.ones(8)) for program in programs]
jax.block_until_ready(results)
print("done")
"""


class OrderTest(unittest.TestCase):
    def test_the_report_names_the_programs(self):
        done = subprocess.run(
            [
                LAUNCHER,
                *"-np 2 --stall-check-warning-time-seconds 1 --stall-check-shutdown-time-seconds 3".split(),
                sys.executable,
                "-c",
                SCRIPT,
            ],
            capture_output=True,
            text=True,
            timeout=200,
        )
        self.assertNotIn("done", done.stdout, done.stderr)
        self.assertNotEqual(done.returncode, 0)
        for pattern in (
            r"0!?: \[grouped_allreduce\.b",
            r"1!?: \[grouped_allreduce\.f",
            r"rank 0 on .*: last submitted allreduce 'grouped_allreduce\.f.*' \S+ s ago in the compiled program "
            r"jit_forward(?!; this rank)",
            r"rank 1 on .*: last submitted allreduce 'grouped_allreduce\.b.*' \S+ s ago in the compiled program "
            r"jit_backward; this rank compiled the program again \(compilation 2\)",
        ):
            self.assertRegex(done.stderr, pattern)


if __name__ == "__main__":
    unittest.main(verbosity=2)
