"""Arrays over memory of libusm, and where they are made.

A place is a device with what is needed to use it: context, queue, a pool for each kind of memory.
Each device has one, made when it is first needed and kept: device_context() chooses it.  Commands on
an array (fills, copies, kernels) are queued in its place; what lets the host look at it
(numpy(), __array_interface__, __dlpack__) waits for them first.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
from __future__ import annotations

import contextlib
import contextvars
import math
from typing import Any, Iterator, Sequence

import numpy

from . import _library as c
from ._library import lib
from ._objects import (DEVICE, KINDS, SHARED, Addressed, Context, Event, Memory, Pool, Queue,
                       address_array, device_info, select_devices)

Values = numpy.ndarray  # in Array the name numpy is a method's
ASPECT_SHARED = 9  # USM_ASPECT_USM_SHARED_ALLOCATIONS


class Place:
    """A device, its context, queue and pools."""
    _all: dict[Any, Place] = {}

    def __init__(self, context: Context):
        self.context = context
        self.queue = Queue(context)
        self.device = context._device_handles()[0]
        self.selector = device_info(self.device)["selector"]
        has_shared = lib.usm_device_has(self.device, ASPECT_SHARED)
        self.kind = SHARED if has_shared else DEVICE
        self._pools: dict[str, Pool] = {}

    @classmethod
    def of(cls, selector: str | None) -> Place:
        """The place of a selector's first device; it stays for the life of the process."""
        device = select_devices(selector)[0]
        if device not in cls._all:  # of two threads here at once, the place of one is dropped
            cls._all.setdefault(device, cls(Context(device_info(device)["selector"])))
        return cls._all[device]

    def pool(self, kind: str) -> Pool:
        if kind not in self._pools:
            self._pools.setdefault(kind, Pool(self.context, kind))
        return self._pools[kind]

    def __repr__(self) -> str:
        return "<usm.Place {}>".format(self.selector)


_current: contextvars.ContextVar[Place | None] = contextvars.ContextVar("usm_place", default=None)


def current() -> Place:
    """Where arrays are made now."""
    return _current.get() or Place.of(None)


@contextlib.contextmanager
def device_context(device: str | Context | Place) -> Iterator[Place]:
    """Arrays that the body makes are on the first device of a selector ("opencl:gpu"), or in a
    Context, and so kernels that it runs on them are there.  Other threads are not affected."""
    if isinstance(device, str):
        place = Place.of(device)
    else:
        place = device if isinstance(device, Place) else Place(device)
    token = _current.set(place)
    try:
        yield place
    finally:
        _current.reset(token)


def host_offload() -> contextlib.AbstractContextManager[Place]:
    """device_context() of the processor: an OpenCL driver's where there is one, which runs kernels
    from text; else plain host memory."""
    try:
        select_devices("opencl:cpu")
    except c.Error:
        return device_context("host:*")
    return device_context("opencl:cpu")


class Array(Addressed):
    """A contiguous array over memory of libusm.  a[3] and a[2:5] share it, and keep it."""

    def __init__(self, memory: Memory, shape: tuple[int, ...], dtype: numpy.dtype, place: Place,
                 offset: int = 0):
        self.memory, self.shape, self.dtype = memory, shape, dtype
        self.place, self.offset = place, offset
        self.nbytes = math.prod(shape) * dtype.itemsize

    @property
    def kind(self) -> str:
        return self.memory.kind

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def ptr(self) -> int:
        return self.memory.ptr + self.offset

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def __getitem__(self, rows: int | slice) -> Array:
        first, count, shape = rows_of(self.shape, rows)
        stride = self.nbytes // self.shape[0] if self.shape[0] else 0
        del count
        return Array(self.memory, shape, self.dtype, self.place, self.offset + first * stride)

    def numpy(self) -> Values:
        """A NumPy array over host or shared memory, without a copy, when the commands queued so far
        are done.  Kernels that are queued later: wait for them before it is used again."""
        if self.kind == DEVICE:
            raise TypeError("device memory cannot be seen by the host: to_numpy() copies it")
        self.place.queue.wait()
        flat = address_array(self.memory, "u1")[self.offset:self.offset + self.nbytes]
        return flat.view(self.dtype).reshape(self.shape)

    def to_numpy(self) -> Values:
        """A copy, of memory of any kind."""
        result = numpy.empty(self.shape, self.dtype)
        self.place.queue.memcpy(result, self).wait()
        return result

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.kind == DEVICE:
            raise AttributeError("device memory cannot be seen by the host: copy it")
        self.place.queue.wait()
        return {"data": (self.ptr, False), "shape": self.shape, "typestr": self.dtype.str,
                "version": 3}

    @property
    def __sycl_usm_array_interface__(self) -> dict[str, Any]:
        interface = self.memory.__sycl_usm_array_interface__
        self.place.queue.wait()
        # As in dpctl, the flag of an array says `read only`; that of memory, `writable`.
        interface.update(data=(self.ptr, False), shape=self.shape, typestr=self.dtype.str)
        return interface

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.kind == DEVICE:
            device: tuple[int, int] = self.dpnp().__dlpack_device__()
            return device
        return 1, 0  # kDLCPU

    def __dlpack__(self, **arguments: Any) -> Any:
        if self.kind == DEVICE:
            return self.dpnp().__dlpack__(**arguments)
        return self.numpy().__dlpack__(**arguments)

    def dpnp(self) -> Any:
        """The dpnp.ndarray over it, of the queue that the context came from."""
        queue = self.memory._syclobj
        if queue is None:
            raise BufferError("dpnp and DLPack know device memory inside SYCL contexts only: "
                              "to_numpy() copies it, Context.from_dpctl() makes such a context")
        import dpnp
        from dpctl.memory import as_usm_memory
        return dpnp.ndarray(self.shape, self.dtype, buffer=as_usm_memory(self), sycl_queue=queue)

    def fill(self, value: Any) -> Event:
        """Each element becomes `value`."""
        return self.place.queue.fill(self, numpy.asarray(value, self.dtype).tobytes(), self.size)

    def copy_from(self, source: Any) -> Event:
        """An Array, or what NumPy makes an array of."""
        if not isinstance(source, Array):
            source = numpy.asarray(source, self.dtype, order="C")
        if tuple(source.shape) != self.shape or source.dtype != self.dtype:
            raise ValueError("an array of {} {} cannot be copied to one of {} {}".format(
                source.shape, source.dtype, self.shape, self.dtype))
        if isinstance(source, Array) and source.place is not self.place:
            source.place.queue.wait()
        return self.place.queue.memcpy(self, source)

    def __repr__(self) -> str:
        return "<usm.Array {} {}, {} memory on {}>".format(
            self.shape, self.dtype, self.kind, self.place.selector)


def rows_of(shape: tuple[int, ...], rows: int | slice) -> tuple[int, int, tuple[int, ...]]:
    """(first, count, shape) of whole rows."""
    if not shape:
        raise IndexError("an array without dimensions has no rows")
    if isinstance(rows, slice):
        first, end, step = rows.indices(shape[0])
        if step != 1:
            raise IndexError("rows follow each other: the step is 1, not {}".format(step))
        count = max(0, end - first)
        return first, count, (count,) + shape[1:]
    if not isinstance(rows, (int, numpy.integer)):
        raise IndexError("only rows can be chosen, by a number or a slice; NumPy's views do more")
    first = int(rows) + shape[0] if rows < 0 else int(rows)
    if not 0 <= first < shape[0]:
        raise IndexError("row {} of {}".format(rows, shape[0]))
    return first, 1, shape[1:]


def empty(shape: int | Sequence[int], dtype: Any = "f4", *, kind: str | None = None,
          device: str | Context | Place | None = None) -> Array:
    """An array whose content is indeterminate, of "host", "device" or "shared" memory (None: shared
    where the device has it), on `device` (None: that of device_context())."""
    if device is not None:
        with device_context(device):
            return empty(shape, dtype, kind=kind)
    place, dtype = current(), numpy.dtype(dtype)
    if dtype.hasobject:
        raise TypeError("objects of Python cannot be in such memory")
    shape = (int(shape),) if isinstance(shape, (int, numpy.integer)) else tuple(map(int, shape))
    if any(n < 0 for n in shape):
        raise ValueError("the shape is {}".format(shape))
    kind = kind or place.kind
    if kind not in KINDS:
        raise ValueError("kind is {!r}: one of {}".format(kind, ", ".join(KINDS)))
    memory = place.pool(kind).alloc(math.prod(shape) * dtype.itemsize)
    return Array(memory, shape, dtype, place)


def full(shape: int | Sequence[int], value: Any, dtype: Any = "f4", **where: Any) -> Array:
    array = empty(shape, dtype, **where)
    array.fill(value)
    return array


def zeros(shape: int | Sequence[int], dtype: Any = "f4", **where: Any) -> Array:
    return full(shape, 0, dtype, **where)


def asarray(source: Any, dtype: Any = None, **where: Any) -> Array:
    """An Array as it is, if nothing else was asked for; else a copy of it, or of what NumPy makes an
    array of."""
    if isinstance(source, Array) and not where and dtype in (None, source.dtype):
        return source
    values = source.to_numpy() if isinstance(source, Array) else source
    values = numpy.asarray(values, dtype, order="C")
    array = empty(values.shape, values.dtype, **where)
    array.copy_from(values).wait()
    return array


# --- over several devices ----------------------------------------------------------------------

def split(source: Any, devices: Sequence[str | Context | Place] | None = None, *,
          comm: Any = None, kind: str | None = None) -> list[Array]:
    """The rows of an array, spread evenly over devices (None: all that USM_DEVICE_SELECTOR
    selects).  With `comm`, a communicator of mpi4py, the array of its rank 0 is spread over the
    ranks first; the others pass None."""
    if comm is not None:
        pieces = numpy.array_split(as_host(source), comm.size) if comm.rank == 0 else None
        source = comm.scatter(pieces)
    if devices is None:
        devices = [device_info(device)["selector"] for device in select_devices()]
    if not devices:
        raise ValueError("no devices to split over")
    pieces = numpy.array_split(as_host(source), len(devices))
    return [asarray(piece, device=device, kind=kind) for piece, device in zip(pieces, devices)]


def gather(parts: Sequence[Array], *, comm: Any = None) -> numpy.ndarray | None:
    """Brings the parts of split() together again: a NumPy array.  With `comm` on its rank 0, None
    on the others."""
    whole = numpy.concatenate([part.to_numpy() for part in parts])
    if comm is None:
        return whole
    pieces = comm.gather(whole)
    return None if pieces is None else numpy.concatenate(pieces)


def as_host(source: Any) -> numpy.ndarray:
    return source.to_numpy() if isinstance(source, Array) else numpy.asarray(source)
