#!/usr/bin/env python3
"""larger_than_memory.py: the mean of each column of a file four times larger than memory may be.

    python3 larger_than_memory.py [--size MiB]

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import argparse
import os
import sys
import tempfile

parser = argparse.ArgumentParser(description="a pass over a file that does not fit into memory")
parser.add_argument("--size", type=int, default=256, help="MiB of the file")
SIZE = parser.parse_args().size << 20
os.environ.setdefault("USM_MEMORY_LIMIT", "host:{}M".format(SIZE >> 22))

import numpy  # noqa: E402
import usm  # noqa: E402

COLUMNS, BLOCK = 1024, 512  # rows of a block: 4 MiB
ROWS = max(BLOCK, SIZE // (8 * COLUMNS))


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "big.npy")
        with usm.open(path, "w+", (ROWS, COLUMNS), "f8") as file:
            for first in range(0, ROWS, BLOCK):
                with file[first:first + BLOCK].write() as rows:
                    rows[...] = numpy.arange(first, first + len(rows)).reshape(-1, 1)
                file.commit()
        total = numpy.zeros(COLUMNS)
        with usm.open(path) as file:
            for first in range(0, ROWS, BLOCK):
                with file[first:first + BLOCK].read() as rows:
                    total += rows.sum(axis=0)
    right = (total / ROWS == (ROWS - 1) / 2).all()
    print("{} MiB, {}: the mean of each column is {}: {}".format(
        SIZE >> 20, os.environ["USM_MEMORY_LIMIT"], total[0] / ROWS, "right" if right else "WRONG"))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
