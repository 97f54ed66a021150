/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Managers, swaps and objects of usm/rambrain.hpp, which includes this file.
 *
 * The hit path.  A chunk has one open usm_access for all who adhere to it, and a word:
 *
 *     PINNED  the access is open: the address is valid       WRITABLE  it is open for writing
 *     BUSY    one thread opens it without the lock           count     who adheres
 *     WROTE   one who adheres writes     DIRTIED  somebody wrote since the access was opened
 *
 * The access stays open when the last one leaves, so adhering again is one compare-and-swap.  The
 * manager closes accesses that nobody uses when its objects do not fit in memory together: the
 * oldest first, until an eighth of the memory is pinned.  All changes of the word but entering and
 * leaving a pinned chunk are made under the manager's lock. */
#ifndef USM_RAMBRAIN_MEMORY_HPP
#define USM_RAMBRAIN_MEMORY_HPP

#include <usm/buffer.h>
#include <usm/context.h>
#include <usm/device.h>
#include <usm/status.h>
#include <usm/version.h>

#include <usm/rambrain/config.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace rambrain
{

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
        return true;
    }
    /** The release pairs with the acquire of who closes the access: the bytes are written. */
    void leave() noexcept
    {
        std::uint32_t w = word_.load(relaxed), next;

        do {
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
    static constexpr std::uint32_t     COUNT   = WROTE - 1;
    static constexpr std::memory_order relaxed = std::memory_order_relaxed;

    std::atomic<std::uint32_t>   refs_{1};
    std::atomic<std::uint64_t>   hits_{0};
    std::atomic<managedMemory *> manager_{nullptr}; /* null: it is gone, and the content with it */
    usm_buffer                  *buf_ = nullptr;
    /* Guarded by the manager's lock. */
    bool                                      writes_often_ = false; /* the last access wrote */
    usm_access                                access_{};
    std::list<managedMemoryChunk *>::iterator in_all_, in_pinned_;
};

/* ---- managers ------------------------------------------------------------------------ */

/** Objects, their memory and its limit. */
class managedMemory
{
  public:
    explicit managedMemory(managedSwap *swap_behind, global_bytesize size = gig)
        : swap(swap_behind), limit_(size), previous_(defaultManager)
    {
        defaultManager = this;
    }
    managedMemory(const managedMemory &)            = delete;
    managedMemory &operator=(const managedMemory &) = delete;
    /** The content of objects that are left is dropped. */
    virtual ~managedMemory();

    /** False: some object is in use or larger than the new limit.  Objects are copied to memory of
     * the new limit.  If that fails, it throws, and everything is what it was. */
    bool            setMemoryLimit(global_bytesize size);
    global_bytesize getMemoryLimit() const
    {
        return limit_;
    }
    /** Bytes of objects that fit within the limit; the rest is "swapped". */
    global_bytesize getUsedMemory() const
    {
        return std::min<global_bytesize>(live_, limit_);
    }
    global_bytesize getSwappedMemory() const
    {
        return live_ - getUsedMemory();
    }
    global_bytesize getTotalSwapMemory() const
    {
        return swap->getSwapSize();
    }
    global_bytesize getFreeSwapMemory() const
    {
        return swap->getFreeSwap();
    }
    /** False: who finds all memory in use waits for other threads, and does not fail.  Returns what
     * was set before. */
    bool setOutOfSwapIsFatal(bool fatal = true)
    {
        return is_fatal_.exchange(fatal);
    }
    /** Whether adhereTo's constructor starts loading. */
    bool loads() const
    {
        return loads_.load(std::memory_order_relaxed);
    }

    void   printSwapstats() const;
    void   resetSwapstats();
    double getHitsOverMisses() const;
    double getTotalSwappedOutBytes() const
    {
        return double(stats().tiers_written - base_.tiers_written);
    }
    double getTotalSwappedInBytes() const
    {
        return double(stats().tiers_read - base_.tiers_read);
    }
    /** Whether the sums agree with the objects. */
    bool checkCycle() const;
    void printMemUsage() const;
    /** The version of the headers. */
    static void versionInfo()
    {
        std::fprintf(stderr, "rambrain's interface of libusm %s\n", USM_VERSION_STRING);
    }

    managedMemoryChunk *mmalloc(global_bytesize size);
    /** Throws if the object is in use. */
    void mfree(managedMemoryChunk *chunk);
    void acquire(managedMemoryChunk *chunk, std::uint32_t bits);
    void upgrade(managedMemoryChunk *chunk);
    void will_need(managedMemoryChunk *chunk);

    inline static managedMemory *defaultManager = nullptr;
    managedSwap                 *swap;

  private:
    struct numbers {
        std::uint64_t hits = 0, misses = 0, tiers_read = 0, tiers_written = 0;
    };
    using chunk_list = std::list<managedMemoryChunk *>;
    using guard      = std::unique_lock<std::mutex>;

    [[noreturn]] static void fail(const std::string &what)
    {
        throw memoryException(what);
    }
    global_bytesize rounded(global_bytesize size) const;
    global_bytesize held_by(const managedMemoryChunk *chunk) const;
    bool            fits(global_bytesize more) const;
    void            reserve(global_bytesize size);
    void            account(std::int64_t change);
    usm_context    *make_context(global_bytesize limit) const;
    void            take_context(usm_context *ctx);
    usm_buffer     *make_buffer(usm_context *ctx, global_bytesize size) const;
    usm_buffer     *copy(const managedMemoryChunk *chunk, usm_context *ctx) const;
    void            move_all(usm_context *ctx);
    void            make_room(global_bytesize size);
    std::size_t     close_idle();
    bool            close(managedMemoryChunk *chunk);
    void            end_access(managedMemoryChunk *chunk);
    usm_status      open(managedMemoryChunk *chunk, guard &lock, bool is_writer);
    void            make_writable(managedMemoryChunk *chunk);
    void            entered(managedMemoryChunk *chunk, bool is_writer, std::uint32_t bits);
    numbers         stats() const;

    mutable std::mutex           lock_;
    std::condition_variable      opened_; /* a chunk is not BUSY any more */
    std::atomic<global_bytesize> limit_, live_{0};
    std::atomic<bool>            is_fatal_{true};

  protected:
    std::atomic<bool> loads_{true};

  private:
    /* Guarded by lock_. */
    usm_context    *ctx_   = nullptr; /* made for the first object */
    std::size_t     block_ = 0;
    chunk_list      all_, pinned_;                    /* the latter by age                       */
    global_bytesize in_blocks_ = 0, pinned_size_ = 0; /* of all, of the pinned; whole blocks */
    std::uint64_t   hits_ended_ = 0;                  /* of objects that are gone */
    numbers         base_;                            /* at resetSwapstats()       */
    managedMemory  *previous_;
};

inline void managedMemoryChunk::acquire(std::uint32_t bits)
{
    managedMemory *manager;

    if (try_enter(bits))
        return;
    manager = manager_.load(relaxed);
    if (!manager)
        throw memoryException("the memory manager of this object has been destroyed");
    manager->acquire(this, bits);
}

/* The end of the chunk. */
inline void managedMemoryChunk::mfree()
{
    managedMemory *manager = manager_.load(relaxed);

    if (manager)
        manager->mfree(this);
    else
        delete this;
}

inline void managedMemoryChunk::upgrade()
{
    if (!try_write())
        manager_.load(relaxed)->upgrade(this);
}

/* Small objects are not worth the call. */
inline void managedMemoryChunk::will_need()
{
    managedMemory *manager = manager_.load(relaxed);

    if (size >= 64 * kib && manager)
        manager->will_need(this);
}

/* A hint, so its failure is no failure.  It does not wait for the bytes; the lock keeps the buffer
 * from being replaced by setMemoryLimit(). */
inline void managedMemory::will_need(managedMemoryChunk *chunk)
{
    guard lock(lock_);

    (void)!usm_buffer_advise(chunk->buf_, 0, chunk->size, USM_BUFFER_WILL_NEED);
}

inline managedMemory::~managedMemory()
{
    for (managedMemoryChunk *chunk : all_) {
        if (chunk->word_.exchange(0) & managedMemoryChunk::PINNED)
            usm_access_end(&chunk->access_);
        usm_buffer_destroy(chunk->buf_);
        chunk->manager_ = nullptr;
    }
    account(-std::int64_t(live_.load()));
    usm_context_destroy(ctx_);
    if (defaultManager == this)
        defaultManager = previous_;
    for (managedMemory *m = defaultManager; m; m = m->previous_)
        if (m->previous_ == this)
            m->previous_ = previous_;
}

/* ---- memory and its limit -------------------------------------------------------------- */

/* Buffers of less than a quarter of a block share blocks. */
inline global_bytesize managedMemory::rounded(global_bytesize size) const
{
    return size < block_ / 4 ? size : (size + block_ - 1) / block_ * block_;
}

/* By a pin.  A small object holds the block that it shares, alone if the others' pins are elsewhere. */
inline global_bytesize managedMemory::held_by(const managedMemoryChunk *chunk) const
{
    return (chunk->size + block_ - 1) / block_ * block_;
}

/* All objects can be in memory at once, so pins need not be ended. */
inline bool managedMemory::fits(global_bytesize more) const
{
    return in_blocks_ + more <= limit_ / 4 * 3;
}

/* `used` of the swap is the sum over all managers that have it. */
inline void managedMemory::account(std::int64_t change)
{
    global_bytesize before = getSwappedMemory();

    live_ += static_cast<global_bytesize>(change);
    swap->used_ += getSwappedMemory() - before;
}

inline void managedMemory::reserve(global_bytesize size)
{
    global_bytesize limit = limit_, beyond, room;

    if (size > limit)
        fail("an object of " + std::to_string(size) + " bytes is larger than the memory limit of " +
             std::to_string(limit));
    beyond = live_ + size > limit ? live_ + size - limit - getSwappedMemory() : 0;
    room   = swap->getFreeSwap();
    if (beyond > room && swap->policy_ != swapPolicy::autoextendable)
        fail(std::to_string(size) + " bytes exceed the memory limit of " + std::to_string(limit) +
             " and the " + std::to_string(room) + " free of " + std::to_string(swap->size_) +
             " bytes of swap");
    if (beyond > room)
        (void)swap->extendSwap(beyond - room);
    account(std::int64_t(size));
}

/* Objects that fill the limit share blocks with others, and blocks are at most a 32nd of it: an 8th
 * is enough for two runs of objects that are adhered to at once.  1 MiB is what an engine of 32
 * blocks of 4 KiB needs and a little more. */
inline usm_context *managedMemory::make_context(global_bytesize limit) const
{
    usm_context_desc desc   = USM_CONTEXT_DESC_INIT;
    usm_context     *ctx    = nullptr;
    usm_device      *device = nullptr;
    std::size_t      count  = 0;
    usm_status       st     = usm_select_devices("host:*", &device, 1, &count);

    desc.ndevices   = 1;
    desc.devices    = &device;
    desc.host_limit = std::max(limit + std::min(limit / 8, 8 * mib), mib) +
                      (swap->is_memory() ? swap->getSwapSize() : 0);
    if (st == USM_OK)
        st = usm_context_create(&desc, &ctx);
    if (st != USM_OK)
        fail(usm_last_error());
    return ctx;
}

inline void managedMemory::take_context(usm_context *ctx)
{
    usm_spill_stats s = {};

    s.struct_size = sizeof s;
    block_        = usm_spill_get_stats(ctx, &s) == USM_OK && s.block_size ? s.block_size : mib;
    ctx_          = ctx;
}

inline usm_buffer *managedMemory::make_buffer(usm_context *ctx, global_bytesize size) const
{
    usm_buffer *buf = usm_buffer_new(ctx, size);

    if (!buf)
        fail(usm_last_error());
    return buf;
}

inline managedMemoryChunk *managedMemory::mmalloc(global_bytesize size)
{
    guard lock(lock_);

    reserve(size);
    try {
        if (!ctx_)
            take_context(make_context(limit_));
        auto chunk      = std::make_unique<managedMemoryChunk>(size);
        chunk->in_all_  = all_.insert(all_.end(), chunk.get());
        chunk->manager_ = this;
        try {
            chunk->buf_ = make_buffer(ctx_, size);
        } catch (...) {
            all_.erase(chunk->in_all_);
            throw;
        }
        in_blocks_ += rounded(size);
        make_room(0);
        return chunk.release();
    } catch (...) {
        account(-std::int64_t(size));
        throw;
    }
}

inline void managedMemory::mfree(managedMemoryChunk *chunk)
{
    guard lock(lock_);

    if (chunk->word_.load(std::memory_order_relaxed) & managedMemoryChunk::PINNED && !close(chunk))
        fail("an object is freed while somebody adheres to it");
    all_.erase(chunk->in_all_);
    in_blocks_ -= rounded(chunk->size);
    hits_ended_ += chunk->hits_;
    account(-std::int64_t(chunk->size));
    usm_buffer_destroy(chunk->buf_);
    lock.unlock();
    delete chunk;
}

inline usm_buffer *managedMemory::copy(const managedMemoryChunk *chunk, usm_context *ctx) const
{
    usm_buffer *to = make_buffer(ctx, chunk->size);
    usm_access  src, dst;
    usm_status  st = USM_OK;

    for (std::size_t at = 0, n; st == USM_OK && at < chunk->size; at += n) {
        n  = std::min<std::size_t>(chunk->size - at, 64 * kib);
        st = usm_access_begin(chunk->buf_, at, n, USM_READ, &src);
        if (st != USM_OK)
            break;
        st = usm_access_begin(to, at, n, USM_WRITE_NO_INIT, &dst);
        if (st == USM_OK) {
            std::memcpy(dst.ptr, src.ptr, n);
            usm_access_end(&dst);
        }
        usm_access_end(&src);
    }
    if (st != USM_OK) {
        std::string why = usm_last_error();

        usm_buffer_destroy(to);
        fail(why);
    }
    return to;
}

/* All or none: the buffers are replaced once all are copied. */
inline void managedMemory::move_all(usm_context *ctx)
{
    std::vector<usm_buffer *> copies;

    copies.reserve(all_.size());
    try {
        for (const managedMemoryChunk *chunk : all_)
            copies.push_back(copy(chunk, ctx));
    } catch (...) {
        for (usm_buffer *buf : copies)
            usm_buffer_destroy(buf);
        throw;
    }
    auto next = copies.begin();
    for (managedMemoryChunk *chunk : all_)
        usm_buffer_destroy(std::exchange(chunk->buf_, *next++));
}

inline bool managedMemory::setMemoryLimit(global_bytesize size)
{
    guard        lock(lock_);
    usm_context *next = nullptr;

    (void)close_idle();
    for (managedMemoryChunk *chunk : all_)
        if (chunk->word_.load(std::memory_order_relaxed) != 0 || chunk->size > size)
            return false;
    if (!all_.empty())
        next = make_context(size);
    try {
        move_all(next);
    } catch (...) {
        usm_context_destroy(next);
        throw;
    }
    usm_context_destroy(std::exchange(ctx_, nullptr));
    swap->used_ -= getSwappedMemory();
    limit_ = size;
    swap->used_ += getSwappedMemory();
    if (next)
        take_context(next);
    in_blocks_ = 0;
    for (const managedMemoryChunk *chunk : all_)
        in_blocks_ += rounded(chunk->size);
    return true;
}

/* ---- opening and closing accesses ------------------------------------------------------- */

inline void managedMemory::end_access(managedMemoryChunk *chunk)
{
    usm_access_end(&chunk->access_);
    pinned_size_ -= held_by(chunk);
    pinned_.erase(chunk->in_pinned_);
}

/* False: it is in use.  Once the word is 0, who adheres comes to the lock, which the caller has. */
inline bool managedMemory::close(managedMemoryChunk *chunk)
{
    std::uint32_t w = chunk->word_.load(std::memory_order_relaxed);

    do
        if (w & (managedMemoryChunk::COUNT | managedMemoryChunk::BUSY))
            return false;
    while (!chunk->word_.compare_exchange_weak(w, 0, std::memory_order_acquire));
    chunk->writes_often_ = (w & managedMemoryChunk::DIRTIED) != 0;
    end_access(chunk);
    return true;
}

/* Before another one of `size` is pinned: nothing is open for good that others may need.  The two
 * that were pinned last stay, if they are small: p[i] = q[i] without adhering uses both. */
inline void managedMemory::make_room(global_bytesize size)
{
    global_bytesize budget = limit_ / 8, spare = limit_ / 2;
    std::size_t     scanned = 0, n = pinned_.size();

    if (fits(0))
        return;
    while (scanned++ < n && pinned_size_ + size > budget) {
        if (pinned_.size() <= 2 && pinned_size_ + size <= spare)
            return;
        if (!close(pinned_.front()))
            pinned_.splice(pinned_.end(), pinned_, pinned_.begin());
    }
}

/* Closes all that can be closed; returns how many. */
inline std::size_t managedMemory::close_idle()
{
    std::size_t closed = 0;

    for (auto at = pinned_.begin(); at != pinned_.end();)
        closed += close(*at++);
    return closed;
}

/* pre: not pinned, not BUSY.  The lock is not held while the bytes are loaded. */
inline usm_status managedMemory::open(managedMemoryChunk *chunk, guard &lock, bool is_writer)
{
    global_bytesize size = held_by(chunk);
    usm_status      st;

    make_room(size);
    chunk->word_.store(managedMemoryChunk::BUSY, std::memory_order_relaxed);
    pinned_size_ += size;
    lock.unlock();
    st = usm_access_begin(chunk->buf_, 0, chunk->size, is_writer ? USM_READ_WRITE : USM_READ,
                          &chunk->access_);
    lock.lock();
    if (st != USM_OK) {
        pinned_size_ -= size;
        chunk->word_.store(0, std::memory_order_relaxed);
        opened_.notify_all();
    }
    return st;
}

inline void managedMemory::entered(managedMemoryChunk *chunk, bool is_writer, std::uint32_t bits)
{
    chunk->locPtr     = chunk->access_.ptr;
    chunk->hits_.store(chunk->hits_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    chunk->in_pinned_ = pinned_.insert(pinned_.end(), chunk);
    chunk->word_.store(managedMemoryChunk::PINNED | bits | 1 |
                           (is_writer ? managedMemoryChunk::WRITABLE : 0),
                       std::memory_order_release);
    opened_.notify_all();
}

/* An access that finds no memory has waited for USM_SPILL_WAIT already; what is open without a user
 * is closed before the second attempt. */
inline void managedMemory::acquire(managedMemoryChunk *chunk, std::uint32_t bits)
{
    guard lock(lock_);
    bool  is_second = false;

    while (!chunk->try_enter(bits)) {
        std::uint32_t w         = chunk->word_.load(std::memory_order_relaxed);
        bool          is_writer = bits || chunk->writes_often_;
        usm_status    st;

        if (w & managedMemoryChunk::BUSY) {
            opened_.wait(lock);
            continue;
        }
        if (w & managedMemoryChunk::PINNED) {
            make_writable(chunk);
            continue;
        }
        st = open(chunk, lock, is_writer);
        if (st == USM_OK) {
            entered(chunk, is_writer, bits);
            return;
        }
        if (st != USM_E_AGAIN || (is_second && is_fatal_ && close_idle() == 0))
            fail(usm_last_error());
        is_second = true;
        (void)close_idle();
    }
}

/* The access of a pinned chunk for reading is replaced by one for writing: the bytes are in memory,
 * so nothing is waited for, and under the lock nobody closes it. */
inline void managedMemory::make_writable(managedMemoryChunk *chunk)
{
    usm_access access;

    if (usm_access_begin(chunk->buf_, 0, chunk->size, USM_READ_WRITE, &access) != USM_OK)
        fail(usm_last_error());
    usm_access_end(&chunk->access_);
    chunk->access_ = access;
    chunk->word_.fetch_or(managedMemoryChunk::WRITABLE, std::memory_order_release);
}

/* pre: the caller has entered. */
inline void managedMemory::upgrade(managedMemoryChunk *chunk)
{
    guard lock(lock_);

    while (!chunk->try_write())
        make_writable(chunk);
}

/* ---- statistics ------------------------------------------------------------------------- */

inline managedMemory::numbers managedMemory::stats() const
{
    guard           lock(lock_);
    numbers         n;
    usm_spill_stats s = {};

    n.hits = hits_ended_;
    for (const managedMemoryChunk *chunk : all_)
        n.hits += chunk->hits_;
    s.struct_size = sizeof s;
    if (!ctx_ || usm_spill_get_stats(ctx_, &s) != USM_OK)
        return n;
    n.misses = s.misses;
    n.hits -= std::min(n.hits, n.misses); /* each adherence was counted */
    for (std::size_t i = 0; i < s.ntiers; i++) {
        n.tiers_read += s.tiers[i].read;
        n.tiers_written += s.tiers[i].written;
    }
    return n;
}

inline void managedMemory::resetSwapstats()
{
    base_ = stats();
}

/* Without a miss: the hits. */
inline double managedMemory::getHitsOverMisses() const
{
    numbers       n      = stats();
    std::uint64_t misses = n.misses - base_.misses;

    return double(n.hits - base_.hits) / double(misses ? misses : 1);
}

inline void managedMemory::printSwapstats() const
{
    std::fprintf(stderr,
                 "rambrain: %.0f bytes written, %.0f read; %.3g hits for each miss; %llu of %llu "
                 "bytes of memory used, %llu of %llu of swap\n",
                 getTotalSwappedOutBytes(), getTotalSwappedInBytes(), getHitsOverMisses(),
                 (unsigned long long)getUsedMemory(), (unsigned long long)getMemoryLimit(),
                 (unsigned long long)swap->getUsedSwap(), (unsigned long long)swap->getSwapSize());
}

inline bool managedMemory::checkCycle() const
{
    guard           lock(lock_);
    global_bytesize sum = 0, blocks = 0;

    for (const managedMemoryChunk *chunk : all_) {
        sum += chunk->size;
        blocks += rounded(chunk->size);
    }
    return sum == live_ && blocks == in_blocks_ && pinned_.size() <= all_.size();
}

inline void managedMemory::printMemUsage() const
{
    printSwapstats();
}

} // namespace rambrain
#endif
