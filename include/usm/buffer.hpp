/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Buffers in C++17: types, scopes, exceptions.
 *
 *     usm::buffer<float> rows(n);                             // n elements, no memory yet
 *     {
 *         usm::host_access a(rows, usm::write | usm::no_init);  // blocks until it is there
 *         std::fill(a.begin(), a.end(), 1.0f);
 *     }                                                       // the access ends with its scope
 *     for (float x : usm::host_access(rows, 10, 20, usm::read)) // elements 10 .. 29
 *         sum += x;
 *
 * Sizes and offsets count elements, unlike usm/buffer.h, whose rules hold for the rest: what an
 * access waits for, who may touch what.  Functions of a usm::home that throw become failures of the
 * access that needed them.  Buffers and accesses can be moved and not be copied. */
#ifndef USM_BUFFER_HPP
#define USM_BUFFER_HPP

#include <usm/buffer.h>
#include <usm/error.hpp>
#include <usm/program.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace usm
{

/* ---- modes ----------------------------------------------------------------------- */

/** The mode of an access, as a type: usm::read, usm::write | usm::no_init. */
template <unsigned M> struct mode_tag {
    static constexpr usm_access_mode value     = static_cast<usm_access_mode>(M);
    static constexpr bool            is_writer = (M & USM_WRITE) != 0;
};

template <unsigned A, unsigned B>
constexpr mode_tag<A | B> operator|(mode_tag<A> /*a*/, mode_tag<B> /*b*/) noexcept
{
    return {};
}

inline constexpr mode_tag<USM_READ>       read{};
inline constexpr mode_tag<USM_WRITE>      write{}; /**< keeps what it does not write      */
inline constexpr mode_tag<USM_READ_WRITE> read_write{};
inline constexpr mode_tag<USM_NO_INIT>    no_init{}; /**< or-ed to a writer: keeps nothing  */
inline constexpr mode_tag<USM_NO_WAIT>    no_wait{}; /**< throws USM_E_AGAIN instead        */

/** As an offset or count: up to the end. */
inline constexpr std::size_t all = SIZE_MAX;

namespace detail
{

template <class T, unsigned M>
using element = std::conditional_t<mode_tag<M>::is_writer, T, const T>;

} // namespace detail

/* ---- homes ------------------------------------------------------------------------- */

/** usm_home_ops as a class: where the bytes of a buffer come from and go to.  The functions are
 * called by threads of the library, several at a time, and fail by throwing: usm::error with its
 * status, anything else as USM_E_IO.  Offsets and sizes are bytes. */
class home
{
  public:
    home()                        = default;
    home(const home &)            = delete;
    home &operator=(const home &) = delete;
    virtual ~home()               = default;

    virtual void read(std::uint64_t offset, void *data, std::size_t size) = 0;
    /** Called for writable homes only. */
    virtual void write(std::uint64_t offset, const void *data, std::size_t size)
    {
        (void)offset, (void)data, (void)size;
        throw error(USM_E_READ_ONLY, "this home has no write()");
    }
    /** What was written is durable. */
    virtual void flush()
    {
    }
};

namespace detail
{

/* The frame between libusm and a home: what is thrown stops here. */
template <class F> usm_status guarded(F &&call) noexcept
{
    try {
        call();
        return USM_OK;
    } catch (const error &e) {
        return usm_home_fail(e.status() == USM_E_CORRUPT ? USM_E_CORRUPT : USM_E_IO, "%s",
                             e.what());
    } catch (const std::exception &e) {
        return usm_home_fail(USM_E_IO, "%s", e.what());
    } catch (...) {
        return usm_home_fail(USM_E_IO, "a home threw something that is no std::exception");
    }
}

extern "C" {
inline usm_status usm_hpp_home_read(void *h, std::uint64_t offset, void *data, std::size_t size)
{
    return guarded([=] { static_cast<home *>(h)->read(offset, data, size); });
}
inline usm_status usm_hpp_home_write(void *h, std::uint64_t offset, const void *data,
                                     std::size_t size)
{
    return guarded([=] { static_cast<home *>(h)->write(offset, data, size); });
}
inline usm_status usm_hpp_home_flush(void *h)
{
    return guarded([=] { static_cast<home *>(h)->flush(); });
}
inline void usm_hpp_home_close(void *h)
{
    delete static_cast<home *>(h);
}
}

} // namespace detail

/* ---- buffers ----------------------------------------------------------------------- */

template <class T> class buffer;

/** A part of a buffer and what will be done to it: of usm::access_many(), usm::announce(). */
template <class T, unsigned M> struct range {
    static_assert((M & (USM_READ | USM_WRITE)) != 0, "a mode reads, writes, or both");

    usm_buffer *buf;
    std::size_t offset, count; /**< elements */

    usm_buffer_range get() const noexcept
    {
        return {buf, offset * sizeof(T), count * sizeof(T), mode_tag<M>::value};
    }
};

struct buffer_options {
    const char  *name = nullptr;
    usm_context *ctx  = nullptr; /**< the default context */
};

/** A usm_buffer of elements of T, which may be copied as bytes. */
template <class T> class buffer
{
    static_assert(std::is_trivially_copyable_v<T>, "elements travel as bytes");
    static_assert(!std::is_const_v<T>, "the mode of an access says what is const");

  public:
    using value_type = T;

    /** Of its own memory; the content is indeterminate at first. */
    explicit buffer(std::size_t n, const buffer_options &options = {})
    {
        create(nullptr, n, 0, options);
    }
    /** Over memory of the caller, which is used in place, lives longer, and holds the content when
     * the buffer has gone. */
    buffer(T *data, std::size_t n, const buffer_options &options = {})
    {
        create(data, n, 0, options);
    }
    /** Over memory that is only read: writes go elsewhere. */
    buffer(const T *data, std::size_t n, const buffer_options &options = {})
    {
        create(const_cast<T *>(data), n, USM_BUFFER_CONST_DATA, options);
    }
    explicit buffer(std::vector<T> &v, const buffer_options &options = {})
        : buffer(v.data(), v.size(), options)
    {
    }
    explicit buffer(const std::vector<T> &v, const buffer_options &options = {})
        : buffer(v.data(), v.size(), options)
    {
    }
    /** A copy: the vector goes. */
    explicit buffer(std::vector<T> &&v, const buffer_options &options = {})
    {
        create(v.data(), v.size(), USM_BUFFER_COPY_DATA, options);
    }
    /** n elements that come from and go to `h`; is_writable: h.write() may be called. */
    buffer(std::unique_ptr<home> h, std::size_t n, bool is_writable,
           const buffer_options &options = {})
    {
        static const usm_home_ops reader = {sizeof(usm_home_ops), detail::usm_hpp_home_read,
                                            nullptr, nullptr, detail::usm_hpp_home_close};
        static const usm_home_ops writer = {sizeof(usm_home_ops), detail::usm_hpp_home_read,
                                            detail::usm_hpp_home_write, detail::usm_hpp_home_flush,
                                            detail::usm_hpp_home_close};
        usm_buffer_desc           desc   = USM_BUFFER_DESC_INIT;

        desc.size      = detail::bytes(n, sizeof(T));
        desc.name      = options.name;
        desc.home      = is_writable ? &writer : &reader;
        desc.home_data = h.get();
        check(usm_buffer_create(options.ctx, &desc, &buf_));
        (void)h.release(); /* the buffer closes it */
    }
    /** Takes a buffer of the C interface over. */
    static buffer adopt(usm_buffer *buf) noexcept
    {
        return buffer(adopted{buf});
    }

    /** usm_buffer_open(): `offset` in bytes, `n` elements (0: up to the end of the file). */
    template <unsigned M>
    static buffer open(const std::string &path, mode_tag<M> /*mode*/, std::uint64_t offset = 0,
                       std::size_t n = 0, usm_context *ctx = nullptr)
    {
        usm_buffer *buf = nullptr;

        check(usm_buffer_open(ctx, path.c_str(), offset, detail::bytes(n, sizeof(T)),
                              mode_tag<M>::value, &buf));
        return buffer(adopted{buf});
    }

    buffer(buffer &&other) noexcept : buf_(other.release())
    {
    }
    buffer &operator=(buffer &&other) noexcept
    {
        if (this != &other) {
            usm_buffer_destroy(buf_);
            buf_ = other.release();
        }
        return *this;
    }
    buffer(const buffer &)            = delete;
    buffer &operator=(const buffer &) = delete;
    ~buffer()
    {
        usm_buffer_destroy(buf_);
    }

    /** Elements; of a file whose size is no multiple of T's, the whole ones. */
    std::size_t size() const noexcept
    {
        return usm_buffer_size(buf_) / sizeof(T);
    }
    usm_buffer *get() const noexcept
    {
        return buf_;
    }
    usm_buffer *release() noexcept
    {
        return std::exchange(buf_, nullptr);
    }

    /** usm_buffer_create_sub(): a part as a buffer of its own, over the same bytes. */
    buffer sub(std::size_t offset, std::size_t n)
    {
        usm_buffer *part = nullptr;

        check(usm_buffer_create_sub(buf_, detail::bytes(offset, sizeof(T)),
                                    detail::bytes(n, sizeof(T)), &part));
        return buffer(adopted{part});
    }
    template <unsigned M>
    usm::range<T, M> range(std::size_t offset, std::size_t n, mode_tag<M> /*mode*/) const
    {
        std::size_t end = size();

        if (offset > end || (n != all && n > end - offset))
            throw error(USM_E_INVALID, std::to_string(n) + " elements from " +
                                           std::to_string(offset) + " on leave a buffer of " +
                                           std::to_string(end));
        return {buf_, offset, n == all ? end - offset : n};
    }
    template <unsigned M> usm::range<T, M> range(mode_tag<M> mode) const
    {
        return range(0, all, mode);
    }

    void commit()
    {
        check(usm_buffer_commit(buf_));
    }
    void advise(usm_buffer_advice advice, std::size_t offset = 0, std::size_t n = all)
    {
        usm_buffer_range r = range(offset, n, usm::read).get();

        check(usm_buffer_advise(buf_, r.offset, r.size, advice));
    }
    void set_final_data(T *dest)
    {
        check(usm_buffer_set_final_data(buf_, dest));
    }
    void set_write_back(bool enabled)
    {
        check(usm_buffer_set_write_back(buf_, enabled));
    }

  private:
    struct adopted {
        usm_buffer *buf;
    };
    explicit buffer(adopted a) noexcept : buf_(a.buf)
    {
    }

    void create(T *data, std::size_t n, unsigned flags, const buffer_options &options)
    {
        usm_buffer_desc desc = USM_BUFFER_DESC_INIT;

        desc.size      = detail::bytes(n, sizeof(T));
        desc.host_data = data;
        desc.flags     = flags;
        desc.name      = options.name;
        check(usm_buffer_create(options.ctx, &desc, &buf_));
    }

    usm_buffer *buf_ = nullptr;
};

template <class T> buffer(T *, std::size_t) -> buffer<std::remove_const_t<T>>;
template <class T>
buffer(T *, std::size_t, const buffer_options &) -> buffer<std::remove_const_t<T>>;

/* ---- the host's accesses ------------------------------------------------------------- */

/** An access that is open for as long as the object lives: contiguous elements, const ones unless
 * the mode writes.  One thread at a time.  The buffer outlives it. */
template <class T, unsigned M> class host_access
{
  public:
    using element_type = detail::element<T, M>;
    using value_type   = T;
    using iterator     = element_type *;

    host_access(const buffer<T> &buf, mode_tag<M> mode) : host_access(buf.range(mode))
    {
    }
    host_access(const buffer<T> &buf, std::size_t offset, std::size_t n, mode_tag<M> mode)
        : host_access(buf.range(offset, n, mode))
    {
    }
    explicit host_access(const usm::range<T, M> &r)
    {
        usm_buffer_range bytes = r.get();

        check(usm_access_begin(bytes.buffer, bytes.offset, bytes.size, bytes.mode, &acc_));
        is_open_ = true;
    }
    /** Takes an open access of the C interface over. */
    static host_access adopt(const usm_access &acc) noexcept
    {
        return host_access(acc);
    }

    host_access(host_access &&other) noexcept
        : acc_(other.acc_), is_open_(std::exchange(other.is_open_, false))
    {
    }
    host_access &operator=(host_access &&other) noexcept
    {
        if (this != &other) {
            end_access();
            acc_     = other.acc_;
            is_open_ = std::exchange(other.is_open_, false);
        }
        return *this;
    }
    host_access(const host_access &)            = delete;
    host_access &operator=(const host_access &) = delete;
    ~host_access()
    {
        end_access();
    }

    /** Ends it now: no element may be touched any more. */
    void end_access() noexcept
    {
        if (std::exchange(is_open_, false))
            usm_access_end(&acc_);
    }
    bool is_open() const noexcept
    {
        return is_open_;
    }

    element_type *data() const noexcept
    {
        return static_cast<element_type *>(acc_.ptr);
    }
    std::size_t size() const noexcept
    {
        return acc_.size / sizeof(T);
    }
    bool empty() const noexcept
    {
        return size() == 0;
    }
    iterator begin() const noexcept
    {
        return data();
    }
    iterator end() const noexcept
    {
        return data() + size();
    }
    element_type &operator[](std::size_t i) const noexcept
    {
        return data()[i];
    }
    element_type &at(std::size_t i) const
    {
        if (i >= size())
            throw std::out_of_range("usm::host_access: element " + std::to_string(i) + " of " +
                                    std::to_string(size()));
        return data()[i];
    }

  private:
    explicit host_access(const usm_access &acc) noexcept : acc_(acc), is_open_(true)
    {
    }

    usm_access acc_     = {};
    bool       is_open_ = false;
};

namespace detail
{

template <class Tuple, std::size_t N, std::size_t... I>
Tuple adopt_all(const std::array<usm_access, N> &accs, std::index_sequence<I...> /*which*/) noexcept
{
    return Tuple(std::tuple_element_t<I, Tuple>::adopt(accs[I])...);
}

} // namespace detail

/** Several at once, all or none: threads that need several each cannot block each other.
 *
 *     auto [in, out] = usm::access_many(a.range(usm::read), b.range(0, 100, usm::write)); */
template <class... T, unsigned... M>
std::tuple<host_access<T, M>...> access_many(const range<T, M> &...ranges)
{
    std::array<usm_buffer_range, sizeof...(T)> list = {ranges.get()...};
    std::array<usm_access, sizeof...(T)>       accs = {};

    check(usm_access_many(list.size(), list.data(), accs.data()));
    return detail::adopt_all<std::tuple<host_access<T, M>...>>(accs,
                                                               std::index_sequence_for<T...>());
}

template <class T, unsigned M>
std::vector<host_access<T, M>> access_many(const std::vector<range<T, M>> &ranges)
{
    std::vector<usm_buffer_range>  list;
    std::vector<usm_access>        accs(ranges.size());
    std::vector<host_access<T, M>> out;

    list.reserve(ranges.size());
    out.reserve(ranges.size()); /* nothing below throws */
    for (const range<T, M> &r : ranges)
        list.push_back(r.get());
    check(usm_access_many(list.size(), list.data(), accs.data()));
    for (const usm_access &acc : accs)
        out.push_back(host_access<T, M>::adopt(acc));
    return out;
}

/** usm_announce(): what this thread will access, in this order. */
template <class... T, unsigned... M> void announce(const range<T, M> &...ranges)
{
    std::array<usm_buffer_range, sizeof...(T)> list = {ranges.get()...};

    check(usm_announce(list.size(), list.data()));
}
template <class T, unsigned M> void announce(const std::vector<range<T, M>> &ranges)
{
    std::vector<usm_buffer_range> list;

    list.reserve(ranges.size());
    for (const range<T, M> &r : ranges)
        list.push_back(r.get());
    check(usm_announce(list.size(), list.data()));
}

/* ---- commands -------------------------------------------------------------------------- */

/** What a command does to a part of a buffer.  As an argument of a kernel it lives until the launch
 * was submitted:
 *
 *     usm::accessor x(rows, usm::read_write);
 *     usm_arg       args[] = {x.arg(), USM_ARG_VAL(factor)}; */
template <class T, unsigned M> class accessor
{
    static_assert((M & USM_NO_WAIT) == 0, "commands wait in their queue");

  public:
    accessor(const buffer<T> &buf, mode_tag<M> mode) : accessor(buf.range(mode))
    {
    }
    accessor(const buffer<T> &buf, std::size_t offset, std::size_t n, mode_tag<M> mode)
        : accessor(buf.range(offset, n, mode))
    {
    }
    explicit accessor(const usm::range<T, M> &r) noexcept
    {
        usm_buffer_range bytes = r.get();

        acc_ = {bytes.buffer, bytes.offset, bytes.size, bytes.mode};
    }
    const usm_accessor *get() const noexcept
    {
        return &acc_;
    }
    usm_arg arg() const &noexcept
    {
        return {USM_ARG_ACCESS, sizeof acc_, &acc_};
    }
    usm_arg arg() const && = delete; /* it would be gone before the launch */

  private:
    usm_accessor acc_ = {};
};

/** Fills and copies, as usm_buffer_fill() and usm_buffer_copy(); without events. */
template <class T, unsigned M> void fill(usm_queue *q, const accessor<T, M> &dst, const T &value)
{
    static_assert(mode_tag<M>::is_writer, "a fill writes");
    check(usm_buffer_fill(q, dst.get(), &value, sizeof value, 0, nullptr, nullptr));
}
template <class T, unsigned D, unsigned S>
void copy(usm_queue *q, const accessor<T, D> &dst, const accessor<T, S> &src)
{
    static_assert(mode_tag<D>::is_writer, "a copy writes its destination");
    check(usm_buffer_copy(q, dst.get(), src.get(), 0, nullptr, nullptr));
}

} // namespace usm

#endif
