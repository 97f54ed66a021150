"""Finds libusm.so, declares what of it is used, and turns statuses into exceptions.

Here: the library, its structures, Error.  Not here: objects (objects.py).

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
from __future__ import annotations

import ctypes
import ctypes.util
import glob
import os
from typing import Any, Iterator

HERE = os.path.dirname(os.path.abspath(__file__))

c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p = (
    ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint64,
    ctypes.c_void_p)


# Zeroes behind the members that are known here, so that a library whose structures have grown finds
# the defaults there.
ROOM = ("_room", c_uint64 * 32)


class NativeDesc(ctypes.Structure):
    """usm_native_desc"""
    _fields_ = [("struct_size", c_size_t), ("backend", c_char_p), ("handle", c_void_p),
                ("ndevices", c_size_t), ("devices", ctypes.POINTER(c_void_p)),
                ("ownership", c_int), ("on_error", c_void_p), ("user", c_void_p),
                ("host_limit", c_uint64), ("device_limit", c_uint64), ROOM]


class LevelZeroQueue(ctypes.Structure):
    """usm_level_zero_queue"""
    _fields_ = [("struct_size", c_size_t), ("command_list", c_void_p),
                ("command_queue", c_void_p), ("device", c_void_p), ("ordinal", c_uint32),
                ("is_in_order", ctypes.c_bool), ROOM]


class QueueDesc(ctypes.Structure):
    """usm_queue_desc"""
    _fields_ = [("struct_size", c_size_t), ("flags", c_uint32), ROOM]


class PoolDesc(ctypes.Structure):
    """usm_pool_desc, its first members"""
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("area_size", c_size_t),
                ("maximum_size", c_size_t), ("min_align", c_size_t), ("retain", c_size_t),
                ("retain_ms", c_uint32), ROOM]


class PoolStats(ctypes.Structure):
    """usm_pool_stats"""
    _fields_ = [("struct_size", c_size_t)] + [(name, c_uint64) for name in (
        "live", "live_peak", "live_peak_error", "reserved", "reserved_peak", "blocks",
        "allocations", "frees", "driver_allocs", "driver_frees", "largest_free", "thread_cached",
        "depot_cached", "threads", "depot_hits", "depot_misses")] + [ROOM]


class DeviceInfo(ctypes.Structure):
    """usm_device_info, its first members"""
    _fields_ = [("struct_size", c_size_t), ("type", c_int)] + [(name, c_char_p) for name in (
        "backend", "name", "platform", "vendor", "driver_version", "selector")] + [ROOM]


class ContextDesc(ctypes.Structure):
    """usm_context_desc, its first members"""
    _fields_ = [("struct_size", c_size_t), ("ndevices", c_size_t),
                ("devices", ctypes.POINTER(c_void_p)), ROOM]


class Image(ctypes.Structure):
    """usm_image"""
    _fields_ = [("type", c_int), ("data", c_char_p), ("size", c_size_t)]


class ProgramDesc(ctypes.Structure):
    """usm_program_desc, its first members"""
    _fields_ = [("struct_size", c_size_t), ("nimages", c_size_t),
                ("images", ctypes.POINTER(Image)), ("options", c_char_p), ROOM]


class Arg(ctypes.Structure):
    """usm_arg"""
    _fields_ = [("kind", c_int), ("size", c_size_t), ("value", c_void_p)]


class Launch(ctypes.Structure):
    """usm_launch"""
    _fields_ = [("struct_size", c_size_t), ("kernel", c_void_p), ("dims", c_uint32),
                ("offset", c_size_t * 3), ("global_", c_size_t * 3), ("local", c_size_t * 3),
                ("nargs", c_size_t), ("args", ctypes.POINTER(Arg)), ROOM]


class Access(ctypes.Structure):
    """usm_access"""
    _fields_ = [("ptr", c_void_p), ("size", c_size_t), ("buffer", c_void_p), ("offset", c_size_t),
                ("mode", c_int), ("state", c_uint32), ("opaque", c_void_p), ROOM]


def make(structure: Any) -> Any:
    """A structure with its size and zeroes, as the INIT macros make it."""
    value = structure()
    value.struct_size = ctypes.sizeof(structure)
    return value


# name: (result, argument...); a result of None is checked as a status.
STATUS = None
POINTERS = ctypes.POINTER(c_void_p)
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "usm_version": (c_int,),
    "usm_status_name": (c_char_p, c_int),
    "usm_last_error": (c_char_p,),
    "usm_last_status": (c_int,),
    "usm_context_create": (STATUS, ctypes.POINTER(ContextDesc), POINTERS),
    "usm_context_from_native": (STATUS, ctypes.POINTER(NativeDesc), POINTERS),
    "usm_context_destroy": ("void", c_void_p),
    "usm_context_get_devices": (STATUS, c_void_p, POINTERS, c_size_t, ctypes.POINTER(c_size_t)),
    "usm_context_get_native": (STATUS, c_void_p, c_char_p, POINTERS),
    "usm_context_wait": (STATUS, c_void_p),
    "usm_device_get_info": (STATUS, c_void_p, ctypes.POINTER(DeviceInfo)),
    "usm_queue_create": (STATUS, c_void_p, c_void_p, ctypes.POINTER(QueueDesc), POINTERS),
    "usm_queue_from_native": (STATUS, c_void_p, c_void_p, c_int, POINTERS),
    "usm_queue_destroy": ("void", c_void_p),
    "usm_queue_wait": (STATUS, c_void_p),
    "usm_memcpy": (STATUS, c_void_p, c_void_p, c_void_p, c_size_t, c_size_t, POINTERS, POINTERS),
    "usm_fill": (STATUS, c_void_p, c_void_p, c_void_p, c_size_t, c_size_t, c_size_t, POINTERS,
                 POINTERS),
    "usm_event_wait": (STATUS, c_void_p),
    "usm_event_query": (c_int, c_void_p),
    "usm_event_release": ("void", c_void_p),
    "usm_pool_create": (STATUS, c_void_p, c_void_p, c_int, ctypes.POINTER(PoolDesc), POINTERS),
    "usm_pool_destroy": ("void", c_void_p),
    "usm_pool_aligned_alloc": (c_void_p, c_void_p, c_size_t, c_size_t),
    "usm_pool_get_stats": (STATUS, c_void_p, ctypes.POINTER(PoolStats)),
    "usm_pool_describe": (STATUS, c_void_p, c_int, c_char_p, c_size_t, ctypes.POINTER(c_size_t)),
    "usm_pool_trim_to": (STATUS, c_void_p, c_size_t),
    "usm_init": (STATUS,),
    "usm_shutdown": ("void",),
    "usm_config_set": (STATUS, c_char_p, c_char_p),
    "usm_select_devices": (STATUS, c_char_p, POINTERS, c_size_t, ctypes.POINTER(c_size_t)),
    "usm_get_devices": (STATUS, POINTERS, c_size_t, ctypes.POINTER(c_size_t)),
    "usm_device_has": (ctypes.c_bool, c_void_p, c_int),
    "usm_async_malloc": (c_void_p, c_void_p, c_int, c_size_t),
    "usm_async_free": (STATUS, c_void_p, c_void_p),
    "usm_program_create": (STATUS, c_void_p, ctypes.POINTER(ProgramDesc), POINTERS),
    "usm_program_destroy": ("void", c_void_p),
    "usm_kernel_create": (STATUS, c_void_p, c_char_p, POINTERS),
    "usm_kernel_destroy": ("void", c_void_p),
    "usm_queue_submit": (STATUS, c_void_p, ctypes.POINTER(Launch), c_size_t, POINTERS, POINTERS),
    "usm_buffer_open": (STATUS, c_void_p, c_char_p, c_uint64, c_size_t, c_int, POINTERS),
    "usm_buffer_commit": (STATUS, c_void_p),
    "usm_buffer_destroy": ("void", c_void_p),
    "usm_access_begin": (STATUS, c_void_p, c_size_t, c_size_t, c_int, ctypes.POINTER(Access)),
    "usm_access_end": ("void", ctypes.POINTER(Access)),
    "usm_alloc_managed": (c_void_p, c_size_t),
    "usm_managed_pin": (STATUS, c_void_p, c_size_t, c_int),
    "usm_managed_unpin": (STATUS, c_void_p, c_size_t, c_int),
    "usm_managed_advise": (STATUS, c_void_p, c_size_t, c_int),
    "usm_free_ctx": (STATUS, c_void_p, c_void_p),
    "usm_get_pointer_type": (c_int, c_void_p, c_void_p),
    "usm_copy": (STATUS, c_void_p, c_void_p, c_size_t),
}


# --- errors ------------------------------------------------------------------------------------

class Error(Exception):
    """A function of libusm failed: .status is the number, .name the constant, .story the sentence
    that says what was wrong and what to do."""

    def __init__(self, status: int, story: str):
        self.status = status
        self.name: str = lib.usm_status_name(status).decode()
        self.story = story
        super().__init__("{}: {}".format(self.name, story))


class OutOfMemory(Error, MemoryError):
    """There is less memory than was asked for, or less may be used."""


OUT_OF_MEMORY = (-3, -4, -16)  # USM_E_NO_MEMORY, USM_E_BUDGET, USM_E_SIZE


def failure(status: int) -> Error:
    """The exception for the calling thread's last failure."""
    kind = OutOfMemory if status in OUT_OF_MEMORY else Error
    return kind(status, lib.usm_last_error().decode(errors="replace"))


def check(status: int, _function: Any = None, _arguments: Any = None) -> int:
    """For ctypes: a status that is none of success becomes an exception."""
    if status != 0:
        raise failure(status)
    return status


# --- the library -------------------------------------------------------------------------------

def candidates() -> Iterator[str]:
    """Where libusm.so may be, the likeliest first."""
    named = os.environ.get("USM_LIBRARY")
    if named:
        yield named  # and nothing else: who names one wants that one
        return
    for folder in (HERE, os.path.join(HERE, "lib")):  # a copy by hand; the wheel's
        yield from sorted(glob.glob(os.path.join(folder, "libusm.so*")))[:1]
    builds = glob.glob(os.path.join(HERE, "..", "..", "build", "*", "lib", "libusm.so"))
    yield from sorted(builds, key=lambda path: (0 if "/release/" in path else 1, path))
    found = ctypes.util.find_library("usm")
    if found:
        yield found


def load() -> Any:
    """Opens it, its symbols for nobody else's eyes."""
    tried = []
    for path in candidates():
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
        except OSError as error:
            tried.append("{} ({})".format(path, error))
            continue
        for name, (result, *arguments) in FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes = arguments
            function.restype = None if result == "void" else result or c_int
            if result is STATUS:
                function.errcheck = check
        return library
    raise ImportError("libusm.so was not found: build it (./run test), install it, or name it in "
                      "USM_LIBRARY{}".format("; tried: " + ", ".join(tried) if tried else ""))


lib = load()
