/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The bodies of test_templates.c, in C and in OpenCL C (templates.cl).  Whole numbers, so that
 * every device gives the same bits. */

USM_MAP(mix, uint32_t, uint32_t, uint32_t, return x * x + p + (uint32_t)i;)
USM_MAP(number, usm_nothing, uint32_t, usm_nothing, return (uint32_t)i * 7u + 1u;)
USM_MAP(widen, uint32_t, uint64_t, usm_nothing, return (uint64_t)x << 3 | 5u;)
USM_MAP(narrow, uint64_t, uint32_t, uint32_t, return (uint32_t)(x ^ x >> 32) + p;)
USM_MAP_REDUCE(squares, uint32_t, uint64_t, usm_nothing, (return (uint64_t)x * x + i;),
               (return a + b;))

/* y = m * x + c as m << 32 | c: joining one after the other, which does not commute. */
USM_MAP_REDUCE(chain, uint32_t, uint64_t, usm_nothing,
               (return (uint64_t)(x | 1u) << 32 | (uint32_t)i;),
               (uint32_t m = (uint32_t)(b >> 32); return (uint64_t)((uint32_t)(a >> 32) * m) << 32 |
                                                         ((uint32_t)a * m + (uint32_t)b);))
USM_SCAN(prefix, uint64_t, usm_nothing, uint32_t m = (uint32_t)(b >> 32);
         return (uint64_t)((uint32_t)(a >> 32) * m) << 32 | ((uint32_t)a * m + (uint32_t)b);)

USM_STENCIL(smear, uint32_t, uint32_t, uint32_t, 2,
            return USM_AT(0, -2) + 3u * USM_AT(-1, 0) + 5u * USM_AT(0, 0) + 7u * USM_AT(1, 1) +
                   11u * USM_AT(0, 2) + p * (uint32_t)(x + 2 * y);)
/* Reads further than it says: the row at the radius is what it gets. */
USM_STENCIL(greedy, uint32_t, uint32_t, usm_nothing, 1, return USM_AT(0, -5) + USM_AT(0, 9);)

USM_SEARCH(equal, uint32_t, uint32_t, return x == p;)
USM_SEARCH(root, usm_nothing, uint64_t, return i * i > p;)

USM_MASTER_WORKER(
    collatz, uint32_t, uint32_t, usm_nothing, uint32_t n = 0; while (x > 1u) {
        x = x % 2u ? 3u * x + 1u : x / 2u;
        n++;
    } return n;)

/* The highest number that reaches an element through others that are not 0. */
USM_ITERATE(flood, uint32_t, usm_nothing, 1,
            (uint32_t m = USM_AT(0, 0); uint32_t l = USM_AT(-1, 0), r = USM_AT(1, 0);
             uint32_t u = USM_AT(0, -1), d = USM_AT(0, 1); if (m == 0u) return 0u;
             m = l > m ? l : m; m = r > m ? r : m; m = u > m ? u : m; return d > m ? d : m;),
            (return before == now;))
