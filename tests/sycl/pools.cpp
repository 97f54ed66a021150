/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Stream-ordered allocation: async_malloc, async_free, memory_pool. */
#include "check.hpp"

#include <sycl/ext/oneapi/experimental/async_alloc/async_alloc.hpp>
#include <sycl/ext/oneapi/experimental/async_alloc/memory_pool.hpp>

namespace
{

using namespace check;
namespace syclex = sycl::ext::oneapi::experimental;
using sycl::usm::alloc;
using in_order = sycl::property::queue::in_order;

sycl::queue pooled_queue()
{
    sycl::queue q(device(), in_order());
    needs(q.get_device(), sycl::aspect::ext_oneapi_async_memory_alloc, "no async_malloc");
    return q;
}

void round_trip(sycl::queue &q, void *p, std::size_t n, unsigned seed)
{
    const auto                 in = noise(n, seed);
    std::vector<unsigned char> out(n);
    EXPECT(p != nullptr);
    q.memcpy(p, in.data(), n);
    q.memcpy(out.data(), p, n).wait_and_throw();
    EXPECT(out == in);
}

void memory_allocated_in_order_is_usable()
{
    sycl::queue q = pooled_queue();
    for (std::size_t n : {1, 1000, 100000, 5000000}) {
        void *p = syclex::async_malloc(q, alloc::device, n);
        round_trip(q, p, n, 1);
        EXPECT(sycl::get_pointer_type(p, q.get_context()) == alloc::device);
        syclex::async_free(q, p);
        q.wait_and_throw();
    }
}

/* Freed and allocated again before the first use has run: the data must not mix. */
void memory_is_reused_in_the_order_of_the_queue()
{
    sycl::queue                             q = pooled_queue();
    const std::size_t                       n = 200000, rounds = 30;
    std::vector<std::vector<unsigned char>> in, out(rounds, std::vector<unsigned char>(n));
    for (unsigned i = 0; i < rounds; i++)
        in.push_back(noise(n, i));
    for (std::size_t i = 0; i < rounds; i++) {
        void *p = syclex::async_malloc(q, alloc::device, n);
        EXPECT(p != nullptr);
        q.memcpy(p, in[i].data(), n);
        q.memcpy(out[i].data(), p, n);
        syclex::async_free(q, p);
    }
    q.wait_and_throw();
    EXPECT(out == in);
}

void a_pool_counts_what_it_has()
{
    sycl::queue         q = pooled_queue();
    syclex::memory_pool pool(q, alloc::device);
    EXPECT(pool.get_alloc_kind() == alloc::device);
    EXPECT(pool.get_device() == q.get_device());
    void *p = syclex::async_malloc_from_pool(q, 1 << 20, pool);
    round_trip(q, p, 1 << 20, 3);
    EXPECT(pool.get_used_size_current() >= 1 << 20);
    EXPECT(pool.get_reserved_size_current() >= pool.get_used_size_current());
    syclex::async_free(q, p);
    q.wait_and_throw();
    EXPECT(pool.get_used_size_current() < 1 << 20);
}

void two_queues_share_a_pool()
{
    sycl::queue         q = pooled_queue(), other(q.get_context(), q.get_device(), in_order());
    syclex::memory_pool pool(q, alloc::device);
    const auto          in = noise(50000);
    std::vector<unsigned char> out(50000);
    void                      *p = syclex::async_malloc_from_pool(q, 50000, pool);
    EXPECT(p != nullptr);
    const sycl::event written = q.memcpy(p, in.data(), in.size());
    other.ext_oneapi_submit_barrier({written});
    other.memcpy(out.data(), p, out.size());
    syclex::async_free(other, p);
    other.wait_and_throw();
    EXPECT(out == in);
}

void commands_depend_on_an_allocation()
{
    (void)pooled_queue();
    sycl::queue                q(device());
    void                      *p  = nullptr;
    const auto                 in = noise(70000);
    std::vector<unsigned char> out(70000);
    sycl::event                e =
        q.submit([&](sycl::handler &h) { p = syclex::async_malloc(h, alloc::device, 70000); });
    EXPECT(p != nullptr);
    e = q.memcpy(p, in.data(), in.size(), e);
    e = q.memcpy(out.data(), p, out.size(), e);
    e = q.submit([&](sycl::handler &h) {
        h.depends_on(e);
        syclex::async_free(h, p);
    });
    e.wait_and_throw();
    EXPECT(out == in);
}

} // namespace

int main(int argc, char **argv)
{
    return run_all(argc, argv,
                   {
                       CHECK(memory_allocated_in_order_is_usable),
                       CHECK(memory_is_reused_in_the_order_of_the_queue),
                       CHECK(a_pool_counts_what_it_has),
                       CHECK(two_queues_share_a_pool),
                       CHECK(commands_depend_on_an_allocation),
                   });
}
