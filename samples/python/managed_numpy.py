#!/usr/bin/env python3
"""managed_numpy.py: moving mean and deviation of a series, in arrays four times larger than memory may be.

    python3 managed_numpy.py [--size MiB]

Each line of NumPy is one pass over whole arrays.  `out=` keeps results in managed memory.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import sys

import resident

SIZE, TRACE = resident.arguments("moving statistics over arrays that do not fit into memory")

import numpy  # noqa: E402
import usm  # noqa: E402

WINDOW = 1000
N = SIZE // 4 // 8  # four arrays of doubles


def main():
    random = numpy.random.default_rng(1)
    usm.managed(1)  # the library is there before the watch
    with resident.Watch(SIZE, TRACE) as watch:
        series, sums, mean, deviation = (usm.managed(N, "f8") for _ in range(4))
        for part in numpy.array_split(series, N // 65536):
            part[:] = random.integers(0, 100, len(part))
        before, after = sums[:-WINDOW], sums[WINDOW:]

        numpy.cumsum(series, out=sums)
        numpy.subtract(after, before, out=mean[WINDOW:])
        mean /= WINDOW
        numpy.square(series, out=deviation)
        numpy.cumsum(deviation, out=sums)
        numpy.subtract(after, before, out=deviation[WINDOW:])
        deviation /= WINDOW
        numpy.square(mean, out=sums)
        deviation -= sums
        numpy.sqrt(deviation[WINDOW:], out=deviation[WINDOW:])

        is_right = True
        for end in random.integers(WINDOW, N, 100):
            window = series[end - WINDOW + 1:end + 1]
            is_right &= bool(numpy.isclose(mean[end], window.mean())
                             and numpy.isclose(deviation[end], window.std()))
    return watch.report(is_right)


if __name__ == "__main__":
    sys.exit(main())
