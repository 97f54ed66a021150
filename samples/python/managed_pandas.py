#!/usr/bin/env python3
"""managed_pandas.py: a DataFrame over managed columns, without a copy, and groupby() over it.

    python3 managed_pandas.py [--size MiB]

The table is four times larger than memory may be.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import sys

import resident

SIZE, TRACE = resident.arguments("a DataFrame that does not fit into memory")

import numpy  # noqa: E402
try:
    import pandas  # noqa: E402
except ImportError:
    print("nothing to do: pandas is not installed")
    sys.exit(77)
import usm  # noqa: E402

COLUMNS, GROUPS = 64, 7
ROWS = SIZE // 8 // COLUMNS


def main():
    usm.managed(1)  # the library is there before the watch
    with resident.Watch(SIZE, TRACE) as watch:
        group = (numpy.arange(ROWS) % GROUPS).astype("i1")
        columns = {"c{}".format(i): usm.managed(ROWS, "f8") for i in range(COLUMNS)}
        for i, column in enumerate(columns.values()):
            numpy.multiply(group, float(i), out=column)
        table = pandas.DataFrame(columns, copy=False)
        is_right = all(numpy.shares_memory(table[name].to_numpy(), column)
                       for name, column in columns.items())

        sums = table.groupby(group).sum()

        rows = numpy.bincount(group)
        is_right &= bool((sums.to_numpy() == numpy.outer(
            rows * numpy.arange(GROUPS), numpy.arange(COLUMNS))).all())
    return watch.report(is_right)


if __name__ == "__main__":
    sys.exit(main())
