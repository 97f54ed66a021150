/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Queues, programs and kernels in C++17, with SYCL's names.
 *
 *     usm::queue   q;                                   // the first device of the selector, in
 * order usm::program p = usm::program::from_opencl_c(q.context(), text); usm::kernel  k =
 * p.get_kernel("scale"); usm::event   e = q.memcpy(x, data, bytes);
 *     q.parallel_for(usm::nd_range(n), {e}, k, x, 2.0f); // pointers, values, accessors, usm::local
 *     q.wait();
 *
 * All three own what they are made of: they can be moved and not be copied; what was moved from is
 * empty.  A usm::queue_ref borrows: the default queue, one of the C interface, and what functions
 * take; a usm::queue turns into one by itself.  Destroying a queue does not wait, as in C. */
#ifndef USM_QUEUE_HPP
#define USM_QUEUE_HPP

#include <usm/command.h>
#include <usm/error.hpp>
#include <usm/objects.hpp>
#include <usm/program.h>
#include <usm/queue.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace usm
{

/* ---- programs and kernels --------------------------------------------------------- */

/** Immutable: launches carry their arguments. */
class kernel
{
  public:
    kernel() noexcept = default;
    static kernel adopt(usm_kernel *k) noexcept
    {
        kernel out;

        out.k_ = k;
        return out;
    }
    kernel(kernel &&other) noexcept : k_(other.release())
    {
    }
    kernel &operator=(kernel &&other) noexcept
    {
        if (this != &other) {
            usm_kernel_destroy(k_);
            k_ = other.release();
        }
        return *this;
    }
    kernel(const kernel &)            = delete;
    kernel &operator=(const kernel &) = delete;
    ~kernel()
    {
        usm_kernel_destroy(k_);
    }
    usm_kernel *get() const noexcept
    {
        return k_;
    }
    usm_kernel *release() noexcept
    {
        return std::exchange(k_, nullptr);
    }

  private:
    usm_kernel *k_ = nullptr;
};

class program
{
  public:
    program() noexcept = default;
    /** Of several images of one computation; `options` are those of the OpenCL C compiler. */
    program(const context_ref &ctx, const std::vector<usm_image> &images,
            const char *options = nullptr)
    {
        usm_program_desc desc = USM_PROGRAM_DESC_INIT;

        desc.nimages = images.size();
        desc.images  = images.data();
        desc.options = options;
        check(usm_program_create(ctx.get() != nullptr ? ctx.get() : default_context().get(), &desc,
                                 &p_));
    }
    static program from_opencl_c(const context_ref &ctx, std::string_view text,
                                 const char *options = nullptr)
    {
        return program(ctx, {{USM_IMAGE_OPENCL_C, text.data(), text.size()}}, options);
    }
    static program adopt(usm_program *p) noexcept
    {
        program out;

        out.p_ = p;
        return out;
    }
    program(program &&other) noexcept : p_(other.release())
    {
    }
    program &operator=(program &&other) noexcept
    {
        if (this != &other) {
            usm_program_destroy(p_);
            p_ = other.release();
        }
        return *this;
    }
    program(const program &)            = delete;
    program &operator=(const program &) = delete;
    ~program()
    {
        usm_program_destroy(p_);
    }
    /** It stays usable when the program has gone. */
    kernel get_kernel(const char *name) const
    {
        usm_kernel *k = nullptr;

        check(usm_kernel_create(p_, name, &k));
        return kernel::adopt(k);
    }
    usm_program *get() const noexcept
    {
        return p_;
    }
    usm_program *release() noexcept
    {
        return std::exchange(p_, nullptr);
    }

  private:
    usm_program *p_ = nullptr;
};

/** Work-items in one to three dimensions; the first one runs fastest, as in OpenCL (SYCL's last).
 */
struct extent {
    std::uint32_t              dims = 0;
    std::array<std::size_t, 3> size = {};

    extent() noexcept = default;
    extent(std::size_t x) noexcept : dims(1), size{x, 0, 0}
    {
    }
    extent(std::size_t x, std::size_t y) noexcept : dims(2), size{x, y, 0}
    {
    }
    extent(std::size_t x, std::size_t y, std::size_t z) noexcept : dims(3), size{x, y, z}
    {
    }
    extent(std::initializer_list<std::size_t> list)
    {
        if (list.size() > size.size())
            throw error(USM_E_INVALID, "work-items lie in at most three dimensions");
        for (std::size_t n : list)
            size[dims++] = n;
    }
};

/** All work-items and those of a group: usm::nd_range(n), (n, 64), ({w, h}, {8, 8}); in braces, the
 * sizes of the dimensions: {w, h}.  Without a local size it is the driver's choice. */
struct nd_range {
    extent global, local, offset;

    nd_range(std::size_t n) noexcept : global(n)
    {
    }
    nd_range(std::initializer_list<std::size_t> all_items) : global(all_items)
    {
    }
    nd_range(const extent &all_items, const extent &of_a_group = {},
             const extent &first = {}) noexcept
        : global(all_items), local(of_a_group), offset(first)
    {
    }
};

/** As an argument: n elements of memory for each work-group. */
template <class T> struct local {
    std::size_t n;

    explicit local(std::size_t count) noexcept : n(count)
    {
    }
    usm_arg arg() const
    {
        return USM_ARG_SCRATCH(detail::bytes(n, sizeof(T)));
    }
};

namespace detail
{

template <class T, class = void> struct is_argument : std::false_type {
};
template <class T>
struct is_argument<T, std::void_t<decltype(std::declval<const T &>().arg())>> : std::true_type {
};

template <class T> usm_arg argument(const T &x)
{
    if constexpr (is_argument<T>::value) {
        return x.arg();
    } else if constexpr (std::is_null_pointer_v<T>) {
        return USM_ARG_PTR(nullptr);
    } else if constexpr (std::is_pointer_v<T>) {
        return USM_ARG_PTR(static_cast<const void *>(x));
    } else {
        static_assert(std::is_trivially_copyable_v<T> && !std::is_array_v<T>,
                      "an argument is a pointer, an accessor, a usm::local, or bytes to copy");
        return USM_ARG_VAL(x);
    }
}

} // namespace detail

/* ---- queues -------------------------------------------------------------------- */

/** As a first argument of a command: nobody wants its event, which then need not be made. */
struct no_event_t {
};
inline constexpr no_event_t no_event{};

/** A queue of somebody else's, who keeps it alive; what a usm::queue can do.  Commands return when
 * they are queued. */
class queue_ref
{
  public:
    queue_ref() noexcept = default;
    explicit queue_ref(usm_queue *q) noexcept : q_(q)
    {
    }

    event memcpy(void *dst, const void *src, std::size_t n, const events &deps = {}) const
    {
        return run(deps, usm_memcpy, dst, src, n);
    }
    void memcpy(no_event_t /*tag*/, void *dst, const void *src, std::size_t n) const
    {
        check(usm_memcpy(q_, dst, src, n, 0, nullptr, nullptr));
    }
    event memset(void *dst, int value, std::size_t n, const events &deps = {}) const
    {
        return run(deps, usm_memset, dst, value, n);
    }
    void memset(no_event_t /*tag*/, void *dst, int value, std::size_t n) const
    {
        check(usm_memset(q_, dst, value, n, 0, nullptr, nullptr));
    }
    /** `count` patterns of any size. */
    template <class T>
    event fill(void *dst, const T &pattern, std::size_t count, const events &deps = {}) const
    {
        static_assert(std::is_trivially_copyable_v<T>, "patterns are copied as bytes");
        return run(deps, usm_fill, dst, &pattern, sizeof pattern, count);
    }
    event memcpy_2d(void *dst, std::size_t dst_pitch, const void *src, std::size_t src_pitch,
                    std::size_t width, std::size_t height, const events &deps = {}) const
    {
        return run(deps, usm_memcpy_2d, dst, dst_pitch, src, src_pitch, width, height);
    }
    event prefetch(const void *p, std::size_t n, const events &deps = {}) const
    {
        return run(deps, usm_prefetch, p, n);
    }
    event mem_advise(const void *p, std::size_t n, usm_advice advice, const events &deps = {}) const
    {
        return run(deps, usm_mem_advise, p, n, advice);
    }
    /** Later commands wait for `deps`; without any, for all earlier ones. */
    event barrier(const events &deps = {}) const
    {
        return run(deps, usm_queue_barrier);
    }
    /** fn() on a thread of the library.  What it throws fails the command: usm::error with its
     * status, std::bad_alloc as USM_E_NO_MEMORY, anything else as USM_E_SYSTEM. */
    template <class F> event host_task(F &&fn, const events &deps = {}) const
    {
        auto             call = detail::close_over(std::forward<F>(fn));
        event            done = run(deps, usm_host_task, detail::usm_hpp_task, call.get());
        detail::closure *kept = call.release();

        /* The function goes with the event, whether it ran or was dropped. */
        usm_status status = usm_event_on_complete(done.get(), detail::usm_hpp_event_drop, kept);
        if (status != USM_OK) {
            (void)usm_event_wait(done.get());
            delete kept;
            throw error(status);
        }
        return done;
    }
    /** A launch as in C. */
    event submit(const usm_launch &launch, const events &deps = {}) const
    {
        return run(deps, usm_queue_submit, &launch);
    }
    /** A launch: pointers, accessors, usm::local<T>(n), and values that are copied. */
    template <class... A>
    event parallel_for(const nd_range &range, const events &deps, const kernel &k,
                       const A &...args) const
    {
        const std::array<usm_arg, sizeof...(A)> list   = {detail::argument(args)...};
        usm_launch                              launch = USM_LAUNCH_INIT;

        launch.kernel = k.get();
        launch.dims   = range.global.dims;
        launch.nargs  = list.size();
        launch.args   = list.data();
        for (std::size_t i = 0; i < range.global.dims; i++) {
            launch.global[i] = range.global.size[i];
            launch.local[i]  = range.local.size[i];
            launch.offset[i] = range.offset.size[i];
        }
        return submit(launch, deps);
    }
    template <class... A, std::enable_if_t<!(std::is_same_v<A, kernel> || ...), int> = 0>
    event parallel_for(const nd_range &range, const kernel &k, const A &...args) const
    {
        return parallel_for(range, events(), k, args...);
    }
    template <class... A> event single_task(const kernel &k, const A &...args) const
    {
        return parallel_for(nd_range(1, 1), events(), k, args...);
    }

    void wait() const
    {
        check(usm_queue_wait(q_));
    }
    /** Nothing that was submitted is unfinished. */
    bool empty() const
    {
        usm_status status = usm_queue_query(q_);

        if (status == USM_E_NOT_READY)
            return false;
        check(status);
        return true;
    }
    context_ref context() const noexcept
    {
        return context_ref(usm_queue_get_context(q_));
    }
    usm::device device() const noexcept
    {
        return usm::device(usm_queue_get_device(q_));
    }
    void *native(const char *backend) const
    {
        void *handle = nullptr;

        check(usm_queue_get_native(q_, backend, &handle));
        return handle;
    }
    usm_queue *get() const noexcept
    {
        return q_;
    }
    friend bool operator==(const queue_ref &a, const queue_ref &b) noexcept
    {
        return a.q_ == b.q_;
    }
    friend bool operator!=(const queue_ref &a, const queue_ref &b) noexcept
    {
        return a.q_ != b.q_;
    }

  protected:
    usm_queue *q_ = nullptr;

  private:
    template <class C, class... A> event run(const events &deps, C *command, A... args) const
    {
        detail::raw_events raw(deps);
        usm_event         *ev = nullptr;

        check(command(q_, args..., raw.size(), raw.data(), &ev));
        return event::adopt(ev);
    }
};

/** The library's own: in order, of the first device that the selector leaves. */
inline queue_ref default_queue()
{
    usm_queue *q = usm_default_queue();

    if (q == nullptr)
        throw error(usm_last_status());
    return queue_ref(q);
}

class queue : public queue_ref
{
  public:
    /** Of the default context; flags: usm_queue_flags. */
    explicit queue(unsigned flags = USM_QUEUE_IN_ORDER) : queue(context_ref(), usm::device(), flags)
    {
    }
    explicit queue(const context_ref &ctx, usm::device dev = {},
                   unsigned flags = USM_QUEUE_IN_ORDER)
    {
        usm_queue_desc desc = USM_QUEUE_DESC_INIT;

        desc.flags = flags;
        check(usm_queue_create(ctx.get(), dev.get(), &desc, &q_));
    }
    static queue from_native(const context_ref &ctx, void *handle,
                             usm_ownership ownership = USM_KEEP)
    {
        usm_queue *q = nullptr;

        check(usm_queue_from_native(ctx.get(), handle, ownership, &q));
        return adopt(q);
    }
    /** Takes a queue of the C interface over. */
    static queue adopt(usm_queue *q) noexcept
    {
        return queue(owned{q});
    }
    queue(queue &&other) noexcept : queue_ref(other.release())
    {
    }
    queue &operator=(queue &&other) noexcept
    {
        if (this != &other) {
            usm_queue_destroy(q_);
            q_ = other.release();
        }
        return *this;
    }
    queue(const queue &)            = delete;
    queue &operator=(const queue &) = delete;
    ~queue()
    {
        usm_queue_destroy(q_);
    }
    usm_queue *release() noexcept
    {
        return std::exchange(q_, nullptr);
    }

  private:
    struct owned {
        usm_queue *q;
    };
    explicit queue(owned o) noexcept : queue_ref(o.q)
    {
    }
};

} // namespace usm

#endif
