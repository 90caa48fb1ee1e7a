"""Base class for the tests of horovod.torch, with types, values and the results of their reduction."""

from rank_base import RankBase, main, need  # noqa: F401

torch = need("torch")
import horovod.torch as hvd

torch.set_num_threads(1)

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES = INTEGERS + FLOATS
SHAPES = [(), (1,), (17,), (3, 5, 2), (0,), (4, 0), (70001,)]


class RankCase(RankBase):
    """A test of tensors that every rank runs at the same time."""

    def assert_equal_tensors(self, got, want, message=None):
        self.assertEqual(got.dtype, want.dtype, message)
        self.assertEqual(got.shape, want.shape, message)
        self.assertTrue(torch.equal(got, want), f"{message}: got {got}, want {want}")

    def assert_close(self, got, want, dtype=None, message=None):
        tolerance = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 1e-5}.get(dtype, 0)
        if dtype == torch.float64:
            tolerance = 1e-12
        got, want = got.double(), want.double()
        self.assertEqual(got.shape, want.shape, message)
        close = torch.allclose(got, want, rtol=tolerance, atol=tolerance)
        self.assertTrue(close, f"{message}: got {got}, want {want}")


def values(rank, dtype, shape):
    """Returns the input of a rank: small integers, for exact sums and products."""
    count = 1
    for extent in shape:
        count *= extent
    low = 1 if dtype in (torch.uint8, torch.bool) else -2
    numbers = (torch.arange(count) * 7 + 3 * rank) % 5 + low
    if dtype == torch.bool:
        return (numbers % 2 == 0).reshape(shape)
    return numbers.to(dtype).reshape(shape)


def reduced(op, size, dtype, shape):
    """Returns the expected result of an allreduce of the `values` of all ranks."""
    inputs = torch.stack([values(rank, torch.float64 if dtype != torch.bool else dtype, shape) for rank in range(size)])
    if dtype == torch.uint8:
        inputs = torch.stack([values(rank, dtype, shape).double() for rank in range(size)])
    if dtype == torch.bool:
        inputs = inputs.double()
    result = {
        hvd.Average: lambda: inputs.sum(0) / size,
        hvd.Sum: lambda: inputs.sum(0),
        hvd.Min: lambda: inputs.amin(0) if inputs.numel() else inputs[0],
        hvd.Max: lambda: inputs.amax(0) if inputs.numel() else inputs[0],
        hvd.Product: lambda: inputs.prod(0),
    }[op]()
    return result.trunc().to(dtype) if not dtype.is_floating_point else result.to(dtype)
