/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Memory and events of other processes in C++17: what usm/ipc.h has, with owners.
 *
 *     usm::ipc_export out(p);                     // owner: out.handle() travels as bytes
 *     usm::ipc_memory in(handle);                 // importer: in.get() until `in` goes
 *
 * All can be moved and not be copied. */
#ifndef USM_IPC_HPP
#define USM_IPC_HPP

#include <usm/error.hpp>
#include <usm/ipc.h>
#include <usm/memory.h>
#include <usm/objects.hpp>
#include <usm/queue.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace usm
{

/** A handle of a live block, which opens no more once this has gone. */
class ipc_export
{
  public:
    explicit ipc_export(const void *p, const context_ref &ctx = {}) : ctx_(ctx)
    {
        check(usm_ipc_get(p, ctx.get(), &handle_));
        is_held_ = true;
    }
    ipc_export(ipc_export &&other) noexcept
        : ctx_(other.ctx_), handle_(other.handle_), is_held_(std::exchange(other.is_held_, false))
    {
    }
    ipc_export &operator=(ipc_export &&other) noexcept
    {
        if (this != &other) {
            put();
            ctx_     = other.ctx_;
            handle_  = other.handle_;
            is_held_ = std::exchange(other.is_held_, false);
        }
        return *this;
    }
    ipc_export(const ipc_export &)            = delete;
    ipc_export &operator=(const ipc_export &) = delete;
    ~ipc_export()
    {
        put();
    }
    const usm_ipc_handle &handle() const noexcept
    {
        return handle_;
    }
    /** The handle stays valid until usm_ipc_put() or the end of its block. */
    usm_ipc_handle release() noexcept
    {
        is_held_ = false;
        return handle_;
    }

  private:
    void put() noexcept
    {
        if (std::exchange(is_held_, false))
            (void)usm_ipc_put(&handle_, ctx_.get()); /* the block may have been freed before */
    }
    context_ref    ctx_;
    usm_ipc_handle handle_  = {};
    bool           is_held_ = false;
};

/** Another process's block, open for as long as this lives. */
class ipc_memory
{
  public:
    explicit ipc_memory(const usm_ipc_handle &handle, const context_ref &ctx = {}, device dev = {})
        : ctx_(ctx)
    {
        check(usm_ipc_open(&handle, ctx.get(), dev.get(), &p_));
    }
    ipc_memory(ipc_memory &&other) noexcept : ctx_(other.ctx_), p_(other.release())
    {
    }
    ipc_memory &operator=(ipc_memory &&other) noexcept
    {
        if (this != &other) {
            close();
            ctx_ = other.ctx_;
            p_   = other.release();
        }
        return *this;
    }
    ipc_memory(const ipc_memory &)            = delete;
    ipc_memory &operator=(const ipc_memory &) = delete;
    ~ipc_memory()
    {
        close();
    }
    void *get() const noexcept
    {
        return p_;
    }
    template <class T> T *as() const noexcept
    {
        return static_cast<T *>(p_);
    }
    usm_ipc_info info() const
    {
        usm_ipc_info info = USM_IPC_INFO_INIT;

        check(usm_ipc_query(p_, &info));
        return info;
    }
    /** The caller's to give to usm_ipc_close(). */
    void *release() noexcept
    {
        return std::exchange(p_, nullptr);
    }

  private:
    void close() noexcept
    {
        if (p_ != nullptr)
            (void)usm_ipc_close(std::exchange(p_, nullptr), ctx_.get());
    }
    context_ref ctx_;
    void       *p_ = nullptr;
};

/** An event that other processes can wait for. */
class ipc_event
{
  public:
    explicit ipc_event(const context_ref &ctx = {})
    {
        usm_ipc_event *ev = nullptr;

        check(usm_ipc_event_create(ctx.get(), &ev));
        ev_.reset(ev);
    }
    /** Opens another's. */
    explicit ipc_event(const usm_ipc_handle &handle, const context_ref &ctx = {})
    {
        usm_ipc_event *ev = nullptr;

        check(usm_ipc_event_open(&handle, ctx.get(), &ev));
        ev_.reset(ev);
    }
    usm_ipc_handle handle() const
    {
        usm_ipc_handle handle = {};

        check(usm_ipc_event_get(ev_.get(), &handle));
        return handle;
    }
    /** Complete when the commands of q so far are; out of order: those of `deps`, or all so far. */
    void record(const queue_ref &q, const events &deps = {}) const
    {
        detail::raw_events raw(deps);

        check(usm_ipc_event_record(ev_.get(), q.get(), raw.size(), raw.data()));
    }
    void signal() const
    {
        check(usm_ipc_event_signal(ev_.get()));
    }
    /** Later commands of q wait for the records so far. */
    event wait(const queue_ref &q) const
    {
        usm_event *out = nullptr;

        check(usm_ipc_event_wait(ev_.get(), q.get(), &out));
        return event::adopt(out);
    }
    /** The host waits.  false: not within that time. */
    bool wait_for(std::uint32_t timeout_ms) const
    {
        return settled(usm_ipc_event_sync(ev_.get(), timeout_ms));
    }
    void wait() const
    {
        (void)wait_for(UINT32_MAX);
    }
    bool is_complete() const
    {
        return settled(usm_ipc_event_query(ev_.get()));
    }
    usm_ipc_event *get() const noexcept
    {
        return ev_.get();
    }
    usm_ipc_event *release() noexcept
    {
        return ev_.release();
    }

  private:
    static bool settled(usm_status status)
    {
        if (status == USM_E_NOT_READY)
            return false;
        check(status);
        return true;
    }
    struct deleter {
        void operator()(usm_ipc_event *ev) const noexcept
        {
            usm_ipc_event_destroy(ev);
        }
    };
    std::unique_ptr<usm_ipc_event, deleter> ev_;
};

/** A group of processes that exchange handles and wait for one another. */
class ipc_channel
{
  public:
    explicit ipc_channel(const usm_ipc_channel_desc &desc) : size_(desc.size)
    {
        usm_ipc_channel *ch = nullptr;

        check(usm_ipc_channel_open(&desc, &ch));
        ch_.reset(ch);
    }
    ipc_channel(const std::string &name, std::uint32_t rank, std::uint32_t size)
        : ipc_channel(describe(name.c_str(), rank, size))
    {
    }
    /** What every member gives, by rank; zeroes of those that have ended. */
    template <class T> std::vector<T> gather(const T &mine) const
    {
        static_assert(std::is_trivially_copyable_v<T>, "it travels as bytes");
        std::vector<T> list(size_);

        check(usm_ipc_channel_gather(ch_.get(), &mine, sizeof mine, list.data()));
        return list;
    }
    /** Throws USM_E_PEER when members have ended since the last call. */
    void barrier() const
    {
        check(usm_ipc_channel_barrier(ch_.get()));
    }
    bool is_alive(std::uint32_t rank) const noexcept
    {
        return usm_ipc_channel_is_alive(ch_.get(), rank);
    }
    std::uint32_t size() const noexcept
    {
        return size_;
    }
    usm_ipc_channel *get() const noexcept
    {
        return ch_.get();
    }
    usm_ipc_channel *release() noexcept
    {
        return ch_.release();
    }

  private:
    static usm_ipc_channel_desc describe(const char *name, std::uint32_t rank, std::uint32_t size)
    {
        usm_ipc_channel_desc desc = USM_IPC_CHANNEL_DESC_INIT;

        desc.name = name;
        desc.rank = rank;
        desc.size = size;
        return desc;
    }
    struct deleter {
        void operator()(usm_ipc_channel *ch) const noexcept
        {
            usm_ipc_channel_close(ch);
        }
    };
    std::uint32_t                             size_;
    std::unique_ptr<usm_ipc_channel, deleter> ch_;
};

} // namespace usm

#endif
