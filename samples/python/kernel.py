#!/usr/bin/env python3
"""kernel.py: a kernel over arrays that NumPy sees without a copy.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import sys

import numpy
import usm

N = 1 << 20
SAXPY = """
kernel void saxpy(float a, global const float *x, global float *y)
{
    size_t i = get_global_id(0);
    y[i] += a * x[i];
}
"""


def main():
    with usm.host_offload() as place:  # or usm.device_context("opencl:gpu")
        print("on", place)
        x, y = usm.asarray(numpy.arange(N) % 1000, "f4"), usm.full(N, 1)
        try:
            usm.Program(SAXPY).saxpy[N](2.0, x, y)
        except usm.Error as error:
            if error.name != "USM_E_NO_IMAGE":
                raise
            print("nothing to do: {}".format(error.story))
            return 77
    view = numpy.asarray(y)  # waits for the kernel; the same memory
    right = (view == 1 + 2 * numpy.asarray(x)).all()
    print("y[999] is {}: {}".format(view[999], "right" if right else "WRONG"))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
