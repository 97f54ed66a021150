/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Buffers: host accessors, write-back, sub-buffers, copies between accessors of one and two
 * dimensions, buffers and host tasks.  Kernels are in kernels.cpp: no SYCL compiler is at hand. */
#include "check.hpp"

#include <numeric>

namespace
{

using namespace check;
using sycl::access_mode;

std::vector<int> counted(std::size_t n)
{
    std::vector<int> v(n);
    std::iota(v.begin(), v.end(), 0);
    return v;
}

template <typename T, int D> void fill_on_device(sycl::queue &q, sycl::buffer<T, D> &b, T value)
{
    q.submit(
        [&](sycl::handler &h) { h.fill(b.template get_access<access_mode::write>(h), value); });
}

void what_the_device_wrote_comes_back()
{
    sycl::queue      q(device());
    std::vector<int> data(10000, 1);
    {
        sycl::buffer<int> b(data.data(), data.size());
        fill_on_device(q, b, 42);
    }
    for (int x : data)
        EXPECT(x == 42);
}

void fills_with_patterns_of_several_sizes()
{
    sycl::queue                 q(device());
    sycl::buffer<unsigned char> bytes(sycl::range<1>(1001));
    sycl::buffer<double>        doubles(sycl::range<1>(1001));
    sycl::buffer<sycl::int4>    fours(sycl::range<1>(1001));
    fill_on_device(q, bytes, static_cast<unsigned char>(9));
    fill_on_device(q, doubles, 0.125);
    fill_on_device(q, fours, sycl::int4(1, 2, 3, 4));
    sycl::host_accessor a(bytes);
    sycl::host_accessor b(doubles);
    sycl::host_accessor c(fours);
    for (std::size_t i = 0; i < 1001; i++)
        EXPECT(a[i] == 9 && b[i] == 0.125 && c[i].x() == 1 && c[i].w() == 4);
}

void a_host_accessor_waits_and_sees()
{
    sycl::queue       q(device());
    sycl::buffer<int> b(sycl::range<1>(1 << 20));
    for (int round = 0; round < 5; round++) {
        fill_on_device(q, b, round);
        {
            sycl::host_accessor a(b, sycl::read_write);
            EXPECT(a[0] == round && a[(1 << 20) - 1] == round);
            a[77] = -round;
        }
        sycl::buffer<int> to(sycl::range<1>(1 << 20));
        q.submit([&](sycl::handler &h) {
            h.copy(b.get_access<access_mode::read>(h), to.get_access<access_mode::write>(h));
        });
        sycl::host_accessor a(to, sycl::read_only);
        EXPECT(a[77] == -round && a[78] == round);
    }
}

void a_part_of_a_buffer_is_filled()
{
    sycl::queue      q(device());
    std::vector<int> data = counted(1000);
    {
        sycl::buffer<int> b(data.data(), data.size());
        q.submit([&](sycl::handler &h) {
            h.fill(b.get_access<access_mode::write>(h, sycl::range<1>(100), sycl::id<1>(450)), -1);
        });
    }
    for (int i = 0; i < 1000; i++)
        EXPECT(data[static_cast<std::size_t>(i)] == (i >= 450 && i < 550 ? -1 : i));
}

void sub_buffers_are_parts_of_the_whole()
{
    sycl::queue       q(device());
    const std::size_t bits = q.get_device().get_info<sycl::info::device::mem_base_addr_align>();
    const std::size_t step = std::max<std::size_t>(1, bits / 8 / sizeof(int));
    const std::vector<int> data = counted(4 * step);
    /* The runtime's own memory: a vector's has not the alignment that parts of a buffer need. */
    sycl::buffer<int> whole(sycl::range<1>(data.size()));
    q.submit(
        [&](sycl::handler &h) { h.copy(data.data(), whole.get_access<access_mode::write>(h)); });
    sycl::buffer<int> second(whole, sycl::id<1>(step), sycl::range<1>(step));
    sycl::buffer<int> fourth(whole, sycl::id<1>(3 * step), sycl::range<1>(step));
    EXPECT(second.is_sub_buffer());
    /* By way of a third buffer: a copy between two parts of one hangs in the newer adapter, which
     * takes the lock of the whole twice. */
    sycl::buffer<int> between(sycl::range<1>{step});
    fill_on_device(q, second, -2);
    q.submit([&](sycl::handler &h) {
        h.copy(second.get_access<access_mode::read>(h), between.get_access<access_mode::write>(h));
    });
    q.submit([&](sycl::handler &h) {
        h.copy(between.get_access<access_mode::read>(h), fourth.get_access<access_mode::write>(h));
    });
    sycl::host_accessor a(whole, sycl::read_only);
    for (std::size_t i = 0; i < data.size(); i++)
        EXPECT(a[i] == (i / step % 2 == 1 ? -2 : data[i]));
}

void a_rectangle_is_copied_between_buffers()
{
    sycl::queue            q(device());
    const sycl::range<2>   from_size(20, 30), to_size(25, 17), part(11, 13);
    const std::vector<int> from = counted(from_size.size());
    std::vector<int>       to(to_size.size(), -1);
    {
        sycl::buffer<int, 2> a(from.data(), from_size), b(to.data(), to_size);
        q.submit([&](sycl::handler &h) {
            h.copy(a.get_access<access_mode::read>(h, part, sycl::id<2>(3, 4)),
                   b.get_access<access_mode::write>(h, part, sycl::id<2>(5, 2)));
        });
    }
    for (std::size_t y = 0; y < 25; y++)
        for (std::size_t x = 0; x < 17; x++) {
            const bool inside = y >= 5 && y < 16 && x >= 2 && x < 15;
            EXPECT(to[y * 17 + x] ==
                   (inside ? static_cast<int>((y - 5 + 3) * 30 + x - 2 + 4) : -1));
        }
}

void a_box_is_copied_between_buffers()
{
    sycl::queue            q(device());
    const sycl::range<3>   size(6, 7, 8), part(3, 2, 5);
    const std::vector<int> from = counted(size.size());
    std::vector<int>       to(size.size(), -1);
    {
        sycl::buffer<int, 3> a(from.data(), size), b(to.data(), size);
        q.submit([&](sycl::handler &h) {
            h.copy(a.get_access<access_mode::read>(h, part, sycl::id<3>(1, 2, 3)),
                   b.get_access<access_mode::write>(h, part, sycl::id<3>(2, 4, 1)));
        });
    }
    for (std::size_t i = 0; i < to.size(); i++) {
        const std::size_t z = i / 56, y = i / 8 % 7, x = i % 8;
        const bool        inside = z >= 2 && z < 5 && y >= 4 && y < 6 && x >= 1 && x < 6;
        EXPECT(to[i] == (inside ? static_cast<int>(((z - 1) * 7 + y - 2) * 8 + x + 2) : -1));
    }
}

void buffers_are_copied_from_and_to_pointers()
{
    sycl::queue            q(device());
    const std::vector<int> in = counted(5000);
    std::vector<int>       out(5000);
    sycl::buffer<int>      b(sycl::range<1>(5000));
    q.submit([&](sycl::handler &h) { h.copy(in.data(), b.get_access<access_mode::write>(h)); });
    q.submit([&](sycl::handler &h) { h.copy(b.get_access<access_mode::read>(h), out.data()); });
    q.wait_and_throw();
    EXPECT(out == in);
}

void update_host_brings_the_data()
{
    sycl::queue       q(device());
    std::vector<int>  data(3000, 0);
    sycl::buffer<int> b(data.data(), data.size(), {sycl::property::buffer::use_host_ptr()});
    fill_on_device(q, b, 8);
    q.submit([&](sycl::handler &h) { h.update_host(b.get_access<access_mode::read>(h)); });
    q.wait_and_throw();
    EXPECT(data[0] == 8 && data[2999] == 8);
}

void final_data_goes_where_it_was_sent()
{
    sycl::queue      q(device());
    std::vector<int> here(100, 1), there(100, 1);
    {
        sycl::buffer<int> b(here.data(), here.size());
        b.set_final_data(there.data());
        fill_on_device(q, b, 5);
    }
    EXPECT(there[0] == 5 && there[99] == 5);
}

void constant_data_stays_as_it_is()
{
    sycl::queue            q(device());
    const std::vector<int> in   = counted(100);
    const int *const       from = in.data();
    {
        sycl::buffer<int> b(from, in.size());
        fill_on_device(q, b, 5);
        sycl::host_accessor a(b, sycl::read_only);
        EXPECT(a[99] == 5);
    }
    EXPECT(in == counted(100));
}

void a_host_task_uses_a_buffer()
{
    sycl::queue      q(device());
    std::vector<int> data(2000, 0);
    {
        sycl::buffer<int> b(data.data(), data.size());
        fill_on_device(q, b, 3);
        q.submit([&](sycl::handler &h) {
            sycl::accessor a(b, h, sycl::read_write_host_task);
            h.host_task([=] {
                for (std::size_t i = 0; i < 2000; i++)
                    a[i] *= static_cast<int>(i);
            });
        });
        sycl::buffer<int> copy(sycl::range<1>(2000));
        q.submit([&](sycl::handler &h) {
            h.copy(b.get_access<access_mode::read>(h), copy.get_access<access_mode::write>(h));
        });
        sycl::host_accessor a(copy, sycl::read_only);
        EXPECT(a[1999] == 3 * 1999);
    }
    EXPECT(data[10] == 30);
}

} // namespace

int main(int argc, char **argv)
{
    return run_all(argc, argv,
                   {
                       CHECK(what_the_device_wrote_comes_back),
                       CHECK(fills_with_patterns_of_several_sizes),
                       CHECK(a_host_accessor_waits_and_sees),
                       CHECK(a_part_of_a_buffer_is_filled),
                       CHECK(sub_buffers_are_parts_of_the_whole),
                       CHECK(a_rectangle_is_copied_between_buffers),
                       CHECK(a_box_is_copied_between_buffers),
                       CHECK(buffers_are_copied_from_and_to_pointers),
                       CHECK(update_host_brings_the_data),
                       CHECK(final_data_goes_where_it_was_sent),
                       CHECK(constant_data_stays_as_it_is),
                       CHECK(a_host_task_uses_a_buffer),
                   });
}
