#!/usr/bin/env python3
"""devices.py: an array split over all devices, a kernel on each of them, gathered.

USM_DEVICE_SELECTOR says which devices; otherwise those of OpenCL, as plain host memory compiles no text.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import os
import sys

os.environ.setdefault("USM_DEVICE_SELECTOR", "opencl:*")

import numpy  # noqa: E402
import usm  # noqa: E402

SQUARE = "kernel void square(global float *x) { size_t i = get_global_id(0); x[i] *= x[i]; }"


def main():
    values = (numpy.arange(1 << 20) % 1000).astype("f4")
    program = usm.Program(SQUARE)
    try:
        parts = usm.split(values)
        events = [program.square[part.size](part) for part in parts]  # all devices at once
    except usm.Error as error:
        if error.name not in ("USM_E_NO_IMAGE", "USM_E_NO_DEVICE", "USM_E_NO_BACKEND"):
            raise
        print("nothing to do: {}".format(error.story))
        return 77
    for part, event in zip(parts, events):
        event.wait()
        print(part)
    right = (usm.gather(parts) == values * values).all()
    print("right" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
