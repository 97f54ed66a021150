/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Objects of usm/rambrain.hpp: the hit path of an adherence.  Included by usm/rambrain/memory.hpp.
 *
 * The hit path.  A chunk has one open usm_access for all who adhere to it, and a word:
 *
 *     PINNED  the access is open: the address is valid       WRITABLE  it is open for writing
 *     BUSY    one thread opens it without the lock           count     who adheres
 *     WROTE   one who adheres writes     DIRTIED  somebody wrote since the access was opened
 *     WANTED  memory is short: who leaves last closes the access if somebody waits for memory
 *
 * The access stays open when the last one leaves, so adhering again is one compare-and-swap.  The
 * manager closes accesses that nobody uses when its objects do not fit in memory together: the
 * oldest first, until an eighth of the memory is pinned.  All changes of the word but entering and
 * leaving a pinned chunk are made under the manager's lock.
 *
 * A chunk may be apart: a copy in memory of its own, when blocks that are shared by several chunks
 * are mostly unused (adherences.hpp).  For the hit path there is no difference. */
#ifndef USM_RAMBRAIN_CHUNK_HPP
#define USM_RAMBRAIN_CHUNK_HPP

#include <usm/buffer.h>

#include <usm/rambrain/config.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <vector>

namespace rambrain
{

namespace detail
{

/* Names the calling thread. */
inline const void *this_thread() noexcept
{
    static thread_local const char here = 0;

    return &here;
}

/* The calling thread waits as long as this lives: for memory of `manager`, or for other threads. */
class waiting
{
  public:
    explicit waiting(const void *manager = nullptr)
    {
        std::lock_guard<std::mutex> guard(lock_);

        threads_.push_back({this_thread(), manager, 0, false});
    }
    waiting(const waiting &)            = delete;
    waiting &operator=(const waiting &) = delete;
    ~waiting()
    {
        std::lock_guard<std::mutex> guard(lock_);

        *mine() = threads_.back();
        threads_.pop_back();
    }
    /* An attempt has failed that began after the manager's change number `change`. */
    void failed(std::uint64_t change) const
    {
        std::lock_guard<std::mutex> guard(lock_);

        mine()->failed_at = change;
    }
    /* It waits for what another thread does, and tries nothing meanwhile. */
    void depends(bool on_others) const
    {
        std::lock_guard<std::mutex> guard(lock_);

        mine()->depends = on_others;
    }
    static bool includes(const void *thread)
    {
        std::lock_guard<std::mutex> guard(lock_);

        return find(thread) != threads_.end();
    }
    /* Whether a thread waits for the manager's memory that has not failed since `change`. */
    static bool has_hope(const void *manager, std::uint64_t change)
    {
        std::lock_guard<std::mutex> guard(lock_);

        return std::any_of(threads_.begin(), threads_.end(), [&](const record &r) {
            return r.manager == manager && !r.depends && r.failed_at != change;
        });
    }

  private:
    struct record {
        const void   *thread, *manager;
        std::uint64_t failed_at; /* a change's number, 0: it has not failed */
        bool          depends;
    };

    static std::vector<record>::iterator find(const void *thread)
    {
        return std::find_if(threads_.begin(), threads_.end(),
                            [thread](const record &r) { return r.thread == thread; });
    }
    static std::vector<record>::iterator mine()
    {
        return find(this_thread());
    }

    inline static std::mutex          lock_;
    inline static std::vector<record> threads_;
};

} // namespace detail

class managedMemory;

/** What is known of an object: read by tests and by statistics. */
enum memoryStatus {
    MEM_ALLOCATED             = 4, /**< nobody adheres to it */
    MEM_ALLOCATED_INUSE_READ  = 5,
    MEM_ALLOCATED_INUSE_WRITE = 7
};

/* ---- objects ------------------------------------------------------------------------- */

/** An object of one managedPtr and its copies. */
class managedMemoryChunk
{
  public:
    /** A memoryStatus, computed when it is read. */
    class status_view
    {
      public:
        explicit status_view(const std::atomic<std::uint32_t> &word) : word_(word)
        {
        }
        operator memoryStatus() const
        {
            std::uint32_t w = word_.load(std::memory_order_relaxed);

            if ((w & COUNT) == 0)
                return MEM_ALLOCATED;
            return w & WROTE ? MEM_ALLOCATED_INUSE_WRITE : MEM_ALLOCATED_INUSE_READ;
        }

      private:
        const std::atomic<std::uint32_t> &word_;
    };

  private:
    std::atomic<std::uint32_t> word_{0};

  public:
    const global_bytesize size;
    status_view           status{word_};
    void                 *locPtr = nullptr; /**< valid while somebody adheres */

    explicit managedMemoryChunk(global_bytesize bytes) : size(bytes)
    {
    }

    /** Enters if the object is in memory, in the right mode.  The acquire pairs with the release of
     * the thread that opened the access: locPtr and the bytes are visible. */
    bool try_enter(std::uint32_t bits) noexcept
    {
        std::uint32_t need = PINNED | (bits ? WRITABLE : 0), w = word_.load(relaxed);

        do
            if ((w & (need | BUSY)) != need)
                return false;
        while (!word_.compare_exchange_weak(w, (w + 1) | bits, std::memory_order_acquire, relaxed));
        /* A count for statistics: that two threads now and then count one is good enough. */
        hits_.store(hits_.load(relaxed) + 1, relaxed);
        user_.store(detail::this_thread(), relaxed);
        return true;
    }
    /** The release pairs with the acquire of who closes the access: the bytes are written.  The last
     * one of a chunk that is WANTED leaves it through the manager. */
    void leave() noexcept
    {
        std::uint32_t w = word_.load(relaxed), next;

        do {
            if ((w & (WANTED | COUNT)) == (WANTED | 1)) {
                leave_last();
                return;
            }
            next = w - 1;
            if ((next & COUNT) == 0)
                next &= ~WROTE;
        } while (!word_.compare_exchange_weak(w, next, std::memory_order_release, relaxed));
    }
    /** pre: the caller has entered.  False: the access is not open for writing. */
    bool try_write() noexcept
    {
        std::uint32_t w = word_.load(relaxed);

        while ((w & WRITES) != WRITES) {
            if (!(w & WRITABLE))
                return false;
            if (word_.compare_exchange_weak(w, w | WRITES, relaxed))
                break;
        }
        return true;
    }
    void leave_last() noexcept;
    void acquire(std::uint32_t bits);
    void upgrade();
    void will_need();
    void retain() noexcept
    {
        refs_.fetch_add(1, relaxed);
    }
    void mfree();
    bool has_content() const noexcept
    {
        return manager_.load(relaxed) != nullptr;
    }
    bool is_in_use() const noexcept
    {
        return (word_.load(relaxed) & COUNT) != 0;
    }
    /** True for the last one.  Others' writes to the object come before its end. */
    bool drop() noexcept
    {
        return refs_.fetch_sub(1, std::memory_order_acq_rel) == 1;
    }

    static constexpr std::uint32_t WROTE = 1u << 27, DIRTIED = 1u << 28, WRITES = WROTE | DIRTIED;

  private:
    friend class managedMemory;
    static constexpr std::uint32_t     PINNED = 1u << 31, WRITABLE = 1u << 30, BUSY = 1u << 29;
    static constexpr std::uint32_t     WANTED = 1u << 26, COUNT = WANTED - 1;
    static constexpr std::memory_order relaxed = std::memory_order_relaxed;

    std::atomic<std::uint32_t>   refs_{1};
    std::atomic<std::uint64_t>   hits_{0};
    std::atomic<const void *>    user_{nullptr}; /* the thread that entered last */
    std::atomic<managedMemory *> manager_{nullptr}; /* null: it is gone, and the content with it */
    usm_buffer                  *buf_ = nullptr;
    /* Guarded by the manager's lock. */
    bool                                      writes_often_ = false; /* the last access wrote */
    usm_access                                access_{};
    void                                     *apart_ = nullptr; /* the copy; access_ is not open */
    std::uintptr_t                            block_ = 0;       /* in which it was found last    */
    std::list<managedMemoryChunk *>::iterator in_all_, in_pinned_;
};

} // namespace rambrain
#endif
