/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Commands of Intel's SYCL runtime, for `usm-bench async`: async_malloc and async_free where the
 * device has them, memset and memcpy as they are submitted, with the event that queue::memset()
 * makes and by the functions of sycl_ext_oneapi_enqueue_functions, which make none.  The other half
 * of the plugin is sycl.cpp. */
#include "plugin.h"

#include <cstddef>
#include <cstdio>

#include <sycl/ext/oneapi/experimental/async_alloc/async_alloc.hpp>
#include <sycl/ext/oneapi/experimental/enqueue_functions.hpp>
#include <sycl/sycl.hpp>

namespace
{
namespace syclex = sycl::ext::oneapi::experimental;

struct commands {
    sycl::queue queue{sycl::property::queue::in_order{}};
    void       *to   = sycl::malloc_device(BENCH_COMMAND_SIZE, queue);
    void       *from = sycl::malloc_device(BENCH_COMMAND_SIZE, queue);
};

/* n times fn(commands, size); nothing is thrown through C. */
template <class F> bool repeat(void *self, std::size_t size, std::size_t n, F &&fn)
{
    auto *c = static_cast<commands *>(self);

    if (size > BENCH_COMMAND_SIZE)
        return false;
    try {
        for (std::size_t i = 0; i < n; i++)
            if (!fn(*c, size))
                return false;
    } catch (const std::exception &e) {
        std::fprintf(stderr, "SYCL: %s\n", e.what());
        return false;
    }
    return true;
}

bool async_pairs(void *self, std::size_t size, std::size_t n)
{
    return repeat(self, size, n, [](commands &c, std::size_t bytes) {
        void *p = syclex::async_malloc(c.queue, sycl::usm::alloc::device, bytes);

        if (p == nullptr)
            return false;
        syclex::async_free(c.queue, p);
        return true;
    });
}

bool memsets(void *self, std::size_t size, std::size_t n)
{
    return repeat(self, size, n, [](commands &c, std::size_t bytes) {
        c.queue.memset(c.to, 1, bytes);
        return true;
    });
}

bool memcpys(void *self, std::size_t size, std::size_t n)
{
    return repeat(self, size, n, [](commands &c, std::size_t bytes) {
        c.queue.memcpy(c.to, c.from, bytes);
        return true;
    });
}

bool plain_memsets(void *self, std::size_t size, std::size_t n)
{
    return repeat(self, size, n, [](commands &c, std::size_t bytes) {
        syclex::memset(c.queue, c.to, 1, bytes);
        return true;
    });
}

bool plain_memcpys(void *self, std::size_t size, std::size_t n)
{
    return repeat(self, size, n, [](commands &c, std::size_t bytes) {
        syclex::memcpy(c.queue, c.to, c.from, bytes);
        return true;
    });
}

bool wait_for_all(void *self)
{
    return repeat(self, 0, 1, [](commands &c, std::size_t) {
        c.queue.wait_and_throw();
        return true;
    });
}
} // namespace

extern "C" bool usm_bench_commands_open(bench_commands *out, char *why, size_t cap)
{
    try {
        auto      *c   = new commands; /* lives as long as the worker */
        const bool has = c->queue.get_device().has(sycl::aspect::ext_oneapi_async_memory_alloc);

        *out = bench_commands{c,
                              has ? async_pairs : nullptr,
                              memsets,
                              memcpys,
                              plain_memsets,
                              plain_memcpys,
                              wait_for_all};
        if (c->to != nullptr && c->from != nullptr)
            return true;
        std::snprintf(why, cap, "SYCL: malloc_device gave nothing");
    } catch (const std::exception &e) {
        std::snprintf(why, cap, "SYCL: %s", e.what());
    }
    return false;
}
