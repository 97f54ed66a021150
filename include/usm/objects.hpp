/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Devices, contexts, queues, events, programs and kernels in C++17, with SYCL's names.
 *
 *     usm::queue    q;                                  // the first device of the selector, in
 * order usm::program  p = usm::program::from_opencl_c(q.context(), text); usm::kernel   k =
 * p.get_kernel("scale"); usm::event    e = q.memcpy(x, data, bytes);
 *     q.parallel_for(usm::nd_range(n), {e}, k, x, 2.0f); // pointers, values, accessors, usm::local
 *     q.wait();
 *
 * usm::context, usm::queue, usm::program and usm::kernel own what they are made of, as the C
 * interface has it: they can be moved and not be copied; what was moved from is empty.  A
 * usm::context_ref and a usm::queue_ref borrow: the default ones, those of the C interface, and
 * what functions take; an owner turns into one by itself.  usm::event is counted: copies share it.
 * usm::device is a name and owns nothing.
 *
 * A failure is a usm::error.  Destroying a queue does not wait, as in C. */
#ifndef USM_OBJECTS_HPP
#define USM_OBJECTS_HPP

#include <usm/context.h>
#include <usm/device.h>
#include <usm/error.hpp>
#include <usm/event.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace usm
{

/* ---- devices ------------------------------------------------------------------- */

class device
{
  public:
    /** None: where one is taken, the context's first. */
    device() noexcept = default;
    explicit device(usm_device *dev) noexcept : dev_(dev)
    {
    }
    bool has(usm_aspect aspect) const noexcept
    {
        return usm_device_has(dev_, aspect);
    }
    usm_device_info info() const
    {
        usm_device_info info = USM_DEVICE_INFO_INIT;

        check(usm_device_get_info(dev_, &info));
        return info;
    }
    std::string name() const
    {
        return info().name;
    }
    usm_memory_info memory() const
    {
        usm_memory_info memory = USM_MEMORY_INFO_INIT;

        check(usm_device_memory(dev_, &memory));
        return memory;
    }
    void *native(const char *backend) const
    {
        void *handle = nullptr;

        check(usm_device_get_native(dev_, backend, &handle));
        return handle;
    }
    usm_device *get() const noexcept
    {
        return dev_;
    }
    friend bool operator==(device a, device b) noexcept
    {
        return a.dev_ == b.dev_;
    }
    friend bool operator!=(device a, device b) noexcept
    {
        return a.dev_ != b.dev_;
    }

  private:
    usm_device *dev_ = nullptr;
};

namespace detail
{

/* A list that C tells in two calls: list(cap, array, count). */
template <class F> std::vector<device> devices(F &&list)
{
    std::size_t               n = 0;
    std::vector<usm_device *> raw;
    std::vector<device>       out;

    check(list(nullptr, 0, &n));
    raw.resize(n);
    check(list(raw.data(), raw.size(), &n));
    out.reserve(n);
    for (usm_device *dev : raw)
        out.push_back(device(dev));
    return out;
}

} // namespace detail

/** The devices that USM_DEVICE_SELECTOR leaves, in its order. */
inline std::vector<device> devices()
{
    return detail::devices(usm_get_devices);
}
/** Those that `selector` names: "opencl:gpu", "level_zero:*;!level_zero:1". */
inline std::vector<device> devices(const std::string &selector)
{
    return detail::devices([&](usm_device **list, std::size_t cap, std::size_t *n) {
        return usm_select_devices(selector.c_str(), list, cap, n);
    });
}

/* ---- contexts ------------------------------------------------------------------ */

/** A context of somebody else's, who keeps it alive. */
class context_ref
{
  public:
    /** None: where one is taken, the default context. */
    context_ref() noexcept = default;
    explicit context_ref(usm_context *ctx) noexcept : ctx_(ctx)
    {
    }
    std::vector<device> devices() const
    {
        return detail::devices([this](usm_device **list, std::size_t cap, std::size_t *n) {
            return usm_context_get_devices(ctx_, list, cap, n);
        });
    }
    /** Until everything submitted to its queues is done. */
    void wait() const
    {
        check(usm_context_wait(ctx_));
    }
    void *native(const char *backend) const
    {
        void *handle = nullptr;

        check(usm_context_get_native(ctx_, backend, &handle));
        return handle;
    }
    usm_context *get() const noexcept
    {
        return ctx_;
    }
    friend bool operator==(const context_ref &a, const context_ref &b) noexcept
    {
        return a.ctx_ == b.ctx_;
    }
    friend bool operator!=(const context_ref &a, const context_ref &b) noexcept
    {
        return a.ctx_ != b.ctx_;
    }

  protected:
    usm_context *ctx_ = nullptr;
};

/** The context behind usm_alloc() and its family. */
inline context_ref default_context()
{
    usm_context *ctx = usm_default_context();

    if (ctx == nullptr)
        throw error(usm_last_status());
    return context_ref(ctx);
}

class context : public context_ref
{
  public:
    /** Of the first device that the selector leaves. */
    context() : context(usm_context_desc USM_CONTEXT_DESC_INIT)
    {
    }
    explicit context(const usm_context_desc &desc)
    {
        check(usm_context_create(&desc, &ctx_));
    }
    explicit context(const std::vector<device> &devices)
    {
        usm_context_desc          desc = USM_CONTEXT_DESC_INIT;
        std::vector<usm_device *> list;

        for (device dev : devices)
            list.push_back(dev.get());
        desc.ndevices = list.size();
        desc.devices  = list.data();
        check(usm_context_create(&desc, &ctx_));
    }
    explicit context(device dev) : context(std::vector<device>{dev})
    {
    }
    /** usm_context_from_native(): over SYCL's, OpenCL's or Level Zero's own. */
    static context from_native(const usm_native_desc &desc)
    {
        usm_context *ctx = nullptr;

        check(usm_context_from_native(&desc, &ctx));
        return adopt(ctx);
    }
    /** Takes a context of the C interface over. */
    static context adopt(usm_context *ctx) noexcept
    {
        return context(owned{ctx});
    }
    context(context &&other) noexcept : context_ref(other.release())
    {
    }
    context &operator=(context &&other) noexcept
    {
        if (this != &other) {
            usm_context_destroy(ctx_);
            ctx_ = other.release();
        }
        return *this;
    }
    context(const context &)            = delete;
    context &operator=(const context &) = delete;
    ~context()
    {
        usm_context_destroy(ctx_);
    }
    usm_context *release() noexcept
    {
        return std::exchange(ctx_, nullptr);
    }

  private:
    struct owned {
        usm_context *ctx;
    };
    explicit context(owned o) noexcept : context_ref(o.ctx)
    {
    }
};

/* ---- events -------------------------------------------------------------------- */

namespace detail
{

/* A function on its way through C: called once at most, deleted by whoever ends it. */
struct closure {
    closure()                            = default;
    closure(const closure &)             = delete;
    closure &operator=(const closure &)  = delete;
    virtual ~closure()                   = default;
    virtual void call(usm_status status) = 0;
};

template <class F> struct closure_of final : closure {
    explicit closure_of(F &&f) : fn(std::move(f))
    {
    }
    void call(usm_status status) override
    {
        if constexpr (std::is_invocable_v<F &, usm_status>)
            fn(status);
        else
            (void)status, fn();
    }
    F fn;
};

template <class F> std::unique_ptr<closure> close_over(F &&fn)
{
    using function = std::decay_t<F>;

    return std::make_unique<closure_of<function>>(function(std::forward<F>(fn)));
}

extern "C" {
inline void usm_hpp_event_call(usm_event * /*ev*/, usm_status status, void *user) noexcept
{
    std::unique_ptr<closure> fn(static_cast<closure *>(user));

    fn->call(status);
}
inline void usm_hpp_event_drop(usm_event * /*ev*/, usm_status /*status*/, void *user)
{
    delete static_cast<closure *>(user);
}
inline usm_status usm_hpp_task(void *user)
{
    try {
        static_cast<closure *>(user)->call(USM_OK);
        return USM_OK;
    } catch (const error &e) {
        return e.status();
    } catch (const std::bad_alloc &) {
        return USM_E_NO_MEMORY;
    } catch (...) {
        return USM_E_SYSTEM;
    }
}
}

} // namespace detail

/** The completion of a command.  Without one (the default) it counts as complete. */
class event
{
  public:
    event() noexcept = default;
    /** Takes a reference of the C interface over. */
    static event adopt(usm_event *ev) noexcept
    {
        event out;

        out.ev_ = ev;
        return out;
    }
    /** A user event: complete when the program says signal(). */
    static event create(const context_ref &ctx = {})
    {
        event out;

        check(usm_event_create(ctx.get(), &out.ev_));
        return out;
    }
    event(const event &other) : ev_(other.ev_)
    {
        if (ev_ != nullptr)
            check(usm_event_retain(ev_));
    }
    event(event &&other) noexcept : ev_(other.release())
    {
    }
    event &operator=(event other) noexcept
    {
        std::swap(ev_, other.ev_);
        return *this;
    }
    ~event()
    {
        usm_event_release(ev_);
    }

    /** Throws the command's failure. */
    void wait() const
    {
        if (ev_ != nullptr)
            check(usm_event_wait(ev_));
    }
    /** false: not yet.  Throws the command's failure. */
    bool is_complete() const
    {
        usm_status status = ev_ != nullptr ? usm_event_query(ev_) : USM_OK;

        if (status == USM_E_NOT_READY)
            return false;
        check(status);
        return true;
    }
    void signal(usm_status status = USM_OK) const
    {
        check(usm_event_signal(ev_, status));
    }
    /** Calls fn() or fn(status) on a thread of the library, once; it must not throw. */
    template <class F> void on_complete(F &&fn) const
    {
        auto call = detail::close_over(std::forward<F>(fn));

        check(usm_event_on_complete(ev_, detail::usm_hpp_event_call, call.get()));
        (void)call.release();
    }
    usm_profiling profiling() const
    {
        usm_profiling times = USM_PROFILING_INIT;

        check(usm_event_profiling(ev_, &times));
        return times;
    }
    void *native(const char *backend) const
    {
        void *handle = nullptr;

        check(usm_event_get_native(ev_, backend, &handle));
        return handle;
    }
    usm_event *get() const noexcept
    {
        return ev_;
    }
    usm_event *release() noexcept
    {
        return std::exchange(ev_, nullptr);
    }

  private:
    usm_event *ev_ = nullptr;
};

/** What a command waits for: nothing, an event, {e1, e2}, a vector; read during the call. */
class events
{
  public:
    events() noexcept = default;
    events(const event &one) noexcept : first_(&one), n_(1)
    {
    }
    /* The list lives as long as the call that it is an argument of. */
    events(std::initializer_list<event> list) noexcept
    {
        first_ = list.begin();
        n_     = list.size();
    }
    events(const std::vector<event> &list) noexcept : first_(list.data()), n_(list.size())
    {
    }
    const event *begin() const noexcept
    {
        return first_;
    }
    const event *end() const noexcept
    {
        return first_ + n_;
    }
    std::size_t size() const noexcept
    {
        return n_;
    }

  private:
    const event *first_ = nullptr;
    std::size_t  n_     = 0;
};

namespace detail
{

/* The same for C, without the empty ones. */
class raw_events
{
  public:
    explicit raw_events(const events &list)
    {
        if (list.size() > few_.size())
            many_.resize(list.size());
        data_ = many_.empty() ? few_.data() : many_.data();
        for (const event &e : list)
            if (e.get() != nullptr)
                data_[n_++] = e.get();
    }
    raw_events(const raw_events &)            = delete;
    raw_events &operator=(const raw_events &) = delete;
    ~raw_events()                             = default;
    std::size_t size() const noexcept
    {
        return n_;
    }
    usm_event *const *data() const noexcept
    {
        return n_ > 0 ? data_ : nullptr;
    }

  private:
    std::array<usm_event *, 8> few_ = {};
    std::vector<usm_event *>   many_;
    usm_event                **data_ = nullptr;
    std::size_t                n_    = 0;
};

} // namespace detail

inline void wait_all(const events &list)
{
    detail::raw_events raw(list);

    check(usm_event_wait_all(raw.size(), raw.data()));
}

} // namespace usm

#endif
