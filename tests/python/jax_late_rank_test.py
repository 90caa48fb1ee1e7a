"""horovod.jax in compiled programs when a rank is late: the handler returns before the collective is complete.

Set MALLOC_PERTURB_: glibc then overwrites freed memory, for example XLA's description of a call.
"""

import time

import rank_base

jax = rank_base.need("jax")
import horovod.jax as hvd

import numpy

jnp = jax.numpy
RUNS = 200
LATE = 0.005  # seconds of delay


class LateRankTest(rank_base.RankBase):
    def check(self, function, want, rows=None):
        """Runs the program RUNS times with different values; the late rank changes. `want`: this rank's result from the
        inputs of all ranks."""
        rows = rows or self.size
        step = jax.jit(function)
        for run in range(RUNS):
            inputs = [
                numpy.arange(2.0 * rows, dtype="float32").reshape(rows, 2) + 7 * run + rank for rank in range(self.size)
            ]
            if run % self.size == self.rank:
                time.sleep(LATE)
            got = step(jnp.asarray(inputs[self.rank]))
            numpy.testing.assert_array_equal(got, want(inputs), f"run {run}")

    def part(self, array, rank=None):
        rows = len(array) // self.size
        rank = self.rank if rank is None else rank
        return array[rank * rows : (rank + 1) * rows]

    def test_allreduce(self):
        self.check(lambda x: hvd.allreduce(x, op=hvd.Sum), sum)

    def test_group(self):
        self.check(lambda x: hvd.allreduce([x, x[:1] * 2], op=hvd.Sum)[1], lambda all_: 2 * sum(all_)[:1])

    def test_allgather(self):
        self.check(hvd.allgather, numpy.concatenate)

    def test_broadcast(self):
        self.check(lambda x: hvd.broadcast(x, self.size - 1), lambda all_: all_[-1])

    def test_alltoall(self):
        self.check(hvd.alltoall, lambda all_: numpy.concatenate([self.part(each) for each in all_]), 2 * self.size)

    def test_reducescatter(self):
        self.check(lambda x: hvd.reducescatter(x, op=hvd.Sum), lambda all_: self.part(sum(all_)), 3 * self.size)

    def test_a_disagreement_names_both_shapes(self):
        if self.size == 1:
            self.skipTest("one rank agrees with itself")
        mine = jnp.ones((self.rank + 1, 3))
        if self.rank == 0:
            time.sleep(LATE)
        total = sum(range(1, self.size + 1))
        with self.assertRaisesRegex(Exception, rf"\({total}, 3\) and not \({self.size * (self.rank + 1)}, 3\)"):
            jax.jit(hvd.allgather)(mine).block_until_ready()


if __name__ == "__main__":
    rank_base.main()
