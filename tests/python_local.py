#!/usr/bin/env python3
"""python_local.py LIBUSM: the library works when it was loaded RTLD_LOCAL, as Python loads it.

Its symbols are then invisible to its own modules, which must get everything through the table of
their entry.  The device is the one that USM_DEVICE_SELECTOR names (tests/with-runtime.sh sets it).

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import ctypes
import os
import sys

KINDS = {"host": 1, "device": 2, "shared": 3}
TEXT = b"through a library that nobody else sees"


def load(path):
    usm = ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
    usm.usm_alloc.restype = ctypes.c_void_p
    usm.usm_alloc.argtypes = [ctypes.c_size_t, ctypes.c_int]
    usm.usm_free.restype = None
    usm.usm_free.argtypes = [ctypes.c_void_p]
    usm.usm_copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    usm.usm_last_error.restype = ctypes.c_char_p
    return usm


def main():
    usm = load(sys.argv[1])
    runtime = os.environ.get("USM_TEST_RUNTIME", "host")
    print("usm_version() = {}".format(usm.usm_version()))
    assert usm.usm_version() > 0
    worked = []
    for name, kind in KINDS.items():
        block = usm.usm_alloc(len(TEXT), kind)
        if not block:
            print("{}: {}".format(name, usm.usm_last_error().decode()))
            continue
        back = ctypes.create_string_buffer(len(TEXT))
        for status in (usm.usm_copy(block, TEXT, len(TEXT)), usm.usm_copy(back, block, len(TEXT))):
            assert status == 0, usm.usm_last_error().decode()
        assert back.raw == TEXT, back.raw
        usm.usm_free(block)
        worked.append(name)
    print("{}: {} memory works".format(runtime, ", ".join(worked)))
    assert worked and (runtime != "host" or len(worked) == len(KINDS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
