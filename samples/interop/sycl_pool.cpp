/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A SYCL program whose memory comes from libusm's pools: in SYCL's own context, so that every
 * pointer is one of SYCL's.
 *
 *     sycl_pool [--size N] [--rounds N]
 *
 * A row of N numbers is smoothed in rounds, each of which takes a block for its result and gives
 * the block of the round before back, as one would write it with a pool and would not with
 * sycl::malloc_device().  The kernel is built at run time from its source, so plain g++ and PyPI's
 * intel-sycl-rt are all it takes.  The numbers are integers: the host computes the same, and they
 * must be equal to the last bit.  Then the pools tell how often the driver was asked. */
#if __has_include(<level_zero/ze_api.h>)
#include <level_zero/ze_api.h> /* before SYCL's own, as that wants it */
#define HAVE_LEVEL_ZERO
#endif
#include <sycl/backend/opencl.hpp>
#include <sycl/sycl.hpp>
#ifdef HAVE_LEVEL_ZERO
#include <sycl/ext/oneapi/backend/level_zero.hpp>
#endif
#include <usm/memory.hpp>
#include <usm/queue.hpp>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace
{

namespace syclex = sycl::ext::oneapi::experimental;
using number     = std::uint32_t;

const char *const source = R"""(
#include <sycl/sycl.hpp>

/* A ring: the first number's left neighbour is the last one. */
extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY(
    (sycl::ext::oneapi::experimental::nd_range_kernel<1>))
void smooth(unsigned *to, const unsigned *from, unsigned n)
{
    const unsigned i = static_cast<unsigned>(
        sycl::ext::oneapi::this_work_item::get_nd_item<1>().get_global_linear_id());
    to[i] = from[i == 0 ? n - 1 : i - 1] + 2 * from[i] + from[i == n - 1 ? 0 : i + 1];
}
)""";

/* libusm's context over SYCL's, which stays SYCL's. */
usm::context adopt(const sycl::queue &q)
{
    usm_native_desc desc = USM_NATIVE_DESC_INIT;
    void           *dev  = nullptr;

    if (q.get_backend() == sycl::backend::opencl) {
        desc.backend   = "opencl";
        desc.handle    = sycl::get_native<sycl::backend::opencl>(q.get_context());
        desc.ownership = USM_TRANSFER; /* of the reference that get_native() took for us */
        dev            = sycl::get_native<sycl::backend::opencl>(q.get_device());
#ifdef HAVE_LEVEL_ZERO
    } else if (q.get_backend() == sycl::backend::ext_oneapi_level_zero) {
        desc.backend = "level_zero";
        desc.handle  = sycl::get_native<sycl::backend::ext_oneapi_level_zero>(q.get_context());
        dev          = sycl::get_native<sycl::backend::ext_oneapi_level_zero>(q.get_device());
#endif
    } else {
        throw std::runtime_error("SYCL's device is neither OpenCL's nor Level Zero's: set "
                                 "ONEAPI_DEVICE_SELECTOR");
    }
    desc.ndevices = 1;
    desc.devices  = &dev;
    return usm::context::from_native(desc);
}

/* A pool, and how often it was asked. */
class counted_pool
{
  public:
    counted_pool(const usm::context &ctx, usm_kind kind, sycl::usm::alloc seen_as)
        : pool_(ctx, {}, kind), seen_as_(seen_as)
    {
    }
    number *take(std::size_t n, const sycl::queue &q)
    {
        auto *p = static_cast<number *>(pool_.malloc(n * sizeof(number)));

        if (p == nullptr)
            throw usm::error(usm_last_status());
        if (sycl::get_pointer_type(p, q.get_context()) != seen_as_ ||
            sycl::get_pointer_type(p + n - 1, q.get_context()) != seen_as_)
            throw std::runtime_error("SYCL does not know the pool's memory");
        asked_++;
        return p;
    }
    void give_back(number *p)
    {
        pool_.free(p);
    }
    std::uint64_t saved() const
    {
        return asked_ - pool_.stats().driver_allocs;
    }
    void tell(const char *kind) const
    {
        const usm_pool_stats s = pool_.stats();

        std::printf("%-7s %11" PRIu64 " %13" PRIu64 " %8" PRIu64 " %7.1f MiB\n", kind, asked_,
                    s.driver_allocs, saved(), static_cast<double>(s.reserved_peak) / (1 << 20));
    }

  private:
    usm::pool        pool_;
    sycl::usm::alloc seen_as_;
    std::uint64_t    asked_ = 0;
};

/* libusm's queue over SYCL's, for the order of what is allocated and freed; empty where SYCL keeps
 * commands back, so that the native queue does not know their order: the older adapter of Level
 * Zero gathers them in lists. */
usm::queue same_order(const usm::context &ctx, sycl::queue &q)
{
    if (q.get_backend() == sycl::backend::opencl)
        return usm::queue::from_native(ctx, sycl::get_native<sycl::backend::opencl>(q),
                                       USM_TRANSFER);
#ifdef HAVE_LEVEL_ZERO
    const auto           native = sycl::get_native<sycl::backend::ext_oneapi_level_zero>(q);
    usm_level_zero_queue desc   = USM_LEVEL_ZERO_QUEUE_INIT;

    if (const auto *list = std::get_if<ze_command_list_handle_t>(&native)) {
        desc.command_list = *list;
        desc.device       = sycl::get_native<sycl::backend::ext_oneapi_level_zero>(q.get_device());
        desc.is_in_order  = true;
        return usm::queue::from_native(ctx, &desc);
    }
#endif
    return usm::queue::adopt(nullptr);
}

/* The same on the host. */
std::vector<number> expected(std::vector<number> row, unsigned rounds)
{
    const std::size_t   n = row.size();
    std::vector<number> next(n);

    for (unsigned r = 0; r < rounds; r++) {
        for (std::size_t i = 0; i < n; i++)
            next[i] = row[i == 0 ? n - 1 : i - 1] + 2 * row[i] + row[i == n - 1 ? 0 : i + 1];
        row.swap(next);
    }
    return row;
}

void smooth(sycl::queue &q, const sycl::kernel &k, number *to, const number *from, std::size_t n)
{
    q.submit([&](sycl::handler &h) {
        h.set_args(to, from, static_cast<unsigned>(n));
        h.parallel_for(sycl::nd_range<1>(n, 64), k);
    });
}

/* Host memory holds the start, device memory what is between, shared memory the end. */
bool with_waits(sycl::queue &q, const usm::context &ctx, const sycl::kernel &k,
                const std::vector<number> &start, const std::vector<number> &wanted,
                unsigned rounds)
{
    const std::size_t n = start.size();
    counted_pool      host(ctx, USM_HOST, sycl::usm::alloc::host);
    counted_pool      device(ctx, USM_DEVICE, sycl::usm::alloc::device);
    counted_pool      shared(ctx, USM_SHARED, sycl::usm::alloc::shared);
    number           *first = host.take(n, q);
    number           *row   = device.take(n, q);

    std::copy(start.begin(), start.end(), first);
    q.memcpy(row, first, n * sizeof(number));
    for (unsigned r = 0; r < rounds; r++) {
        number *next = device.take(n, q);

        smooth(q, k, next, row, n);
        q.wait_and_throw(); /* queued work still reads `row` */
        device.give_back(row);
        row = next;
    }
    number *last = shared.take(n, q);
    q.memcpy(last, row, n * sizeof(number)).wait_and_throw();

    const bool right = std::equal(wanted.begin(), wanted.end(), last);

    std::printf("pool    allocations  driver calls    saved  taken from it\n");
    host.tell("host");
    device.tell("device");
    shared.tell("shared");
    device.give_back(row);
    shared.give_back(last);
    host.give_back(first);
    return right && device.saved() >= rounds / 2;
}

/* The same, allocated and freed in the order of SYCL's queue. */
bool in_order(sycl::queue &q, const usm::context &ctx, const sycl::kernel &k,
              const std::vector<number> &start, const std::vector<number> &wanted, unsigned rounds)
{
    const std::size_t   bytes = start.size() * sizeof(number);
    const usm::queue    order = same_order(ctx, q);
    std::vector<number> last(start.size());

    if (order.get() == nullptr) {
        std::printf("\nSYCL gathers the commands of this queue: no allocation in its order\n");
        return true;
    }
    const usm::pool pool(order, USM_DEVICE);
    const auto      take = [&] {
        return static_cast<number *>(usm::async_malloc_from_pool(order, bytes, pool));
    };
    number *row = take();

    q.memcpy(row, start.data(), bytes);
    for (unsigned r = 0; r < rounds; r++) {
        number *next = take();

        smooth(q, k, next, row, start.size());
        usm::async_free(order, row); /* when the queue gets there */
        row = next;
    }
    q.memcpy(last.data(), row, bytes);
    usm::async_free(order, row);
    q.wait_and_throw();
    std::printf("\nin the order of the queue: allocations: %u, driver calls: %" PRIu64 ", %.1f MiB "
                "taken, the host's waits for memory: %" PRIu64 "\n",
                rounds + 1, pool.stats().driver_allocs,
                static_cast<double>(pool.attribute(USM_POOL_RESERVED_HIGH)) / (1 << 20),
                pool.attribute(USM_POOL_HOST_WAITS));
    return last == wanted;
}

bool run(sycl::queue &q, std::size_t n, unsigned rounds)
{
    auto from = syclex::create_kernel_bundle_from_source(
        q.get_context(), syclex::source_language::sycl, std::string(source));
    auto                built = syclex::build(from);
    const sycl::kernel  k     = built.ext_oneapi_get_kernel("smooth");
    const usm::context  ctx   = adopt(q);
    std::vector<number> start(n);

    for (std::size_t i = 0; i < n; i++)
        start[i] = static_cast<number>(i * 2654435761u);
    std::printf("%s: %zu numbers, %u rounds\n\n",
                q.get_device().get_info<sycl::info::device::name>().c_str(), n, rounds);

    const std::vector<number> wanted = expected(start, rounds);
    const bool                right =
        with_waits(q, ctx, k, start, wanted, rounds) && in_order(q, ctx, k, start, wanted, rounds);

    std::printf("\n%s\n", right ? "equal to the host's numbers, bit by bit" : "WRONG");
    return right;
}

} // namespace

int main(int argc, char **argv)
{
    std::size_t n      = 1 << 18;
    unsigned    rounds = 500;

    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string option = argv[i];
        const auto        value  = std::strtoul(argv[i + 1], nullptr, 10);

        if (option == "--size" && value >= 64 && value <= 1u << 28)
            n = value / 64 * 64;
        else if (option == "--rounds" && value >= 1 && value <= 1000000)
            rounds = static_cast<unsigned>(value);
        else
            argc = 0;
    }
    if (argc % 2 == 0) {
        std::fprintf(stderr, "usage: %s [--size N] [--rounds N]\n", argv[0]);
        return 2;
    }
    try {
        sycl::queue q{sycl::property::queue::in_order{}};

        return run(q, n, rounds) ? 0 : 1;
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
        return 1;
    }
}
