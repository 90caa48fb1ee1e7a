"""Calls every public function of a framework's module with every type that it accepts, compares with numpy, and checks
the errors of wrong calls on every rank. The test also checks that it covers every function.

A framework's test file makes a test class for a facade of table_facades.
"""

import contextlib
import inspect
import types

import numpy
import rank_base

# Functions of every module that take no arrays, and the files that test them.
SHARED = {
    "HorovodInternalError": "table_case.py",
    "ProcessSet": "process_sets_test.py",
    "add_process_set": "process_sets_test.py",
    "remove_process_set": "process_sets_test.py",
    "init": "life_test.py",
    "shutdown": "life_test.py",
    "join": "process_sets_test.py",
    "metrics": "observation_test.py",
    "start_timeline": "observation_test.py",
    "stop_timeline": "observation_test.py",
    "poll": "ops_test.py",
    "synchronize": "ops_test.py",
}


def values(rank, dtype, shape):
    """Returns the input of a rank: small integers, for exact sums and products."""
    count = int(numpy.prod(shape))
    numbers = ((numpy.arange(count) * 7 + 3 * rank) % 5 + 1).reshape(shape).astype("float64")
    if "complex" in dtype:
        return numbers + 1j * numpy.flip(numbers * 3 - rank)
    return (numbers % 2) if dtype == "bool" else numbers


def adasum(vectors):
    """Combines a list of vectors by Adasum, in pairs until one is left; a vector without a partner stays."""

    def pair(a, b):
        dot, first, second = a @ b, a @ a, b @ b
        return a * (1 - dot / (2 * first)) + b * (1 - dot / (2 * second))

    vectors = list(vectors)
    while len(vectors) > 1:
        vectors = [pair(*vectors[i : i + 2]) if i + 1 < len(vectors) else vectors[i] for i in range(0, len(vectors), 2)]
    return vectors[0]


class TableCase(rank_base.RankBase):
    """Tests the module of the facade that `make_facade` makes. Every rank runs it."""

    make_facade = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.facade = cls.make_facade()

    @property
    def hvd(self):
        return self.facade.hvd

    def functions(self):
        """Returns the public functions and classes by name."""
        return {
            name: thing
            for name, thing in vars(self.hvd).items()
            if not name.startswith("_") and callable(thing) and not isinstance(thing, types.ModuleType)
        }

    def kinds(self):
        """Yields the collective and the name of each function on arrays."""
        for name in sorted(self.functions()):
            kind = name.replace("grouped_", "").replace("_async", "").rstrip("_")
            if kind in ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter"):
                yield kind, name

    def everybody(self, dtype, shape):
        return numpy.stack([values(rank, dtype, shape) for rank in range(self.size)])

    def reductions(self, dtype, shape):
        """Returns pairs of an op and its result for the values of all ranks."""
        hvd, all_ = self.hvd, self.everybody(dtype, shape)
        total = all_.sum(0)
        if "complex" in dtype:
            return [(hvd.Sum, total), (hvd.Average, total / self.size)]
        results = [
            (hvd.Sum, total.clip(0, 1) if dtype == "bool" else total),
            (hvd.Min, all_.min(0)),
            (hvd.Max, all_.max(0)),
            (hvd.Product, all_.prod(0)),
        ]
        if dtype != "bool":
            mean = total / self.size
            results.append((hvd.Average, mean if "float" in dtype else numpy.trunc(mean)))
        if "float" in dtype:
            results.append((hvd.Adasum, adasum([each.ravel() for each in all_]).reshape(shape)))
        return results

    def cases(self, kind, name, dtype):
        """Yields (arguments, values of this rank, expected results) of valid calls."""
        shape, takes = (4, 3), inspect.signature(self.functions()[name]).parameters
        if kind == "allreduce":
            for op, want in self.reductions(dtype, shape):
                yield {"op": op}, values(self.rank, dtype, shape), [want]
            for other in self.facade.shapes if dtype == "float32" else []:
                yield {"op": self.hvd.Sum}, values(self.rank, dtype, other), [self.everybody(dtype, other).sum(0)]
        if kind == "broadcast":
            for root in range(self.size):
                yield ({"root_rank": root}, values(self.rank, dtype, shape), [values(root, dtype, shape)])
            for other in self.facade.shapes if dtype == "float32" else []:
                yield {"root_rank": 0}, values(self.rank, dtype, other), [values(0, dtype, other)]
        if kind == "allgather":
            yield ({}, values(self.rank, dtype, shape), [numpy.concatenate(list(self.everybody(dtype, shape)))])
            for least in self.facade.least_rows:
                rows = [values(rank, dtype, (least + rank, 2)) for rank in range(self.size)]
                yield {}, rows[self.rank], [numpy.concatenate(rows)]
        if kind == "alltoall":
            rows = self.everybody(dtype, (2 * self.size, 2))
            got = [numpy.concatenate(list(rows[:, 2 * self.rank : 2 * self.rank + 2]))]
            if "async" in name:
                got.append(numpy.full(self.size, 2))
            yield {}, rows[self.rank], got
            if self.facade.least_rows:
                splits = [[(sender + 2 * to) % 3 for to in range(self.size)] for sender in range(self.size)]
                parts = [
                    numpy.split(values(sender, dtype, (sum(counts), 2)), numpy.cumsum(counts)[:-1])
                    for sender, counts in enumerate(splits)
                ]
                got = numpy.concatenate([each[self.rank] for each in parts])
                received = numpy.array([counts[self.rank] for counts in splits])
                yield {"splits": splits[self.rank]}, numpy.concatenate(parts[self.rank]), [got, received]
        if kind == "reducescatter":
            # Rows that divide evenly, as compiled programs need, and rows that do not.
            for count in {2 * self.size, 2 * self.size + 1, *self.facade.least_rows[:-1]}:
                for op, want in self.reductions(dtype, (count, 2)):
                    if op == self.hvd.Adasum or "op" not in takes:
                        continue
                    yield (
                        {"op": op},
                        values(self.rank, dtype, (count, 2)),
                        [numpy.array_split(want, self.size)[self.rank]],
                    )

    def call(self, name, array, arguments):
        """Returns the list of the function's results for the array, alone or in a group."""
        in_place = name.endswith("_") or name.endswith("_async_")
        given = self.facade.variable(array) if in_place else array
        # TensorFlow's broadcast_ takes a list of variables, like functions of groups.
        takes_list = "grouped" in name or (in_place and given is not array)
        result = getattr(self.hvd, name)([given] if takes_list else given, **arguments)
        if "async" in name:
            result = self.hvd.synchronize(result)
        if in_place:
            self.assertIs(result[0] if takes_list else result, given, name)
        return list(result) if isinstance(result, (list, tuple)) else [result]

    def call_and_read(self, name, array, arguments):
        """Calls `call` and reads the results, because MXNet's functions return before completion."""
        for each in self.call(name, array, arguments):
            self.facade.read(each)

    def assert_numbers(self, got, want, dtype, message):
        numbers, name = self.facade.read(got)
        self.assertEqual(name, dtype, message)
        self.assertEqual(numbers.shape, want.shape, message)
        tolerance = {
            "float16": 4e-3,
            "bfloat16": 3e-2,
            "float32": 1e-5,
            "float64": 1e-12,
            "complex64": 1e-5,
            "complex128": 1e-12,
        }
        numpy.testing.assert_allclose(numbers, want, rtol=tolerance.get(dtype, 0), atol=0, err_msg=str(message))

    def test_every_function_with_every_type_it_takes(self):
        driven = set()
        plan = [
            (kind, name, dtype, *case)
            for kind, name in self.kinds()
            for dtype in self.facade.dtypes
            for case in self.cases(kind, name, dtype)
        ]
        # A function that changes its arguments cannot be a part of a compiled program.
        for is_changed in (True, False):
            chosen = [each for each in plan if each[1].endswith("_") == is_changed]
            if not chosen:
                continue

            def run(arrays):
                return [
                    self.call(name, array, arguments) for array, (_, name, _, arguments, _, _) in zip(arrays, chosen)
                ]

            for number, way in enumerate([run] if is_changed else self.facade.ways(run)):
                if number:  # compiled: every op and root with one type, and one op and root with the other types
                    chosen[:] = [
                        each
                        for index, each in enumerate(chosen)
                        if each[2] == "float32" or each[:3] != chosen[index - 1][:3]
                    ]
                given = [self.facade.make(numbers, dtype) for _, _, dtype, _, numbers, _ in chosen]
                for results, (kind, name, dtype, arguments, numbers, wants), array in zip(way(given), chosen, given):
                    what = (name, dtype, arguments, numbers.shape)
                    self.assertEqual(len(results), len(wants), what)
                    self.assert_numbers(results[0], wants[0], dtype, what)
                    if len(wants) > 1:
                        self.assert_numbers(results[1], wants[1], "int32", what)
                    if not is_changed:
                        self.assert_numbers(array, numbers, dtype, ("unchanged", *what))
                    driven.add((name, dtype))
        self.assertEqual(driven, {(name, dtype) for _, name in self.kinds() for dtype in self.facade.dtypes})

    def test_every_function_is_tested(self):
        here = rank_base.__file__.rpartition("/")[0]
        here_too = (
            {name for _, name in self.kinds()}
            | set(self.numbers())
            | {"allgather_object", "barrier", "broadcast_object", "total"}
        )
        beside = {name: file for name, file in {**SHARED, **self.facade.beside}.items() if name in self.functions()}
        self.assertEqual(set(self.functions()) - here_too - set(beside), set())
        for name, file in beside.items():
            with open(f"{here}/{file}", encoding="utf-8") as text:
                self.assertRegex(text.read(), rf"\b{name}\b", f"{file} does not mention {name}")

    def numbers(self):
        """Functions that describe this process, with the type of their result."""
        found = dict.fromkeys(
            ["rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "nccl_built"], int
        )
        found.update(
            {
                name: bool
                for name in self.functions()
                if name.startswith("is_")
                or name != "nccl_built"
                and name.endswith(("_built", "_enabled", "_supported"))
            }
        )
        return found

    def test_functions_about_the_process_and_functions_that_move_objects(self):
        for name, of in self.numbers().items():
            self.assertIs(type(getattr(self.hvd, name)()), of, name)
        hvd = self.hvd
        self.assertEqual((hvd.rank(), hvd.size()), (self.rank, self.size))
        self.assertEqual(hvd.local_rank() + hvd.local_size() * hvd.cross_rank(), self.rank)
        self.assertEqual(hvd.local_size() * hvd.cross_size(), self.size)
        hvd.barrier()
        self.assertEqual(hvd.broadcast_object({"of": self.rank}, self.size - 1), {"of": self.size - 1})
        self.assertEqual(hvd.allgather_object([self.rank]), [[rank] for rank in range(self.size)])

    # Wrong calls and their errors.

    def good(self, kind):
        """Returns arguments and this rank's array for a valid call."""
        arguments = {"root_rank": 0} if kind == "broadcast" else {}
        return arguments, self.facade.make(values(self.rank, "float32", (2 * self.size, 2)), "float32")

    def test_a_wrong_call_is_an_error_on_the_rank_that_makes_it(self):
        stranger = self.hvd.ProcessSet([0])
        for kind, name in self.kinds():
            arguments, array = self.good(kind)
            takes = inspect.signature(self.functions()[name]).parameters
            refuse = [
                ((ValueError, TypeError), ".", self.facade.refused, {}),
                ((ValueError, TypeError), ".", "text", {}),
            ]
            if "process_set" in takes:
                refuse.append((ValueError, "is not registered", array, {"process_set": stranger}))
                refuse.append((ValueError, "process_set is .0., a list", array, {"process_set": [0]}))
            for factor in ("prescale_factor", "postscale_factor"):
                if factor in takes:
                    refuse.append((ValueError, "factor of 0", array, {factor: 0.0}))
            if "op" in takes:
                refuse.append(((ValueError, self.facade.refusal), "(?i)reduc|op", array, {"op": 17}))
                refuse.append((ValueError, "op is 'sum'", array, {"op": "sum"}))
            if "compression" in takes:
                refuse.append((ValueError, "compression is 'fp16', a str", array, {"compression": "fp16"}))
            if "average" in takes:
                refuse.append((ValueError, "either op or average", array, {"op": self.hvd.Sum, "average": True}))
            if kind == "broadcast":
                for root in (-1, self.size):
                    refuse.append(((ValueError, self.facade.refusal), "(?i)root", array, {"root_rank": root}))
                refuse.append((ValueError, "root_rank is 'zero'", array, {"root_rank": "zero"}))
            for error, pattern, given, more in refuse:
                with self.assertRaisesRegex(error, pattern, msg=(name, more)):
                    self.call_with(name, given, {**arguments, **more})
            if name in self.facade.takes_empty_lists:
                self.assertEqual(getattr(self.hvd, name)([], **arguments), [])
            elif "grouped" in name:
                with self.assertRaisesRegex(ValueError, "list or tuple"):
                    getattr(self.hvd, name)([], **arguments)
            if "splits" in takes:
                for splits in ([1] * (self.size + 1), [99] * self.size, [-1] * self.size):
                    with self.assertRaisesRegex((ValueError, self.facade.refusal), "(?i)split"):
                        self.call(name, array, {"splits": splits})
        self.assert_usable()

    def test_complex_numbers_are_summed_and_not_compared_or_multiplied(self):
        hvd = self.hvd
        for kind, name in self.kinds():
            if "op" not in inspect.signature(self.functions()[name]).parameters:
                continue
            for dtype in self.facade.dtypes:
                if "complex" not in dtype:
                    continue
                array = self.facade.make(values(self.rank, dtype, (2 * self.size, 2)), dtype)
                for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
                    for way in self.facade.ways(lambda given, op=op, name=name: self.call(name, given[0], {"op": op}))[
                        : 1 if name.endswith("_") else None
                    ]:
                        with self.assertRaisesRegex(
                            ValueError, "complex numbers are reduced by hvd.Sum", msg=(name, dtype, op)
                        ):
                            way([array])
        self.assert_usable()

    def test_complex_numbers_meet_pairs_of_reals_as_the_same_numbers(self):
        if self.size < 2:
            self.skipTest("one rank has one type")
        is_real = self.rank == self.size - 1

        def pairs(numbers):
            return numpy.stack([numbers.real, numbers.imag], axis=-1)

        for kind, name in self.kinds():
            takes = inspect.signature(self.functions()[name]).parameters
            has_name = {"name": f"pairs.{name}"} if "name" in takes else {}
            for dtype, real in (("complex64", "float32"), ("complex128", "float64")):
                if dtype not in self.facade.dtypes:
                    continue
                for arguments, numbers, wants in self.cases(kind, name, dtype):
                    given = self.facade.make(pairs(numbers), real) if is_real else self.facade.make(numbers, dtype)
                    got = self.call(name, given, {**arguments, **has_name})[0]
                    self.assert_numbers(
                        got,
                        pairs(wants[0]) if is_real else wants[0],
                        real if is_real else dtype,
                        (name, dtype, arguments),
                    )
        self.assert_usable()

    def call_with(self, name, given, arguments):
        """Calls `call` with a value that may not be an array, and that no variable can hold."""
        result = getattr(self.hvd, name)([given] if "grouped" in name else given, **arguments)
        return self.hvd.synchronize(result) if "async" in name else result

    def assert_usable(self):
        array = self.facade.make(numpy.ones(3), "float32")
        self.assert_numbers(
            self.call("allreduce", array, {"op": self.hvd.Sum})[0], numpy.full(3, float(self.size)), "float32", "usable"
        )

    def test_a_disagreement_of_ranks_is_an_error_on_all_of_them(self):
        if self.size < 2:
            self.skipTest("one rank agrees with itself")
        other = self.rank == self.size - 1
        for kind, name in self.kinds():
            arguments, _ = self.good(kind)
            takes = inspect.signature(self.functions()[name]).parameters
            has_name = {"name": f"differs.{name}"} if "name" in takes else {}
            shape, odd = (2 * self.size, 2), (2 * self.size, 3)

            def array(dtype="float32", shape=shape):
                return self.facade.make(values(self.rank, dtype, shape), dtype)

            wrong = [
                ("(?i)shape", array(shape=odd if other else shape), {}),
                ("(?i)type", array("float64" if other else "float32"), {}),
                ("(?i)dimension|shape|rank-zero", array(shape=() if other else shape), {}),
            ]
            if kind == "broadcast":
                wrong.append(("(?i)root", array(), {"root_rank": int(other)}))
            if "op" in takes:
                wrong.append(("(?i)reduc|op", array(), {"op": self.hvd.Max if other else self.hvd.Sum}))
            if "prescale_factor" in takes:
                wrong.append(("(?i)scale", array(), {"prescale_factor": 2.0 if other else 1.0}))
            for pattern, given, more in wrong:
                with self.assertRaisesRegex(self.facade.disagreement, pattern, msg=(name, pattern)) as caught:
                    self.call_and_read(name, given, {**arguments, **has_name, **more})
                self.assertRegex(str(caught.exception), "rank", (name, pattern))
        self.assert_usable()

    def test_unnamed_calls_after_a_join_match(self):
        # The last rank makes more calls before its join, as with uneven data.
        for kind, name in self.kinds() if self.rank == self.size - 1 else []:
            arguments, array = self.good(kind)
            is_refused = kind != "allreduce" and self.size > 1
            refusal = self.assertRaisesRegex(self.facade.disagreement, "not supported with Join", msg=name)
            with refusal if is_refused else contextlib.nullcontext():
                self.call_and_read(name, array, arguments)
        self.assertEqual(self.hvd.join(), self.size - 1)
        for kind, name in self.kinds():
            arguments, array = self.good(kind)
            self.call_and_read(name, array, arguments)
        self.assertEqual(self.hvd.broadcast_object(self.rank, self.size - 1), self.size - 1)
        self.assert_usable()

    def test_a_total_is_the_sum_of_a_number_over_all_ranks(self):
        hvd, want = self.hvd, sum(range(self.size))
        for kind in [int, float, numpy.int64, lambda n: self.facade.make(numpy.array(n), "float32")]:
            got = hvd.total(kind(self.rank))
            self.assertEqual((got, type(got)), (want, int))
        self.assertEqual(hvd.total(0.25, name="quarters"), 0.25 * self.size)
        self.assertEqual(hvd.total(2**52 // self.size) // self.size, 2**52 // self.size)
        alone = [hvd.add_process_set([rank]) for rank in range(self.size)] if self.size > 1 else []
        for rank, own in enumerate(alone):
            if rank == self.rank:
                self.assertEqual(hvd.total(rank, process_set=own), rank)
            hvd.remove_process_set(own)
        for n in (numpy.nan, numpy.inf):  # rank 0 alone has n: the other ranks must not wait
            got = hvd.total(n if self.rank == 0 else 1)
            self.assertEqual(repr(got), repr(float(n)))
        for n in (None, "3", [1]):
            with self.assertRaisesRegex(ValueError, "n is .*give a"):
                hvd.total(n)
        self.assert_usable()

    def test_a_name_that_is_in_flight_is_refused(self):
        if self.size < 2:
            self.skipTest("alone nothing stays in flight")
        from horovod import numpy as host

        for kind, name in self.kinds():
            if "name" not in inspect.signature(self.functions()[name]).parameters:
                continue
            arguments, array = self.good(kind)
            prefix, taken = self.facade.prefix(kind, name), f"taken.{name}"
            # No other rank submits this name before the barrier: the first operation is still in flight.
            handle = None
            if self.rank == 0:
                handle = self.occupy(host, prefix, taken)
                with self.assertRaisesRegex(
                    (ValueError, self.facade.refusal, self.facade.disagreement), "taken", msg=name
                ):
                    self.call_and_read(name, array, {**arguments, "name": taken})
            host.barrier()
            if self.rank:
                handle = self.occupy(host, prefix, taken)
            self.assertEqual(float(host.synchronize(handle)[0]), self.size)
        self.assert_usable()

    def occupy(self, host, prefix, name):
        from horovod import _frontend, _ops
        from horovod.numpy import _arrays

        return _frontend.elementwise(
            _arrays, _ops.Kind.ALLREDUCE, f"{prefix}.{name}", [numpy.ones(1)], False, reduce_op=_ops.Sum
        )
