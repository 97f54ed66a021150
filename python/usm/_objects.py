"""Contexts, queues, pools and memory as Python objects.

Who owns what.  Each object of libusm is held by a small Handle that destroys it when the last
Python object that needs it is gone: memory holds its pool's handle, a pool and a queue that of
their context, a context whatever keeps the native one alive.  So objects may be dropped in any
order, also in one heap of garbage and at the end of the interpreter, and go in the right one.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import collections
import contextlib
import ctypes
import sys
import weakref

from . import _library as c
from ._library import lib

HOST, DEVICE, SHARED = "host", "device", "shared"
KINDS = {HOST: 1, DEVICE: 2, SHARED: 3}
KIND_NAMES = {number: name for name, number in KINDS.items()}
KEEP = 0
TRANSFER = 1


class Handle:
    """An object of libusm; `keep` are those that must outlive it."""

    def __init__(self, value, destroy, *keep):
        self.value = value
        # The registry of finalizers holds `keep` until it has run; at the end of the interpreter
        # the youngest runs first.
        self.close = weakref.finalize(self, Handle._end, value, destroy, keep)

    @staticmethod
    def _end(value, destroy, _keep):
        destroy(value)


def kind_number(kind):
    if kind not in KINDS:
        raise ValueError("kind is {!r}: one of {}".format(kind, ", ".join(KINDS)))
    return KINDS[kind]


def size_number(nbytes):
    """ctypes would cut off what a size_t cannot hold."""
    if not 0 <= nbytes <= sys.maxsize:
        raise ValueError("{} bytes cannot be allocated".format(nbytes))
    return nbytes


class Context:
    """A context of libusm.  Context() is one on the first device of USM_DEVICE_SELECTOR,
    Context("opencl:gpu") on the first of that selector; the from_ functions make one inside a
    native context of somebody else."""

    def __init__(self, selector=None, *, _handle=None, _syclobj=None, _devices=()):
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
    def from_native(cls, backend, handle, devices=(), *, keep=None, transfer=False, syclobj=None):
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
    def from_dpctl(cls, queue):
        """Inside the native context of a dpctl.SyclQueue, for its device.  Memory of such a
        context is memory to dpctl and dpnp (Memory.__sycl_usm_array_interface__)."""
        from . import _dpctl
        return _dpctl.context(cls, queue)

    @classmethod
    def from_pyopencl(cls, context):
        """Inside a pyopencl.Context, for all its devices."""
        return cls.from_native("opencl", context.int_ptr, keep=context)

    @property
    def devices(self):
        """What libusm calls the devices: dictionaries of texts."""
        return [device_info(device) for device in self._device_handles()]

    def _device_handles(self):
        count = c.c_size_t()
        lib.usm_context_get_devices(self._handle.value, None, 0, count)
        list_ = (c.c_void_p * count.value)()
        lib.usm_context_get_devices(self._handle.value, list_, count.value, count)
        return list(list_)

    def native(self, backend):
        """The native context as a number; borrowed."""
        value = c.c_void_p()
        lib.usm_context_get_native(self._handle.value, backend.encode(), value)
        return value.value

    def wait(self):
        """Until all that libusm's queues of the context were given is done."""
        lib.usm_context_wait(self._handle.value)

    def __repr__(self):
        return "<usm.Context of {}>".format(", ".join(d["name"] for d in self.devices))


def select_devices(selector=None):
    """The handles of the devices that a selector names; None: USM_DEVICE_SELECTOR."""
    count, found = c.c_size_t(), c.c_size_t(0)
    if selector is None:
        function, before = lib.usm_get_devices, ()
    else:
        function, before = lib.usm_select_devices, (selector.encode(),)
    function(*before, None, 0, count)
    list_ = (c.c_void_p * count.value)()
    function(*before, list_, count.value, found)
    return list(list_)[:found.value]


def device_info(device):
    info = c.make(c.DeviceInfo)
    lib.usm_device_get_info(device, info)
    return {name: (getattr(info, name) or b"").decode() for name in (
        "backend", "name", "platform", "vendor", "driver_version", "selector")}


# --- memory ------------------------------------------------------------------------------------

class Pool:
    """A pool of one kind of memory, "host", "device" or "shared".  `name` and the sizes are those
    of usm_pool_desc; `device` counts the context's."""

    def __init__(self, context, kind=SHARED, *, name=None, device=0, area_size=0, maximum_size=0,
                 min_align=0):
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

    def alloc(self, nbytes, align=0):
        """A Memory of so many bytes."""
        return Memory(self, nbytes, align)

    def stats(self):
        """usm_pool_stats as a dictionary; what it counts is told in usm/pool.h."""
        stats = c.make(c.PoolStats)
        lib.usm_pool_get_stats(self._handle.value, stats)
        return {name: getattr(stats, name) for name, _ in stats._fields_[1:-1]}

    def describe(self):
        """The same and more, a table for people."""
        need = c.c_size_t()
        lib.usm_pool_describe(self._handle.value, 0, None, 0, need)
        text = ctypes.create_string_buffer(need.value + 1)
        lib.usm_pool_describe(self._handle.value, 0, text, len(text), need)
        return text.value.decode()

    def trim(self, keep=0):
        """Gives memory that is not in use back to the driver, down to `keep` bytes."""
        lib.usm_pool_trim_to(self._handle.value, keep)

    def __repr__(self):
        return "<usm.Pool of {} memory>".format(self.kind)


class Addressed:
    """What has .ptr and .nbytes: an argument of copies, fills and kernels."""


class Memory(Addressed):
    """A block of a pool, freed when the last reference to it is gone or by free(): at that moment
    no command of anybody may use it.  Views keep it alive."""

    def __init__(self, pool, nbytes, align=0):
        pointer = lib.usm_pool_aligned_alloc(pool._handle.value, align, size_number(nbytes))
        if not pointer:
            raise c.failure(lib.usm_last_status())
        self.pool = pool
        self.kind = pool.kind
        self.nbytes = nbytes
        self._syclobj = pool._syclobj
        self._handle = Handle(pointer, free_quietly, pool._handle)

    @property
    def ptr(self):
        """The address."""
        if not self._handle.close.alive:
            raise ValueError("the memory was freed")
        return self._handle.value

    def free(self):
        """At once.  Views of it must not be used any more."""
        pointer = self.ptr
        self._handle.close.detach()
        lib.usm_free_ctx(pointer, None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._handle.close.alive:
            self.free()

    @property
    def __sycl_usm_array_interface__(self):
        """What dpctl and dpnp ask for.  The flag says `writable`, whatever its name elsewhere."""
        if self._syclobj is None:
            raise AttributeError("the memory is in no SYCL context: Context.from_dpctl() makes one")
        return {"data": (self.ptr, True), "shape": (self.nbytes,), "strides": None,
                "typestr": "|u1", "version": 1, "syclobj": self._syclobj}

    @property
    def __array_interface__(self):
        """What NumPy asks for; device memory has none, as the host must not touch it."""
        if self.kind == DEVICE:
            raise AttributeError("device memory cannot be seen by the host: copy it")
        return {"data": (self.ptr, False), "shape": (self.nbytes,), "typestr": "|u1", "version": 3}

    def numpy(self, dtype="u1", shape=-1):
        """A NumPy array over host or shared memory, without a copy."""
        if self.kind == DEVICE:
            raise TypeError("device memory cannot be seen by the host: copy it")
        return address_array(self, dtype).reshape(shape)

    def svm(self, dtype="u1", shape=-1):
        """A pyopencl.SVM over it, an argument of PyOpenCL's kernels and copies in a context that
        shares the native one.  Only PyOpenCL may look at what it wraps."""
        import pyopencl
        return pyopencl.SVM(address_array(self, dtype).reshape(shape))

    def as_dpctl(self):
        """The dpctl.memory object over it."""
        from dpctl.memory import as_usm_memory
        return as_usm_memory(self)

    def dpnp(self, dtype="f4", shape=None):
        """A dpnp.ndarray over it, of the queue that the context came from."""
        import dpnp
        dtype = dpnp.dtype(dtype)
        shape = self.nbytes // dtype.itemsize if shape is None else shape
        return dpnp.ndarray(shape, dtype, buffer=self.as_dpctl(), sycl_queue=self._syclobj)

    def __len__(self):
        return self.nbytes

    def __repr__(self):
        state = hex(self._handle.value) if self._handle.close.alive else "freed"
        return "<usm.Memory, {} bytes of {} memory, {}>".format(self.nbytes, self.kind, state)


class AsyncMemory(Memory):
    """A block allocated and freed in the order of a queue's commands: its last reference may go
    while they use it, and a later allocation of the queue may have it before they have ended."""

    def __init__(self, queue, nbytes, kind):
        pointer = lib.usm_async_malloc(queue._handle.value, kind_number(kind), size_number(nbytes))
        if not pointer:
            raise c.failure(lib.usm_last_status())
        self.queue = queue
        self.kind = kind
        self.nbytes = nbytes
        self._syclobj = queue.context._syclobj
        self._handle = Handle(pointer, free_in(queue._handle.value), queue._handle)

    def free(self):
        """In the queue's order."""
        pointer = self.ptr
        self._handle.close.detach()
        lib.usm_async_free(self.queue._handle.value, pointer)


def free_in(queue):
    def end(pointer):
        with contextlib.suppress(c.Error):  # the log has its message
            lib.usm_async_free(queue, pointer)
    return end


class _Addresses:
    """Makes NumPy take an address without looking at it, and hold the memory."""

    def __init__(self, memory):
        self.memory = memory
        self.__array_interface__ = {"data": (memory.ptr, False), "shape": (memory.nbytes,),
                                    "typestr": "|u1", "version": 3}


def address_array(memory, dtype):
    import numpy
    return numpy.asarray(_Addresses(memory)).view(dtype)


def free_quietly(pointer):
    try:
        lib.usm_free_ctx(pointer, None)
    except c.Error:
        pass  # the log has the story


# --- commands ----------------------------------------------------------------------------------

def address(what):
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
        return ctypes.cast(ctypes.c_char_p(what), c.c_void_p).value, len(what)
    view = memoryview(what).cast("B")
    return ctypes.addressof((ctypes.c_char * len(view)).from_buffer(view)), len(view)


def both(dst, src, nbytes):
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


def end_event(value):
    """What a command uses may go only when it has ended: its event is the last to hold it."""
    with contextlib.suppress(c.Error):  # of the command; who wanted to know has asked
        lib.usm_event_wait(value)
    lib.usm_event_release(value)


class Event:
    """The completion of a command.  It holds what the command uses until that is done."""

    def __init__(self, value, *keep):
        self._keep = list(keep)
        self._handle = Handle(value, end_event, self._keep)

    def wait(self):
        """Until the command is done; its failure is raised."""
        try:
            lib.usm_event_wait(self._handle.value)
        finally:
            self._keep.clear()

    @property
    def done(self):
        """Is it, well or not?"""
        if lib.usm_event_query(self._handle.value) == -1:  # USM_E_NOT_READY
            return False
        self._keep.clear()
        return True


class Queue:
    """Commands in their order, also over a native queue that has none: each then waits for the one
    before.  What they use is held until they are done: where a queue is dropped before, that is
    waited for."""

    def __init__(self, context, *, device=0, _handle=None):
        if _handle is None:
            value = c.c_void_p()
            lib.usm_queue_create(context._handle.value, context._device_handles()[device],
                                 c.make(c.QueueDesc), value)
            _handle = Handle(value.value, lib.usm_queue_destroy, context._handle)
        self._handle = _handle
        self._busy = collections.deque()  # the events of what is not known to be done
        self._last = {}  # those that no later command waits for; the values are nothing
        self.context = context

    @classmethod
    def from_native(cls, context, handle, *, keep=None):
        """Over a native queue of the context's native context: a cl_command_queue as a number, or
        a LevelZeroQueue."""
        value = c.c_void_p()
        if isinstance(handle, c.LevelZeroQueue):
            handle = ctypes.addressof(handle)
        lib.usm_queue_from_native(context._handle.value, handle, KEEP, value)
        return cls(context, _handle=Handle(value.value, lib.usm_queue_destroy, context._handle,
                                           keep))

    @classmethod
    def from_dpctl(cls, context, queue):
        """Over the native queue of a dpctl.SyclQueue, in the context made from it.  What it orders
        of both sides, and what not, is told in docs/interop.md."""
        from . import _dpctl
        return _dpctl.queue(cls, context, queue)

    @classmethod
    def from_pyopencl(cls, context, queue):
        """Over a pyopencl.CommandQueue."""
        return cls.from_native(context, queue.int_ptr, keep=queue)

    def memcpy(self, dst, src, nbytes=None, after=()):
        """Copies, later, and behind the Events `after`; the Event it gives says when.  Either is
        Memory, a NumPy array, what else has a buffer, or an address."""
        to, at, nbytes = both(dst, src, nbytes)
        return self._submit(lib.usm_memcpy, (to, at, nbytes), after, (dst, src))

    def fill(self, dst, pattern, count=None, after=()):
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

    def alloc(self, nbytes, kind=DEVICE):
        """Memory in the order of the queue: later commands may use it at once, and it is freed, with
        its last reference or by free(), when the queue gets there."""
        return AsyncMemory(self, nbytes, kind)

    def wait(self):
        lib.usm_queue_wait(self._handle.value)
        self._drop_done()

    def _submit(self, function, arguments, after, keep):
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

    def _drop_done(self):
        """They end in their order."""
        with contextlib.suppress(IndexError):  # none is left
            while (event := self._busy.popleft()).done:
                self._last.pop(event, None)
            self._busy.appendleft(event)


def copy(dst, src, nbytes=None):
    """Copies, now; see Queue.memcpy()."""
    lib.usm_copy(*both(dst, src, nbytes))


def pointer_type(what, context=None):
    """"host", "device", "shared", or None for what is no live memory of libusm (of `context`)."""
    where = address(what)[0]
    return KIND_NAMES.get(lib.usm_get_pointer_type(where, context and context._handle.value))


def free(pointer):
    """Frees a block given by its address; Memory frees itself."""
    lib.usm_free_ctx(pointer, None)
