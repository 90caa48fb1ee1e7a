#!/usr/bin/env python3
"""Trainings with PyTorch: horovodrun -np 2 python3 tests/equivalence/torch_cases.py [--only REGEX]."""

import sys

import cases
import torch_gradients  # noqa: F401
import torch_loops  # noqa: F401
import torch_models  # noqa: F401
import torch_unequal  # noqa: F401
from torch_training import TABLE, hvd

if __name__ == "__main__":
    sys.exit(cases.main(hvd, TABLE, cases.Training))
