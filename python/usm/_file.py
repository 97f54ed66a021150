"""usm.open(): an array over a file, larger than memory if need be.

The file is a buffer of libusm (usm/buffer.h): rows are read when they are asked for, evicted when
memory is short (USM_MEMORY_LIMIT, USM_SPILL), and written by commit() alone.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
from __future__ import annotations

import ast
import contextlib
import ctypes
import math
import operator
import os
import sys
from typing import Any, Callable, Iterator

import numpy

from . import _library as c
from ._array import current, rows_of
from ._library import lib
from ._managed import managed
from ._objects import Handle

READ, WRITE, NO_INIT = 1, 2, 4
MODES = {"r": READ, "r+": READ | WRITE, "w+": READ | WRITE | NO_INIT}
CHUNK = 1 << 20  # bytes that managed() reads at once
HEADER_MAX = 10000  # as numpy.load()


class File:
    """An array in a file of NumPy's format.  f[rows] is a Rows, f.managed() a NumPy array."""

    def __init__(self, path: str | os.PathLike[str], mode: str = "r", shape: Any = None,
                 dtype: Any = None):
        if mode not in MODES:
            raise ValueError("mode is {!r}: one of {}".format(mode, ", ".join(MODES)))
        if mode == "w+":
            shape = (shape,) if isinstance(shape, int) else shape
            header = {"descr": numpy.lib.format.dtype_to_descr(numpy.dtype(dtype)),
                      "fortran_order": False, "shape": tuple(map(int, shape))}
            with open(path, "wb") as file:
                numpy.lib.format.write_array_header_2_0(file, header)
        self.path = os.fspath(path)
        with open(path, "rb") as file:
            self.shape, self.dtype, self.is_fortran = read_header(file)
            offset, there = file.tell(), os.fstat(file.fileno()).st_size
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize
        if mode != "w+" and offset + self.nbytes > there:
            raise ValueError("{} was cut off: it has {} of {} bytes".format(
                self.path, there, offset + self.nbytes))
        context = current().context
        value = c.c_void_p()
        lib.usm_buffer_open(context._handle.value, os.fsencode(path), offset, self.nbytes,
                            MODES[mode], value)
        self._handle = Handle(value.value, lib.usm_buffer_destroy, context._handle)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: int | slice) -> Rows:
        if self.is_fortran:
            raise ValueError("{} is stored by columns, so that rows do not follow each other: "
                             "managed() reads all of it".format(self.path))
        return Rows(self, *rows_of(self.shape, rows))

    def managed(self) -> numpy.ndarray:
        """All of it in managed memory (usm.managed()), read now.  Changes of that array are its own:
        usm.save() makes a file of them."""
        array = managed(self.shape, self.dtype, "F" if self.is_fortran else "C")
        flat = array.reshape(-1, order="A").view("u1")
        for first in range(0, self.nbytes, CHUNK):
            size = min(CHUNK, self.nbytes - first)
            with self._access(first, size, READ) as view:
                flat[first:first + size] = view
        return array

    @contextlib.contextmanager
    def _access(self, offset: int, size: int, mode: int) -> Iterator[numpy.ndarray]:
        access = c.Access()
        lib.usm_access_begin(self._buffer, offset, size, mode, access)
        try:
            raw = (ctypes.c_char * size).from_address(access.ptr)
            array = numpy.frombuffer(memoryview(raw), "u1")
            array.flags.writeable = bool(mode & WRITE)
            yield array
        finally:
            lib.usm_access_end(access)

    @property
    def _buffer(self) -> int:
        if not self._handle.close.alive:
            raise ValueError("{} was closed".format(self.path))
        handle: int = self._handle.value
        return handle

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
        row = file.nbytes // file.shape[0]
        self._file, self._offset = file, first * row
        self._size, self.shape = count * row, shape

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
        with self._file._access(self._offset, self._size, mode) as view:
            yield view.view(self._file.dtype).reshape(self.shape)


def read_header_3(file: Any) -> tuple[tuple[int, ...], bool, numpy.dtype]:
    """NumPy reads it, too, but offers no function: version 2 with names in UTF-8."""
    size = int.from_bytes(file.read(4), "little")
    if size > HEADER_MAX:
        raise ValueError("the header has {} bytes".format(size))
    header = ast.literal_eval(file.read(size).decode())
    return (header["shape"], header["fortran_order"],
            numpy.lib.format.descr_to_dtype(header["descr"]))


READERS: dict[int, Callable[[Any], Any]] = {
    1: numpy.lib.format.read_array_header_1_0, 2: numpy.lib.format.read_array_header_2_0,
    3: read_header_3}


def read_header(file: Any) -> tuple[tuple[int, ...], numpy.dtype, bool]:
    """Shape, type, and whether it is stored by columns; ValueError whatever the bytes are."""
    try:
        version = numpy.lib.format.read_magic(file)
        if version[0] not in READERS:
            raise ValueError("its version is {}: 1 to 3 are read".format(version))
        shape, is_fortran, dtype = READERS[version[0]](file)
        shape = tuple(operator.index(n) for n in shape)
    except OSError:
        raise
    except Exception as error:  # parsers of forged texts raise nearly everything
        raise ValueError("{} has no header of NumPy's format that can be read: {}".format(
            file.name, error)) from error
    nbytes = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or dtype.subdtype or not shape or min(shape) < 0 or not 0 < nbytes <= sys.maxsize:
        raise ValueError("{} holds {} of {}: rows of numbers are needed".format(
            file.name, shape, dtype))
    return shape, dtype, bool(is_fortran) and len(shape) > 1
