/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A square matrix larger than the memory it may have, transposed in place: a program written for
 * Rambrain, over libusm.
 *
 *     transpose [ROWS [ROWS_IN_MEMORY]]      rows of as many doubles; 2048, 256
 *
 * Each row is an object.  Elements change places with those across the diagonal a pair of blocks of
 * rows at a time, and both blocks are adhered to meanwhile.  A pair touches elements that no other
 * one does, so threads take pairs as they come; together they hold half of the memory. */
#include <usm/rambrain.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace
{

using rambrain::adhereTo;
using matrix = rambrain::managedPtr<double, 2>;

long threads()
{
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

/* The rows of a block, in memory as long as this lives. */
class block
{
  public:
    block(const matrix &m, long first, long count)
    {
        rows_.reserve(static_cast<std::size_t>(count));
        for (long i = first; i < first + count; i++)
            rows_.emplace_back(m[static_cast<std::size_t>(i)]);
        for (adhereTo<double> &row : rows_)
            at_.push_back(row);
    }
    double &at(long row, long column) const
    {
        return at_[static_cast<std::size_t>(row)][column];
    }

  private:
    std::vector<adhereTo<double>> rows_;
    std::vector<double *>         at_;
};

void fill(const matrix &m)
{
    const long n = m.size();

#ifdef _OPENMP
#pragma omp parallel for
#endif
    for (long i = 0; i < n; i++) {
        adhereTo<double> row(m[static_cast<std::size_t>(i)]);
        double          *x = row;

        for (long j = 0; j < n; j++)
            x[j] = static_cast<double>(i * n + j);
    }
}

/* Blocks a and b of `width` rows; they may be the same one. */
void exchange(const matrix &m, long a, long b, long width)
{
    const long  n = m.size(), top = a * width, left = b * width;
    const long  height = std::min(width, n - top), breadth = std::min(width, n - left);
    const block upper(m, top, height), lower(m, left, breadth);

    for (long i = 0; i < height; i++)
        for (long j = a == b ? i + 1 : 0; j < breadth; j++)
            std::swap(upper.at(i, left + j), lower.at(j, top + i));
}

void transpose(const matrix &m, long in_memory)
{
    const long n = m.size(), width = std::max(1L, in_memory / (4 * threads()));
    const long blocks = (n + width - 1) / width;

#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic)
#endif
    for (long a = 0; a < blocks; a++)
        for (long b = a; b < blocks; b++)
            exchange(m, a, b, width);
}

/* How many elements are not those of the transposed matrix. */
long errors(const matrix &m)
{
    const long n = m.size();
    long       wrong = 0;

    for (long i = 0; i < n; i++) {
        const adhereTo<double> row(m[static_cast<std::size_t>(i)]);
        const double          *x = row;

        for (long j = 0; j < n; j++)
            wrong += static_cast<long>(x[j]) != j * n + i;
    }
    return wrong;
}

} // namespace

int main(int argc, char **argv)
{
    const long n         = argc > 1 ? std::atol(argv[1]) : 2048;
    const long in_memory = argc > 2 ? std::atol(argv[2]) : 256;
    long       wrong;

    if (n < 1 || in_memory < 4) {
        std::fprintf(stderr, "usage: transpose [ROWS [ROWS_IN_MEMORY]], at least 4 in memory\n");
        return 2;
    }
    const std::size_t             row = static_cast<std::size_t>(n) * sizeof(double);
    rambrain::managedFileSwap     swap(row * static_cast<std::size_t>(n), "rambrainswap-%d-%d");
    rambrain::cyclicManagedMemory memory(&swap, row * static_cast<std::size_t>(in_memory));
    const matrix                  m(static_cast<std::size_t>(n), static_cast<std::size_t>(n));

    fill(m);
    transpose(m, in_memory);
    wrong = errors(m);
    std::printf("%ld x %ld, %ld rows in memory, %ld thread%s: %ld elements wrong\n", n, n, in_memory,
                threads(), threads() == 1 ? "" : "s", wrong);
    memory.printSwapstats();
    return wrong != 0;
}
