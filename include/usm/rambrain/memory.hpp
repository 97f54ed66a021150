/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Managers, swaps and objects of usm/rambrain.hpp, which includes this file. */
#ifndef USM_RAMBRAIN_MEMORY_HPP
#define USM_RAMBRAIN_MEMORY_HPP

#include <usm/buffer.h>
#include <usm/context.h>
#include <usm/device.h>
#include <usm/pool.h>
#include <usm/status.h>
#include <usm/version.h>

#include <usm/rambrain/chunk.hpp>
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
#include <unordered_map>
#include <utility>
#include <vector>

namespace rambrain
{

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
    void leave_last(managedMemoryChunk *chunk) noexcept;
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
    bool            shares_block(global_bytesize size) const;
    global_bytesize in_whole_blocks(global_bytesize size) const;
    bool            fits() const;
    void            reserve(global_bytesize size);
    void            account(std::int64_t change);
    usm_context    *make_context(global_bytesize limit) const;
    void            take_context(usm_context *ctx);
    usm_buffer     *make_buffer(usm_context *ctx, global_bytesize size) const;
    usm_buffer     *copy(const managedMemoryChunk *chunk, usm_context *ctx) const;
    void            move_all(usm_context *ctx);
    global_bytesize would_hold(const managedMemoryChunk *chunk) const;
    void            hold(managedMemoryChunk *chunk);
    void            unhold(managedMemoryChunk *chunk);
    bool            is_better_apart(global_bytesize size, global_bytesize need) const;
    bool            copy_apart(managedMemoryChunk *chunk) const;
    bool            put_back(managedMemoryChunk *chunk, guard &lock) const;
    void            make_room(global_bytesize size, guard &lock);
    std::size_t     close_idle(guard &lock);
    bool            close(managedMemoryChunk *chunk, guard &lock);
    void            end_access(managedMemoryChunk *chunk) const;
    void            unpin(managedMemoryChunk *chunk);
    usm_status      open(managedMemoryChunk *chunk, guard &lock, bool is_writer);
    static usm_status reopen_for_writing(managedMemoryChunk *chunk);
    usm_status        begin_access(managedMemoryChunk *chunk, bool is_writer, bool is_apart) const;
    usm_status      make_writable(managedMemoryChunk *chunk, guard &lock);
    void            entered(managedMemoryChunk *chunk, std::uint32_t bits);
    bool            has_waited(managedMemoryChunk *chunk, guard &lock, const detail::waiting &self);
    bool            can_change() const;
    void check(usm_status st, std::uint64_t *seen, guard &lock, const detail::waiting &self);
    numbers         stats() const;

    mutable std::mutex           lock_;
    std::condition_variable      opened_; /* a chunk is not BUSY any more */
    std::atomic<global_bytesize> limit_, live_{0};
    std::atomic<bool>            is_fatal_{true};

  protected:
    std::atomic<bool> loads_{true};

  private:
    /* Guarded by lock_. */
    usm_context    *ctx_    = nullptr; /* made for the first object               */
    usm_pool       *apart_  = nullptr; /* of chunks that are apart; NULL: none was */
    global_bytesize memory_ = 0;       /* the context's, for blocks and apart      */
    std::size_t     block_  = 0;
    chunk_list      all_, pinned_;                    /* the latter by age                       */
    global_bytesize in_blocks_ = 0, pinned_size_ = 0; /* of all; held by the pinned; whole blocks */
    global_bytesize used_size_ = 0;                   /* likewise, in bytes of objects            */
    std::uint64_t   changes_   = 1;                   /* accesses opened and closed, counted      */
    bool            is_short_  = false;               /* of memory: what is pinned is WANTED      */
    unsigned        opening_   = 0;                   /* threads that open an access              */
    std::unordered_map<std::uintptr_t, unsigned> shared_; /* pinned chunks by the block they share */
    std::uint64_t   hits_ended_ = 0;                  /* of objects that are gone */
    numbers         base_;                            /* at resetSwapstats()       */
    managedMemory  *previous_;
};

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
            end_access(chunk);
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
inline bool managedMemory::shares_block(global_bytesize size) const
{
    return size < block_ / 4;
}

inline global_bytesize managedMemory::in_whole_blocks(global_bytesize size) const
{
    return (size + block_ - 1) / block_ * block_;
}

inline global_bytesize managedMemory::rounded(global_bytesize size) const
{
    return shares_block(size) ? size : in_whole_blocks(size);
}

/* All objects can be in memory at once, so pins need not be ended. */
inline bool managedMemory::fits() const
{
    return in_blocks_ <= limit_ / 4 * 3;
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

/* An 8th is for blocks of which objects in use take a part: of runs of objects that share blocks, the
 * first and the last.  1 MiB is what an engine of 32 blocks of 4 KiB needs and a little more. */
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
    memory_       = s.limit;
    apart_        = nullptr;
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
        make_room(0, lock);
        return chunk.release();
    } catch (...) {
        account(-std::int64_t(size));
        throw;
    }
}

inline void managedMemory::mfree(managedMemoryChunk *chunk)
{
    guard         lock(lock_);
    std::uint32_t w;

    while ((w = chunk->word_.load(std::memory_order_relaxed)) & managedMemoryChunk::BUSY)
        opened_.wait(lock);
    if (w & managedMemoryChunk::COUNT)
        fail("an object is freed while somebody adheres to it");
    if (w & managedMemoryChunk::PINNED)
        unpin(chunk);
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

    (void)close_idle(lock);
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

#include <usm/rambrain/adherences.hpp>
#endif
