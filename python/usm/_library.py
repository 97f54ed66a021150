"""Finds libusm.so, declares what of it is used, and turns statuses into exceptions.

Here: the library, its structures, Error.  Not here: objects (objects.py).

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import ctypes
import ctypes.util
import glob
import os

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


def make(structure):
    """A structure with its size and zeroes, as the INIT macros make it."""
    value = structure()
    value.struct_size = ctypes.sizeof(structure)
    return value


# name: (result, argument...); a result of None is checked as a status.
STATUS = None
POINTERS = ctypes.POINTER(c_void_p)
FUNCTIONS = {
    "usm_version": (c_int,),
    "usm_status_name": (c_char_p, c_int),
    "usm_last_error": (c_char_p,),
    "usm_last_status": (c_int,),
    "usm_context_create": (STATUS, c_void_p, POINTERS),
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
    "usm_free_ctx": (STATUS, c_void_p, c_void_p),
    "usm_get_pointer_type": (c_int, c_void_p, c_void_p),
    "usm_copy": (STATUS, c_void_p, c_void_p, c_size_t),
}


# --- errors ------------------------------------------------------------------------------------

class Error(Exception):
    """A function of libusm failed: .status is the number, .name the constant, .story the sentence
    that says what was wrong and what to do."""

    def __init__(self, status, story):
        self.status = status
        self.name = lib.usm_status_name(status).decode()
        self.story = story
        super().__init__("{}: {}".format(self.name, story))


class OutOfMemory(Error, MemoryError):
    """There is less memory than was asked for, or less may be used."""


OUT_OF_MEMORY = (-3, -4, -16)  # USM_E_NO_MEMORY, USM_E_BUDGET, USM_E_SIZE


def failure(status):
    """The exception for the calling thread's last failure."""
    kind = OutOfMemory if status in OUT_OF_MEMORY else Error
    return kind(status, lib.usm_last_error().decode(errors="replace"))


def check(status, _function=None, _arguments=None):
    """For ctypes: a status that is none of success becomes an exception."""
    if status != 0:
        raise failure(status)
    return status


# --- the library -------------------------------------------------------------------------------

def candidates():
    """Where libusm.so may be, the likeliest first."""
    named = os.environ.get("USM_LIBRARY")
    if named:
        yield named  # and nothing else: who names one wants that one
        return
    yield from glob.glob(os.path.join(HERE, "libusm.so*"))[:1]
    builds = glob.glob(os.path.join(HERE, "..", "..", "build", "*", "lib", "libusm.so"))
    yield from sorted(builds, key=lambda path: (0 if "/release/" in path else 1, path))
    found = ctypes.util.find_library("usm")
    if found:
        yield found


def load():
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
