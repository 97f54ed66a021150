/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Intel's SYCL runtime as a plugin of the workers: malloc_device, malloc_shared or malloc_host on an
 * in-order queue of the first device, free, and get_pointer_type; buffers of 4 KiB.  No kernel, so plain
 * g++ builds it where the runtime's headers are found; loaded by allocators.c and spill_worker.c. */
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

constexpr std::size_t small = 4096;

bool create_buffers(void *, std::size_t n)
{
    for (std::size_t i = 0; i < n; i++) {
        sycl::buffer<char>  b{sycl::range<1>(small)};
        sycl::host_accessor a{b, sycl::write_only, sycl::no_init};

        a[0] = 1;
    }
    return true;
}

bool fill_buffers(void *self, std::size_t n)
{
    char data[small];

    for (std::size_t i = 0; i < n; i++) {
        std::memset(data, 0, small);
        {
            sycl::buffer<char> b{data, sycl::range<1>(small)};

            static_cast<sycl::queue *>(self)->submit([&](sycl::handler &h) {
                h.fill(b.get_access<sycl::access_mode::discard_write>(h), static_cast<char>(7));
            });
        }
        if (data[small - 1] != 7)
            return false;
    }
    return true;
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

extern "C" bool usm_bench_buffers_open(bench_buffers *b, char *why, size_t cap)
{
    try {
        *b = bench_buffers{new sycl::queue{sycl::property::queue::in_order{}}, create_buffers,
                           fill_buffers};
        return true;
    } catch (const std::exception &e) {
        std::snprintf(why, cap, "SYCL: %s", e.what());
        return false;
    }
}
