/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Programs written for Rambrain (Imgrund and Arth, SoftwareX 2017) on libusm's buffers, in C++17.
 *
 *     rambrain::managedPtr<double> row(n);     // n elements, which may leave memory
 *     {
 *         ADHERETOLOC(double, row, x);         // x is a double * until the end of the scope
 *         x[0] = 1;
 *     }
 *
 * The interface is Rambrain's, so that its programs compile unchanged: usm/rambrain/ has headers of
 * the names that they include.  The implementation is libusm's: each managedPtr is a usm_buffer of
 * the context of its manager, whose host_limit is the manager's memory.  docs/rambrain.md says what
 * differs.
 *
 * Threads may adhere to one object at once, and share a managedPtr; one that is assigned to must not
 * be used by others meanwhile.  Failures are rambrain::memoryException with libusm's message. */
#ifndef USM_RAMBRAIN_HPP
#define USM_RAMBRAIN_HPP

#include <usm/rambrain/managers.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace rambrain
{

template <class T> class adhereTo;

/* ---- pointers ------------------------------------------------------------------------ */

/** An array of managedPtr<T, dim - 1>: the last dimension is what is in memory, or not.  Copies
 * share the elements. */
template <class T, int dim = 1> class managedPtr
{
  public:
    managedPtr() : managedPtr(1)
    {
    }
    /** n times managedPtr<T, dim - 1>(args...). */
    template <class... Args> managedPtr(std::size_t n, const Args &...args)
    {
        rows_.reserve(n);
        for (std::size_t i = 0; i < n; i++)
            rows_.emplace_back(args...);
    }

    managedPtr<T, dim - 1> &operator[](std::size_t i)
    {
        return rows_[i];
    }
    const managedPtr<T, dim - 1> &operator[](std::size_t i) const
    {
        return rows_[i];
    }
    unsigned size() const
    {
        return static_cast<unsigned>(rows_.size());
    }

  private:
    std::vector<managedPtr<T, dim - 1>> rows_;
};

/** n elements, shared by copies of the pointer; they end with the last copy. */
template <class T> class managedPtr<T, 1>
{
  public:
    managedPtr() : managedPtr(1)
    {
    }
    /** Constructs each element from args.  If one throws, those before it are destroyed. */
    template <class... Args> managedPtr(std::size_t n, const Args &...args) : n_(n)
    {
        if (n == 0)
            return;
        if (n > SIZE_MAX / sizeof(T))
            throw memoryException("the size of the object overflows");
        chunk = managedMemory::defaultManager->mmalloc(n * sizeof(T));
        try {
            construct(args...);
        } catch (...) {
            chunk->mfree();
            throw;
        }
    }
    managedPtr(const managedPtr &other) noexcept : chunk(other.chunk), n_(other.n_)
    {
        if (chunk)
            chunk->retain();
    }
    /** Throws, and changes nothing, if it is the last pointer to an object that is in use. */
    managedPtr &operator=(const managedPtr &other)
    {
        managedMemoryChunk *now = other.chunk;
        std::size_t         n   = other.n_;

        if (now == chunk)
            return *this;
        if (now)
            now->retain();
        try {
            drop();
        } catch (...) {
            managedPtr rest(now, n); /* drops what was retained */
            throw;
        }
        chunk = now;
        n_    = n;
        return *this;
    }
    /** Somebody who still uses the object is a defect that ends the program. */
    ~managedPtr()
    {
        drop();
    }

    unsigned size() const
    {
        return static_cast<unsigned>(n_);
    }
    /** Adheres without a scope: unsetUse() ends it. */
    bool setUse(bool writable = true) const
    {
        chunk->acquire(writable ? managedMemoryChunk::WRITES : 0);
        return true;
    }
    bool unsetUse(unsigned times = 1) const
    {
        while (times-- > 0)
            chunk->leave();
        return true;
    }
    bool prepareUse() const
    {
        if (chunk)
            chunk->will_need();
        return true;
    }
    /** pre: in use. */
    T *getLocPtr() const
    {
        return static_cast<T *>(chunk->locPtr);
    }
    const T *getConstLocPtr() const
    {
        return getLocPtr();
    }

    /** As in Rambrain: slow, for one thread, and the reference is good until two other objects were
     * used.  Adhere instead. */
    [[deprecated]] T &operator[](std::size_t i)
    {
        return adhereTo<T>(*this, managedMemoryChunk::WRITES).get()[i];
    }
    [[deprecated]] const T &operator[](std::size_t i) const
    {
        return adhereTo<T>(*this, 0u).get()[i];
    }

    managedMemoryChunk *chunk = nullptr; /**< null: no elements */

  private:
    managedPtr(managedMemoryChunk *taken, std::size_t n) noexcept : chunk(taken), n_(n)
    {
    }

    template <class... Args> void construct(const Args &...args)
    {
        std::size_t made = 0;

        setUse();
        try {
            for (; made < n_; made++)
                ::new (static_cast<void *>(getLocPtr() + made)) T(args...);
        } catch (...) {
            std::destroy_n(getLocPtr(), made);
            unsetUse();
            throw;
        }
        unsetUse();
    }

    void destroy_elements()
    {
        if constexpr (!std::is_trivially_destructible_v<T>) {
            if (!chunk->has_content())
                return;
            setUse();
            std::destroy_n(getLocPtr(), n_);
            unsetUse();
        }
    }

    /* Elements are destroyed only if nobody uses them. */
    void drop()
    {
        if (!chunk || !chunk->drop())
            return;
        try {
            if (chunk->is_in_use())
                throw memoryException("an object ends while somebody adheres to it");
            destroy_elements();
        } catch (...) {
            chunk->retain();
            throw;
        }
        std::exchange(chunk, nullptr)->mfree();
    }

    std::size_t n_ = 0;
};

/* ---- adhering ---------------------------------------------------------------------- */

/** Keeps the elements of a managedPtr in memory as long as it lives.  Conversion to T * or const T *
 * gives their address; who only reads converts to the latter.  Threads may convert one adhereTo at
 * the same time. */
template <class T> class adhereTo
{
  public:
    /** loadImmediately: starts loading; the conversion waits for it. */
    adhereTo(const managedPtr<T> &data, bool loadImmediately = true) : chunk_(data.chunk)
    {
        if (!chunk_ || !loadImmediately)
            return;
        if (chunk_->try_enter(0))
            state_.store(ENTERED, relaxed);
        else if (managedMemory::defaultManager->loads())
            chunk_->will_need();
    }
    adhereTo(const managedPtr<T> *data, bool loadImmediately = true)
        : adhereTo(*data, loadImmediately)
    {
    }
    /** Enters at once, for reading (bits 0) or for writing (WRITES): what the macros use. */
    adhereTo(const managedPtr<T> &data, std::uint32_t bits) : chunk_(data.chunk)
    {
        if (!chunk_)
            return;
        chunk_->acquire(bits);
        state_.store(ENTERED, relaxed);
        (bits ? loadedWritable : loadedReadable).store(true, relaxed);
    }
    /** A copy adheres for itself. */
    adhereTo(const adhereTo &other) : chunk_(other.chunk_)
    {
    }
    adhereTo &operator=(const adhereTo &other)
    {
        if (this != &other) {
            leave();
            chunk_ = other.chunk_;
        }
        return *this;
    }
    ~adhereTo()
    {
        leave();
    }

    operator T *()
    {
        if (!chunk_)
            return nullptr;
        enter(managedMemoryChunk::WRITES);
        if (!chunk_->try_write())
            chunk_->upgrade();
        loadedWritable.store(true, relaxed);
        return get();
    }
    operator const T *() const
    {
        if (!chunk_)
            return nullptr;
        enter(0);
        loadedReadable.store(true, relaxed);
        return get();
    }
    /* Otherwise a const T * from an adhereTo that is not const would be a T * first. */
    operator const T *()
    {
        return std::as_const(*this);
    }
    /** pre: converted, or made by a macro. */
    T *get() const
    {
        return chunk_ ? static_cast<T *>(chunk_->locPtr) : nullptr;
    }

    mutable std::atomic<bool> loadedReadable{false}, loadedWritable{false};

  private:
    enum : unsigned char { OUT, ENTERING, ENTERED };
    static constexpr std::memory_order relaxed = std::memory_order_relaxed;

    /* One thread enters; others wait for it.  The acquire pairs with its release: locPtr is set. */
    void enter(std::uint32_t bits) const
    {
        unsigned char was;

        while ((was = state_.load(std::memory_order_acquire)) != ENTERED) {
            if (was == ENTERING || !state_.compare_exchange_strong(was, ENTERING, relaxed)) {
                std::this_thread::yield();
                continue;
            }
            try {
                chunk_->acquire(bits);
            } catch (...) {
                state_.store(OUT, relaxed);
                throw;
            }
            state_.store(ENTERED, std::memory_order_release);
        }
    }
    void leave() noexcept
    {
        if (chunk_ && state_.load(relaxed) == ENTERED)
            chunk_->leave();
        state_.store(OUT, relaxed);
        loadedReadable.store(false, relaxed);
        loadedWritable.store(false, relaxed);
    }

    managedMemoryChunk                *chunk_;
    mutable std::atomic<unsigned char> state_{OUT};
};

/** While one lives, other threads wait in theirs: for threads that adhere to several large objects
 * one after the other.  byUser: start() and stop() are called by the program. */
class rambrainGlobalCriticalSectionControl
{
  public:
    explicit rambrainGlobalCriticalSectionControl(bool byUser = false) : by_user_(byUser)
    {
        if (!by_user_)
            start();
    }
    rambrainGlobalCriticalSectionControl(const rambrainGlobalCriticalSectionControl &) = delete;
    rambrainGlobalCriticalSectionControl &
    operator=(const rambrainGlobalCriticalSectionControl &) = delete;
    ~rambrainGlobalCriticalSectionControl()
    {
        if (!by_user_)
            stop();
    }
    void start()
    {
        if (lock_.try_lock())
            return;
        const detail::waiting self;
        lock_.lock();
    }
    void stop()
    {
        lock_.unlock();
    }

  private:
    inline static std::mutex lock_;
    bool                     by_user_;
};

/* ---- the process ---------------------------------------------------------------------- */

namespace rambrainglobals
{

/** The manager that a program has when it makes none, by its configuration. */
class rambrainConfig
{
  public:
    rambrainConfig()
    {
        init();
    }
    rambrainConfig(const rambrainConfig &)            = delete;
    rambrainConfig &operator=(const rambrainConfig &) = delete;

    /** Replaces the manager; objects of the old one are dropped. */
    void reinit(bool reread = true)
    {
        if (reread)
            reader_.setReread();
        manager_.reset();
        init();
    }
    void setCustomConfigPath(const std::string &path)
    {
        reader_.setCustomConfigPath(path);
    }
    const configuration &getConfig()
    {
        return reader_.getConfig();
    }
    /** Of the manager in use.  Throws if an object is in use. */
    void resizeMemory(global_bytesize size)
    {
        if (!managedMemory::defaultManager->setMemoryLimit(size))
            throw memoryException("the memory limit cannot change while objects are in use");
        reader_.getConfig().memory.value = size;
    }
    /** Of the swap of the manager in use.  Content is kept. */
    void resizeSwap(global_bytesize size)
    {
        managedSwap *swap = managedMemory::defaultManager->swap;

        (void)swap->extendSwap(size - swap->getSwapSize());
        reader_.getConfig().swapMemory.value = size;
    }

  private:
    void init()
    {
        const configuration &c = reader_.getConfig();

        if (c.memoryManager.value == "dummyManagedMemory") {
            manager_ = std::make_unique<dummyManagedMemory>();
            return;
        }
        if (c.swap.value == "managedDummySwap")
            swap_ = std::make_unique<managedDummySwap>(c.swapMemory.value);
        else
            swap_ =
                std::make_unique<managedFileSwap>(c.swapMemory.value, c.swapfiles.value.c_str());
        (void)swap_->setSwapPolicy(c.policy.value);
        manager_ = std::make_unique<cyclicManagedMemory>(swap_.get(), c.memory.value);
    }

    configReader                   reader_;
    std::unique_ptr<managedSwap>   swap_; /* outlives the manager */
    std::unique_ptr<managedMemory> manager_;
};

inline rambrainConfig config;

} // namespace rambrainglobals

/* ---- macros -------------------------------------------------------------------------- */

/** In this scope `instance` is a pointer to the elements of the managedPtr of that name. */
#define ADHERETO(type, instance)                                                                   \
    ::rambrain::adhereTo<type> instance##_glue(instance, ::rambrain::managedMemoryChunk::WRITES);  \
    type                      *instance = instance##_glue.get()
#define ADHERETOCONST(type, instance)                                                              \
    const ::rambrain::adhereTo<type> instance##_glue(instance, 0u);                                \
    const type                      *instance = instance##_glue.get()
/** The same, with a name for the pointer. */
#define ADHERETOLOC(type, instance, name)                                                          \
    ::rambrain::adhereTo<type> instance##_glue(instance, ::rambrain::managedMemoryChunk::WRITES);  \
    type                      *name = instance##_glue.get()
#define ADHERETOLOCCONST(type, instance, name)                                                     \
    const ::rambrain::adhereTo<type> instance##_glue(instance, 0u);                                \
    const type                      *name = instance##_glue.get()
#define LISTOFINGREDIENTS ::rambrain::rambrainGlobalCriticalSectionControl rambrain_section_control;

} // namespace rambrain
#endif
