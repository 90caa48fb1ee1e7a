"""The table of cases, and the comparison of a training on all ranks with the same training in one process.

A case is a function of a Training, written like a user's training, that returns its results by name: weights, numbers
of steps, scales. The function runs three times:

1. on all ranks, with the optimizer distributed and each rank's own rows: the ranks must return equal bits;
2. on rank 0, without Horovod, with the rows of all ranks as one batch: the results must agree within the tolerance;
3. with --prove, on rank 0, without Horovod, with the rows of rank 0 only: the results must differ by ten times the
   tolerance, or the case could not find a missing reduction.
"""

import argparse
import faulthandler
import hashlib
import os
import pathlib
import re
import sys
import time
import traceback
import warnings
from typing import Any, Callable, NamedTuple, Optional

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "unequal"))

ROWS = 4  # per rank and step
WIDTH = 16
LAYERS = {
    "1_KiB": 16,
    "256_KiB": 4096,
    "8_MiB": 131072,
}  # inputs of the first layer; the sizes of its weights as float32
FLOAT32, FLOAT64 = 1e-6, 1e-12
FLOAT16, BFLOAT16 = 2e-4, 2e-3  # the types' rounding of gradients near 1, times learning rate and steps
os.environ.setdefault("HOROVOD_CHECK_REPLICAS_STEPS", "2,3,4")  # no replicas differ, so no comparison may warn
SECONDS = 200  # limit of a case, after which the watchdog ends the rank


class Case(NamedTuple):
    """A row of the table."""

    train: Callable[["Training"], dict]
    layers: str = "1_KiB 8_MiB"
    double: bool = False  # float64, if a division by a tiny gradient amplifies rounding
    tolerance: Optional[float] = None  # by default the type's tolerance
    quick: bool = False  # whether the quick tier runs the case, with its first layer
    refuses: str = ""  # all ranks must raise an error that this pattern matches
    may_refuse: str = ""  # all ranks may raise an error that this pattern matches, instead of the right result
    warns: str = ""  # all ranks must warn like this; their weights are not compared
    skip: Optional[str] = None  # why this interpreter cannot run the case


class Table(list):
    """The cases of a framework."""

    def case(self, **options: Any) -> Callable:
        """Returns a decorator that adds a training to the table."""

        def add(train: Callable) -> Callable:
            self.append(Case(train, **options))
            return train

        return add


class Training:
    """One run of a case. A framework's subclass makes the model and the optimizer.

    `ranks`: the ranks whose rows this process uses. `is_distributed`: the optimizer reduces over all ranks.
    """

    def __init__(self, ranks: list, size: int, is_distributed: bool, layer: str, double: bool):
        self.ranks, self.size, self.is_distributed = ranks, size, is_distributed
        self.inputs, self.double = LAYERS[layer], double
        self.dtype = "float64" if double else "float32"
        # The ranks' weights differ until the broadcast from rank 0.
        self.seed = 100 + (ranks[0] if is_distributed else 0)

    def initial(self) -> dict:
        """Returns the weights of a network with one hidden layer."""
        random = numpy.random.default_rng(self.seed)
        shapes = {"w1": (self.inputs, WIDTH), "b1": (WIDTH,), "w2": (WIDTH, 2), "b2": (2,)}
        return {
            name: (0.25 * random.standard_normal(shape, "float32")).astype(self.dtype) for name, shape in shapes.items()
        }

    def batch(self, step: int, rows: Any = ROWS, overflows: Any = ()) -> tuple:
        """Returns inputs and targets of a step. `overflows`: (step, rank) pairs whose inputs are infinite; -1 is the
        last rank."""
        parts = [self._rows(step, rank, rows(rank) if callable(rows) else rows) for rank in self.ranks]
        for rank, (x, _) in zip(self.ranks, parts):
            if any(at == step and of % self.size == rank for at, of in overflows):
                x[0] = numpy.inf
        return tuple(numpy.concatenate(each).astype(self.dtype) for each in zip(*parts))

    def _rows(self, step: int, rank: int, count: int) -> tuple:
        random = numpy.random.default_rng(1000 * step + rank)
        x = random.standard_normal((count, self.inputs), "float32")
        return x * numpy.float32(4 / self.inputs**0.5), random.standard_normal((count, 2), "float32")

    def unequal_batches(self) -> list:
        """Returns four batches: rank 0 has no rows in the first batch, and no rank has rows in the last batch."""
        return [
            self.batch(step, lambda rank, step=step: (3 * rank + 2 * step) % 5 if step < 3 else 0) for step in range(4)
        ]

    def words(self, step: int, count: int = 6) -> Any:
        """Returns indices of rows of a table with `self.inputs` rows."""
        return numpy.concatenate(
            [numpy.random.default_rng(1000 * step + rank).integers(0, self.inputs, count) for rank in self.ranks]
        )


def arrays_of(result: dict) -> dict:
    return {name: numpy.asarray(value) for name, value in sorted(result.items())}


def digest_of(arrays: dict) -> str:
    made = hashlib.sha256()
    for name, array in arrays.items():
        made.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return made.hexdigest()


def deviation(got: Any, want: Any) -> float:
    """Returns the largest difference of an element; infinite for different shapes and for NaN."""
    if got.shape != want.shape:
        return numpy.inf
    if got.dtype.kind not in "fc":
        return 0.0 if numpy.array_equal(got, want) else numpy.inf
    wide = "complex128" if got.dtype.kind == "c" else "float64"
    difference = numpy.abs(got.astype(wide) - want.astype(wide)).max(initial=0.0)
    return float(difference) if numpy.isfinite(difference) else numpy.inf


def furthest(arrays: dict, others: dict) -> tuple:
    """Returns (deviation, name) of the result that differs most."""
    if arrays.keys() != others.keys():
        return numpy.inf, f"the names {sorted(arrays)} and {sorted(others)}"
    return max((deviation(arrays[name], others[name]), name) for name in arrays)


class Suite:
    """Runs the cases of a table on this rank, and judges the results together with the other ranks."""

    def __init__(self, hvd: Any, make_training: Callable, proves: bool):
        self.hvd, self.make, self.proves = hvd, make_training, proves
        self.rank, self.size = hvd.rank(), hvd.size()

    def run(self, case: Case, layer: str) -> str:
        """Returns a complaint about the case; empty if it is right."""
        arrays, error, warned = self._attempt(case, layer)
        outcomes = self.hvd.allgather_object((digest_of(arrays), error, warned))
        wrong = self._judge_errors(case, [each for _, each, _ in outcomes])
        if wrong is not None:
            return wrong
        if case.warns:
            silent = [rank for rank, (_, _, warned) in enumerate(outcomes) if not warned]
            return f"no warning like {case.warns!r} on the ranks {silent}" if silent else ""
        different = [rank for rank, (digest, _, _) in enumerate(outcomes) if digest != outcomes[0][0]]
        if different:
            return f"the bits of the ranks {different} differ from those of rank 0"
        verdict = self._compare(case, layer, arrays) if self.rank == 0 else ""
        return self.hvd.broadcast_object(verdict, root_rank=0)

    def _attempt(self, case: Case, layer: str) -> tuple:
        """Returns (results, error, whether the expected warning came) of the distributed training."""
        training = self.make([self.rank], self.size, True, layer, case.double)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                arrays, error = arrays_of(case.train(training)), ""
            except Exception as raised:  # another rank may wait for this rank until its watchdog ends it
                arrays, error = {}, f"{type(raised).__name__}: {raised}"
                if not re.search(case.refuses or case.may_refuse or "$^", error):
                    traceback.print_exc()
        words = [str(each.message) for each in caught]
        if not case.warns:
            error = error or next((text for text in words if "HOROVOD_CHECK_REPLICAS" in text), "")
        return arrays, error, bool(case.warns) and any(re.search(case.warns, text) for text in words)

    def _judge_errors(self, case: Case, errors: list) -> Optional[str]:
        """Returns a complaint about the ranks' errors; None if no rank has an error and none was expected."""
        pattern = case.refuses or case.may_refuse or "$^"
        if not any(errors) and not (case.refuses and self.size > 1):
            return None
        if pattern == "$^":
            return next(error for error in errors if error)
        without = [rank for rank, error in enumerate(errors) if not re.search(pattern, error) or not error]
        return f"no error like {pattern!r} on the ranks {without}: {errors}" if without else ""

    def _compare(self, case: Case, layer: str, arrays: dict) -> str:
        tolerance = case.tolerance or (FLOAT64 if case.double else FLOAT32)
        alone = self._train_alone(case, layer, list(range(self.size)))
        self.deviation, name = furthest(arrays, alone)
        if self.deviation > tolerance:
            return (
                f"{name} differs by {self.deviation:.3g} from that of one process, {tolerance:g} is allowed: "
                f"{shown(arrays, name)} is not {shown(alone, name)}"
            )
        if self.proves and self.size > 1:
            own, _ = furthest(self._train_alone(case, layer, [0]), alone)
            if own < 10 * tolerance:
                return f"a training without reduction differs by {own:.3g} only: the case finds no missing reduction"
        return ""

    def _train_alone(self, case: Case, layer: str, ranks: list) -> dict:
        return arrays_of(case.train(self.make(ranks, self.size, False, layer, case.double)))


def shown(arrays: dict, name: str) -> str:
    return numpy.array2string(arrays[name].reshape(-1)[:3], precision=8) if name in arrays else "missing"


def parse_arguments(arguments: Optional[list] = None) -> Any:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="REGEX", help="Run the cases with such names.")
    parser.add_argument("--quick", action="store_true", help="Run those of the quick tier.")
    parser.add_argument("--prove", action="store_true", help="Also train without reduction, which must differ.")
    parser.add_argument("--list", action="store_true", help="Print the names of the cases.")
    return parser.parse_args(arguments)


def chosen(table: Table, options: Any) -> list:
    """Yields (name, case, layer) of the selected cases; with HVD_TEST_FEWER (the tier of CI), one layer per case."""
    found = []
    for number, case in enumerate(table):
        layers = case.layers.split()
        if options.quick:
            layers = layers[:1]
        elif os.environ.get("HVD_TEST_FEWER"):
            layers = [layers[number % len(layers)]]
        found += [
            (f"{case.train.__name__}.{layer}", case, layer) for layer in layers if case.quick or not options.quick
        ]
    return [row for row in found if re.search(options.only, row[0])]


def main(hvd: Any, table: Table, make_training: Callable, arguments: Optional[list] = None) -> int:
    """Runs the selected cases, and returns the exit code."""
    options = parse_arguments(arguments)
    rows = chosen(table, options)
    if options.list:
        print("\n".join(name for name, _, _ in rows))
        return 0
    hvd.init()
    suite, failures, began = Suite(hvd, make_training, options.prove), [], time.monotonic()
    for name, case, _ in rows:
        if case.skip:
            report(suite, f"skip {name}: {case.skip}")
    rows = [row for row in rows if not row[1].skip]
    for name, case, layer in rows:
        start, suite.deviation = time.monotonic(), 0.0
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        wrong = suite.run(case, layer)
        faulthandler.cancel_dump_traceback_later()
        if wrong:
            failures.append(name)
        report(
            suite,
            f"FAIL {name}: {wrong}"
            if wrong
            else f"ok {name}: deviation {suite.deviation:.2g}, {time.monotonic() - start:.2f} s",
        )
    report(
        suite,
        f"{len(rows) - len(failures)} of {len(rows)} cases equal one process on {suite.size} ranks, "
        f"{time.monotonic() - began:.1f} s",
    )
    if not rows:
        print(f"no case matches {options.only!r}", file=sys.stderr)
    return 1 if failures or not rows else 0


def report(suite: Suite, line: str) -> None:
    if suite.rank == 0:
        print(line, flush=True)
