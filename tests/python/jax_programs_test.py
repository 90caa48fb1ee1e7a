"""Random programs of horovod.jax with a constant that differs between ranks, against numpy with the inputs of all
ranks.

XLA drops a multiplication by 1.0 on one rank and keeps another factor on the other ranks; their operations may then
have a different order. HVD_TEST_PROGRAMS: number of programs; HVD_TEST_SEED: first seed.
"""

import os
import random

import rank_base

jax = rank_base.need("jax")
import horovod.jax as hvd

import numpy

jnp, lax = jax.numpy, jax.lax
PROGRAMS = int(os.environ.get("HVD_TEST_PROGRAMS", "20"))
SEED = int(os.environ.get("HVD_TEST_SEED", "0"))
# A rank reduces one of these expressions; `m` is jax.numpy or numpy.
TERMS = {
    "sum": lambda m, x, p: m.sum(x),
    "square": lambda m, x, p: m.mean(x * x),
    "row": lambda m, x, p: x[0],
    "column": lambda m, x, p: x[:, 0],
    "layer": lambda m, x, p: m.tanh(x @ p),
    "loss": lambda m, x, p: m.mean(m.abs(m.tanh(x @ p) - x)),
    "all": lambda m, x, p: x,
}
HELPERS = {
    "plain": lambda reduce: reduce,
    "jit": jax.jit,
    "checkpoint": jax.checkpoint,
    "jit of jit": lambda reduce: jax.jit(jax.jit(reduce)),
}


class Program:
    """Returns a list of reductions, equal on all ranks except for the factors and the rank with an extra result."""

    def __init__(self, seed, ranks):
        chosen = random.Random(seed)
        self.rows = chosen.choice((3, 6, 6, 150))
        self.helper = HELPERS[chosen.choice(sorted(HELPERS))]
        self.is_named, self.averages = chosen.random() < 0.3, chosen.random() < 0.5
        self.terms = [chosen.choice(sorted(TERMS)) for _ in range(chosen.randint(2, 5))]
        # 1.0 on a rank: XLA drops the multiplication there.
        self.factors = [
            [chosen.choice((1.0, 1.0, 0.5, 3.0)) for _ in range(ranks)] if chosen.random() < 0.7 else [1.0] * ranks
            for _ in self.terms
        ]
        self.loops = [[chosen.choice((0, 0, 1, 20)) for _ in range(ranks)] for _ in self.terms]
        # For each term: whether it adds the sum of an earlier result.
        self.earlier = [chosen.random() < 0.25 and number > 0 for number in range(len(self.terms))]
        numbers = numpy.random.RandomState(seed)
        self.inputs = numbers.rand(ranks, self.rows, self.rows).astype("float32")
        self.parameters = (numbers.rand(self.rows, self.rows) / self.rows).astype("float32")

    def compiled(self, rank):
        op = hvd.Average if self.averages else hvd.Sum
        helpers = [
            self.helper(lambda x, name=f"term.{number}": hvd.allreduce(x, name if self.is_named else None, op))
            for number in range(len(self.terms))
        ]
        if not self.is_named:
            helpers = helpers[:1] * len(helpers)  # one function, which JAX lowers once for each shape

        def step(x, p):
            results = []
            for number, term in enumerate(self.terms):
                value = TERMS[term](jnp, x, p) * self.factors[number][rank]
                if self.loops[number][rank]:  # work that other ranks do not have
                    burnt = lax.fori_loop(0, self.loops[number][rank], lambda i, y: y @ p, x)
                    value = value + 0 * burnt[0, 0]
                if self.earlier[number]:
                    value = value + jnp.mean(results[-1])
                results.append(helpers[number](value))
            return results

        return jax.jit(step)

    def results(self):
        """Computes the same in float64, in one process."""
        x, p = self.inputs.astype("float64"), self.parameters.astype("float64")
        results = []
        for number, term in enumerate(self.terms):
            values = [TERMS[term](numpy, x[rank], p) * factor for rank, factor in enumerate(self.factors[number])]
            if self.earlier[number]:
                values = [value + numpy.mean(results[-1]) for value in values]
            results.append(sum(values) / (len(values) if self.averages else 1))
        return results


class ProgramsTest(rank_base.RankBase):
    def test_random_programs(self):
        for seed in range(SEED, SEED + PROGRAMS):
            program = Program(seed, self.size)
            step = program.compiled(self.rank)
            for _ in range(2):
                got = step(program.inputs[self.rank], program.parameters)
                for number, (value, want) in enumerate(zip(got, program.results())):
                    numpy.testing.assert_allclose(value, want, rtol=1e-4, err_msg=f"program {seed}, term {number}")
            if seed % 50 == 49:
                jax.clear_caches()


if __name__ == "__main__":
    rank_base.main()
