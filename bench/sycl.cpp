/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Intel's SYCL runtime as a plugin of the workers: malloc_device, malloc_shared or malloc_host on an
 * in-order queue of the first device, free, and get_pointer_type.  No kernel, so plain g++ builds it
 * where the runtime's headers are found; loaded by allocators.c. */
#include "plugin.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <sycl/sycl.hpp>

namespace
{
template <sycl::usm::alloc kind> void *allocate(void *self, size_t size)
{
    return sycl::malloc(size, *static_cast<sycl::queue *>(self), kind);
}

void release(void *self, void *p)
{
    sycl::free(p, *static_cast<sycl::queue *>(self));
}

int kind_of(void *self, const void *p)
{
    static const sycl::context context = static_cast<sycl::queue *>(self)->get_context();

    return sycl::get_pointer_type(p, context) == sycl::usm::alloc::unknown ? 0 : 1;
}
} // namespace

extern "C" bool usm_bench_allocator_open(const char *what, bench_allocator *a, char *why,
                                         size_t cap)
{
    try {
        auto *queue = new sycl::queue{sycl::property::queue::in_order{}};

        *a       = bench_allocator{};
        a->self  = queue;
        a->free  = release;
        a->query = kind_of;
        if (std::strcmp(what, "shared") == 0)
            a->malloc = allocate<sycl::usm::alloc::shared>;
        else if (std::strcmp(what, "host") == 0)
            a->malloc = allocate<sycl::usm::alloc::host>;
        else
            a->malloc = allocate<sycl::usm::alloc::device>;
        return true;
    } catch (const std::exception &e) {
        std::snprintf(why, cap, "SYCL: %s", e.what());
        return false;
    }
}
