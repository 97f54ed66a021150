/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* managed_work HOW WHAT MIB: the standard library's sort, or a BLAS that knows nothing of libusm, over
 * MIB of memory, which may be more than there is.  HOW is `managed`, or `malloc`, which leaves that
 * to the system.  WHAT: `sort`, `gemv` (a matrix by a vector, three times), `gemm` (a product of
 * matrices).  Prints the seconds, without filling and checking.  managed_swap.sh compares the two. */
#include <usm/usm.h>

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int PASSES = 3; /* of gemv */

using gemv_fn = void(const char *, const int *, const int *, const double *, const double *,
                     const int *, const double *, const int *, const double *, double *,
                     const int *);
using gemm_fn = void(const char *, const char *, const int *, const int *, const int *,
                     const double *, const double *, const int *, const double *, const int *,
                     const double *, double *, const int *);

struct memory {
    bool   is_managed;
    void  *data;
    size_t bytes;

    memory(bool managed, size_t size)
        : is_managed(managed), data(managed ? usm_alloc_managed(size) : std::malloc(size)),
          bytes(size)
    {
    }
    memory(const memory &)            = delete;
    memory &operator=(const memory &) = delete;
    ~memory()
    {
        if (is_managed)
            usm_free(data);
        else
            std::free(data);
    }
};

template <typename work> double seconds_of(work &&w)
{
    const auto began = std::chrono::steady_clock::now();

    w();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

std::uint64_t mix(std::uint64_t x)
{
    x = (x ^ (x >> 31)) * UINT64_C(0x9e3779b97f4a7c15);
    return x ^ (x >> 29);
}

int fail(const char *what)
{
    std::fprintf(stderr, "managed_work: %s\n", what);
    return 1;
}

/* Neighbours are in order, and no value is lost. */
int sort_all(const memory &m)
{
    auto          *x = static_cast<std::uint64_t *>(m.data);
    const size_t   n = m.bytes / sizeof *x;
    std::uint64_t  before = 0, after = 0;
    double         seconds;

    for (size_t i = 0; i < n; i++)
        before += x[i] = mix(i + 1);
    seconds = seconds_of([&] { std::sort(x, x + n); });
    for (size_t i = 0; i < n; i++) {
        after += x[i];
        if (i > 0 && x[i - 1] > x[i])
            return fail("the numbers are not in order");
    }
    std::printf("%.3f\n", seconds);
    return before == after ? 0 : fail("numbers were lost");
}

/* The reference BLAS computes a product without blocks: out of memory it would not end. */
template <typename function> function *blas(const char *name, bool is_blocked)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
    const char *const files[] = {std::getenv("USM_BENCH_BLAS"), "libopenblas.so.0",
                                 is_blocked ? nullptr : "libblas.so.3"};
    void             *library = nullptr;

    for (const char *file : files)
        library = library || !file ? library : dlopen(file, RTLD_NOW);
    return library ? reinterpret_cast<function *>(dlsym(library, name)) : nullptr;
}

/* A square matrix of ones, whose products are known. */
int gemv(const memory &m)
{
    const int           n    = static_cast<int>(std::sqrt(static_cast<double>(m.bytes) / 8)), one = 1;
    const double        unit = 1, zero = 0;
    gemv_fn            *call = blas<gemv_fn>("dgemv_", false);
    auto               *a    = static_cast<double *>(m.data);
    std::vector<double> x(static_cast<size_t>(n), 1.0), y(static_cast<size_t>(n));

    if (!call)
        return fail("there is no BLAS");
    std::fill(a, a + static_cast<size_t>(n) * static_cast<size_t>(n), 1.0);
    std::printf("%.3f\n", seconds_of([&] {
                    for (int i = 0; i < PASSES; i++)
                        call("N", &n, &n, &unit, a, &n, x.data(), &one, &zero, y.data(), &one);
                }));
    for (double v : y)
        if (v < n || v > n)
            return fail("the vector is wrong");
    return 0;
}

int gemm(const memory &m)
{
    const int    n    = static_cast<int>(std::sqrt(static_cast<double>(m.bytes) / 24));
    const size_t each = static_cast<size_t>(n) * static_cast<size_t>(n);
    const double unit = 1, zero = 0;
    gemm_fn     *call = blas<gemm_fn>("dgemm_", true);
    auto        *a    = static_cast<double *>(m.data);

    if (!call)
        return fail("there is no BLAS that works in blocks (libopenblas)");
    std::fill(a, a + 2 * each, 1.0);
    std::printf("%.3f\n", seconds_of([&] {
                    call("N", "N", &n, &n, &n, &unit, a, &n, a + each, &n, &zero, a + 2 * each, &n);
                }));
    for (size_t i = 0; i < each; i++)
        if (a[2 * each + i] < n || a[2 * each + i] > n)
            return fail("the product is wrong");
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    const bool   is_managed = argc == 4 && std::strcmp(argv[1], "managed") == 0;
    const size_t bytes      = argc == 4 ? std::strtoull(argv[3], nullptr, 10) << 20 : 0;

    if (bytes == 0)
        return fail("HOW WHAT MIB");
    const memory m(is_managed, bytes);
    if (!m.data)
        return fail(is_managed ? usm_last_error() : "out of memory");
    if (std::strcmp(argv[2], "sort") == 0)
        return sort_all(m);
    return std::strcmp(argv[2], "gemm") == 0 ? gemm(m) : gemv(m);
}
