/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Order: queues in order and out of order, dependencies, events and their times, host tasks. */
#include "check.hpp"

#include <sycl/ext/oneapi/experimental/graph.hpp>

#include <atomic>
#include <chrono>
#include <thread>

namespace
{

using namespace check;
using namespace std::chrono_literals;
using in_order = sycl::property::queue::in_order;
using timed    = sycl::property::queue::enable_profiling;
using sycl::info::event_command_status;

sycl::event task(sycl::queue &q, std::function<void()> f, const std::vector<sycl::event> &deps = {})
{
    return q.submit([&](sycl::handler &h) {
        h.depends_on(deps);
        h.host_task(std::move(f));
    });
}

void an_in_order_queue_keeps_its_order()
{
    sycl::queue      q(device(), in_order());
    int             *host = sycl::malloc_host<int>(1, q);
    int             *dev  = sycl::malloc_device<int>(1, q);
    std::vector<int> seen(100, -1);
    EXPECT(host != nullptr && dev != nullptr);
    for (int i = 0; i < 100; i++) {
        task(q, [=] {
            if (i % 25 == 0)
                std::this_thread::sleep_for(5ms);
            *host = i;
        });
        q.memcpy(dev, host, sizeof(int));
        q.memcpy(&seen[static_cast<std::size_t>(i)], dev, sizeof(int));
    }
    q.wait_and_throw();
    sycl::free(host, q);
    sycl::free(dev, q);
    for (int i = 0; i < 100; i++)
        EXPECT(seen[static_cast<std::size_t>(i)] == i);
}

/* Two thousand links: each copies the number on and the next one waits for it. */
void a_chain_of_dependencies_holds()
{
    sycl::queue       q(device());
    const std::size_t links = 2000;
    int              *cells = sycl::malloc_device<int>(links + 1, q);
    int               last  = 0;
    const int         first = 4711;
    EXPECT(cells != nullptr);
    sycl::event e = q.memset(cells, 0, (links + 1) * sizeof(int));
    e             = q.memcpy(cells, &first, sizeof(int), e);
    for (std::size_t i = 0; i < links; i++)
        e = q.memcpy(cells + i + 1, cells + i, sizeof(int), e);
    q.memcpy(&last, cells + links, sizeof(int), e).wait_and_throw();
    sycl::free(cells, q);
    EXPECT(last == first);
}

void commands_wait_for_all_they_depend_on()
{
    sycl::queue q(device());
    int        *host   = sycl::malloc_host<int>(2, q);
    int         sum[2] = {0, 0};
    EXPECT(host != nullptr);
    host[0] = host[1]       = 0;
    const sycl::event slow  = task(q, [=] {
        std::this_thread::sleep_for(40ms);
        host[0] = 1;
    });
    const sycl::event quick = task(q, [=] { host[1] = 2; });
    q.memcpy(sum, host, sizeof(sum), std::vector<sycl::event>{slow, quick}).wait_and_throw();
    sycl::free(host, q);
    EXPECT(sum[0] == 1 && sum[1] == 2);
}

void a_host_task_waits_for_a_copy_and_a_copy_for_it()
{
    sycl::queue                q(device());
    const std::size_t          n    = 1 << 20;
    auto                      *dev  = sycl::malloc_device<unsigned char>(n, q);
    auto                      *host = sycl::malloc_host<unsigned char>(n, q);
    std::vector<unsigned char> out(n);
    EXPECT(dev != nullptr && host != nullptr);
    sycl::event e = q.memset(dev, 5, n);
    e             = q.memcpy(host, dev, n, e);
    e             = task(q,
                         [=] {
                 for (std::size_t i = 0; i < n; i++)
                     host[i] = static_cast<unsigned char>(host[i] + 1);
             },
                         {e});
    e             = q.memcpy(dev, host, n, e);
    q.memcpy(out.data(), dev, n, e).wait_and_throw();
    sycl::free(dev, q);
    sycl::free(host, q);
    for (unsigned char b : out)
        EXPECT(b == 6);
}

void a_barrier_waits_for_what_came_before()
{
    sycl::queue      q(device());
    std::atomic<int> done{0};
    for (int i = 0; i < 4; i++)
        task(q, [&] {
            std::this_thread::sleep_for(5ms);
            done++;
        });
    sycl::event b = q.ext_oneapi_submit_barrier();
    b.wait_and_throw();
    EXPECT(done == 4);
}

void a_barrier_waits_for_another_queue()
{
    sycl::queue q(device(), in_order()), other(q.get_context(), q.get_device(), in_order());
    int        *host = sycl::malloc_host<int>(1, q);
    int         seen = 0;
    EXPECT(host != nullptr);
    *host                  = 1;
    const sycl::event slow = task(other, [=] {
        std::this_thread::sleep_for(30ms);
        *host = 2;
    });
    q.ext_oneapi_submit_barrier({slow});
    q.memcpy(&seen, host, sizeof(int)).wait_and_throw();
    sycl::free(host, q);
    EXPECT(seen == 2);
}

void an_event_tells_when_it_is_complete()
{
    sycl::queue       q(device());
    std::atomic<bool> go{false};
    int              *dev = sycl::malloc_device<int>(1, q);
    const int         one = 1;
    EXPECT(dev != nullptr);
    const sycl::event gate  = task(q, [&] {
        while (!go)
            std::this_thread::sleep_for(1ms);
    });
    sycl::event       copy  = q.memcpy(dev, &one, sizeof(int), gate);
    const auto        early = copy.get_info<sycl::info::event::command_execution_status>();
    go                      = true;
    copy.wait_and_throw();
    const auto late = copy.get_info<sycl::info::event::command_execution_status>();
    sycl::free(dev, q);
    EXPECT(early != event_command_status::complete);
    EXPECT(late == event_command_status::complete);
}

void times_are_in_order()
{
    namespace times = sycl::info::event_profiling;
    sycl::queue       q(device(), {in_order(), timed()});
    const std::size_t n      = 8 << 20;
    void             *p      = sycl::malloc_device(n, q);
    std::uint64_t     before = 0;
    EXPECT(p != nullptr);
    for (int i = 0; i < 10; i++) {
        sycl::event e = q.memset(p, i, n);
        e.wait_and_throw();
        const auto submit = e.get_profiling_info<times::command_submit>();
        const auto start  = e.get_profiling_info<times::command_start>();
        const auto end    = e.get_profiling_info<times::command_end>();
        EXPECT(submit <= start);
        EXPECT(start < end);
        EXPECT(end - start < 60000000000u);
        EXPECT(before <= start);
        before = end;
    }
    sycl::free(p, q);
}

/* The device's clock runs with the host's. */
void a_long_command_takes_long()
{
    namespace times = sycl::info::event_profiling;
    sycl::queue       q(device(), {in_order(), timed()});
    const std::size_t n = 256 << 20;
    void             *p = sycl::malloc_device(n, q);
    EXPECT(p != nullptr);
    q.memset(p, 1, n).wait_and_throw();
    const auto  began = std::chrono::steady_clock::now();
    sycl::event e     = q.memset(p, 2, n);
    e.wait_and_throw();
    const auto host = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::steady_clock::now() - began)
                          .count();
    const auto dev =
        e.get_profiling_info<times::command_end>() - e.get_profiling_info<times::command_start>();
    sycl::free(p, q);
    EXPECT(dev <= static_cast<std::uint64_t>(host) + 1000000);
    EXPECT(dev >= 1000000); /* 256 MiB in a millisecond would be 268 GB/s */
}

void threads_share_a_queue()
{
    sycl::queue              q(device());
    const std::size_t        each = 50, n = 1000;
    std::vector<std::thread> threads;
    std::atomic<int>         wrong{0};
    for (unsigned t = 0; t < 4; t++)
        threads.emplace_back([&, t] {
            for (unsigned i = 0; i < each; i++) {
                const auto                 in = noise(n, t * 1000 + i);
                std::vector<unsigned char> out(n);
                void                      *p = sycl::malloc_device(n, q);
                sycl::event                e = q.memcpy(p, in.data(), n);
                q.memcpy(out.data(), p, n, e).wait();
                sycl::free(p, q);
                wrong += out != in;
            }
        });
    for (std::thread &t : threads)
        t.join();
    EXPECT(wrong == 0);
}

void queues_come_and_go()
{
    const sycl::device  d = device();
    const sycl::context ctx(d);
    int                *p = sycl::malloc_shared<int>(64, d, ctx);
    EXPECT(p != nullptr);
    for (int i = 0; i < 64; i++) {
        sycl::queue q(ctx, d);
        q.memset(p + i, i, sizeof(int)).wait_and_throw();
    }
    for (int i = 0; i < 64; i++)
        EXPECT(p[i] == i * 0x01010101);
    sycl::free(p, ctx);
}

/* A graph is recorded once and executed several times: lists of commands that are closed. */
void a_graph_runs_again_and_again()
{
    namespace syclex = sycl::ext::oneapi::experimental;
    sycl::queue q(device(), in_order());
    needs(q.get_device().has(sycl::aspect::ext_oneapi_limited_graph) ||
              q.get_device().has(sycl::aspect::ext_oneapi_graph),
          "no graphs");
    const std::size_t n    = 10000;
    auto             *from = sycl::malloc_shared<unsigned char>(n, q);
    auto             *mid  = sycl::malloc_device<unsigned char>(n, q);
    auto             *to   = sycl::malloc_shared<unsigned char>(n, q);
    EXPECT(from != nullptr && mid != nullptr && to != nullptr);
    {
        syclex::command_graph g(q.get_context(), q.get_device());
        auto                  first = g.add([&](sycl::handler &h) { h.memcpy(mid, from, n); });
        auto                  then  = g.add([&](sycl::handler &h) { h.memset(mid + 100, 200, 50); },
                          {syclex::property::node::depends_on(first)});
        g.add([&](sycl::handler &h) { h.memcpy(to, mid, n); },
              {syclex::property::node::depends_on(then)});
        auto ready = g.finalize();
        for (int round = 1; round <= 5; round++) {
            std::memset(from, round, n);
            q.ext_oneapi_graph(ready).wait_and_throw();
            EXPECT(to[99] == round && to[100] == 200 && to[149] == 200 && to[150] == round);
        }
    }
    sycl::free(from, q);
    sycl::free(mid, q);
    sycl::free(to, q);
}

} // namespace

int main(int argc, char **argv)
{
    return run_all(argc, argv,
                   {
                       CHECK(an_in_order_queue_keeps_its_order),
                       CHECK(a_chain_of_dependencies_holds),
                       CHECK(commands_wait_for_all_they_depend_on),
                       CHECK(a_host_task_waits_for_a_copy_and_a_copy_for_it),
                       CHECK(a_barrier_waits_for_what_came_before),
                       CHECK(a_barrier_waits_for_another_queue),
                       CHECK(an_event_tells_when_it_is_complete),
                       CHECK(times_are_in_order),
                       CHECK(a_long_command_takes_long),
                       CHECK(threads_share_a_queue),
                       CHECK(queues_come_and_go),
                       CHECK(a_graph_runs_again_and_again),
                   });
}
