/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Adherences that miss the hit path of usm/rambrain.hpp.  Included by usm/rambrain/memory.hpp. */
#ifndef USM_RAMBRAIN_ADHERENCES_HPP
#define USM_RAMBRAIN_ADHERENCES_HPP

#include <usm/rambrain/memory.hpp>

namespace rambrain
{

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

inline void managedMemoryChunk::leave_last() noexcept
{
    manager_.load(relaxed)->leave_last(this);
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

/* ---- memory that pins hold --------------------------------------------------------------- */

/* How much more memory is held when the chunk is pinned.  A chunk that shares a block holds all of
 * it, alone if no other one of it is pinned. */
inline global_bytesize managedMemory::would_hold(const managedMemoryChunk *chunk) const
{
    return !shares_block(chunk->size)              ? in_whole_blocks(chunk->size)
           : shared_.count(chunk->block_) != 0 ? 0
                                                   : block_;
}

/* While more than half of the memory is pinned, threads may have to wait for it: then those who
 * leave look whether one does. */
inline void managedMemory::hold(managedMemoryChunk *chunk)
{
    used_size_ += chunk->size;
    if (chunk->apart_) {
        pinned_size_ += chunk->size;
    } else if (!shares_block(chunk->size)) {
        pinned_size_ += in_whole_blocks(chunk->size);
    } else {
        chunk->block_ = reinterpret_cast<std::uintptr_t>(chunk->access_.ptr) / block_;
        pinned_size_ += shared_[chunk->block_]++ == 0 ? block_ : 0;
    }
    if (is_short_ || fits() || pinned_size_ <= memory_ / 2)
        return;
    is_short_ = true;
    for (managedMemoryChunk *pinned : pinned_)
        pinned->word_.fetch_or(managedMemoryChunk::WANTED, std::memory_order_relaxed);
}

inline void managedMemory::unhold(managedMemoryChunk *chunk)
{
    used_size_ -= chunk->size;
    if (chunk->apart_) {
        pinned_size_ -= chunk->size;
    } else if (!shares_block(chunk->size)) {
        pinned_size_ -= in_whole_blocks(chunk->size);
    } else if (--shared_[chunk->block_] == 0) {
        shared_.erase(chunk->block_);
        pinned_size_ -= block_;
    }
    is_short_ = is_short_ && pinned_size_ > memory_ / 4;
}

/* ---- objects apart ------------------------------------------------------------------------- */

/* Objects that are in use can hold many times their size, if each is in another block.  They would
 * soon hold all memory, and threads that need a few more would wait for each other.  So when the
 * pinned ones hold half of the memory, but use less than three quarters of that, the next one
 * is copied to memory of its own.  This is also the context's, so blocks make room for it.  Objects
 * of half the memory can therefore be in use at once, wherever they are. */
inline bool managedMemory::is_better_apart(global_bytesize size, global_bytesize need) const
{
    global_bytesize held = pinned_size_ + need;

    return need > 0 && !fits() && held > memory_ / 2 && used_size_ + size < held / 4 * 3;
}

/* pre: the access is open.  False: there is no memory, and the chunk stays where it is. */
inline bool managedMemory::copy_apart(managedMemoryChunk *chunk) const
{
    void *p = usm_pool_malloc(apart_, chunk->size);

    if (!p)
        return false;
    std::memcpy(p, chunk->access_.ptr, chunk->size);
    usm_access_end(&chunk->access_);
    chunk->apart_ = p;
    return true;
}

/* pre: the chunk is BUSY.  The lock is not held while the bytes are copied.  False: that is not
 * possible now. */
inline bool managedMemory::put_back(managedMemoryChunk *chunk, guard &lock) const
{
    usm_access access;
    usm_status st;

    lock.unlock();
    st = usm_access_begin(chunk->buf_, 0, chunk->size, USM_WRITE_NO_INIT, &access);
    if (st == USM_OK) {
        std::memcpy(access.ptr, chunk->apart_, chunk->size);
        usm_access_end(&access);
    }
    lock.lock();
    return st == USM_OK;
}

/* ---- opening and closing accesses ------------------------------------------------------- */

inline void managedMemory::end_access(managedMemoryChunk *chunk) const
{
    if (chunk->apart_)
        usm_pool_free(apart_, std::exchange(chunk->apart_, nullptr));
    else
        usm_access_end(&chunk->access_);
}

inline void managedMemory::unpin(managedMemoryChunk *chunk)
{
    unhold(chunk);
    end_access(chunk);
    pinned_.erase(chunk->in_pinned_);
    changes_++;
}

/* False: it is in use, or is apart and cannot be put back.  It is the last one of the list then.
 * Once the word is BUSY, who adheres comes to the lock, which the caller has. */
inline bool managedMemory::close(managedMemoryChunk *chunk, guard &lock)
{
    std::uint32_t w         = chunk->word_.load(std::memory_order_relaxed);
    bool          is_closed = true;

    do
        if (w & (managedMemoryChunk::COUNT | managedMemoryChunk::BUSY)) {
            pinned_.splice(pinned_.end(), pinned_, chunk->in_pinned_);
            return false;
        }
    while (!chunk->word_.compare_exchange_weak(w, managedMemoryChunk::BUSY,
                                               std::memory_order_acquire));
    chunk->writes_often_ = (w & managedMemoryChunk::DIRTIED) != 0;
    if (chunk->apart_ && chunk->writes_often_)
        is_closed = put_back(chunk, lock);
    if (is_closed)
        unpin(chunk);
    else
        pinned_.splice(pinned_.end(), pinned_, chunk->in_pinned_);
    chunk->word_.store(is_closed ? 0 : w, std::memory_order_release);
    opened_.notify_all();
    return is_closed;
}

/* Before another one of `size` is pinned: nothing is open for good that others may need.  The two
 * that were pinned last stay, if they are small: p[i] = q[i] without adhering uses both. */
inline void managedMemory::make_room(global_bytesize size, guard &lock)
{
    global_bytesize budget = is_short_ ? 0 : limit_ / 8, spare = limit_ / 2;

    if (fits())
        return;
    for (std::size_t n = pinned_.size(); n > 0 && pinned_size_ + size > budget; n--)
        if (pinned_.empty() || (pinned_.size() <= 2 && pinned_size_ + size <= spare))
            return;
        else
            (void)close(pinned_.front(), lock);
}

/* Closes all that can be closed; returns how many. */
inline std::size_t managedMemory::close_idle(guard &lock)
{
    std::size_t closed = 0;

    for (std::size_t n = pinned_.size(); n > 0 && !pinned_.empty(); n--)
        closed += close(pinned_.front(), lock);
    return closed;
}

/* The access is replaced by one for writing.  The bytes are in memory, but a store of them may have
 * to end first. */
inline usm_status managedMemory::reopen_for_writing(managedMemoryChunk *chunk)
{
    usm_access access;
    usm_status st = usm_access_begin(chunk->buf_, 0, chunk->size, USM_READ_WRITE, &access);

    if (st == USM_OK) {
        usm_access_end(&chunk->access_);
        chunk->access_ = access;
    }
    return st;
}

/* Lock not held; the chunk is BUSY.  A copy is written when it is put back. */
inline usm_status managedMemory::begin_access(managedMemoryChunk *chunk, bool is_writer,
                                              bool is_apart) const
{
    usm_access_mode mode = is_writer && !is_apart ? USM_READ_WRITE : USM_READ;
    usm_status      st = usm_access_begin(chunk->buf_, 0, chunk->size, mode, &chunk->access_);

    if (st != USM_OK || !is_apart || copy_apart(chunk) || !is_writer)
        return st;
    st = reopen_for_writing(chunk);
    if (st != USM_OK)
        usm_access_end(&chunk->access_);
    return st;
}

/* pre: not pinned, not BUSY.  The lock is not held while the bytes are loaded. */
inline usm_status managedMemory::open(managedMemoryChunk *chunk, guard &lock, bool is_writer)
{
    usm_pool_desc   desc = USM_POOL_DESC_INIT;
    global_bytesize need;
    bool            is_apart;
    usm_status      st;

    chunk->word_.store(managedMemoryChunk::BUSY, std::memory_order_relaxed);
    make_room(would_hold(chunk), lock);
    need      = would_hold(chunk);
    is_apart  = is_better_apart(chunk->size, need);
    desc.name = "direct";
    if (is_apart && !apart_ && usm_pool_create(ctx_, nullptr, USM_HOST, &desc, &apart_) != USM_OK)
        is_apart = false;
    pinned_size_ += need;
    used_size_ += chunk->size;
    opening_++;
    lock.unlock();
    st = begin_access(chunk, is_writer, is_apart);
    lock.lock();
    pinned_size_ -= need;
    used_size_ -= chunk->size;
    opening_--;
    if (st != USM_OK) {
        chunk->word_.store(0, std::memory_order_relaxed);
        opened_.notify_all();
    }
    return st;
}

/* pre: the access is open, for writing if there are bits. */
inline void managedMemory::entered(managedMemoryChunk *chunk, std::uint32_t bits)
{
    bool is_writable = chunk->apart_ || (chunk->access_.mode & USM_WRITE) != 0;

    hold(chunk);
    changes_++;
    chunk->locPtr = chunk->apart_ ? chunk->apart_ : chunk->access_.ptr;
    chunk->hits_.store(chunk->hits_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    chunk->user_.store(detail::this_thread(), std::memory_order_relaxed);
    chunk->in_pinned_ = pinned_.insert(pinned_.end(), chunk);
    chunk->word_.store(managedMemoryChunk::PINNED | bits | 1 |
                           (is_writable ? managedMemoryChunk::WRITABLE : 0) |
                           (is_short_ ? managedMemoryChunk::WANTED : 0),
                       std::memory_order_release);
    opened_.notify_all();
}

/* pre: pinned, not BUSY.  The lock is not held meanwhile; who adheres already may leave. */
inline usm_status managedMemory::make_writable(managedMemoryChunk *chunk, guard &lock)
{
    usm_status st;

    chunk->word_.fetch_or(managedMemoryChunk::BUSY, std::memory_order_relaxed);
    lock.unlock();
    st = reopen_for_writing(chunk);
    lock.lock();
    if (st == USM_OK)
        chunk->word_.fetch_or(managedMemoryChunk::WRITABLE, std::memory_order_relaxed);
    chunk->word_.fetch_and(~managedMemoryChunk::BUSY, std::memory_order_release);
    opened_.notify_all();
    return st;
}

/* ---- waiting ---------------------------------------------------------------------------------
 *
 * Threads that adhere to what others need, and wait for what those have, would wait for ever: one of
 * them must fail, and one alone, since the others get what it leaves.  All that releases or takes
 * memory of a manager is a change, and is counted under its lock.  A thread whose attempt has failed
 * although nothing changed meanwhile says so, and fails itself only if nothing can change any more:
 * who adheres waits, nobody closes an access, and every other thread that tries has failed since the
 * last change, too, or waits for one that has.  Under the lock one thread is the last to say so.
 * Once it fails it does not wait, so the others see that it goes on, until it has left what it
 * adhered to; that is a change, or leaves accesses that they can close, which is one. */

/* Whether other threads may still release memory. */
inline bool managedMemory::can_change() const
{
    for (const managedMemoryChunk *chunk : pinned_) {
        std::uint32_t w        = chunk->word_.load(std::memory_order_relaxed);
        const void   *user     = chunk->user_.load(std::memory_order_relaxed);
        bool          is_used  = (w & managedMemoryChunk::COUNT) != 0;
        bool          is_ended = !is_used && (w & managedMemoryChunk::BUSY); /* by close() */

        if (is_ended || (is_used && !detail::waiting::includes(user)))
            return true;
    }
    return detail::waiting::has_hope(this, changes_);
}

/* USM_E_AGAIN: all memory was in use for USM_SPILL_WAIT.  Throws, unless that can change. */
inline void managedMemory::check(usm_status st, std::uint64_t *seen, guard &lock,
                                 const detail::waiting &self)
{
    if (st != USM_OK) {
        std::string why = usm_last_error();

        if (st != USM_E_AGAIN)
            fail(why);
        (void)close_idle(lock);
        if (*seen == changes_)
            self.failed(changes_);
        if (*seen == changes_ && is_fatal_ && !can_change())
            fail(why);
    }
    *seen = changes_;
}

/* Whether another thread had the chunk BUSY. */
inline bool managedMemory::has_waited(managedMemoryChunk *chunk, guard &lock,
                                      const detail::waiting &self)
{
    if (!(chunk->word_.load(std::memory_order_relaxed) & managedMemoryChunk::BUSY))
        return false;
    self.depends(true);
    opened_.wait(lock);
    self.depends(false);
    return true;
}

inline void managedMemory::acquire(managedMemoryChunk *chunk, std::uint32_t bits)
{
    guard                 lock(lock_);
    const detail::waiting self(this); /* ends under the lock: others see at once that it goes on */
    std::uint64_t         seen = changes_;

    while (!chunk->try_enter(bits)) {
        usm_status st;

        if (has_waited(chunk, lock, self))
            continue;
        if (chunk->word_.load(std::memory_order_relaxed) & managedMemoryChunk::PINNED) {
            check(make_writable(chunk, lock), &seen, lock, self);
            continue;
        }
        st = open(chunk, lock, bits || chunk->writes_often_);
        if (st == USM_OK) {
            entered(chunk, bits);
            return;
        }
        check(st, &seen, lock, self);
    }
}

/* pre: the caller has entered. */
inline void managedMemory::upgrade(managedMemoryChunk *chunk)
{
    guard                 lock(lock_);
    const detail::waiting self(this);
    std::uint64_t         seen = changes_;

    while (!chunk->try_write())
        if (!has_waited(chunk, lock, self))
            check(make_writable(chunk, lock), &seen, lock, self);
}

/* Closes the access if a thread is opening one, and perhaps waits for memory.  Others may have
 * entered since.  Under the lock, so that the chunk does not end meanwhile. */
inline void managedMemory::leave_last(managedMemoryChunk *chunk) noexcept
{
    guard         lock(lock_);
    std::uint32_t w = chunk->word_.load(std::memory_order_relaxed), next;

    do
        next = (w - 1) & ((w & managedMemoryChunk::COUNT) == 1 ? ~managedMemoryChunk::WROTE : ~0u);
    while (!chunk->word_.compare_exchange_weak(w, next, std::memory_order_release,
                                               std::memory_order_relaxed));
    if (opening_ > 0)
        (void)close(chunk, lock);
}

} // namespace rambrain
#endif
