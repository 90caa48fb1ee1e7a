#!/usr/bin/env python3
"""Makes the IDX files in this folder from the CSV file of the data set.

    python3 convert.py optdigits.tes[.gz]

Each line of the CSV file contains 64 grey levels and the digit. The result is the same on every day and machine.
"""

import gzip
import struct
import sys
from pathlib import Path

SIDE = 8
UBYTE = 0x08  # IDX's code for unsigned bytes


def write_idx(path, dimensions, values):
    """Writes one gzipped IDX file: magic number, extents (big endian), then the bytes."""
    header = struct.pack(f">BBBB{len(dimensions)}I", 0, 0, UBYTE, len(dimensions), *dimensions)
    # Without a name and with time 0, the same input produces the same bytes.
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(header + bytes(values))


def main():
    source = Path(sys.argv[1])
    opener = gzip.open if source.suffix == ".gz" else open
    with opener(source, "rt") as file:
        rows = [[int(field) for field in line.split(",")] for line in file if line.strip()]
    assert all(len(row) == SIDE * SIDE + 1 for row in rows), "64 grey levels and a digit a line"
    parts = {"train": [], "t10k": []}
    seen = [0] * 10
    for row in rows:
        digit = row[-1]
        # Count each digit separately, because long parts of the file repeat the digits in order.
        parts["t10k" if seen[digit] % 5 == 0 else "train"].append(row)
        seen[digit] += 1
    folder = Path(__file__).resolve().parent
    for name, part in parts.items():
        pixels = [pixel for row in part for pixel in row[:-1]]
        write_idx(folder / f"{name}-images-idx3-ubyte.gz", (len(part), SIDE, SIDE), pixels)
        write_idx(folder / f"{name}-labels-idx1-ubyte.gz", (len(part),), [row[-1] for row in part])
        print(f"{name}: {len(part)} images")


if __name__ == "__main__":
    main()
