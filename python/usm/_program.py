"""Programs and kernels: usm.Program(text).scale[n](x, 2.0).

A program is built for a context when one of its kernels is first run there.  The C types of scalar
arguments are read out of the text; for SPIR-V, and where a type is none of OpenCL C's own, a Python
float becomes a float and an int an int, and NumPy's scalars keep their type.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
from __future__ import annotations

import ctypes
import re
from typing import Any, Sequence
from weakref import WeakKeyDictionary

import numpy

from . import _library as c
from ._array import Array, current
from ._library import lib
from ._objects import Addressed, Context, Event, Handle, address

OPENCL_C, SPIRV = 1, 2
POINTER, VALUE, LOCAL = 1, 2, 3
TYPES = {"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4",
         "unsigned": "u4", "long": "i8", "ulong": "u8", "size_t": "u8", "half": "f2",
         "float": "f4", "double": "f8", "unsigned int": "u4", "unsigned long": "u8",
         "unsigned char": "u1", "unsigned short": "u2"}


class Local:
    """An argument: so many bytes of local memory for each work-group."""

    def __init__(self, nbytes: int):
        self.nbytes = nbytes


def scalar_types(text: str) -> dict[str, list[str | None]]:
    """For each kernel of a text the NumPy types of its arguments, None for what is no scalar."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    found = {}
    for name, arguments in re.findall(r"\b(?:__)?kernel\b[^;{]*?\bvoid\s+(\w+)\s*\(([^)]*)\)", text):
        kinds: list[str | None] = []
        for argument in arguments.split(","):
            words = [w for w in re.findall(r"\w+", argument) if w not in ("const", "__private")]
            kinds.append(None if "*" in argument else TYPES.get(" ".join(words[:-1])))
        found[name] = kinds
    return found


class Program:
    """OpenCL C (str) or SPIR-V (bytes), or both: each device uses what it can run.  `options` are
    the compiler's.  Kernels are attributes; program.kernel(name) is the same."""

    def __init__(self, *images: str | bytes, options: str | None = None):
        if not images:
            raise ValueError("a program has at least one image")
        self._images = images
        self._options = options
        self._built: WeakKeyDictionary[Context, Handle] = WeakKeyDictionary()
        self._types = {name: kinds for image in images if isinstance(image, str)
                       for name, kinds in scalar_types(image).items()}

    def kernel(self, name: str) -> Kernel:
        return Kernel(self, name)

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.kernel(name)

    def _in(self, context: Context) -> Handle:
        if context not in self._built:
            self._built.setdefault(context, self._build(context))
        return self._built[context]

    def _build(self, context: Context) -> Handle:
        data = [image.encode() if isinstance(image, str) else bytes(image)
                for image in self._images]
        images = (c.Image * len(data))(*[
            c.Image(OPENCL_C if isinstance(image, str) else SPIRV, text, len(text))
            for image, text in zip(self._images, data)])
        desc = c.make(c.ProgramDesc)
        desc.nimages, desc.images = len(data), images
        desc.options = self._options.encode() if self._options else None
        value = c.c_void_p()
        lib.usm_program_create(context._handle.value, desc, value)
        return Handle(value.value, lib.usm_program_destroy, context._handle)


class Kernel:
    """kernel[n](arguments...), kernel[rows, columns](...); kernel.at(n, local=64)(...)."""

    def __init__(self, program: Program, name: str):
        self.program, self.name = program, name
        self._made: WeakKeyDictionary[Context, Handle] = WeakKeyDictionary()
        self._types = program._types.get(name, [])

    def __getitem__(self, size: int | Sequence[int]) -> Launcher:
        return self.at(size)

    def at(self, size: int | Sequence[int], *, local: int | Sequence[int] | None = None,
           offset: int | Sequence[int] | None = None) -> Launcher:
        """Over so many work-items, in groups of `local` (None: as the driver likes)."""
        return Launcher(self, extents(size), extents(local), extents(offset))

    def _in(self, context: Context) -> Handle:
        handle = self._made.get(context)
        if handle is None:
            program = self.program._in(context)
            value = c.c_void_p()
            lib.usm_kernel_create(program.value, self.name.encode(), value)
            handle = Handle(value.value, lib.usm_kernel_destroy, program)
            self._made[context] = handle
        return handle

    def _arg(self, index: int, what: Any, arg: c.Arg) -> Any:
        """Fills in an argument; gives what must live until the kernel has ended."""
        if isinstance(what, (Addressed, numpy.ndarray)):
            arg.kind, arg.size, arg.value = POINTER, ctypes.sizeof(c.c_void_p), address(what)[0]
            return what
        if isinstance(what, Local):
            arg.kind, arg.size = LOCAL, what.nbytes
            return what
        if not isinstance(what, (bool, int, float, complex, numpy.generic)):
            raise TypeError("argument {} of {} is a {}: arrays, numbers, usm.Local".format(
                index, self.name, type(what).__name__))
        dtype = self._types[index] if index < len(self._types) else None
        if dtype is None and not isinstance(what, numpy.generic):
            dtype = "f4" if isinstance(what, float) else "i4"
        value = numpy.asarray(what, dtype)
        arg.kind, arg.size, arg.value = VALUE, value.nbytes, value.ctypes.data
        return value


def extents(size: int | Sequence[int] | None) -> tuple[int, ...]:
    if size is None:
        return ()
    size = (size,) if isinstance(size, (int, numpy.integer)) else tuple(size)
    if not 1 <= len(size) <= 3 or any(n < 0 for n in size):
        raise ValueError("a range has 1 to 3 sizes, none negative: {}".format(size))
    return tuple(int(n) for n in size)


class Launcher:
    """What a call of it runs: a kernel over a range."""

    def __init__(self, kernel: Kernel, size: tuple[int, ...], local: tuple[int, ...],
                 offset: tuple[int, ...]):
        self.kernel, self.size, self.local, self.offset = kernel, size, local, offset

    def __call__(self, *arguments: Any, after: Sequence[Event] = ()) -> Event:
        """Queued where the first Array among the arguments is (without one, where
        device_context() says), and behind the Events `after`."""
        place = next((a.place for a in arguments if isinstance(a, Array)), None) or current()
        kernel = self.kernel._in(place.context)
        args = (c.Arg * max(1, len(arguments)))()
        keep = [self.kernel._arg(i, what, args[i]) for i, what in enumerate(arguments)]
        launch = c.make(c.Launch)
        launch.kernel, launch.dims = kernel.value, len(self.size)
        launch.global_ = (c.c_size_t * 3)(*self.size, *[1] * (3 - len(self.size)))
        launch.local = (c.c_size_t * 3)(*self.local, *[1 if self.local else 0]
                                        * (3 - len(self.local)))
        launch.offset = (c.c_size_t * 3)(*self.offset)
        launch.nargs, launch.args = len(arguments), args
        return place.queue._submit(lib.usm_queue_submit, (launch,), after, (kernel, *keep))
