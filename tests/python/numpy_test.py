"""horovod.numpy: every collective, type and error, compared with numpy in one process."""

import rank_base
import table_case

numpy = rank_base.need("numpy")
import table_facades
import horovod.numpy as hvd

INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
FLOATS = ["float16", "float32", "float64"]
DTYPES = [numpy.dtype(name) for name in INTEGERS + FLOATS + ["bool"]]
MASKED = numpy.ma.array([1.0, 999.0], mask=[False, True])
try:
    import ml_dtypes

    DTYPES.append(numpy.dtype(ml_dtypes.bfloat16))
except ImportError:
    pass


def values(rank, dtype, shape):
    """Returns the input of a rank: small integers, for exact sums and products."""
    count = int(numpy.prod(shape))
    return ((numpy.arange(count) * 7 + 3 * rank) % 5 + 1).reshape(shape).astype(dtype)


class NumpyTest(rank_base.RankBase):
    def assert_same(self, got, want, dtype, message=None):
        self.assertIsInstance(got, numpy.ndarray, message)
        self.assertEqual(got.dtype, dtype, message)
        numpy.testing.assert_array_equal(got.astype("float64"), numpy.asarray(want, "float64"), str(message))

    def everybody(self, dtype, shape):
        return numpy.stack([values(rank, dtype, shape) for rank in range(self.size)]).astype("float64")

    def test_named_calls_in_place_on_arrays_that_lie_in_any_way(self):
        for dtype in DTYPES:
            whole = values(self.rank, dtype, (6, 4))
            want = self.everybody(dtype, (6, 4)).sum(0)
            if dtype == bool:
                want = want > 0
            for way in ["dense", "fortran", "strided", "reversed"]:
                mine = {
                    "dense": whole.copy(),
                    "fortran": numpy.asfortranarray(whole),
                    "strided": numpy.repeat(whole, 2, axis=0)[::2],
                    "reversed": whole[::-1].copy()[::-1],
                }[way]
                name = f"{dtype}.{way}"
                self.assertIs(hvd.allreduce_(mine, name=name, op=hvd.Sum), mine)
                self.assert_same(mine, want, dtype, name)
                handle = hvd.allreduce_async_(mine, op=hvd.Max, name=name)
                self.assertIs(hvd.synchronize(handle), mine)
                self.assert_same(mine, want, dtype, name)
        scalar = numpy.array(2.0 + self.rank)
        hvd.allreduce_(scalar, name="scalar", op=hvd.Min)
        self.assertEqual(float(scalar), 2.0)
        frozen = numpy.ones(3)
        frozen.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "read-only"):
            hvd.allreduce_(frozen, name="frozen")
        with self.assertRaisesRegex(ValueError, "not supported"):
            hvd.allreduce_(numpy.ones(3, ">f4"), name="swapped")

    def test_averages_and_factors_are_right_to_the_last_bit(self):
        def average(dtype, ranks):
            total = sum(values(rank, dtype, (4099,)).astype("float64") for rank in range(ranks))
            wide = numpy.dtype("float64" if dtype == "float64" else "float32").type
            return (total.astype(wide) / wide(self.size)).astype(dtype)

        for dtype in FLOATS:
            mine = values(self.rank, dtype, (4099,))
            numpy.testing.assert_array_equal(hvd.allreduce(mine), average(dtype, self.size))
            numpy.testing.assert_array_equal(hvd.grouped_allreduce([mine[:7], mine])[1], average(dtype, self.size))
            numpy.testing.assert_array_equal(
                hvd.reducescatter(mine), numpy.array_split(average(dtype, self.size), self.size)[self.rank]
            )
        # A joined rank adds nothing to the sum, and counts in the division.
        if self.rank < self.size - 1:
            for dtype in FLOATS:
                mine = values(self.rank, dtype, (4099,))
                numpy.testing.assert_array_equal(
                    hvd.allreduce(mine, name=f"joined.{dtype}"), average(dtype, self.size - 1)
                )
        hvd.join()
        for dtype, wide in [
            ("float16", "float32"),
            ("float32", "float32"),
            ("float64", "float64"),
            ("int32", "float64"),
        ]:
            same = (numpy.arange(4099) * 7).astype(dtype)
            for factor in [0.1, 1 / 3, 1 / 49, 1.7]:
                want = (same.astype(wide) * numpy.dtype(wide).type(factor)).astype(dtype)
                for factors in [{"prescale_factor": factor}, {"postscale_factor": factor}]:
                    numpy.testing.assert_array_equal(hvd.allreduce(same, op=hvd.Max, **factors), want)

    def test_averages_factors_numbers_and_the_deprecated_argument(self):
        mean = sum(range(self.size)) / self.size
        self.assertAlmostEqual(float(hvd.allreduce(float(self.rank))), mean)
        self.assertAlmostEqual(
            float(hvd.allreduce([1.0 * self.rank], prescale_factor=4.0, postscale_factor=0.5)[0]), 2 * mean
        )
        with self.assertWarns(DeprecationWarning):
            self.assertEqual(int(hvd.allreduce(self.rank, average=False)), sum(range(self.size)))
        same = hvd.allreduce(numpy.ones(4), op=hvd.Adasum)
        numpy.testing.assert_allclose(same, 1.0)

    def test_in_place_with_any_strides(self):
        whole = numpy.zeros((4, 6), "float32")
        view = whole[::2, 1::2]
        view[...] = self.rank
        self.assertIs(hvd.allreduce_(view, op=hvd.Sum, name="view"), view)
        self.assertTrue((view == sum(range(self.size))).all())
        self.assertEqual(whole.sum(), view.sum())
        turned = numpy.full((2, 3), float(self.rank)).T
        self.assertIs(hvd.broadcast_(turned, self.size - 1), turned)
        self.assertTrue((turned == self.size - 1).all())
        handle = hvd.allreduce_async_(view, name="again", op=hvd.Sum)
        self.assertIs(hvd.synchronize(handle), view)
        self.assertIsNone(hvd.synchronize(handle))

    def test_groups(self):
        given = [values(self.rank, "float32", (3,)), values(self.rank, "int64", (2, 2))]
        wants = [self.everybody("float32", (3,)), self.everybody("int64", (2, 2))]
        for got, want, like in zip(hvd.grouped_allreduce(given, op=hvd.Sum), wants, given):
            self.assert_same(got, want.sum(0), like.dtype)
        for got, want, like in zip(hvd.grouped_allgather(given), wants, given):
            self.assert_same(got, numpy.concatenate(list(want)), like.dtype)
        for got, want in zip(hvd.grouped_reducescatter(given[:1], op=hvd.Sum), wants):
            numpy.testing.assert_array_equal(got, numpy.array_split(want.sum(0), self.size)[self.rank])
        for empty in [[], given[0]]:
            with self.assertRaisesRegex(ValueError, "list or tuple"):
                hvd.grouped_allreduce(empty)

    def test_objects_process_sets_barrier_and_join(self):
        self.assertEqual(hvd.broadcast_object({"rank": self.rank}, self.size - 1), {"rank": self.size - 1})
        self.assertEqual(hvd.allgather_object(self.rank), list(range(self.size)))
        if self.size > 1:
            last = hvd.add_process_set([self.size - 1])
            if last.included():
                self.assertEqual(hvd.allreduce(2.0, process_set=last), 2.0)
            hvd.barrier()
            self.assertTrue(hvd.remove_process_set(last))
        self.assertIn(hvd.join(), range(self.size))

    def test_wrong_arguments_are_refused(self):
        for call in [
            lambda: hvd.allreduce(numpy.array(["text"])),
            lambda: hvd.allreduce(numpy.array([1j]), op=hvd.Max),
            lambda: hvd.allreduce(numpy.ones(2, "longdouble")),
            lambda: hvd.allreduce(numpy.array([1.0]).astype(">f8")),
            lambda: hvd.allreduce_([1.0]),
            lambda: hvd.allreduce(MASKED),
            lambda: hvd.allreduce_(MASKED),
            lambda: hvd.grouped_allreduce([numpy.ones(2), MASKED]),
            lambda: hvd.allgather(MASKED),
            lambda: hvd.broadcast(MASKED, 0),
            lambda: hvd.alltoall(MASKED),
            lambda: hvd.reducescatter(MASKED),
            lambda: hvd.allreduce_(numpy.broadcast_to(numpy.ones(1), (3,))),
            lambda: hvd.allreduce(1.0, op=hvd.Sum, average=True),
            lambda: hvd.allreduce(1.0, prescale_factor=0.0),
            lambda: hvd.alltoall(numpy.ones(3), splits=[0.5]),
            lambda: hvd.alltoall(numpy.ones(3), splits=[[3]]),
        ]:
            with self.assertRaises(ValueError):
                call()
        with self.assertRaisesRegex(ValueError, r"allreduce.*lose its mask.*x\.filled\(0\)"):
            hvd.allreduce(MASKED)
        if self.size > 1:
            with self.assertRaisesRegex(ValueError, r"\[2\]"):
                hvd.allreduce(numpy.ones(2 + self.rank), name="shapes")
        self.assertEqual(float(hvd.allreduce(1.0, op=hvd.Sum)), self.size)


class NumpyTableTest(table_case.TableCase):
    make_facade = table_facades.Numpy


if __name__ == "__main__":
    rank_base.main()
