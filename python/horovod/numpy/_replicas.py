"""Reads arrays in host memory for the check of replicas (horovod._replicas)."""

from __future__ import annotations

import math
from typing import Any, Tuple

import numpy

from horovod._library import library
from horovod._replicas import PIECE
from horovod.numpy._arrays import COMPLEX, number_of

_digest = library().hvd_digest


def is_comparable(dtype: Any) -> bool:
    """Returns whether arrays of this dtype can be compared."""
    return number_of(numpy.dtype(dtype)) is not None


class ArrayModel:
    """The functions of a model (horovod._replicas.Model) whose parameters are arrays of numpy."""

    def digest(self, parameter: numpy.ndarray, seed: int) -> int:
        values = numpy.ascontiguousarray(parameter)
        return int(_digest(values.ctypes.data, values.nbytes, seed))

    def length(self, parameter: numpy.ndarray) -> int:
        return int(parameter.size) * (2 if parameter.dtype in COMPLEX else 1)

    def reals(self, parameter: numpy.ndarray) -> numpy.ndarray:
        values = numpy.ascontiguousarray(parameter).reshape(-1)
        return values.view(values.real.dtype) if values.dtype in COMPLEX else values

    def doubled(self, reals: numpy.ndarray, start: int) -> Tuple[numpy.ndarray, int, int]:
        # A NaN on one rank must count as a large difference.
        numbers = numpy.nan_to_num(_piece(reals, start), nan=1e100).clip(-1e100, 1e100)
        doubled = numpy.concatenate([numbers, -numbers])
        return doubled, doubled.ctypes.data, doubled.size

    def squares(self, doubled: numpy.ndarray) -> Tuple[float, float]:
        high, low = doubled.reshape(2, -1)[0], -doubled.reshape(2, -1)[1]
        larger = numpy.maximum(abs(high), abs(low))
        return float(numpy.square(high - low).sum()), float(numpy.square(larger).sum())

    def norm(self, parameter: numpy.ndarray) -> float:
        reals = self.reals(parameter)
        squares = (float(numpy.square(_piece(reals, start)).sum()) for start in range(0, len(reals), PIECE))
        return math.sqrt(sum(squares))


def _piece(reals: numpy.ndarray, start: int) -> numpy.ndarray:
    return reals[start : start + PIECE].astype(numpy.float64)
