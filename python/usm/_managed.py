"""usm.managed(): NumPy arrays over memory that may be larger than memory (usm/managed.h).

They are plain numpy.ndarray: who takes one takes these.  The library's own threads bring in what is
touched, and never need the GIL.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
from __future__ import annotations

import contextlib
import math
import os
import types
from typing import Any, Iterator, Literal, Sequence

import numpy

from . import _library as c
from ._library import lib
from ._objects import Handle, address_array, free_quietly, size_number

MODES = {"r": 1, "r+": 3}  # USM_READ, USM_READ_WRITE
ADVICE = {"normal": 0, "will_need": 1, "wont_need": 2, "sequential": 3, "random": 4}


class Block:
    """Managed memory, freed with the last array over it."""

    def __init__(self, nbytes: int):
        pointer = lib.usm_alloc_managed(size_number(nbytes))
        if not pointer:
            raise c.failure(lib.usm_last_status())
        self.ptr, self.nbytes = pointer, nbytes
        self._handle = Handle(pointer, free_in_process(os.getpid()))
        # Arrays may be used until the interpreter has ended; then the process gives it back.
        self._handle.close.atexit = False


def free_in_process(owner: int) -> Any:
    """Children of fork() have the array without its memory: there is nothing to free."""
    def end(pointer: int) -> None:
        if os.getpid() == owner:
            free_quietly(pointer)
    return end


def managed(shape: int | Sequence[int], dtype: Any = "f4",
            order: Literal["C", "F"] = "C") -> numpy.ndarray:
    """An array of zeros that may be larger than USM_MEMORY_LIMIT.  What does not fit goes to the
    tiers of USM_SPILL and comes back when it is touched.  Views keep the memory; copies, also those
    of pickle, are ordinary arrays.  A child of fork() must not touch it."""
    shape = (int(shape),) if isinstance(shape, (int, numpy.integer)) else tuple(map(int, shape))
    dtype = numpy.dtype(dtype)
    if dtype.hasobject:
        raise TypeError("objects of Python cannot be in such memory")
    if any(n < 0 for n in shape) or order not in ("C", "F"):
        raise ValueError("the shape is {}, the order {!r}".format(shape, order))
    memory = Block(math.prod(shape) * dtype.itemsize)
    return numpy.ndarray(shape, dtype, address_array(memory, "u1"), order=order)


def span(array: Any) -> tuple[int, int]:
    """(address, bytes) from the first element in memory to the end of the last."""
    reach = [(n - 1) * stride for n, stride in zip(array.shape, array.strides)]
    first = array.ctypes.data + sum(r for r in reach if r < 0)
    return first, sum(map(abs, reach)) + array.itemsize


@contextlib.contextmanager
def pinned(array: Any, mode: Literal["r", "r+"] = "r+") -> Iterator[numpy.ndarray]:
    """The memory of an array, a part of a managed one, is there while the body runs, so that system
    calls and drivers may use it.  "r": nobody changes it through them."""
    if mode not in MODES:
        raise ValueError("mode is {!r}: one of {}".format(mode, ", ".join(MODES)))
    array = numpy.asarray(array)
    if array.size == 0:
        yield array
        return
    where = (*span(array), MODES[mode])
    lib.usm_managed_pin(*where)
    try:
        yield array
    finally:
        lib.usm_managed_unpin(*where)


def advise(array: Any, advice: str) -> None:
    """How a managed array, or a part of one, will be used: "sequential", "random", "will_need",
    "wont_need"; "normal" takes it back."""
    if advice not in ADVICE:
        raise ValueError("advice is {!r}: one of {}".format(advice, ", ".join(ADVICE)))
    array = numpy.asarray(array)
    if array.size:
        lib.usm_managed_advise(*span(array), ADVICE[advice])


def save(path: str | os.PathLike[str], array: Any) -> None:
    """numpy.save(), but through a buffer, as system calls may be unable to reach managed memory that
    is not pinned; and a file that is there stays as it is until the new one is whole."""
    path = os.fspath(path)
    new = path + ".new"
    try:
        with open(new, "wb") as file:  # what is no file to NumPy gets copies
            numpy.lib.format.write_array(types.SimpleNamespace(write=file.write),
                                         numpy.asanyarray(array), allow_pickle=False)
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(new)
        raise
