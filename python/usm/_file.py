"""usm.open(): an array over a file, larger than memory if need be.

The file is a buffer of libusm (usm/buffer.h): rows are read when they are asked for, evicted when
memory is short (USM_MEMORY_LIMIT, USM_SPILL), and written by commit() alone.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
from __future__ import annotations

import contextlib
import ctypes
import math
import os
from typing import Any, Iterator

import numpy

from . import _library as c
from ._array import current, rows_of
from ._library import lib
from ._objects import Handle

READ, WRITE, NO_INIT = 1, 2, 4
MODES = {"r": READ, "r+": READ | WRITE, "w+": READ | WRITE | NO_INIT}


class File:
    """An array in a file of NumPy's format.  f[rows] is a Rows."""

    def __init__(self, path: str | os.PathLike[str], mode: str = "r", shape: Any = None,
                 dtype: Any = None):
        if mode not in MODES:
            raise ValueError("mode is {!r}: one of {}".format(mode, ", ".join(MODES)))
        if mode == "w+":
            shape = (shape,) if isinstance(shape, int) else shape
            with open(path, "wb") as file:
                numpy.lib.format.write_array_header_2_0(file, {
                    "descr": numpy.lib.format.dtype_to_descr(numpy.dtype(dtype)),
                    "fortran_order": False, "shape": tuple(shape)})
        self.path = os.fspath(path)
        with open(path, "rb") as file:
            self.shape, self.dtype = read_header(file)
            offset = file.tell()
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize
        self._row = self.nbytes // self.shape[0]
        context = current().context
        value = c.c_void_p()
        lib.usm_buffer_open(context._handle.value, os.fsencode(path), offset, self.nbytes,
                            MODES[mode], value)
        self._handle = Handle(value.value, lib.usm_buffer_destroy, context._handle)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: int | slice) -> Rows:
        return Rows(self, *rows_of(self.shape, rows))

    @property
    def _buffer(self) -> int:
        if not self._handle.close.alive:
            raise ValueError("{} was closed".format(self.path))
        return self._handle.value

    def commit(self) -> None:
        """Writes what was changed to the file, all of it or, after a crash, none of each block."""
        lib.usm_buffer_commit(self._buffer)

    def close(self) -> None:
        """Changes that were not committed are dropped."""
        self._handle.close()

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<usm.File {}, {} {}>".format(self.path, self.shape, self.dtype)


class Rows:
    """Rows that follow each other.  Each `with` gives them as a NumPy array, which may not be used
    after its end: the memory is another's then."""

    def __init__(self, file: File, first: int, count: int, shape: tuple[int, ...]):
        self._file, self._offset = file, first * file._row
        self._size, self.shape = count * file._row, shape

    def read(self) -> contextlib.AbstractContextManager[numpy.ndarray]:
        return self._open(READ)

    def write(self) -> contextlib.AbstractContextManager[numpy.ndarray]:
        """All of them are written, so none is read before."""
        return self._open(WRITE | NO_INIT)

    def update(self) -> contextlib.AbstractContextManager[numpy.ndarray]:
        return self._open(READ | WRITE)

    @contextlib.contextmanager
    def _open(self, mode: int) -> Iterator[numpy.ndarray]:
        if self._size == 0:
            yield numpy.empty(self.shape, self._file.dtype)
            return
        access = c.Access()
        lib.usm_access_begin(self._file._buffer, self._offset, self._size, mode, access)
        try:
            raw = (ctypes.c_char * self._size).from_address(access.ptr)
            array = numpy.frombuffer(memoryview(raw), self._file.dtype).reshape(self.shape)
            array.flags.writeable = bool(mode & WRITE)
            yield array
        finally:
            lib.usm_access_end(access)


def read_header(file: Any) -> tuple[tuple[int, ...], numpy.dtype]:
    version = numpy.lib.format.read_magic(file)
    read = {1: numpy.lib.format.read_array_header_1_0, 2: numpy.lib.format.read_array_header_2_0}
    if version[0] not in read:
        raise ValueError("{} has version {} of NumPy's format: 1 and 2 are read".format(
            file.name, version))
    shape, is_fortran, dtype = read[version[0]](file)
    if is_fortran and len(shape) > 1:
        raise ValueError("{} is stored by columns: rows do not follow each other".format(file.name))
    if dtype.hasobject or not shape or not math.prod(shape):
        raise ValueError("{} holds {} of {}: rows of numbers are needed".format(
            file.name, shape, dtype))
    return shape, dtype
