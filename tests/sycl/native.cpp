/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One native context, three users: SYCL, plain Level Zero, libusm.  Memory that one of them
 * allocates is memory to the others, and copies and kernels of each reach it.
 *
 * Over OpenCL the same checks of libusm run with SYCL's cl_context. */
#include "check.hpp"

#include <level_zero/ze_api.h>
#include <sycl/backend/opencl.hpp>
#include <sycl/ext/oneapi/backend/level_zero.hpp>
#include <usm/usm.h>

#include <variant>

namespace
{

using namespace check;
using sycl::usm::alloc;
namespace syclex          = sycl::ext::oneapi::experimental;
constexpr auto level_zero = sycl::backend::ext_oneapi_level_zero;
using in_order            = sycl::property::queue::in_order;

sycl::queue level_zero_queue()
{
    sycl::queue q(device(), in_order());
    needs(q.get_backend() == level_zero, "not a Level Zero device");
    return q;
}

void good(usm_status status)
{
    if (status != USM_OK)
        throw failure{std::string(usm_status_name(status)) + ": " + usm_last_error()};
}

/* libusm's context and queue over SYCL's, which stay SYCL's. */
struct adopted {
    usm_context *ctx = nullptr;
    usm_queue   *q   = nullptr;

    explicit adopted(const sycl::queue &from)
    {
        usm_native_desc desc = USM_NATIVE_DESC_INIT;
        void           *dev  = nullptr;
        if (from.get_backend() == level_zero) {
            desc.backend = "level_zero";
            desc.handle  = sycl::get_native<level_zero>(from.get_context());
            dev          = sycl::get_native<level_zero>(from.get_device());
        } else {
            desc.backend = "opencl";
            desc.handle  = sycl::get_native<sycl::backend::opencl>(from.get_context());
            dev          = sycl::get_native<sycl::backend::opencl>(from.get_device());
        }
        desc.ndevices = 1;
        desc.devices  = &dev;
        good(usm_context_from_native(&desc, &ctx));
        good(usm_queue_create(ctx, nullptr, nullptr, &q));
    }
    adopted(const adopted &)            = delete;
    adopted &operator=(const adopted &) = delete;
    ~adopted()
    {
        usm_queue_destroy(q);
        usm_context_destroy(ctx);
    }
};

struct pair {
    usm_kind usm;
    alloc    sycl;
};
constexpr pair kinds[] = {
    {USM_HOST, alloc::host}, {USM_DEVICE, alloc::device}, {USM_SHARED, alloc::shared}};

void memory_of_plain_level_zero_is_sycls()
{
    sycl::queue                q        = level_zero_queue();
    auto                       ctx      = sycl::get_native<level_zero>(q.get_context());
    auto                       dev      = sycl::get_native<level_zero>(q.get_device());
    ze_device_mem_alloc_desc_t dd       = {};
    ze_host_mem_alloc_desc_t   hd       = {};
    void                      *device_p = nullptr, *host_p = nullptr, *shared_p = nullptr;
    dd.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC;
    hd.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC;
    EXPECT(zeMemAllocDevice(ctx, &dd, 100000, 64, dev, &device_p) == ZE_RESULT_SUCCESS);
    EXPECT(zeMemAllocHost(ctx, &hd, 100000, 64, &host_p) == ZE_RESULT_SUCCESS);
    EXPECT(zeMemAllocShared(ctx, &dd, &hd, 100000, 64, dev, &shared_p) == ZE_RESULT_SUCCESS);
    auto *middle = static_cast<char *>(device_p) + 4096;
    EXPECT(sycl::get_pointer_type(device_p, q.get_context()) == alloc::device);
    EXPECT(sycl::get_pointer_type(middle, q.get_context()) == alloc::device);
    EXPECT(sycl::get_pointer_device(middle, q.get_context()) == q.get_device());
    EXPECT(sycl::get_pointer_type(host_p, q.get_context()) == alloc::host);
    EXPECT(sycl::get_pointer_type(shared_p, q.get_context()) == alloc::shared);

    const auto                 in = noise(50000);
    std::vector<unsigned char> out(in.size());
    q.memcpy(host_p, in.data(), in.size());
    q.memcpy(middle, host_p, in.size());
    q.memcpy(shared_p, middle, in.size());
    q.memcpy(out.data(), shared_p, out.size()).wait_and_throw();
    EXPECT(out == in);
    EXPECT(zeMemFree(ctx, device_p) == ZE_RESULT_SUCCESS);
    EXPECT(zeMemFree(ctx, host_p) == ZE_RESULT_SUCCESS);
    EXPECT(zeMemFree(ctx, shared_p) == ZE_RESULT_SUCCESS);
}

void memory_of_sycl_is_plain_level_zeros()
{
    sycl::queue                       q     = level_zero_queue();
    auto                              ctx   = sycl::get_native<level_zero>(q.get_context());
    ze_memory_allocation_properties_t props = {};
    ze_device_handle_t                dev   = nullptr;
    void                             *base  = nullptr;
    std::size_t                       size  = 0;
    void                             *p     = sycl::malloc_device(100000, q);
    EXPECT(p != nullptr);
    props.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
    EXPECT(zeMemGetAllocProperties(ctx, p, &props, &dev) == ZE_RESULT_SUCCESS);
    EXPECT(props.type == ZE_MEMORY_TYPE_DEVICE);
    EXPECT(dev == sycl::get_native<level_zero>(q.get_device()));
    EXPECT(zeMemGetAddressRange(ctx, p, &base, &size) == ZE_RESULT_SUCCESS);
    EXPECT(base <= p && size >= 100000);
    sycl::free(p, q);
}

void memory_of_libusm_is_sycls()
{
    sycl::queue   q(device(), in_order());
    const adopted a(q);
    for (const pair &kind : kinds) {
        auto *p = static_cast<char *>(usm_malloc(100000, a.q, kind.usm));
        EXPECT(p != nullptr);
        EXPECT(sycl::get_pointer_type(p, q.get_context()) == kind.sycl);
        EXPECT(sycl::get_pointer_type(p + 50001, q.get_context()) == kind.sycl);
        EXPECT(sycl::get_pointer_device(p + 50001, q.get_context()) == q.get_device());
        usm_free(p);
    }
}

void sycl_copies_memory_of_libusm()
{
    sycl::queue   q(device(), in_order());
    const adopted a(q);
    const auto    in = noise(77777);
    for (const pair &from : kinds)
        for (const pair &to : kinds) {
            std::vector<unsigned char> out(in.size());
            auto                      *x = static_cast<char *>(usm_malloc(100000, a.q, from.usm));
            auto                      *y = static_cast<char *>(usm_malloc(100000, a.q, to.usm));
            EXPECT(x != nullptr && y != nullptr);
            q.memcpy(x + 111, in.data(), in.size());
            q.memcpy(y + 7, x + 111, in.size());
            q.memcpy(out.data(), y + 7, in.size()).wait_and_throw();
            usm_free(x);
            usm_free(y);
            EXPECT(out == in);
        }
}

void libusm_and_sycl_read_what_the_other_wrote()
{
    sycl::queue                q(device(), in_order());
    const adopted              a(q);
    const auto                 in = noise(200000);
    std::vector<unsigned char> out(in.size());
    auto                      *p = static_cast<char *>(usm_malloc_device(in.size(), a.q));
    EXPECT(p != nullptr);
    good(usm_memcpy(a.q, p, in.data(), in.size(), 0, nullptr, nullptr));
    good(usm_queue_wait(a.q));
    q.memcpy(out.data(), p, out.size()).wait_and_throw();
    EXPECT(out == in);
    q.memset(p + 1000, 0x5a, 3000).wait_and_throw();
    good(usm_copy(out.data(), p, out.size()));
    EXPECT(out[999] == in[999] && out[1000] == 0x5a && out[3999] == 0x5a && out[4000] == in[4000]);
    usm_free(p);
}

/* libusm's commands take SYCL's memory, which it does not know. */
void libusm_copies_memory_of_sycl()
{
    sycl::queue                q(device(), in_order());
    const adopted              a(q);
    const auto                 in = noise(40000);
    std::vector<unsigned char> out(in.size());
    void                      *theirs = sycl::malloc_device(in.size(), q);
    void                      *ours   = usm_malloc_device(in.size(), a.q);
    EXPECT(theirs != nullptr && ours != nullptr);
    q.memcpy(theirs, in.data(), in.size()).wait_and_throw();
    good(usm_memcpy(a.q, ours, theirs, in.size(), 0, nullptr, nullptr));
    good(usm_memcpy(a.q, out.data(), ours, in.size(), 0, nullptr, nullptr));
    good(usm_queue_wait(a.q));
    usm_free(ours);
    sycl::free(theirs, q);
    EXPECT(out == in);
}

void libusm_queues_on_sycls_queue()
{
    sycl::queue          q = level_zero_queue();
    const adopted        a(q);
    const auto           native = sycl::get_native<level_zero>(q);
    usm_level_zero_queue desc   = USM_LEVEL_ZERO_QUEUE_INIT;
    usm_queue           *both   = nullptr;
    if (const auto *list = std::get_if<ze_command_list_handle_t>(&native))
        desc.command_list = *list;
    else
        desc.command_queue = std::get<ze_command_queue_handle_t>(native);
    desc.device      = sycl::get_native<level_zero>(q.get_device());
    desc.is_in_order = false;
    good(usm_queue_from_native(a.ctx, &desc, USM_KEEP, &both));
    const auto                 in = noise(10000);
    std::vector<unsigned char> out(in.size());
    void                      *p = usm_malloc_device(in.size(), both);
    EXPECT(p != nullptr);
    good(usm_memcpy(both, p, in.data(), in.size(), 0, nullptr, nullptr));
    good(usm_queue_wait(both));
    q.memcpy(out.data(), p, out.size()).wait_and_throw();
    usm_free(p);
    usm_queue_destroy(both);
    EXPECT(out == in);
}

void a_sycl_kernel_works_in_memory_of_libusm()
{
    sycl::queue   q(device(), in_order());
    const adopted a(q);
    needs(device().ext_oneapi_can_build(syclex::source_language::sycl),
          "the device builds no SYCL source");
    auto from = syclex::create_kernel_bundle_from_source(
        q.get_context(), syclex::source_language::sycl, std::string(R"""(
#include <sycl/sycl.hpp>
extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY(
    (sycl::ext::oneapi::experimental::nd_range_kernel<1>))
void twice(int *to, const int *from)
{
    const size_t i = sycl::ext::oneapi::this_work_item::get_nd_item<1>().get_global_linear_id();
    to[i] = 2 * from[i];
}
)"""));
    auto               built = syclex::build(from);
    const sycl::kernel k     = built.ext_oneapi_get_kernel("twice");
    const std::size_t  n     = 1024;
    auto              *x     = static_cast<int *>(usm_malloc_shared(n * sizeof(int), a.q));
    auto              *y     = static_cast<int *>(usm_malloc_device(n * sizeof(int), a.q));
    std::vector<int>   out(n);
    EXPECT(x != nullptr && y != nullptr);
    for (std::size_t i = 0; i < n; i++)
        x[i] = static_cast<int>(i);
    q.submit([&](sycl::handler &h) {
         h.set_args(y, x);
         h.parallel_for(sycl::nd_range<1>(n, 64), k);
     }).wait_and_throw();
    good(usm_copy(out.data(), y, n * sizeof(int)));
    for (std::size_t i = 0; i < n; i++)
        EXPECT(out[i] == 2 * static_cast<int>(i));
    usm_free(x);
    usm_free(y);
}

/* What libusm's pools took from the driver goes back when its context does; SYCL's context stays.
 */
void sycl_goes_on_when_libusm_has_left()
{
    sycl::queue    q(device(), in_order());
    std::uintptr_t was = 0;
    {
        const adopted a(q);
        void         *p = usm_malloc_device(1 << 20, a.q);
        EXPECT(p != nullptr);
        EXPECT(sycl::get_pointer_type(p, q.get_context()) == alloc::device);
        was = reinterpret_cast<std::uintptr_t>(p);
        usm_free(p);
    }
    EXPECT(sycl::get_pointer_type(reinterpret_cast<void *>(was), q.get_context()) ==
           alloc::unknown);
    const auto                 in = noise(1000);
    std::vector<unsigned char> out(in.size());
    void                      *p = sycl::malloc_device(in.size(), q);
    EXPECT(p != nullptr);
    q.memcpy(p, in.data(), in.size());
    q.memcpy(out.data(), p, out.size()).wait_and_throw();
    sycl::free(p, q);
    EXPECT(out == in);
}

} // namespace

int main(int argc, char **argv)
{
    return run_all(argc, argv,
                   {
                       CHECK(memory_of_plain_level_zero_is_sycls),
                       CHECK(memory_of_sycl_is_plain_level_zeros),
                       CHECK(memory_of_libusm_is_sycls),
                       CHECK(sycl_copies_memory_of_libusm),
                       CHECK(libusm_and_sycl_read_what_the_other_wrote),
                       CHECK(libusm_copies_memory_of_sycl),
                       CHECK(libusm_queues_on_sycls_queue),
                       CHECK(a_sycl_kernel_works_in_memory_of_libusm),
                       CHECK(sycl_goes_on_when_libusm_has_left),
                   });
}
