/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Statuses and error messages.
 *
 * Functions that allocate return NULL on failure.  All other functions that can
 * fail return a usm_status: 0, or a negative USM_E_* whose number never
 * changes.  Each failure also stores an error message of one sentence for the
 * calling thread: it names the cause and, where there is one, the remedy;
 * usm_last_error() returns it.  A failing function leaves its outputs
 * untouched.  Out of memory is an ordinary result: the library never translates
 * it into another status, and logs it only at level info or above. */
#ifndef USM_STATUS_H
#define USM_STATUS_H

#include <usm/export.h>

USM_BEGIN_DECLS

/** X(name, number, meaning): the only list of statuses.  Numbers are frozen. */
#define USM_STATUS_LIST(X)                                                                         \
    X(USM_OK, 0, "success")                                                                        \
    X(USM_E_NOT_READY, -1, "the event is not complete yet")                                        \
    X(USM_E_INVALID, -2, "an argument is out of its range")                                        \
    X(USM_E_NO_MEMORY, -3, "the memory asked is exhausted")                                        \
    X(USM_E_BUDGET, -4, "a limit set by the user would be crossed")                                \
    X(USM_E_NOT_SUPPORTED, -5, "the device or the backend lacks this")                             \
    X(USM_E_INVALID_HANDLE, -6, "the object was destroyed or is none of libusm's")                 \
    X(USM_E_INVALID_POINTER, -7, "the pointer is not in live libusm memory")                       \
    X(USM_E_DOUBLE_FREE, -8, "the block was freed before")                                         \
    X(USM_E_INTERIOR_POINTER, -9, "the pointer lies inside a block, not at its start")             \
    X(USM_E_WRONG_CONTEXT, -10, "the object or pointer belongs to another context")                \
    X(USM_E_NO_DEVICE, -11, "no device is left by the selector, or none exists")                   \
    X(USM_E_SELECTOR, -12, "the device selector does not parse")                                   \
    X(USM_E_NO_BACKEND, -13, "a backend, pool or module of that name is not to be had")            \
    X(USM_E_ABI, -14, "a module or descriptor was built for another version")                      \
    X(USM_E_ALIGNMENT, -15, "the alignment is no power of two, or above 2 MiB")                    \
    X(USM_E_SIZE, -16, "the size is beyond what the device can allocate or address")               \
    X(USM_E_KIND, -17, "the kind is none of host, device, shared")                                 \
    X(USM_E_FORKED, -18, "the object was inherited through fork() and is inert here")              \
    X(USM_E_SHUTDOWN, -19, "libusm was shut down; usm_init() starts it again")                     \
    X(USM_E_BUILD, -20, "a program did not build")                                                 \
    X(USM_E_NO_KERNEL, -21, "the program has no kernel of that name")                              \
    X(USM_E_NO_IMAGE, -22, "the program has no image that the device can run")                     \
    X(USM_E_ARGUMENTS, -23, "the count or kind of kernel arguments is wrong")                      \
    X(USM_E_ADDRESS_TAKEN, -24, "the driver returned addresses that are in use")                   \
    X(USM_E_NO_DATA_MOVED, -25, "the device's commands complete but move no data")                 \
    X(USM_E_DEVICE_LOST, -26, "the device is gone")                                                \
    X(USM_E_DEVICE, -27, "the driver reported a failure")                                          \
    X(USM_E_DEPENDENCY, -28, "a command that this one depends on failed")                          \
    X(USM_E_SYSTEM, -29, "the operating system refused a call")                                    \
    X(USM_E_SETTING, -30, "a setting is unknown or its value does not parse")                      \
    X(USM_E_BUSY, -31, "the object is still in use")                                               \
    X(USM_E_FORMAT, -32, "a file is damaged or not of the kind that is expected")                  \
    X(USM_E_AGAIN, -33, "the memory is held by others at this moment: try again")                  \
    X(USM_E_SPILL_FULL, -34, "no tier has room for what must leave memory")                        \
    X(USM_E_IO, -35, "storage failed to read or write")                                            \
    X(USM_E_CORRUPT, -36, "the data that came back is not what was stored")                        \
    X(USM_E_KEY, -37, "a key is missing or unfit")                                                 \
    X(USM_E_READ_ONLY, -38, "the buffer or file may not be written")                               \
    X(USM_E_NOT_EXPORTABLE, -39, "the memory's pool does not let other processes open it")         \
    X(USM_E_STALE, -40, "the handle was put, or its block freed")                                  \
    X(USM_E_OWNER_GONE, -41, "the process that owns the memory or event has ended")                \
    X(USM_E_HANDLE, -42, "the bytes are no handle, or they were changed or cut short")             \
    X(USM_E_PERMISSION, -43, "the memory is another user's, or may only be read")                  \
    X(USM_E_IMPORTED, -44, "the pointer was opened from another process: usm_ipc_close() it")      \
    X(USM_E_PEER, -45, "a process of the group did not come, or has ended")                        \
    X(USM_E_MPI, -46, "MPI is not there, not usable any more, or another one than expected")       \
    X(USM_E_MPI_THREADS, -47, "MPI's thread level does not allow it")                              \
    X(USM_E_CANCELLED, -48, "it was cancelled before its end")                                     \
    X(USM_E_INTERNAL, -99, "libusm is at fault: please report this")

typedef enum usm_status {
#define USM_STATUS_ENUM(name, number, meaning) name = (number),
    USM_STATUS_LIST(USM_STATUS_ENUM)
#undef USM_STATUS_ENUM
} usm_status;

/** Returns the name of the constant, such as "USM_E_NO_MEMORY", or "unknown
 * status" for any other number.  The text is static. */
USM_API const char *usm_status_name(usm_status status);
/** Returns a text that says what the status means in general.  It is static. */
USM_API const char *usm_status_string(usm_status status);

/** Returns the error message of the calling thread's last failure: one sentence;
 * never NULL; "" when nothing has failed yet.  It is valid until the next
 * failing call of this thread. */
USM_API const char *usm_last_error(void);
/** Returns the status of the calling thread's last failure; USM_OK when nothing
 * has failed yet. */
USM_API usm_status usm_last_status(void);

USM_END_DECLS
#endif
