/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Devices, contexts, events, queues, programs and kernels of the C++ face; each case is a sentence.
 * Runs on the host's device. */
#include "check.hpp"

#include <usm/usm.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace
{

using check::thrown;

/* Owners move and do not copy; what borrows copies; events share. */
template <class T>
constexpr bool is_owner =
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
    std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T>;
static_assert(is_owner<usm::context> && is_owner<usm::queue> && is_owner<usm::program> &&
              is_owner<usm::kernel> && is_owner<usm::pool>);
static_assert(std::is_trivially_copyable_v<usm::device> &&
              std::is_trivially_copyable_v<usm::queue_ref> &&
              std::is_trivially_copyable_v<usm::context_ref>);
static_assert(std::is_copy_constructible_v<usm::event> &&
              std::is_nothrow_move_constructible_v<usm::event> &&
              std::is_nothrow_move_assignable_v<usm::event>);
static_assert(std::is_convertible_v<const usm::queue &, usm::queue_ref> &&
              !std::is_convertible_v<usm::queue_ref, usm::queue>);

void devices_are_listed_and_named()
{
    const std::vector<usm::device> list = usm::devices();

    EXPECT(!list.empty());
    EXPECT(!list[0].name().empty() && list[0].info().backend != nullptr);
    EXPECT(list[0].has(USM_ASPECT_USM_HOST_ALLOCATIONS));
    EXPECT(list[0].memory().total > 0);
    EXPECT(usm::devices("host:*").size() >= 1);
    EXPECT(usm::devices("host:0")[0] == list[0] && usm::device() != list[0]);
    EXPECT(thrown([] { (void)usm::devices("no such thing"); }) == USM_E_SELECTOR);
}

void a_context_owns_and_a_reference_borrows()
{
    usm::context     a, b(usm::devices());
    usm::context_ref r   = a;
    usm_context     *raw = a.get();

    EXPECT(r == a && r != b && a.devices().size() == 1);
    b = std::move(a);
    EXPECT(b.get() == raw && a.get() == nullptr);
    usm::context c = std::move(b);
    EXPECT(c == r && b.get() == nullptr);
    c.wait();
    usm::context d = usm::context::adopt(c.release());
    EXPECT(d == r && c.get() == nullptr);
    EXPECT(usm::default_context() == usm::default_queue().context());
    EXPECT(thrown([&] { (void)d.native("opencl"); }) != USM_OK);
    usm_native_desc desc = USM_NATIVE_DESC_INIT;
    desc.backend         = "none of that name";
    desc.handle          = &desc;
    EXPECT(thrown([&] { (void)usm::context::from_native(desc); }) == USM_E_NO_BACKEND);
}

void a_queue_is_moved_and_what_was_moved_from_is_refused()
{
    usm::queue a;
    usm::queue b = std::move(a);
    int        x = 1, y = 0;

    EXPECT(a.get() == nullptr && b.get() != nullptr);
    EXPECT(thrown([&] { a.wait(); }) == USM_E_INVALID_HANDLE ||
           thrown([&] { a.wait(); }) == USM_E_INVALID);
    EXPECT(thrown([&] { (void)a.memcpy(&y, &x, sizeof x); }) != USM_OK && y == 0);
    a = std::move(b);
    (void)a.memcpy(&y, &x, sizeof x);
    a.wait();
    EXPECT(y == 1 && a.empty());
    EXPECT(a.context() == usm::default_context() && a.device() == usm::devices()[0]);
    usm::queue c = usm::queue::adopt(a.release());
    EXPECT(a.get() == nullptr && c != usm::default_queue());
    usm::queue_ref r = c;
    (void)r.memset(&y, 0, sizeof y);
    r.wait();
    EXPECT(y == 0);
}

void commands_move_bytes()
{
    usm::queue       q;
    std::vector<int> a(100), b(100);

    std::iota(a.begin(), a.end(), 0);
    q.memcpy(usm::no_event, b.data(), a.data(), sizeof(int) * 100);
    q.memset(usm::no_event, a.data(), 0xff, sizeof(int) * 50);
    usm::event e = q.fill(a.data() + 50, 7, 25);
    e            = q.fill(a.data() + 75, std::array<char, 12>{1, 2, 3}, 2, e);
    e.wait();
    EXPECT(b[99] == 99 && a[0] == -1 && a[49] == -1 && a[50] == 7 && a[74] == 7);
    EXPECT(a[75] == 0x030201 && a[76] == 0 && a[78] == 0x030201 && a[81] == 81);
    q.memcpy_2d(b.data(), 40, a.data(), 20, 8, 5).wait();
    EXPECT(b[0] == -1 && b[10] == -1 && b[2] == 2);
    q.prefetch(a.data(), 400).wait();
    q.mem_advise(a.data(), 400, USM_ADVICE_DEFAULT).wait();
    EXPECT(thrown([&] { (void)q.memcpy(nullptr, a.data(), 4); }) == USM_E_INVALID_POINTER);
}

void events_are_waited_for_in_lists_and_vectors()
{
    usm::queue              q(USM_QUEUE_OUT_OF_ORDER);
    std::vector<int>        x(64, 0);
    usm::event              gate = usm::event::create();
    std::vector<usm::event> all;

    for (std::size_t i = 0; i < x.size(); i++)
        all.push_back(q.fill(&x[i], static_cast<int>(i), 1, {gate, usm::event()}));
    EXPECT(!gate.is_complete() && !all[63].is_complete() && !q.empty());
    usm::event copied = all[0];
    EXPECT(copied.get() == all[0].get());
    int        sum  = 0;
    usm::event done = q.host_task([&] { sum = std::accumulate(x.begin(), x.end(), 0); }, all);
    usm::event last = q.barrier({done, copied});
    EXPECT(!last.is_complete() && sum == 0);
    gate.signal();
    last.wait();
    EXPECT(sum == 63 * 64 / 2 && last.is_complete());
    usm::wait_all(all);
    usm::event none;
    EXPECT(none.is_complete() && none.get() == nullptr);
    none.wait();
    EXPECT(thrown([&] { gate.signal(); }) == USM_E_INVALID);
}

void events_are_counted()
{
    usm::event a = usm::event::create();
    usm::event b = a, c;

    c = b;
    b = usm::event();
    a = usm::event(std::move(c));
    EXPECT(a.get() != nullptr && b.get() == nullptr && c.get() == nullptr);
    a = *&a;
    a.signal();
    EXPECT(a.is_complete());
    usm::event d = usm::event::adopt(a.release());
    EXPECT(a.get() == nullptr && d.is_complete());
}

void failures_travel_with_events()
{
    usm::queue q(USM_QUEUE_OUT_OF_ORDER);
    usm::event bad = usm::event::create();
    bool       ran = false;
    usm::event hit = q.host_task([&] { ran = true; }, bad);

    bad.signal(USM_E_DEVICE);
    EXPECT(thrown([&] { hit.wait(); }) == USM_E_DEPENDENCY && !ran);
    EXPECT(thrown([&] { (void)hit.is_complete(); }) == USM_E_DEPENDENCY);
    usm::event e = q.host_task([] { throw usm::error(USM_E_IO, "the well is dry"); });
    EXPECT(thrown([&] { e.wait(); }) == USM_E_IO);
    e = q.host_task([] { throw std::runtime_error("anything"); });
    EXPECT(thrown([&] { e.wait(); }) == USM_E_SYSTEM);
    e = q.host_task([] { throw std::bad_alloc(); });
    EXPECT(thrown([&] { e.wait(); }) == USM_E_NO_MEMORY);
}

/* Leaks of libusm's objects are none of AddressSanitizer's: a handle that went is refused. */
void what_goes_gives_its_handle_back()
{
    usm_context *ctx     = nullptr;
    usm_queue   *q[3]    = {};
    usm_event   *ev      = nullptr;
    usm_pool    *pool[2] = {};
    {
        usm::context c;
        usm::queue   a(c), b(c), assigned(c);
        usm::pool    p(a, USM_HOST), other(a, USM_HOST);
        usm::event   e = usm::event::create(c), same = e;

        ctx      = c.get();
        q[0]     = a.get();
        q[1]     = b.get();
        q[2]     = assigned.get();
        assigned = std::move(b); /* the one it had is gone */
        EXPECT(usm_queue_query(q[2]) == USM_E_INVALID_HANDLE && usm_queue_query(q[1]) == USM_OK);
        pool[0] = p.get();
        pool[1] = other.get();
        other   = std::move(p);
        EXPECT(usm_pool_reset_peaks(pool[1]) == USM_E_INVALID_HANDLE &&
               usm_pool_reset_peaks(pool[0]) == USM_OK);
        ev = e.get();
        e  = usm::event();
        EXPECT(usm_event_query(ev) == USM_E_NOT_READY && same.get() == ev);
        EXPECT(usm_context_wait(ctx) == USM_OK);
    }
    EXPECT(usm_event_query(ev) == USM_E_INVALID_HANDLE);
    EXPECT(usm_queue_query(q[0]) == USM_E_INVALID_HANDLE);
    EXPECT(usm_queue_query(q[1]) == USM_E_INVALID_HANDLE);
    EXPECT(usm_pool_reset_peaks(pool[0]) == USM_E_INVALID_HANDLE);
    EXPECT(usm_context_wait(ctx) == USM_E_INVALID_HANDLE);
}

/* Counts its live copies: the functions of tasks and callbacks go, whatever becomes of them. */
struct counted {
    static inline std::atomic<int> live{0};

    counted() noexcept
    {
        live++;
    }
    counted(const counted & /*other*/) noexcept
    {
        live++;
    }
    counted &operator=(const counted &) = default;
    ~counted()
    {
        live--;
    }
};

void functions_go_when_they_have_run_or_are_dropped()
{
    std::atomic<int>        calls{0};
    std::atomic<usm_status> seen{USM_E_NOT_READY};
    {
        usm::queue q(USM_QUEUE_OUT_OF_ORDER);
        usm::event gate = usm::event::create();
        usm::event ran  = q.host_task([c = counted(), &calls] { (void)c, calls++; });
        usm::event dead = q.host_task([c = counted(), &calls] { (void)c, calls++; }, gate);

        dead.on_complete([c = counted(), &seen](usm_status status) { (void)c, seen = status; });
        ran.on_complete([c = counted(), &calls] { (void)c, calls++; });
        gate.signal(USM_E_DEVICE);
        usm::event empty;
        EXPECT(thrown([&] { empty.on_complete([c = counted()] { (void)c; }); }) != USM_OK);
        EXPECT(thrown([&] { (void)usm::queue_ref().host_task([c = counted()] { (void)c; }); }) !=
               USM_OK);
        (void)usm_event_wait(ran.get());
        (void)usm_event_wait(dead.get());
    }
    for (int i = 0; i < 2000 && (counted::live != 0 || calls != 2); i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT(counted::live == 0);
    EXPECT(calls == 2 && seen == USM_E_DEPENDENCY);
}

extern "C" void scale_add(const usm_range *range, void *const *args);

void scale_add(const usm_range *range, void *const *args)
{
    int       *out  = *static_cast<int *const *>(args[0]);
    const int *in   = *static_cast<const int *const *>(args[1]);
    const int  by   = *static_cast<const int *>(args[2]);
    const auto wide = range->global[0];

    for (std::size_t y = range->begin[1]; y < range->end[1]; y++)
        for (std::size_t x = range->begin[0]; x < range->end[0]; x++)
            out[y * wide + x] = in == nullptr ? by : in[y * wide + x] * by;
}

usm::kernel scaling(const usm::context_ref &ctx)
{
    static const usm_native_kernel table[] = {{"scale_add", scale_add, 3, nullptr}};
    usm::program                   p(ctx, {{USM_IMAGE_NATIVE, table, sizeof table}});
    usm::program                   moved = std::move(p);

    EXPECT(p.get() == nullptr && moved.get() != nullptr);
    EXPECT(thrown([&] { (void)moved.get_kernel("nothing"); }) == USM_E_NO_KERNEL);
    return moved.get_kernel("scale_add"); /* outlives its program */
}

void kernels_take_pointers_values_and_accessors()
{
    usm::queue       q;
    usm::kernel      k = scaling(q.context());
    usm::buffer<int> buf(32);
    int             *x = usm::malloc_shared<int>(32, q);

    EXPECT(x != nullptr && usm::get_pointer_type(x + 31) == USM_SHARED);
    (void)q.parallel_for(usm::nd_range({8, 4}), k, x, nullptr, 5);
    usm::event    e = q.parallel_for(usm::nd_range({8, 4}, {4, 2}), {}, k, x, x, -2);
    usm::accessor out(buf, usm::write | usm::no_init);
    (void)q.parallel_for({32}, {e}, k, out, x, 3);
    EXPECT(usm::host_access(buf, usm::read)[31] == -30);
    EXPECT(x[0] == -10 && x[31] == -10);
    (void)q.single_task(k, x, nullptr, 9);
    q.wait();
    EXPECT(x[0] == 9 && x[1] == -10);
    EXPECT(thrown([&] { (void)q.parallel_for({32}, k, x, x); }) == USM_E_ARGUMENTS);
    usm::kernel moved = std::move(k);
    EXPECT(k.get() == nullptr);
    usm_launch launch = USM_LAUNCH_INIT;
    launch.kernel     = moved.get();
    EXPECT(thrown([&] { (void)q.submit(launch); }) == USM_E_ARGUMENTS);
    usm::free(x);
}

// The macros of C are values here too; a variable is pointed to, of all else a copy is kept.
void arguments_in_c_take_any_expression()
{
    int      x       = 0, count = 4;
    usm_arg  args[3] = {USM_ARG_PTR(&x), USM_ARG_VAL(2.0f), USM_ARG_SCRATCH(16)};

    EXPECT(args[1].size == sizeof(float) && *static_cast<const float *>(args[1].value) == 2.0f);
    args[0] = USM_ARG_PTR(nullptr);
    args[1] = USM_ARG_VAL(count);
    args[2] = USM_ARG_VAL(count + 1);
    EXPECT(args[0].kind == USM_ARG_POINTER && args[0].value == nullptr);
    EXPECT(args[1].value == &count);
    EXPECT(*static_cast<const int *>(args[2].value) == 5);
    args[2] = USM_ARG_REF(count);
    EXPECT(args[2].kind == USM_ARG_VALUE && args[2].value == &count);
}

void times_are_told()
{
    usm::queue q(USM_QUEUE_PROFILING);
    int        x = 0, y = 1;
    usm::event e = q.memcpy(&x, &y, sizeof x);

    e.wait();
    EXPECT(e.profiling().end_ns >= e.profiling().start_ns);
    EXPECT(thrown([] { (void)usm::event::create().profiling(); }) != USM_OK);
}

void a_communicator_needs_no_address()
{
    EXPECT(USM_MPI_ATTACH(7) == USM_E_MPI); // no MPI is loaded
}

} // namespace

int cases_of_objects()
{
    return check::run(devices_are_listed_and_named, a_context_owns_and_a_reference_borrows,
                      a_queue_is_moved_and_what_was_moved_from_is_refused, commands_move_bytes,
                      events_are_waited_for_in_lists_and_vectors, events_are_counted,
                      failures_travel_with_events, what_goes_gives_its_handle_back,
                      functions_go_when_they_have_run_or_are_dropped,
                      kernels_take_pointers_values_and_accessors,
                      arguments_in_c_take_any_expression, times_are_told,
                      a_communicator_needs_no_address);
}
