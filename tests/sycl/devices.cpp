/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What SYCL sees of the devices: names, aspects, sizes, sub-devices, a second one, their limits. */
#include "check.hpp"

#include <algorithm>

namespace
{

using namespace check;

void a_device_is_listed_with_what_usm_needs()
{
    const sycl::device d = device();
    std::printf("        %s | %s | driver %s\n", d.get_info<sycl::info::device::name>().c_str(),
                d.get_platform().get_info<sycl::info::platform::name>().c_str(),
                d.get_info<sycl::info::device::driver_version>().c_str());
    EXPECT(!d.get_info<sycl::info::device::name>().empty());
    EXPECT(d.has(sycl::aspect::usm_device_allocations));
    EXPECT(d.has(sycl::aspect::usm_host_allocations));
    EXPECT(d.has(sycl::aspect::usm_shared_allocations));
    EXPECT(d.has(sycl::aspect::queue_profiling));
    EXPECT(d.is_cpu() || d.is_gpu() || d.is_accelerator());
}

void sizes_make_sense()
{
    const sycl::device d      = device();
    const auto         global = d.get_info<sycl::info::device::global_mem_size>();
    const auto         most   = d.get_info<sycl::info::device::max_mem_alloc_size>();
    EXPECT(global >= (1u << 20));
    EXPECT(most > 0 && most <= global);
    EXPECT(d.get_info<sycl::info::device::max_compute_units>() > 0);
    EXPECT(d.get_info<sycl::info::device::max_work_group_size>() > 0);
    EXPECT(d.get_info<sycl::info::device::mem_base_addr_align>() >= 8);
}

void an_allocation_larger_than_the_device_is_null()
{
    sycl::queue q(device());
    const auto  global = q.get_device().get_info<sycl::info::device::global_mem_size>();
    EXPECT(sycl::malloc_device(global + (std::size_t(1) << 30), q) == nullptr);
    void *p = sycl::malloc_device(4096, q); /* and the next one is none the worse */
    EXPECT(p != nullptr);
    sycl::free(p, q);
}

/* What is freed comes back: twenty times half of what one allocation may have. */
void memory_that_was_freed_can_be_had_again()
{
    sycl::queue q(device());
    const auto  most = q.get_device().get_info<sycl::info::device::max_mem_alloc_size>();
    const auto  size = std::min<std::uint64_t>(most / 2, std::uint64_t(512) << 20);
    for (int i = 0; i < 20; i++) {
        void *p = sycl::malloc_device(size, q);
        EXPECT(p != nullptr);
        sycl::free(p, q);
    }
}

void a_full_device_gives_null_and_recovers()
{
    sycl::queue         q(device());
    std::vector<void *> blocks;
    const std::size_t   size   = std::size_t(64) << 20;
    const auto          global = q.get_device().get_info<sycl::info::device::global_mem_size>();

    needs(global <= (std::uint64_t(4) << 30), "the device has more memory than a test should fill");
    void *p = nullptr;
    while (blocks.size() <= global / size && (p = sycl::malloc_device(size, q)) != nullptr)
        blocks.push_back(p);
    const bool was_full = p == nullptr;
    for (void *block : blocks)
        sycl::free(block, q);
    EXPECT(was_full);
    EXPECT(!blocks.empty());
    p = sycl::malloc_device(size, q);
    EXPECT(p != nullptr);
    sycl::free(p, q);
}

/* Two root devices of the platform, or else two parts of the one there is. */
std::vector<sycl::device> two_devices()
{
    using sycl::info::partition_property;
    const sycl::device one = device();
    const auto         all = one.get_platform().get_devices();
    if (all.size() >= 2)
        return {all[0], all[1]};
    const auto how = one.get_info<sycl::info::device::partition_properties>();
    needs(std::count(how.begin(), how.end(), partition_property::partition_equally) > 0,
          "there is one device, and it has no parts");
    const auto parts = one.create_sub_devices<partition_property::partition_equally>(1);
    needs(parts.size() >= 2, "there is one device of one core");
    return {parts[0], parts[1]};
}

void two_devices_are_two_devices()
{
    const auto all = two_devices();
    EXPECT(all[0] != all[1]);
}

/* Data goes from one device's memory into another's, in one context.  Over OpenCL SYCL's adapter
 * stages such a copy, and frees what it staged it in, which waits, within the callback of an event
 * that others wait for: one run in five never ended. */
void copies_between_two_devices()
{
    const auto all = two_devices();
    needs(all[0].get_backend() != sycl::backend::opencl,
          "SYCL's OpenCL adapter waits for itself now and then");
    const sycl::context        both(all);
    sycl::queue                first(both, all[0]), second(both, all[1]);
    const auto                 in = noise(300000);
    std::vector<unsigned char> out(in.size());
    void                      *a = sycl::malloc_device(in.size(), first);
    void                      *b = sycl::malloc_device(in.size(), second);
    EXPECT(a != nullptr && b != nullptr);
    EXPECT(sycl::get_pointer_device(a, both) == all[0]);
    /* Of memory of a part Intel's OpenCL runtime names the whole. */
    EXPECT(sycl::get_pointer_device(b, both) == all[1] ||
           all[0].get_platform().get_devices().size() == 1);
    sycl::event e = first.memcpy(a, in.data(), in.size());
    e             = second.memcpy(b, a, in.size(), e);
    e             = first.memcpy(out.data(), b, in.size(), e); /* the other's, by the first */
    e.wait_and_throw();
    sycl::free(a, both);
    sycl::free(b, both);
    EXPECT(out == in);
}

/* Whole buffers: of one that a device fills in part the older adapter takes nothing over to it. */
void a_buffer_moves_between_two_devices()
{
    const auto        all = two_devices();
    sycl::queue       first(all[0]), second(all[1]);
    const std::size_t n = 5000;
    sycl::buffer<int> here{sycl::range<1>(n)}, there{sycl::range<1>(n)}, back{sycl::range<1>(n)};
    const auto        copy = [](sycl::queue &q, sycl::buffer<int> &from, sycl::buffer<int> &to) {
        q.submit([&](sycl::handler &h) {
            h.copy(from.get_access<sycl::access_mode::read>(h),
                          to.get_access<sycl::access_mode::write>(h));
        });
    };
    first.submit(
        [&](sycl::handler &h) { h.fill(here.get_access<sycl::access_mode::write>(h), 42); });
    copy(second, here, there);
    copy(first, there, back);
    sycl::host_accessor a(back, sycl::read_only);
    for (std::size_t i = 0; i < n; i++)
        EXPECT(a[i] == 42);
}

void sub_devices_are_listed_and_work()
{
    using sycl::info::partition_affinity_domain;
    using sycl::info::partition_property;
    const sycl::device d   = device();
    bool               can = false;
    for (auto p : d.get_info<sycl::info::device::partition_properties>())
        can = can || p == partition_property::partition_by_affinity_domain;
    needs(can, "the device cannot be partitioned by affinity");
    const auto parts = d.create_sub_devices<partition_property::partition_by_affinity_domain>(
        partition_affinity_domain::next_partitionable);
    EXPECT(parts.size() >= 2);
    sycl::queue                q(sycl::context(parts), parts[1]);
    const auto                 in = noise(10000);
    std::vector<unsigned char> out(in.size());
    void                      *p = sycl::malloc_device(in.size(), q);
    EXPECT(p != nullptr);
    q.memcpy(p, in.data(), in.size()).wait();
    q.memcpy(out.data(), p, in.size()).wait();
    sycl::free(p, q);
    EXPECT(out == in);
}

void free_memory_shrinks_and_grows()
{
    sycl::queue        q(device());
    const sycl::device d = q.get_device();
    needs(d, sycl::aspect::ext_intel_free_memory, "the driver does not tell how much is free");
    const std::size_t size   = std::size_t(128) << 20;
    const auto        before = d.get_info<sycl::ext::intel::info::device::free_memory>();
    void             *p      = sycl::malloc_device(size, q);
    EXPECT(p != nullptr);
    const auto within = d.get_info<sycl::ext::intel::info::device::free_memory>();
    sycl::free(p, q);
    const auto after = d.get_info<sycl::ext::intel::info::device::free_memory>();
    EXPECT(within + size <= before);
    EXPECT(after >= within + size);
}

} // namespace

int main(int argc, char **argv)
{
    return run_all(argc, argv,
                   {
                       CHECK(a_device_is_listed_with_what_usm_needs),
                       CHECK(sizes_make_sense),
                       CHECK(an_allocation_larger_than_the_device_is_null),
                       CHECK(memory_that_was_freed_can_be_had_again),
                       CHECK(a_full_device_gives_null_and_recovers),
                       CHECK(two_devices_are_two_devices),
                       CHECK(copies_between_two_devices),
                       CHECK(a_buffer_moves_between_two_devices),
                       CHECK(sub_devices_are_listed_and_work),
                       CHECK(free_memory_shrinks_and_grows),
                   });
}
