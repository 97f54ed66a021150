/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The bodies of the sample: one text, in C for the host and in OpenCL C for other devices.  The
 * picture has whole numbers, so that every device computes the same. */

/* clang-format off */
/* map: a picture becomes darker from left to right */
USM_MAP(darken, uint32_t, uint32_t, uint32_t, return x * (2u * p - (uint32_t)(i % p)) / (2u * p);)

/* map_reduce: how bright it is in all */
USM_MAP_REDUCE(light, uint32_t, uint64_t, usm_nothing, (return x;), (return a + b;))

/* stencil: a blur */
USM_STENCIL(blur, uint32_t, uint32_t, usm_nothing, 1,
            return (4u * USM_AT(0, 0) + USM_AT(-1, 0) + USM_AT(1, 0) + USM_AT(0, -1) + USM_AT(0, 1)) / 8u;)

/* scan: how bright it is up to each point */
USM_SCAN(total, uint64_t, usm_nothing, return a + b;)

/* search: the first number whose square ends in these six digits */
USM_SEARCH(ends_in, usm_nothing, uint64_t, return i * i % 1000000u == p;)

/* master_worker: steps of Collatz's sequence; some numbers have few, some many */
USM_MASTER_WORKER(steps_of, usm_nothing, uint32_t, usm_nothing,
                  uint64_t v = i + 1u; uint32_t n = 0;
                  while (v > 1u) { v = v % 2u ? 3u * v + 1u : v / 2u; n++; }
                  return n;)

/* iterate: light spreads to every point that is reached from a brighter one, and is not black */
USM_ITERATE(spread, uint32_t, usm_nothing, 1,
            (uint32_t m = USM_AT(0, 0); uint32_t l = USM_AT(-1, 0), r = USM_AT(1, 0);
             uint32_t u = USM_AT(0, -1), d = USM_AT(0, 1);
             if (m == 0u) return 0u;
             m = l > m ? l : m; m = r > m ? r : m; m = u > m ? u : m; return d > m ? d : m;),
            (return before == now;))

/* a pipeline of two maps */
USM_MAP(scale, uint32_t, uint32_t, usm_nothing, return x * 3u + 1u;)
USM_MAP(fold, uint32_t, uint32_t, usm_nothing, return x ^ x >> 7;)
/* clang-format on */
