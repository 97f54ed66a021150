"""Contexts, queues, pools and memory as Python objects.

Who owns what.  Each object of libusm is held by a small Handle that destroys it when the last
Python object that needs it is gone: memory holds its pool's handle, a pool and a queue that of
their context, a context whatever keeps the native one alive.  So objects may be dropped in any
order, also in one heap of garbage and at the end of the interpreter, and go in the right one.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
from __future__ import annotations

import collections
import contextlib
import ctypes
import sys
import weakref
from typing import TYPE_CHECKING, Any, Callable, Sequence

from . import _library as c
from ._library import lib

if TYPE_CHECKING:
    from numpy import ndarray

HOST, DEVICE, SHARED = "host", "device", "shared"
KINDS = {HOST: 1, DEVICE: 2, SHARED: 3}
KIND_NAMES = {number: name for name, number in KINDS.items()}
KEEP = 0
TRANSFER = 1


class Handle:
    """An object of libusm; `keep` are those that must outlive it."""

    def __init__(self, value: Any, destroy: Callable[[Any], object], *keep: Any):
        self.value = value
        # The registry of finalizers holds `keep` until it has run; at the end of the interpreter
        # the youngest runs first.
        self.close = weakref.finalize(self, Handle._end, value, destroy, keep)

    @staticmethod
    def _end(value: Any, destroy: Callable[[Any], object], _keep: Any) -> None:
        destroy(value)


def kind_number(kind: str) -> int:
    if kind not in KINDS:
        raise ValueError("kind is {!r}: one of {}".format(kind, ", ".join(KINDS)))
    return KINDS[kind]


def size_number(nbytes: int) -> int:
    """ctypes would cut off what a size_t cannot hold."""
    if not 0 <= nbytes <= sys.maxsize:
        raise ValueError("{} bytes cannot be allocated".format(nbytes))
    return nbytes


class Context:
    """A context of libusm.  Context() is one on the first device of USM_DEVICE_SELECTOR,
    Context("opencl:gpu") on the first of that selector; the from_ functions make one inside a
    native context of somebody else."""

    def __init__(self, selector: str | None = None, *, _handle: Handle | None = None,
                 _syclobj: Any = None, _devices: Sequence[int] = ()):
        if _handle is None:
            desc = c.make(c.ContextDesc)
            if selector is not None:
                desc.ndevices, desc.devices = 1, (c.c_void_p * 1)(select_devices(selector)[0])
            value = c.c_void_p()
            lib.usm_context_create(desc, value)
            _handle = Handle(value.value, lib.usm_context_destroy)
        self._handle = _handle
        self._syclobj = _syclobj
        self._natives = tuple(_devices)

    @classmethod
    def from_native(cls, backend: str, handle: int, devices: Sequence[int] = (), *,
                    keep: Any = None, transfer: bool = False, syclobj: Any = None) -> Context:
        """Inside a cl_context (`backend` "opencl") or a ze_context_handle_t ("level_zero"), given
        as numbers, as are its `devices` (empty: all; Level Zero cannot tell which, so name them).
        `keep` is an object that owns the native context, held as long as it is needed;
        `transfer`: one reference of the caller's becomes libusm's."""
        desc = c.make(c.NativeDesc)
        desc.backend = backend.encode()
        desc.handle = handle
        desc.ndevices = len(devices)
        desc.devices = (c.c_void_p * len(devices))(*devices) if devices else None
        desc.ownership = TRANSFER if transfer else KEEP
        value = c.c_void_p()
        lib.usm_context_from_native(desc, value)
        return cls(_handle=Handle(value.value, lib.usm_context_destroy, keep), _syclobj=syclobj,
                   _devices=devices)

    @classmethod
    def from_dpctl(cls, queue: Any) -> Context:
        """Inside the native context of a dpctl.SyclQueue, for its device.  Memory of such a
        context is memory to dpctl and dpnp (Memory.__sycl_usm_array_interface__)."""
        from . import _dpctl
        return _dpctl.context(cls, queue)

    @classmethod
    def from_pyopencl(cls, context: Any) -> Context:
        """Inside a pyopencl.Context, for all its devices."""
        return cls.from_native("opencl", context.int_ptr, keep=context)

    @property
    def devices(self) -> list[dict[str, str]]:
        """What libusm calls the devices: dictionaries of texts."""
        return [device_info(device) for device in self._device_handles()]

    def _device_handles(self) -> list[Any]:
        count = c.c_size_t()
        lib.usm_context_get_devices(self._handle.value, None, 0, count)
        list_ = (c.c_void_p * count.value)()
        lib.usm_context_get_devices(self._handle.value, list_, count.value, count)
        return list(list_)

    def native(self, backend: str) -> int | None:
        """The native context as a number; borrowed."""
        value = c.c_void_p()
        lib.usm_context_get_native(self._handle.value, backend.encode(), value)
        return value.value

    def wait(self) -> None:
        """Until all that libusm's queues of the context were given is done."""
        lib.usm_context_wait(self._handle.value)

    def __repr__(self) -> str:
        return "<usm.Context of {}>".format(", ".join(d["name"] for d in self.devices))


def select_devices(selector: str | None = None) -> list[Any]:
    """The handles of the devices that a selector names; None: USM_DEVICE_SELECTOR."""
    count, found = c.c_size_t(), c.c_size_t(0)
    before = () if selector is None else (selector.encode(),)
    function = lib.usm_get_devices if selector is None else lib.usm_select_devices
    function(*before, None, 0, count)
    list_ = (c.c_void_p * count.value)()
    function(*before, list_, count.value, found)
    return list(list_)[:found.value]


def device_info(device: Any) -> dict[str, str]:
    info = c.make(c.DeviceInfo)
    lib.usm_device_get_info(device, info)
    return {name: (getattr(info, name) or b"").decode() for name in (
        "backend", "name", "platform", "vendor", "driver_version", "selector")}


# --- memory ------------------------------------------------------------------------------------

class Pool:
    """A pool of one kind of memory, "host", "device" or "shared".  `name` and the sizes are those
    of usm_pool_desc; `device` counts the context's."""

    def __init__(self, context: Context, kind: str = SHARED, *, name: str | None = None,
                 device: int = 0, area_size: int = 0, maximum_size: int = 0, min_align: int = 0):
        desc = c.make(c.PoolDesc)
        desc.name = name.encode() if name else None
        desc.area_size, desc.maximum_size, desc.min_align = area_size, maximum_size, min_align
        value = c.c_void_p()
        lib.usm_pool_create(context._handle.value, context._device_handles()[device],
                            kind_number(kind), desc, value)
        self._handle = Handle(value.value, lib.usm_pool_destroy, context._handle)
        self._syclobj = context._syclobj
        self.context = context
        self.kind = kind

    def alloc(self, nbytes: int, align: int = 0) -> Memory:
        """A Memory of so many bytes."""
        return Memory(self, nbytes, align)

    def stats(self) -> dict[str, int]:
        """usm_pool_stats as a dictionary; what it counts is told in usm/pool.h."""
        stats = c.make(c.PoolStats)
        lib.usm_pool_get_stats(self._handle.value, stats)
        return {name: getattr(stats, name) for name, _ in stats._fields_[1:-1]}

    def describe(self) -> str:
        """The same and more, a table for people."""
        need = c.c_size_t()
        lib.usm_pool_describe(self._handle.value, 0, None, 0, need)
        text = ctypes.create_string_buffer(need.value + 1)
        lib.usm_pool_describe(self._handle.value, 0, text, len(text), need)
        return text.value.decode()

    def trim(self, keep: int = 0) -> None:
        """Gives memory that is not in use back to the driver, down to `keep` bytes."""
        lib.usm_pool_trim_to(self._handle.value, keep)

    def __repr__(self) -> str:
        return "<usm.Pool of {} memory>".format(self.kind)


class Addressed:
    """What has .ptr and .nbytes: an argument of copies, fills and kernels."""
    nbytes: int
    if TYPE_CHECKING:
        @property
        def ptr(self) -> int: ...


class Memory(Addressed):
    """A block of a pool, freed when the last reference to it is gone or by free(): at that moment
    no command of anybody may use it.  Views keep it alive."""

    def __init__(self, pool: Pool, nbytes: int, align: int = 0):
        pointer = lib.usm_pool_aligned_alloc(pool._handle.value, align, size_number(nbytes))
        if not pointer:
            raise c.failure(lib.usm_last_status())
        self.pool = pool
        self.kind = pool.kind
        self.nbytes = nbytes
        self._syclobj = pool._syclobj
        self._handle = Handle(pointer, free_quietly, pool._handle)

    @property
    def ptr(self) -> int:
        """The address."""
        if not self._handle.close.alive:
            raise ValueError("the memory was freed")
        pointer: int = self._handle.value
        return pointer

    def free(self) -> None:
        """At once.  Views of it must not be used any more."""
        pointer = self.ptr
        self._handle.close.detach()
        lib.usm_free_ctx(pointer, None)

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._handle.close.alive:
            self.free()

    @property
    def __sycl_usm_array_interface__(self) -> dict[str, Any]:
        """What dpctl and dpnp ask for.  The flag says `writable`, whatever its name elsewhere."""
        if self._syclobj is None:
            raise AttributeError("the memory is in no SYCL context: Context.from_dpctl() makes one")
        return {"data": (self.ptr, True), "shape": (self.nbytes,), "strides": None,
                "typestr": "|u1", "version": 1, "syclobj": self._syclobj}

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """What NumPy asks for; device memory has none, as the host must not touch it."""
        if self.kind == DEVICE:
            raise AttributeError("device memory cannot be seen by the host: copy it")
        return {"data": (self.ptr, False), "shape": (self.nbytes,), "typestr": "|u1", "version": 3}

    def numpy(self, dtype: Any = "u1", shape: int | Sequence[int] = -1) -> ndarray:
        """A NumPy array over host or shared memory, without a copy."""
        if self.kind == DEVICE:
            raise TypeError("device memory cannot be seen by the host: copy it")
        return address_array(self, dtype).reshape(shape)

    def svm(self, dtype: Any = "u1", shape: int | Sequence[int] = -1) -> Any:
        """A pyopencl.SVM over it, an argument of PyOpenCL's kernels and copies in a context that
        shares the native one.  Only PyOpenCL may look at what it wraps."""
        import pyopencl
        return pyopencl.SVM(address_array(self, dtype).reshape(shape))

    def as_dpctl(self) -> Any:
        """The dpctl.memory object over it."""
        from dpctl.memory import as_usm_memory
        return as_usm_memory(self)

    def dpnp(self, dtype: Any = "f4", shape: int | Sequence[int] | None = None) -> Any:
        """A dpnp.ndarray over it, of the queue that the context came from."""
        import dpnp
        dtype = dpnp.dtype(dtype)
        shape = self.nbytes // dtype.itemsize if shape is None else shape
        return dpnp.ndarray(shape, dtype, buffer=self.as_dpctl(), sycl_queue=self._syclobj)

    def __len__(self) -> int:
        return self.nbytes

    def __repr__(self) -> str:
        state = hex(self._handle.value) if self._handle.close.alive else "freed"
        return "<usm.Memory, {} bytes of {} memory, {}>".format(self.nbytes, self.kind, state)


class AsyncMemory(Memory):
    """A block allocated and freed in the order of a queue's commands: its last reference may go
    while they use it, and a later allocation of the queue may have it before they have ended."""

    def __init__(self, queue: Queue, nbytes: int, kind: str):
        pointer = lib.usm_async_malloc(queue._handle.value, kind_number(kind), size_number(nbytes))
        if not pointer:
            raise c.failure(lib.usm_last_status())
        self.queue = queue
        self.kind = kind
        self.nbytes = nbytes
        self._syclobj = queue.context._syclobj
        self._handle = Handle(pointer, free_in(queue._handle.value), queue._handle)

    def free(self) -> None:
        """In the queue's order."""
        pointer = self.ptr
        self._handle.close.detach()
        lib.usm_async_free(self.queue._handle.value, pointer)


def free_in(queue: Any) -> Callable[[Any], None]:
    def end(pointer: Any) -> None:
        with contextlib.suppress(c.Error):  # the log has its message
            lib.usm_async_free(queue, pointer)
    return end


class _Addresses:
    """Makes NumPy take an address without looking at it, and hold the memory."""

    def __init__(self, memory: Any):
        self.memory = memory
        self.__array_interface__ = {"data": (memory.ptr, False), "shape": (memory.nbytes,),
                                    "typestr": "|u1", "version": 3}


def address_array(memory: Any, dtype: Any) -> ndarray:
    import numpy
    return numpy.asarray(_Addresses(memory)).view(dtype)


def free_quietly(pointer: int) -> None:
    try:
        lib.usm_free_ctx(pointer, None)
    except c.Error:
        pass  # the log has the story


# --- commands ----------------------------------------------------------------------------------

def address(what: Any) -> tuple[int, int | None]:
    """(address, size or None) of Memory, a number, or what has a buffer."""
    if isinstance(what, int):
        return what, None
    if isinstance(what, Addressed):
        return what.ptr, what.nbytes
    interface = getattr(what, "__array_interface__", None)
    if interface is not None:
        if interface.get("strides") is not None:
            raise ValueError("the array has gaps: numpy.ascontiguousarray() makes one without")
        return interface["data"][0], what.nbytes
    if isinstance(what, bytes):  # only read: copies refuse it as a destination
        return ctypes.cast(ctypes.c_char_p(what), c.c_void_p).value or 0, len(what)
    view = memoryview(what).cast("B")
    return ctypes.addressof((ctypes.c_char * len(view)).from_buffer(view)), len(view)


def both(dst: Any, src: Any, nbytes: int | None) -> tuple[int, int, int]:
    """(to, from, bytes) of a copy that fits."""
    if isinstance(dst, bytes):
        raise TypeError("bytes cannot be written to: take a bytearray")
    to, to_size = address(dst)
    at, at_size = address(src)
    sizes = [size for size in (to_size, at_size) if size is not None]
    if nbytes is None:
        if not sizes:
            raise ValueError("a copy between two addresses needs nbytes")
        nbytes = min(sizes)
    if nbytes < 0 or any(nbytes > size for size in sizes):
        raise ValueError("{} bytes do not fit".format(nbytes))
    return to, at, nbytes


def end_event(value: Any) -> None:
    """What a command uses may go only when it has ended: its event is the last to hold it."""
    with contextlib.suppress(c.Error):  # of the command; who wanted to know has asked
        lib.usm_event_wait(value)
    lib.usm_event_release(value)


class Event:
    """The completion of a command.  It holds what the command uses until that is done."""

    def __init__(self, value: Any, *keep: Any):
        self._keep = list(keep)
        self._handle = Handle(value, end_event, self._keep)

    def wait(self) -> None:
        """Until the command is done; its failure is raised."""
        try:
            lib.usm_event_wait(self._handle.value)
        finally:
            self._keep.clear()

    @property
    def done(self) -> bool:
        """Is it, well or not?"""
        if lib.usm_event_query(self._handle.value) == -1:  # USM_E_NOT_READY
            return False
        self._keep.clear()
        return True


class Queue:
    """Commands in their order, also over a native queue that has none: each then waits for the one
    before.  What they use is held until they are done: where a queue is dropped before, that is
    waited for."""

    def __init__(self, context: Context, *, device: int = 0, _handle: Handle | None = None):
        if _handle is None:
            value = c.c_void_p()
            lib.usm_queue_create(context._handle.value, context._device_handles()[device],
                                 c.make(c.QueueDesc), value)
            _handle = Handle(value.value, lib.usm_queue_destroy, context._handle)
        self._handle = _handle
        # The events of what is not known to be done.
        self._busy: collections.deque[Event] = collections.deque()
        # Those that no later command waits for; a set that keeps its order.
        self._last: dict[Event, None] = {}
        self.context = context

    @classmethod
    def from_native(cls, context: Context, handle: int | c.LevelZeroQueue, *,
                    keep: Any = None) -> Queue:
        """Over a native queue of the context's native context: a cl_command_queue as a number, or
        a LevelZeroQueue."""
        value = c.c_void_p()
        if isinstance(handle, c.LevelZeroQueue):
            handle = ctypes.addressof(handle)
        lib.usm_queue_from_native(context._handle.value, handle, KEEP, value)
        return cls(context, _handle=Handle(value.value, lib.usm_queue_destroy, context._handle,
                                           keep))

    @classmethod
    def from_dpctl(cls, context: Context, queue: Any) -> Queue:
        """Over the native queue of a dpctl.SyclQueue, in the context made from it.  What it orders
        of both sides, and what not, is told in docs/interop.md."""
        from . import _dpctl
        return _dpctl.queue(cls, context, queue)

    @classmethod
    def from_pyopencl(cls, context: Context, queue: Any) -> Queue:
        """Over a pyopencl.CommandQueue."""
        return cls.from_native(context, queue.int_ptr, keep=queue)

    def memcpy(self, dst: Any, src: Any, nbytes: int | None = None,
               after: Sequence[Event] = ()) -> Event:
        """Copies, later, and behind the Events `after`; the Event it gives says when.  Either is
        Memory, a NumPy array, what else has a buffer, or an address."""
        to, at, nbytes = both(dst, src, nbytes)
        return self._submit(lib.usm_memcpy, (to, at, nbytes), after, (dst, src))

    def fill(self, dst: Any, pattern: bytes, count: int | None = None,
             after: Sequence[Event] = ()) -> Event:
        """Fills with `count` (None: as many as fit) copies of the bytes `pattern`."""
        to, size = address(dst)
        if not pattern:
            raise ValueError("the pattern is empty")
        if count is None:
            if size is None:
                raise ValueError("a fill at an address needs a count")
            count = size // len(pattern)
        if size is not None and count * len(pattern) > size:
            raise ValueError("{} patterns of {} bytes do not fit".format(count, len(pattern)))
        return self._submit(lib.usm_fill, (to, bytes(pattern), len(pattern), count), after, (dst,))

    def alloc(self, nbytes: int, kind: str = DEVICE) -> AsyncMemory:
        """Memory in the order of the queue: later commands may use it at once, and it is freed, with
        its last reference or by free(), when the queue gets there."""
        return AsyncMemory(self, nbytes, kind)

    def wait(self) -> None:
        lib.usm_queue_wait(self._handle.value)
        self._drop_done()

    def _submit(self, function: Any, arguments: Sequence[Any], after: Sequence[Event],
                keep: Sequence[Any]) -> Event:
        """No lock is held here, and none in the rest of the package: wherever Python lets go of an
        object, a finalizer of the program may run, and give this queue a command.  Each step leaves
        the queue's lists whole.  A command that comes in between is not ordered with this one; those
        after both come behind both."""
        self._drop_done()
        value = c.c_void_p()
        before = list(self._last)
        deps = [event._handle.value for event in (*after, *before)]
        function(self._handle.value, *arguments, len(deps), (c.c_void_p * len(deps))(*deps), value)
        event = Event(value.value, *keep)
        self._busy.append(event)
        self._last[event] = None
        for old in before:
            self._last.pop(old, None)
        return event

    def _drop_done(self) -> None:
        """They end in their order."""
        with contextlib.suppress(IndexError):  # none is left
            while (event := self._busy.popleft()).done:
                self._last.pop(event, None)
            self._busy.appendleft(event)


def copy(dst: Any, src: Any, nbytes: int | None = None) -> None:
    """Copies, now; see Queue.memcpy()."""
    lib.usm_copy(*both(dst, src, nbytes))


def pointer_type(what: Any, context: Context | None = None) -> str | None:
    """"host", "device", "shared", or None for what is no live memory of libusm (of `context`)."""
    where = address(what)[0]
    return KIND_NAMES.get(lib.usm_get_pointer_type(where, context and context._handle.value))


def free(pointer: int) -> None:
    """Frees a block given by its address; Memory frees itself."""
    lib.usm_free_ctx(pointer, None)
