"""libusm from Python: pools of unified shared memory, also inside contexts of dpctl and PyOpenCL.

    import dpctl, dpnp, usm
    queue = dpctl.SyclQueue()
    pool = usm.Pool(usm.Context.from_dpctl(queue), "shared")
    x = dpnp.ndarray(1000, "f4", buffer=pool.alloc(4000).as_dpctl(), sycl_queue=queue)

Nothing is compiled: the module calls libusm.so through ctypes.  It finds it by USM_LIBRARY, beside
itself, in the build tree around it, else where the system keeps libraries.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
from ._library import Error, LevelZeroQueue, OutOfMemory, lib
from ._objects import (DEVICE, HOST, SHARED, Context, Event, Memory, Pool, Queue, copy, free,
                       pointer_type)

__all__ = ["Context", "Pool", "Memory", "Queue", "Event", "Error", "OutOfMemory", "LevelZeroQueue",
           "HOST", "DEVICE", "SHARED", "copy", "free", "pointer_type", "library_version"]


def library_version():
    """(major, minor, patch) of the loaded libusm.so."""
    number = lib.usm_version()
    return number // 10000, number // 100 % 100, number % 100
