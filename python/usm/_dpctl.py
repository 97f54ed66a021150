"""Native handles out of dpctl's queues.

dpctl's C library (libDPCTLSyclInterface.so) gives SYCL objects; libsycl.so exports their getNative()
members, which are called here as C functions.  Both are in the process as soon as dpctl is imported,
and are only looked up (RTLD_NOLOAD): nothing here loads a runtime.

What is asked for is given back: SYCL adds a reference to each OpenCL handle it gives.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
from __future__ import annotations

import contextlib
import ctypes
import glob
import os
from typing import TYPE_CHECKING, Any, Iterator, Sequence

from . import _library as c

if TYPE_CHECKING:
    from ._objects import Context, Queue

BACKENDS = {1 << 17: "level_zero", 1 << 18: "opencl"}
OTHERS = {1 << 16: "CUDA", 1 << 19: "HIP"}
GET_NATIVE = {
    "context": "_ZNK4sycl3_V17context9getNativeEv",
    "device": "_ZNK4sycl3_V16device9getNativeEv",
    "queue": "_ZNK4sycl3_V15queue9getNativeERi",
}


def loaded(names: Sequence[str]) -> ctypes.CDLL:
    """The first of the libraries that is in the process."""
    for name in names:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    raise RuntimeError("none of {} is in the process: is this dpctl built otherwise?".format(
        ", ".join(names)))


def declare(function: Any, result: Any, *arguments: Any) -> Any:
    function.restype, function.argtypes = result, arguments
    return function


class Interface:
    """The functions, once a process."""
    _one: Interface | None = None

    @classmethod
    def get(cls) -> Interface:
        if cls._one is None:
            cls._one = cls()
        return cls._one

    def __init__(self) -> None:
        import dpctl
        folder = os.path.dirname(dpctl.__file__)
        dpctl_c = loaded(sorted(glob.glob(os.path.join(folder, "libDPCTLSyclInterface.so*")))
                         or ["libDPCTLSyclInterface.so", "libDPCTLSyclInterface.so.0"])
        sycl = loaded(["libsycl.so.{}".format(n) for n in range(7, 13)])
        pointer = c.c_void_p
        self.backend = declare(dpctl_c.DPCTLQueue_GetBackend, c.c_int, pointer)
        self.queue_context = declare(dpctl_c.DPCTLQueue_GetContext, pointer, pointer)
        self.queue_device = declare(dpctl_c.DPCTLQueue_GetDevice, pointer, pointer)
        self.delete = {
            "context": declare(dpctl_c.DPCTLContext_Delete, None, pointer),
            "device": declare(dpctl_c.DPCTLDevice_Delete, None, pointer),
        }
        self.native = {what: declare(getattr(sycl, GET_NATIVE[what]), pointer, pointer)
                       for what in ("context", "device")}
        self.native_queue = declare(getattr(sycl, GET_NATIVE["queue"]), pointer, pointer,
                                    ctypes.POINTER(c.c_int))


def release_opencl(what: str, handle: Any) -> None:
    """Gives back the reference that SYCL added.  Any loader will do: the handle knows its driver."""
    try:
        loader = loaded(["libOpenCL.so.1"])
    except RuntimeError:
        loader = ctypes.CDLL("libOpenCL.so.1", mode=os.RTLD_LOCAL)
    release = {"context": "clReleaseContext", "device": "clReleaseDevice",
               "queue": "clReleaseCommandQueue"}[what]
    declare(getattr(loader, release), c.c_int, c.c_void_p)(handle)


def backend_of(queue: Any) -> str:
    number = Interface.get().backend(queue.addressof_ref())
    if number not in BACKENDS:
        raise c.Error(-5, "libusm has no backend for the queue's, {}: choose an OpenCL or a Level "
                          "Zero device (ONEAPI_DEVICE_SELECTOR)".format(
                              OTHERS.get(number, number)))
    return BACKENDS[number]


@contextlib.contextmanager
def native(queue: Any, what: str, backend: str) -> Iterator[Any]:
    """The native context or device of the queue while the body runs."""
    interface = Interface.get()
    get = interface.queue_context if what == "context" else interface.queue_device
    reference = get(queue.addressof_ref())
    if not reference:
        raise RuntimeError("dpctl gives no {} of its queue".format(what))
    try:
        handle = interface.native[what](reference)
        try:
            yield handle
        finally:
            if backend == "opencl":
                release_opencl(what, handle)
    finally:
        interface.delete[what](reference)


def context(cls: type[Context], queue: Any) -> Context:
    """For Context.from_dpctl().  Over OpenCL libusm holds a reference of its own; over Level Zero
    the queue, which is held in any case, holds the context."""
    backend = backend_of(queue)
    with native(queue, "context", backend) as handle, native(queue, "device", backend) as device:
        return cls.from_native(backend, handle, [device], keep=queue, syclobj=queue)


def queue(cls: type[Queue], owner: Context, of: Any) -> Queue:
    """For Queue.from_dpctl()."""
    backend = backend_of(of)
    is_list = c.c_int(0)
    handle = Interface.get().native_queue(of.addressof_ref(), is_list)
    if backend == "opencl":
        try:
            return cls.from_native(owner, handle, keep=of)
        finally:
            release_opencl("queue", handle)
    stream = c.make(c.LevelZeroQueue)
    if is_list.value:
        stream.command_list = handle
    else:
        stream.command_queue = handle
    stream.is_in_order = bool(is_list.value) and of.is_in_order
    with native(of, "device", backend) as device:
        stream.device = device
        return cls.from_native(owner, stream, keep=of)
