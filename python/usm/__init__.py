"""libusm from Python: pools of unified shared memory, also inside contexts of dpctl and PyOpenCL.

    import dpctl, dpnp, usm
    queue = dpctl.SyclQueue()
    pool = usm.Pool(usm.Context.from_dpctl(queue), "shared")
    x = dpnp.ndarray(1000, "f4", buffer=pool.alloc(4000).as_dpctl(), sycl_queue=queue)

and arrays, kernels and files that need NumPy:

    x = usm.asarray(range(1000), "f4")
    usm.Program("kernel void scale(global float *x, float by) { x[get_global_id(0)] *= by; }"
                ).scale[1000](x, 2.0)
    print(x.numpy())

No extension is compiled: the module calls libusm.so through ctypes.  It finds it by USM_LIBRARY, beside
itself, in the build tree around it, else where the system keeps libraries.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import importlib
import typing

from ._library import Error, LevelZeroQueue, OutOfMemory, lib
from ._objects import (DEVICE, HOST, SHARED, Context, Event, Memory, Pool, Queue, copy, free,
                       pointer_type)

__all__ = ["Context", "Pool", "Memory", "Queue", "Event", "Error", "OutOfMemory", "LevelZeroQueue",
           "HOST", "DEVICE", "SHARED", "copy", "free", "pointer_type", "library_version",
           "Array", "Place", "Program", "Kernel", "Local", "File", "empty", "full", "zeros",
           "asarray", "split", "gather", "device_context", "host_offload", "current", "open",
           "managed", "pinned", "advise", "save", "profile"]

if typing.TYPE_CHECKING:
    from ._array import (Array, Place, asarray, current, device_context, empty, full, gather,
                         host_offload, split, zeros)
    from ._file import File
    from ._file import File as open
    from ._managed import advise, managed, pinned, save
    from ._profile import profile
    from ._program import Kernel, Local, Program

# What needs NumPy is loaded when it is first asked for: the rest needs no package.
LATER = {"_array": ("Array", "Place", "empty", "full", "zeros", "asarray", "split", "gather",
                    "device_context", "host_offload", "current"),
         "_program": ("Program", "Kernel", "Local"), "_file": ("File",),
         "_managed": ("managed", "pinned", "advise", "save"), "_profile": ("profile",)}


def __getattr__(name: str) -> typing.Any:
    if name == "open":  # usm.open() is what makes a File
        name = "File"
    for module, names in LATER.items():
        if name in names:
            return getattr(importlib.import_module("." + module, __name__), name)
    raise AttributeError("usm has no {}".format(name))


def library_version() -> tuple[int, int, int]:
    """(major, minor, patch) of the loaded libusm.so."""
    number = lib.usm_version()
    return number // 10000, number // 100 % 100, number % 100
