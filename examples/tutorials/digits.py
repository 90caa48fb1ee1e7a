"""The handwritten digits of ../data, for the scripts of this folder."""

import gzip
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parent.parent / "data"


def load(part):
    """Returns the images (n x 64 numbers from 0 to 1) and digits of the data set "train" or "t10k"."""

    def read(kind, ndim):
        data = gzip.open(DATA / f"{part}-{kind}-idx{ndim}-ubyte.gz").read()
        shape = np.frombuffer(data, ">u4", ndim, 4)
        return np.frombuffer(data, "u1", -1, 4 + 4 * ndim).reshape(shape)

    images = read("images", 3)
    return images.reshape(len(images), -1).astype("float32") / 16, read("labels", 1).astype("int64")
