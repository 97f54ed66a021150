/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Kernels built at run time, from SYCL source (the runtime's own compiler makes SPIR-V of it) and
 * from SPIR-V: over the three kinds of memory, buffers, ranges of one to three dimensions, local
 * memory, indirect pointers, in order with other commands.
 *
 * usage: kernels [--all] [NAME...]; USM_TEST_SPIRV names a module with the kernel of add.cl. */
#include "check.hpp"

#include <fstream>
#include <iterator>

namespace
{

using namespace check;
namespace syclex = sycl::ext::oneapi::experimental;
using sycl::usm::alloc;
using executable = sycl::kernel_bundle<sycl::bundle_state::executable>;
using in_order   = sycl::property::queue::in_order;

const char *const source = R"""(
#include <sycl/sycl.hpp>
namespace syclext = sycl::ext::oneapi;
namespace syclexp = sycl::ext::oneapi::experimental;

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>))
void scale(float *p, float factor, int offset)
{
    const size_t i = syclext::this_work_item::get_nd_item<1>().get_global_linear_id();
    p[i] = p[i] * factor + static_cast<float>(offset);
}

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<3>))
void places(unsigned *p, unsigned nx, unsigned ny)
{
    const auto it = syclext::this_work_item::get_nd_item<3>();
    const size_t i = (it.get_global_id(0) * ny + it.get_global_id(1)) * nx + it.get_global_id(2);
    p[i] = static_cast<unsigned>(it.get_group_linear_id() * 1000 + it.get_local_linear_id());
}

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>))
void reverse(int *p, syclexp::work_group_memory<int[]> tile)
{
    const auto it = syclext::this_work_item::get_nd_item<1>();
    const size_t l = it.get_local_id(0), n = it.get_local_range(0);
    tile[l] = p[it.get_global_id(0)];
    sycl::group_barrier(it.get_group());
    p[it.get_global_id(0)] = tile[n - 1 - l];
}

struct chain { chain *next; int value; };

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::single_task_kernel))
void follow(chain *first, int *sum)
{
    int s = 0;
    for (chain *c = first; c != nullptr; c = c->next)
        s += c->value;
    *sum = s;
}

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>))
void count(int *total)
{
    sycl::atomic_ref<int, sycl::memory_order::relaxed, sycl::memory_scope::device> t(*total);
    t.fetch_add(1);
}

struct parameters { int a; double b; unsigned char c[5]; };

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::single_task_kernel))
void by_value(double *out, parameters p)
{
    *out = p.a + p.b + p.c[4];
}
)""";

struct parameters {
    int           a;
    double        b;
    unsigned char c[5];
};

struct chain {
    chain *next;
    int    value;
};

/* One context for all: building takes seconds. */
const sycl::context &context()
{
    static const sycl::context ctx(device());
    return ctx;
}

sycl::queue queue()
{
    return sycl::queue(context(), device(), in_order());
}

executable &bundle()
{
    static executable built = [] {
        needs(device().ext_oneapi_can_build(syclex::source_language::sycl),
              "the device builds no SYCL source");
        auto from = syclex::create_kernel_bundle_from_source(context(),
                                                             syclex::source_language::sycl, source);
        return syclex::build(from);
    }();
    return built;
}

template <typename... T>
sycl::event launch(sycl::queue &q, const sycl::kernel &k, const sycl::nd_range<1> &range, T... args)
{
    return q.submit([&](sycl::handler &h) {
        h.set_args(args...);
        h.parallel_for(range, k);
    });
}

void the_source_builds_and_names_its_kernels()
{
    for (const char *name : {"scale", "places", "reverse", "follow", "count", "by_value"})
        EXPECT(bundle().ext_oneapi_has_kernel(name));
    EXPECT(!bundle().ext_oneapi_has_kernel("nothing"));
    const sycl::kernel k = bundle().ext_oneapi_get_kernel("scale");
    EXPECT(k.get_info<sycl::info::kernel_device_specific::work_group_size>(device()) > 0);
}

void source_that_does_not_compile_says_why()
{
    needs(device().ext_oneapi_can_build(syclex::source_language::sycl),
          "the device builds no SYCL source");
    auto from = syclex::create_kernel_bundle_from_source(context(), syclex::source_language::sycl,
                                                         std::string("int f( { not_a_word }"));
    std::string said;
    try {
        (void)syclex::build(from);
    } catch (const sycl::exception &e) {
        said = e.what();
    }
    EXPECT(said.find("not_a_word") != std::string::npos || said.find("error") != std::string::npos);
}

void a_kernel_computes_in_every_kind_of_memory()
{
    sycl::queue        q = queue();
    const sycl::kernel k = bundle().ext_oneapi_get_kernel("scale");
    const std::size_t  n = 4096;
    for (alloc kind : {alloc::host, alloc::device, alloc::shared}) {
        std::vector<float> in(n), out(n);
        for (std::size_t i = 0; i < n; i++)
            in[i] = static_cast<float>(i);
        auto *p = sycl::malloc<float>(n, q, kind);
        EXPECT(p != nullptr);
        q.memcpy(p, in.data(), n * sizeof(float));
        launch(q, k, {n, 64}, p, 2.0f, 1);
        launch(q, k, {n, 64}, p, 0.5f, -3);
        q.memcpy(out.data(), p, n * sizeof(float)).wait_and_throw();
        sycl::free(p, q);
        for (std::size_t i = 0; i < n; i++)
            EXPECT(out[i] == (in[i] * 2 + 1) * 0.5f - 3);
    }
}

void a_kernel_starts_in_the_middle_of_a_block()
{
    sycl::queue        q = queue();
    const sycl::kernel k = bundle().ext_oneapi_get_kernel("scale");
    auto              *p = sycl::malloc_shared<float>(1000, q);
    EXPECT(p != nullptr);
    for (int i = 0; i < 1000; i++)
        p[i] = 1;
    launch(q, k, {100, 10}, p + 333, 5.0f, 0).wait_and_throw();
    for (int i = 0; i < 1000; i++)
        EXPECT(p[i] == (i >= 333 && i < 433 ? 5 : 1));
    sycl::free(p, q);
}

void three_dimensions_reach_every_item()
{
    sycl::queue        q  = queue();
    const sycl::kernel k  = bundle().ext_oneapi_get_kernel("places");
    const unsigned     nz = 4, ny = 6, nx = 16, n = nx * ny * nz;
    auto              *p = sycl::malloc_shared<unsigned>(n, q);
    EXPECT(p != nullptr);
    std::memset(p, 0xff, n * sizeof(*p));
    q.submit([&](sycl::handler &h) {
         h.set_args(p, nx, ny);
         h.parallel_for(sycl::nd_range<3>({nz, ny, nx}, {2, 3, 4}), k);
     }).wait_and_throw();
    for (unsigned i = 0; i < n; i++) {
        const unsigned z = i / (nx * ny), y = i / nx % ny, x = i % nx;
        const unsigned group = (z / 2 * (ny / 3) + y / 3) * (nx / 4) + x / 4;
        const unsigned local = (z % 2 * 3 + y % 3) * 4 + x % 4;
        EXPECT(p[i] == group * 1000 + local);
    }
    sycl::free(p, q);
}

void work_items_share_local_memory()
{
    sycl::queue        q = queue();
    const sycl::kernel k = bundle().ext_oneapi_get_kernel("reverse");
    auto              *p = sycl::malloc_shared<int>(256, q);
    EXPECT(p != nullptr);
    for (int i = 0; i < 256; i++)
        p[i] = i;
    q.submit([&](sycl::handler &h) {
         syclex::work_group_memory<int[]> tile(32, h);
         h.set_args(p, tile);
         h.parallel_for(sycl::nd_range<1>(256, 32), k);
     }).wait_and_throw();
    for (int i = 0; i < 256; i++)
        EXPECT(p[i] == i / 32 * 32 + 31 - i % 32);
    sycl::free(p, q);
}

/* Pointers that no argument names: a list in device memory, built by copies. */
void a_kernel_follows_indirect_pointers()
{
    sycl::queue          q = queue();
    const sycl::kernel   k = bundle().ext_oneapi_get_kernel("follow");
    std::vector<chain *> links;
    int                 *sum = sycl::malloc_shared<int>(1, q);
    EXPECT(sum != nullptr);
    *sum = 0;
    for (int i = 0; i < 12; i++) {
        const alloc kind = i % 3 == 0 ? alloc::host : i % 3 == 1 ? alloc::device : alloc::shared;
        links.push_back(sycl::malloc<chain>(1, q, kind));
        EXPECT(links.back() != nullptr);
        const chain c = {i > 0 ? links[static_cast<std::size_t>(i) - 1] : nullptr, 1 << i};
        q.memcpy(links.back(), &c, sizeof(c)).wait_and_throw();
    }
    chain *first = links.back();
    q.submit([&](sycl::handler &h) {
         h.set_args(first, sum);
         h.single_task(k);
     }).wait_and_throw();
    EXPECT(*sum == 0xfff);
    for (chain *c : links)
        sycl::free(c, q);
    sycl::free(sum, q);
}

void atomics_count_every_item()
{
    sycl::queue        q = queue();
    const sycl::kernel k = bundle().ext_oneapi_get_kernel("count");
    int               *p = sycl::malloc_shared<int>(1, q);
    EXPECT(p != nullptr);
    *p = 0;
    for (int i = 0; i < 10; i++)
        launch(q, k, {2000, 50}, p);
    q.wait_and_throw();
    EXPECT(*p == 20000);
    sycl::free(p, q);
}

void structures_go_by_value()
{
    sycl::queue        q  = queue();
    const sycl::kernel k  = bundle().ext_oneapi_get_kernel("by_value");
    double            *p  = sycl::malloc_shared<double>(1, q);
    const parameters   in = {1000, 0.5, {0, 0, 0, 0, 7}};
    EXPECT(p != nullptr);
    q.submit([&](sycl::handler &h) {
         h.set_args(p, in);
         h.single_task(k);
     }).wait_and_throw();
    EXPECT(*p == 1007.5);
    sycl::free(p, q);
}

void kernels_of_an_out_of_order_queue_wait_for_their_events()
{
    sycl::queue        q(context(), device());
    const sycl::kernel k = bundle().ext_oneapi_get_kernel("scale");
    const std::size_t  n = 100000;
    auto              *p = sycl::malloc_device<float>(n, q);
    std::vector<float> in(n, 1), out(n);
    EXPECT(p != nullptr);
    sycl::event e = q.memcpy(p, in.data(), n * sizeof(float));
    for (int i = 0; i < 10; i++)
        e = q.submit([&](sycl::handler &h) {
            h.depends_on(e);
            h.set_args(p, 2.0f, i);
            h.parallel_for(sycl::nd_range<1>(n, 100), k);
        });
    q.memcpy(out.data(), p, n * sizeof(float), e).wait_and_throw();
    sycl::free(p, q);
    float x = 1;
    for (int i = 0; i < 10; i++)
        x = x * 2 + static_cast<float>(i);
    EXPECT(out[0] == x && out[n - 1] == x);
}

void a_kernel_has_times()
{
    namespace times = sycl::info::event_profiling;
    sycl::queue q(context(), device(), {in_order(), sycl::property::queue::enable_profiling()});
    const sycl::kernel k = bundle().ext_oneapi_get_kernel("scale");
    auto              *p = sycl::malloc_device<float>(1 << 20, q);
    EXPECT(p != nullptr);
    sycl::event e = launch(q, k, {1 << 20, 64}, p, 2.0f, 1);
    e.wait_and_throw();
    EXPECT(e.get_profiling_info<times::command_submit>() <=
           e.get_profiling_info<times::command_start>());
    EXPECT(e.get_profiling_info<times::command_start>() <
           e.get_profiling_info<times::command_end>());
    sycl::free(p, q);
}

/* What add.cl, compiled by others, is to do. */
void a_module_of_spirv_runs()
{
    needs(device().ext_oneapi_can_build(syclex::source_language::spirv),
          "the device builds no SPIR-V");
    const char *path = std::getenv("USM_TEST_SPIRV");
    needs(path != nullptr, "USM_TEST_SPIRV names no module");
    std::ifstream           file(path, std::ios::binary);
    const std::vector<char> text((std::istreambuf_iterator<char>(file)), {});
    EXPECT(!text.empty());
    std::vector<std::byte> module(text.size());
    std::memcpy(module.data(), text.data(), text.size());
    sycl::queue q = queue();
    auto        from =
        syclex::create_kernel_bundle_from_source(context(), syclex::source_language::spirv, module);
    const executable   built = syclex::build(from);
    const sycl::kernel k     = executable(built).ext_oneapi_get_kernel("add");
    auto              *a = sycl::malloc_shared<int>(128, q), *b = sycl::malloc_shared<int>(128, q);
    EXPECT(a != nullptr && b != nullptr);
    for (int i = 0; i < 128; i++) {
        a[i] = i;
        b[i] = 1000;
    }
    launch(q, k, {128, 32}, a, b).wait_and_throw();
    for (int i = 0; i < 128; i++)
        EXPECT(a[i] == 1000 + i);
    sycl::free(a, q);
    sycl::free(b, q);
}

} // namespace

int main(int argc, char **argv)
{
    return run_all(argc, argv,
                   {
                       CHECK(the_source_builds_and_names_its_kernels),
                       CHECK(source_that_does_not_compile_says_why),
                       CHECK(a_kernel_computes_in_every_kind_of_memory),
                       CHECK(a_kernel_starts_in_the_middle_of_a_block),
                       CHECK(three_dimensions_reach_every_item),
                       CHECK(work_items_share_local_memory),
                       CHECK(a_kernel_follows_indirect_pointers),
                       CHECK(atomics_count_every_item),
                       CHECK(structures_go_by_value),
                       CHECK(kernels_of_an_out_of_order_queue_wait_for_their_events),
                       CHECK(a_kernel_has_times),
                       CHECK(a_module_of_spirv_runs),
                   });
}
