/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Unified shared memory in SYCL: the three kinds, alignment, what pointers tell, copies and fills
 * between all of them, reserved address ranges. */
#include "check.hpp"

#include <sycl/ext/oneapi/virtual_mem/physical_mem.hpp>
#include <sycl/ext/oneapi/virtual_mem/virtual_mem.hpp>

#include <array>
#include <memory>

namespace
{

using namespace check;
using sycl::usm::alloc;

constexpr std::array<alloc, 3> kinds = {alloc::host, alloc::device, alloc::shared};

/* A block that goes with its scope, however that ends. */
struct block {
    sycl::queue q;
    void       *p;
    block(std::size_t n, const sycl::queue &queue, alloc kind)
        : q(queue), p(sycl::malloc(n, queue, kind))
    {
        EXPECT(p != nullptr);
    }
    block(std::size_t align, std::size_t n, const sycl::queue &queue, alloc kind)
        : q(queue), p(sycl::aligned_alloc(align, n, queue, kind))
    {
        EXPECT(p != nullptr);
    }
    block(const block &)            = delete;
    block &operator=(const block &) = delete;
    ~block()
    {
        sycl::free(p, q);
    }
    unsigned char *bytes() const
    {
        return static_cast<unsigned char *>(p);
    }
};

void every_kind_is_allocated_and_freed()
{
    sycl::queue q(device());
    for (alloc kind : kinds)
        for (std::size_t n : {1, 64, 1000, 4096, 65536, 3 << 20}) {
            block b(n, q, kind);
            EXPECT(sycl::get_pointer_type(b.p, q.get_context()) == kind);
        }
    sycl::free(nullptr, q);
}

void live_blocks_do_not_overlap()
{
    sycl::queue                         q(device());
    std::vector<std::unique_ptr<block>> blocks;
    std::vector<std::uintptr_t>         starts;
    for (int i = 0; i < 60; i++) {
        blocks.push_back(std::make_unique<block>(5000, q, kinds[static_cast<std::size_t>(i) % 3]));
        starts.push_back(reinterpret_cast<std::uintptr_t>(blocks.back()->p));
    }
    std::sort(starts.begin(), starts.end());
    for (std::size_t i = 1; i < starts.size(); i++)
        EXPECT(starts[i] - starts[i - 1] >= 5000);
}

void alignment_is_kept()
{
    sycl::queue q(device());
    for (alloc kind : kinds)
        for (std::size_t align : {8, 64, 256, 4096, 65536}) {
            block b(align, 100, q, kind);
            EXPECT(reinterpret_cast<std::uintptr_t>(b.p) % align == 0);
        }
}

void pointers_tell_their_kind_and_device()
{
    sycl::queue         q(device());
    const sycl::context ctx          = q.get_context();
    int                 on_the_stack = 0;
    for (alloc kind : kinds) {
        block b(100000, q, kind);
        EXPECT(sycl::get_pointer_type(b.bytes() + 99999, ctx) == kind);
        EXPECT(sycl::get_pointer_device(b.bytes() + 5000, ctx) == q.get_device());
    }
    EXPECT(sycl::get_pointer_type(&on_the_stack, ctx) == alloc::unknown);
}

void a_freed_pointer_is_unknown()
{
    sycl::queue q(device());
    void       *p = sycl::malloc_device(std::size_t(64) << 20, q); /* more than a pool keeps */
    EXPECT(p != nullptr);
    sycl::free(p, q);
    EXPECT(sycl::get_pointer_type(p, q.get_context()) == alloc::unknown);
}

void the_host_reads_and_writes_host_and_shared_memory()
{
    sycl::queue q(device());
    for (alloc kind : {alloc::host, alloc::shared}) {
        block      b(50000, q, kind);
        const auto in = noise(50000);
        std::memcpy(b.p, in.data(), in.size());
        EXPECT(std::memcmp(b.p, in.data(), in.size()) == 0);
    }
}

/* From each kind to each, by way of offsets that are no multiple of anything. */
void copies_between_all_kinds()
{
    sycl::queue                q(device(), sycl::property::queue::in_order());
    const std::size_t          n  = 123457;
    const auto                 in = noise(n);
    std::vector<unsigned char> out(n);
    for (alloc from : kinds)
        for (alloc to : kinds) {
            block a(n + 3, q, from), b(n + 17, q, to);
            q.memcpy(a.bytes() + 3, in.data(), n);
            q.memcpy(b.bytes() + 17, a.bytes() + 3, n);
            std::fill(out.begin(), out.end(), static_cast<unsigned char>(0));
            q.memcpy(out.data(), b.bytes() + 17, n).wait_and_throw();
            EXPECT(out == in);
        }
}

void copies_of_every_small_length()
{
    sycl::queue                q(device(), sycl::property::queue::in_order());
    const auto                 in = noise(300);
    std::vector<unsigned char> out(300);
    block                      b(300, q, alloc::device);
    for (std::size_t n = 0; n <= 129; n++) {
        q.memset(b.p, 0xee, 300);
        q.memcpy(b.bytes() + 1, in.data(), n);
        q.memcpy(out.data(), b.p, 300).wait_and_throw();
        EXPECT(out[0] == 0xee);
        EXPECT(std::memcmp(out.data() + 1, in.data(), n) == 0);
        EXPECT(out[n + 1] == 0xee);
    }
}

void memset_fills_and_nothing_beside()
{
    sycl::queue                q(device(), sycl::property::queue::in_order());
    std::vector<unsigned char> out(10000);
    for (alloc kind : kinds) {
        block b(10000, q, kind);
        q.memset(b.p, 1, 10000);
        q.memset(b.bytes() + 101, 0xa5, 7777);
        q.memcpy(out.data(), b.p, 10000).wait_and_throw();
        for (std::size_t i = 0; i < out.size(); i++)
            EXPECT(out[i] == (i >= 101 && i < 101 + 7777 ? 0xa5 : 1));
    }
}

void rows_are_copied_with_pitches()
{
    sycl::queue q(device(), sycl::property::queue::in_order());
    /* Otherwise it is a kernel, for which this program would have to be compiled by a SYCL
     * compiler. */
    needs(q.get_backend() == sycl::backend::ext_oneapi_level_zero &&
              std::getenv("UR_L0_USE_NATIVE_USM_MEMCPY2D") != nullptr,
          "not Level Zero, or UR_L0_USE_NATIVE_USM_MEMCPY2D is not set");
    const std::size_t          width = 37, height = 29, from_pitch = 64, to_pitch = 41;
    const auto                 in = noise(from_pitch * height);
    std::vector<unsigned char> out(to_pitch * height);
    block                      a(in.size(), q, alloc::device), b(out.size(), q, alloc::device);
    q.memcpy(a.p, in.data(), in.size());
    q.memset(b.p, 0, out.size());
    q.ext_oneapi_memcpy2d(b.p, to_pitch, a.p, from_pitch, width, height);
    q.memcpy(out.data(), b.p, out.size()).wait_and_throw();
    for (std::size_t y = 0; y < height; y++)
        for (std::size_t x = 0; x < to_pitch; x++)
            EXPECT(out[y * to_pitch + x] == (x < width ? in[y * from_pitch + x] : 0));
}

void hints_are_taken()
{
    sycl::queue q(device(), sycl::property::queue::in_order());
    block       b(100000, q, alloc::shared);
    std::memset(b.p, 7, 100000);
    q.prefetch(b.p, 100000);
    q.mem_advise(b.p, 100000, 0);
    q.wait_and_throw();
    EXPECT(b.bytes()[99999] == 7);
}

void the_allocator_feeds_a_vector()
{
    sycl::queue                                        q(device());
    sycl::usm_allocator<int, sycl::usm::alloc::shared> allocator(q);
    std::vector<int, decltype(allocator)>              numbers(1000, 3, allocator);
    EXPECT(sycl::get_pointer_type(numbers.data(), q.get_context()) == alloc::shared);
    q.memset(numbers.data(), 0, 500 * sizeof(int)).wait_and_throw();
    EXPECT(numbers[499] == 0 && numbers[500] == 3);
}

/* Two pieces of device memory behind one reserved range; a copy runs over their border. */
void a_reserved_range_is_mapped_and_used()
{
    namespace syclex = sycl::ext::oneapi::experimental;
    sycl::queue q(device(), sycl::property::queue::in_order());
    needs(q.get_device(), sycl::aspect::ext_oneapi_virtual_mem, "no virtual memory");
    const sycl::context ctx   = q.get_context();
    const std::size_t   page  = syclex::get_mem_granularity(q.get_device(), ctx);
    const auto          start = syclex::reserve_virtual_mem(2 * page, ctx);
    EXPECT(start != 0);
    {
        syclex::physical_mem one(q, page), two(q, page);
        void                *p = one.map(start, page, syclex::address_access_mode::read_write);
        (void)two.map(start + page, page, syclex::address_access_mode::read_write);
        const auto                 in = noise(2 * page);
        std::vector<unsigned char> out(in.size());
        q.memcpy(p, in.data(), in.size());
        q.memcpy(out.data(), p, in.size()).wait_and_throw();
        EXPECT(out == in);
        syclex::unmap(p, page, ctx);
        syclex::unmap(static_cast<char *>(p) + page, page, ctx);
    }
    syclex::free_virtual_mem(start, 2 * page, ctx);
}

} // namespace

int main(int argc, char **argv)
{
    return run_all(argc, argv,
                   {
                       CHECK(every_kind_is_allocated_and_freed),
                       CHECK(live_blocks_do_not_overlap),
                       CHECK(alignment_is_kept),
                       CHECK(pointers_tell_their_kind_and_device),
                       CHECK(a_freed_pointer_is_unknown),
                       CHECK(the_host_reads_and_writes_host_and_shared_memory),
                       CHECK(copies_between_all_kinds),
                       CHECK(copies_of_every_small_length),
                       CHECK(memset_fills_and_nothing_beside),
                       CHECK(rows_are_copied_with_pitches),
                       CHECK(hints_are_taken),
                       CHECK(the_allocator_feeds_a_vector),
                       CHECK(a_reserved_range_is_mapped_and_used),
                   });
}
