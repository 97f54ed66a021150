/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Allocation in C++17: SYCL's functions by type, owners, pools, allocators of the standard library,
 * stream-ordered allocation.
 *
 *     float *x = usm::malloc_device<float>(n, q);        // n elements; nullptr when there is none
 *     usm::unique_ptr<int[]> p = usm::alloc<int>(n, USM_SHARED);
 *     std::vector<int, usm::allocator<int, USM_SHARED>> v(n);
 *     usm::pool          pool(q.context(), q.device(), USM_HOST);
 *     usm::pool_resource mem(pool);
 *     std::pmr::list<int> l(&mem);
 *
 * What is freed goes back at once: no queued work may use it (usm::async_ptr frees in the order of
 * a queue). */
#ifndef USM_MEMORY_HPP
#define USM_MEMORY_HPP

#include <usm/async.h>
#include <usm/error.hpp>
#include <usm/memory.h>
#include <usm/objects.hpp>
#include <usm/pool.h>
#include <usm/queue.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <new>
#include <type_traits>
#include <utility>

namespace usm
{

/* ---- SYCL's functions ------------------------------------------------------------ */

/** Uninitialised memory for n elements on the queue's device; nullptr and usm_last_error() when it
 * cannot be had, as in SYCL. */
template <class T> [[nodiscard]] T *malloc(std::size_t n, const queue_ref &q, usm_kind kind)
{
    constexpr std::size_t align = alignof(T) > alignof(std::max_align_t) ? alignof(T) : 0;

    if (n > SIZE_MAX / sizeof(T))
        return nullptr;
    return static_cast<T *>(
        usm_aligned_alloc_ctx(align, n * sizeof(T), q.device().get(), q.context().get(), kind));
}
template <class T> [[nodiscard]] T *malloc_device(std::size_t n, const queue_ref &q)
{
    return usm::malloc<T>(n, q, USM_DEVICE);
}
template <class T> [[nodiscard]] T *malloc_host(std::size_t n, const queue_ref &q)
{
    return usm::malloc<T>(n, q, USM_HOST);
}
template <class T> [[nodiscard]] T *malloc_shared(std::size_t n, const queue_ref &q)
{
    return usm::malloc<T>(n, q, USM_SHARED);
}
/** Throws when p is not the start of a live block of that context. */
inline void free(void *p, const context_ref &ctx = {})
{
    check(usm_free_ctx(p, ctx.get()));
}
inline usm_kind get_pointer_type(const void *p, const context_ref &ctx = {}) noexcept
{
    return usm_get_pointer_type(p, ctx.get());
}
inline device get_pointer_device(const void *p, const context_ref &ctx = {})
{
    usm_device *dev = nullptr;

    check(usm_get_pointer_device(p, ctx.get(), &dev));
    return device(dev);
}

/* ---- owners ---------------------------------------------------------------------- */

struct free_deleter {
    void operator()(const void *p) const noexcept
    {
        usm_free(const_cast<void *>(p));
    }
};
/** A block of usm_alloc() and its family, with its owner. */
template <class T> using unique_ptr = std::unique_ptr<T, free_deleter>;

/** n elements, not initialised. */
template <class T> unique_ptr<T[]> alloc(std::size_t n, usm_kind kind)
{
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>,
                  "no constructor and no destructor is called");
    void *p = usm_alloc(detail::bytes(n, sizeof(T)), kind);

    if (p == nullptr)
        throw error(usm_last_status());
    return unique_ptr<T[]>(static_cast<T *>(p));
}

/** Destroys the object, then frees. */
template <class T> struct object_deleter {
    void operator()(T *p) const noexcept
    {
        p->~T();
        usm_free(const_cast<std::remove_const_t<T> *>(p));
    }
};
template <class T> using object_ptr = std::unique_ptr<T, object_deleter<T>>;

/** An object that the host constructs in memory that devices see. */
template <class T, usm_kind K = USM_SHARED, class... A,
          std::enable_if_t<!std::is_array_v<T>, int> = 0>
object_ptr<T> make_unique(A &&...args)
{
    static_assert(K == USM_HOST || K == USM_SHARED, "the host constructs the object");
    unique_ptr<std::byte> block(
        static_cast<std::byte *>(usm_aligned_alloc(alignof(T), sizeof(T), K)));

    if (block == nullptr)
        throw error(usm_last_status());
    T *object = ::new (static_cast<void *>(block.get())) T(std::forward<A>(args)...);

    (void)block.release();
    return object_ptr<T>(object);
}
/** n elements, each T(): usm::make_unique<int[]>(n). */
template <class T, usm_kind K = USM_SHARED, std::enable_if_t<std::is_array_v<T>, int> = 0>
unique_ptr<T> make_unique(std::size_t n)
{
    using element = std::remove_extent_t<T>;

    static_assert(K == USM_HOST || K == USM_SHARED, "the host constructs the elements");
    static_assert(std::is_trivially_destructible_v<element>, "no destructor is called");
    unique_ptr<element[]> block(static_cast<element *>(
        usm_aligned_alloc(alignof(element), detail::bytes(n, sizeof(element)), K)));

    if (block == nullptr)
        throw error(usm_last_status());
    std::uninitialized_value_construct_n(block.get(), n);
    return block;
}

/* ---- pools ----------------------------------------------------------------------- */

/** A pool of somebody else's, who keeps it alive. */
class pool_ref
{
  public:
    pool_ref() noexcept = default;
    explicit pool_ref(usm_pool *pool) noexcept : pool_(pool)
    {
    }
    /** nullptr and usm_last_error() when there is none. */
    [[nodiscard]] void *malloc(std::size_t size) const noexcept
    {
        return usm_pool_malloc(pool_, size);
    }
    [[nodiscard]] void *aligned_alloc(std::size_t align, std::size_t size) const noexcept
    {
        return usm_pool_aligned_alloc(pool_, align, size);
    }
    void free(void *p) const noexcept
    {
        usm_pool_free(pool_, p);
    }
    void trim_to(std::size_t keep) const
    {
        check(usm_pool_trim_to(pool_, keep));
    }
    usm_pool_stats stats() const
    {
        usm_pool_stats stats = USM_POOL_STATS_INIT;

        check(usm_pool_get_stats(pool_, &stats));
        return stats;
    }
    std::uint64_t attribute(usm_pool_attribute which) const
    {
        std::uint64_t value = 0;

        check(usm_pool_get_attribute(pool_, which, &value));
        return value;
    }
    void set_attribute(usm_pool_attribute which, std::uint64_t value) const
    {
        check(usm_pool_set_attribute(pool_, which, value));
    }
    context_ref context() const noexcept
    {
        return context_ref(usm_pool_get_context(pool_));
    }
    usm::device device() const noexcept
    {
        return usm::device(usm_pool_get_device(pool_));
    }
    usm_kind kind() const noexcept
    {
        return usm_pool_get_kind(pool_);
    }
    usm_pool *get() const noexcept
    {
        return pool_;
    }
    friend bool operator==(const pool_ref &a, const pool_ref &b) noexcept
    {
        return a.pool_ == b.pool_;
    }
    friend bool operator!=(const pool_ref &a, const pool_ref &b) noexcept
    {
        return a.pool_ != b.pool_;
    }

  protected:
    usm_pool *pool_ = nullptr;
};

/** A context's own pool for a device and kind. */
inline pool_ref default_pool(const context_ref &ctx, device dev, usm_kind kind)
{
    usm_pool *pool = usm_pool_default(ctx.get(), dev.get(), kind);

    if (pool == nullptr)
        throw error(usm_last_status());
    return pool_ref(pool);
}

/** Blocks that are still out when it goes are given back with it. */
class pool : public pool_ref
{
  public:
    pool(const context_ref &ctx, usm::device dev, usm_kind kind,
         const usm_pool_desc &desc = USM_POOL_DESC_INIT)
    {
        check(usm_pool_create(ctx.get(), dev.get(), kind, &desc, &pool_));
    }
    pool(const queue_ref &q, usm_kind kind, const usm_pool_desc &desc = USM_POOL_DESC_INIT)
        : pool(q.context(), q.device(), kind, desc)
    {
    }
    /** Takes a pool of the C interface over. */
    static pool adopt(usm_pool *raw) noexcept
    {
        return pool(owned{raw});
    }
    pool(pool &&other) noexcept : pool_ref(other.release())
    {
    }
    pool &operator=(pool &&other) noexcept
    {
        if (this != &other) {
            usm_pool_destroy(pool_);
            pool_ = other.release();
        }
        return *this;
    }
    pool(const pool &)            = delete;
    pool &operator=(const pool &) = delete;
    ~pool()
    {
        usm_pool_destroy(pool_);
    }
    usm_pool *release() noexcept
    {
        return std::exchange(pool_, nullptr);
    }

  private:
    struct owned {
        usm_pool *pool;
    };
    explicit pool(owned o) noexcept : pool_ref(o.pool)
    {
    }
};

/* ---- the standard library's ------------------------------------------------------- */

/** What sycl::usm_allocator is: memory of one kind of one device in one context, for containers of
 * the host.  Equal allocators free each other's blocks.  usm::bad_alloc on failure. */
template <class T, usm_kind K, std::size_t Align = 0> class allocator
{
    static_assert(K == USM_HOST || K == USM_SHARED,
                  "containers touch their memory: host or shared memory");
    static_assert((Align & (Align - 1)) == 0, "an alignment is a power of two");

  public:
    using value_type                             = T;
    using propagate_on_container_copy_assignment = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap            = std::true_type;
    using is_always_equal                        = std::false_type;
    template <class U> struct rebind {
        using other = allocator<U, K, Align>;
    };

    /** Of the default queue; throws when there is none. */
    allocator() : allocator(default_queue())
    {
    }
    /** Without a context the default one, without a device the context's first. */
    allocator(const context_ref &ctx, usm::device dev)
        : ctx_(ctx.get() != nullptr ? ctx.get() : default_context().get()),
          dev_(dev != usm::device() ? dev : ctx_.devices().at(0))
    {
    }
    allocator(const queue_ref &q) : allocator(q.context(), q.device())
    {
    }
    template <class U>
    allocator(const allocator<U, K, Align> &other) noexcept
        : ctx_(other.context()), dev_(other.device())
    {
    }

    [[nodiscard]] T *allocate(std::size_t n)
    {
        constexpr std::size_t align = Align > alignof(T) ? Align : alignof(T);

        if (n > SIZE_MAX / sizeof(T))
            throw std::bad_array_new_length();
        void *p = usm_aligned_alloc_ctx(align, n * sizeof(T), dev_.get(), ctx_.get(), K);

        if (p == nullptr)
            throw bad_alloc(usm_last_status());
        return static_cast<T *>(p);
    }
    void deallocate(T *p, std::size_t /*n*/) noexcept
    {
        usm_free(p);
    }
    context_ref context() const noexcept
    {
        return ctx_;
    }
    usm::device device() const noexcept
    {
        return dev_;
    }

  private:
    context_ref ctx_;
    usm::device dev_;
};

template <class T, usm_kind K, std::size_t A, class U, usm_kind L, std::size_t B>
bool operator==(const allocator<T, K, A> &a, const allocator<U, L, B> &b) noexcept
{
    return K == L && A == B && a.context() == b.context() && a.device() == b.device();
}
template <class T, usm_kind K, std::size_t A, class U, usm_kind L, std::size_t B>
bool operator!=(const allocator<T, K, A> &a, const allocator<U, L, B> &b) noexcept
{
    return !(a == b);
}

/** A pool of host or shared memory for std::pmr, which it does not own.  usm::bad_alloc on
 * failure. */
class pool_resource : public std::pmr::memory_resource
{
  public:
    explicit pool_resource(const pool_ref &pool) : pool_(pool)
    {
        if (pool_.kind() != USM_HOST && pool_.kind() != USM_SHARED)
            throw error(USM_E_KIND, "a pool of memory that the host may not touch is no resource "
                                    "for containers: take USM_HOST or USM_SHARED");
    }
    pool_ref pool() const noexcept
    {
        return pool_;
    }

  protected:
    void *do_allocate(std::size_t size, std::size_t align) override
    {
        void *p = usm_pool_aligned_alloc(pool_.get(), align, size);

        if (p == nullptr)
            throw bad_alloc(usm_last_status());
        return p;
    }
    void do_deallocate(void *p, std::size_t size, std::size_t /*align*/) override
    {
        usm_pool_free_sized(pool_.get(), p, size);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        const auto *same = dynamic_cast<const pool_resource *>(&other);

        return same != nullptr && same->pool_ == pool_;
    }

  private:
    pool_ref pool_;
};

/* ---- in the order of a queue ------------------------------------------------------- */

/** usm_async_malloc(): later commands of q may use the block. */
[[nodiscard]] inline void *async_malloc(const queue_ref &q, usm_kind kind, std::size_t size)
{
    void *p = usm_async_malloc(q.get(), kind, size);

    if (p == nullptr)
        throw error(usm_last_status());
    return p;
}
[[nodiscard]] inline void *async_malloc_from_pool(const queue_ref &q, std::size_t size,
                                                  const pool_ref &pool)
{
    void *p = usm_async_malloc_from_pool(q.get(), size, pool.get());

    if (p == nullptr)
        throw error(usm_last_status());
    return p;
}
/** Free when the commands submitted to q so far have ended. */
inline void async_free(const queue_ref &q, void *p)
{
    check(usm_async_free(q.get(), p));
}
/** Free once `deps` are complete too; the event is that of the free. */
inline event async_free(const queue_ref &q, void *p, const events &deps)
{
    detail::raw_events raw(deps);
    usm_event         *ev = nullptr;

    check(usm_async_free_after(q.get(), p, raw.size(), raw.data(), &ev));
    return event::adopt(ev);
}
/** For out-of-order queues: commands that use the block depend on *done. */
[[nodiscard]] inline void *async_malloc(const queue_ref &q, usm_kind kind, std::size_t size,
                                        const events &deps, event *done)
{
    detail::raw_events raw(deps);
    usm_event         *ev = nullptr;
    void              *p = usm_async_malloc_after(q.get(), kind, size, raw.size(), raw.data(), &ev);

    if (p == nullptr)
        throw error(usm_last_status());
    *done = event::adopt(ev);
    return p;
}

/** Frees in the order of its queue, which outlives it. */
struct async_deleter {
    queue_ref q;

    void operator()(const void *p) const noexcept
    {
        (void)usm_async_free(q.get(), const_cast<void *>(p));
    }
};
template <class T> using async_ptr = std::unique_ptr<T, async_deleter>;

/** n elements, not initialised, for the commands of q that come before the owner goes. */
template <class T>
async_ptr<T[]> async_alloc(const queue_ref &q, std::size_t n, usm_kind kind = USM_DEVICE)
{
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>,
                  "no constructor and no destructor is called");
    void *p = async_malloc(q, kind, detail::bytes(n, sizeof(T)));

    return async_ptr<T[]>(static_cast<T *>(p), async_deleter{q});
}

} // namespace usm

#endif
