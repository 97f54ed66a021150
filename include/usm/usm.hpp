/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * The C++17 face of libusm: all of it.  Each part can be included alone.
 *
 *   usm/error.hpp    usm::error, usm::bad_alloc
 *   usm/objects.hpp  devices, contexts, events
 *   usm/queue.hpp    queues and their commands, programs, kernels
 *   usm/memory.hpp   owners, pools, usm::allocator, usm::pool_resource, usm::async_malloc
 *   usm/buffer.hpp   buffers, accesses, accessors
 *   usm/ipc.hpp      memory and events of other processes
 *
 * A failure is an exception, usm::error, with the status and its story; destructors do not throw.
 * Nothing throws through libusm: what the program's functions throw becomes a failure of what
 * called them.  Objects own what they are made of and can be moved; docs/sycl.md shows them beside
 * SYCL's. Everything here is inline: there is no C++ in libusm, and it is ABI-compatible with any
 * compiler's. */
#ifndef USM_USM_HPP
#define USM_USM_HPP

#include <usm/buffer.hpp>
#include <usm/error.hpp>
#include <usm/ipc.hpp>
#include <usm/memory.hpp>
#include <usm/objects.hpp>
#include <usm/queue.hpp>
#include <usm/usm.h>

#endif
