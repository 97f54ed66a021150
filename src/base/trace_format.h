/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The format of trace files.  base/trace_writer.c writes them and profile/trace.c reads them; no
 * other code knows the format.  Words are in the byte order of the writer, which the header states.
 *
 *     file   = header, chunk*                      at any time complete up to its last chunk
 *     chunk  = chunk header, payload
 *     payload= events of one thread in the order of their times, or one definition
 *
 * Objects that an event names by number (pool, tag, stack, space, tier, member, kernel) are defined
 * by a chunk before that of the event.  A merged file contains several traces one after the other:
 * each begins with a chunk SOURCE, whose payload is the header of that trace, and has its own
 * numbers and times.
 *
 * A reader that finds a damaged or incomplete chunk stops there and reports it: everything before
 * is valid.  It skips chunks of unknown kinds. */
#ifndef USM_BASE_TRACE_FORMAT_H
#define USM_BASE_TRACE_FORMAT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define USM__TRACE_MAGIC      "USMTRACE"
#define USM__TRACE_VERSION    3u /* 1: no spilling; 2: no launches; readers accept all */
#define USM__TRACE_BYTE_ORDER 0x01020304u

typedef struct usm__trace_header {
    char     magic[8];
    uint32_t version;
    uint32_t header_size;
    uint32_t byte_order;
    uint32_t pid;
    int32_t  rank; /* in an MPI job, otherwise -1 */
    uint32_t flags;
    uint64_t start_ns;      /* CLOCK_MONOTONIC: the times of events count from here */
    uint64_t start_real_ns; /* CLOCK_REALTIME at the same moment                    */
    uint64_t stack_bytes;   /* mean number of bytes between two sampled stacks; 1: every allocation,
                               0: none */
    char     host[64];
    char     command[256]; /* arguments separated by blanks, cut off */
} usm__trace_header;

typedef enum usm__trace_flag {
    USM__TRACE_MERGED = 1u << 0 /* each part begins with a chunk SOURCE */
} usm__trace_flag;

/* Payload kinds. */
typedef enum usm__trace_kind {
    USM__CHUNK_EVENTS = 1,  /* usm__trace_packed[]                                       */
    USM__CHUNK_POOL   = 2,  /* u32 id, u32 kind, char name[32], char device[64]          */
    USM__CHUNK_TAG    = 3,  /* u32 id, char name[64]                                     */
    USM__CHUNK_STACK  = 4,  /* u32 id, u32 n, n * u64 addresses, innermost first         */
    USM__CHUNK_MAP    = 5,  /* the lines of /proc/self/maps for code, to resolve symbols */
    USM__CHUNK_LOST   = 6,  /* u64: events lost by a thread since its last chunk         */
    USM__CHUNK_END    = 7,  /* the process ended normally; only a SOURCE can follow      */
    USM__CHUNK_SOURCE = 8,  /* usm__trace_header                                         */
    USM__CHUNK_SPACE  = 9,  /* u32 id, u32 0, u64 block size, u64 blocks, char name[48]  */
    USM__CHUNK_TIER   = 10, /* u32 id, u32 0, char name[64]                              */
    USM__CHUNK_MEMBER = 11, /* the same: a device of a team                              */
    USM__CHUNK_KERNEL = 12  /* the same                                                  */
} usm__trace_kind;

typedef struct usm__trace_chunk {
    uint32_t kind;
    uint32_t thread; /* number of the thread, from 1; 0: no thread */
    uint32_t size;   /* bytes of payload                           */
    uint32_t check;  /* usm__trace_check() of the payload          */
} usm__trace_chunk;

#define USM__TRACE_CHUNK_MAX ((uint32_t)1 << 24) /* bytes of payload; a longer chunk is damaged */

typedef enum usm__trace_type {
    USM__EVENT_ALLOC  = 1,
    USM__EVENT_FREE   = 2,
    USM__EVENT_FAILED = 3, /* a failed allocation: size, no address                         */
    USM__EVENT_TAKE   = 4, /* driver calls; extra: duration in ns, at most 2^32-1           */
    USM__EVENT_GIVE   = 5, /* their time is that of their end; address 0: the driver failed */
    USM__EVENT_MAP    = 6,
    USM__EVENT_UNMAP  = 7
} usm__trace_type;

/* Types [SPILL, SPILL_END) are events of spilling: SPILL + usm__trace_spill_kind (trace_spill.h).
 * address: block + mode << 32; extra: usm__ns_pack(); tag: id of the space; pool: id of the tier.
 * The time is that of the end.  A reader skips unknown ones. */
#define USM__EVENT_SPILL     16
#define USM__EVENT_SPILL_END 32
/* What the thread caches of a pool may hold has changed.  size: to so many bytes; address: what it
 * may become at this moment (the budget).  In the range that readers skip which do not know it. */
#define USM__EVENT_CACHES 31

/* Types [WORK, WORK_END) are events of launches over teams:  WORK + usm__trace_work_kind
 * (trace_work.h). extra: usm__ns_pack(); tag: id of the kernel; pool: id of the member; size:
 * indices or bytes; address: for a chunk its first index, for its parts how many ns before `time`
 * they ended, with USM__TRACE_IN_ORDER for a command that overlaps no other one of its queue.  A
 * reader skips unknown ones as well. */
#define USM__TRACE_IN_ORDER ((uint64_t)1 << 63)
#define USM__EVENT_WORK     32
#define USM__EVENT_WORK_END 48

/* An event, as stored in the file and in the rings. */
typedef struct usm__trace_packed {
    uint64_t time; /* ns since start_ns; in a ring: ticks */
    uint64_t address;
    uint64_t size;  /* the requested size; 0 for a free                                 */
    uint32_t extra; /* for an allocation: id of its stack (0: none) + slack << 16       */
    uint16_t tag;   /* 0: none                                                          */
    uint8_t  pool;  /* its id; all from USM__TRACE_POOLS_MAX on share that one; 0: none */
    uint8_t  type;
} usm__trace_packed;

_Static_assert(sizeof(usm__trace_packed) == 32, "32 bytes an event");

#define USM__TRACE_POOLS_MAX   255
#define USM__TRACE_TAGS_MAX    65535
#define USM__TRACE_STACKS_MAX  65535
#define USM__TRACE_DEPTH_MAX   32
#define USM__TRACE_SPACES_MAX  65535
#define USM__TRACE_TIERS_MAX   255
#define USM__TRACE_MEMBERS_MAX 255
#define USM__TRACE_KERNELS_MAX 65535

/* Slack (usable size - size) in 16 bits: an eleven-bit mantissa and a five-bit exponent.  Exact
 * below 2 KiB, otherwise rounded up by less than 1/512. */
static inline uint32_t usm__slack_pack(uint64_t slack)
{
    unsigned e = 0;

    if (slack >= (uint64_t)1 << 41)
        return 0xffff;
    if (slack > 2047)
        e = 54 - (unsigned)__builtin_clzll(slack); /* ten bits: one is left for rounding up */
    return (e << 11) | (uint32_t)((slack + ((uint64_t)1 << e) - 1) >> e);
}

static inline uint64_t usm__slack_unpack(uint32_t code)
{
    return (uint64_t)(code & 2047) << ((code >> 11) & 31);
}

/* Durations in 32 bits: a 27-bit mantissa and a five-bit exponent.  Exact below 2^27 ns, otherwise
 * rounded down by less than 1/2^26. */
static inline uint32_t usm__ns_pack(uint64_t ns)
{
    unsigned e = 0;

    if (ns >= (uint64_t)1 << 58)
        return UINT32_MAX;
    if (ns >> 27 != 0)
        e = 37 - (unsigned)__builtin_clzll(ns);
    return (uint32_t)e << 27 | (uint32_t)(ns >> e);
}

static inline uint64_t usm__ns_unpack(uint32_t code)
{
    return (uint64_t)(code & ((1u << 27) - 1)) << (code >> 27);
}

/* The sums of Adler-32 over the first bytes of p, eight at a time; returns how many.  The top lane
 * of a product is the sum of the lanes, each with its weight; no lane overflows. */
static inline size_t usm__trace_check_words(const unsigned char *p, size_t n, uint32_t *a,
                                            uint32_t *b)
{
    size_t i = 0;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; i + 8 <= n; i += 8) {
        const uint64_t lanes = 0x00ff00ff00ff00ffu;
        uint64_t       word, even, odd;

        memcpy(&word, p + i, 8);
        even = word & lanes;
        odd  = word >> 8 & lanes;
        *b += 8 * *a + (uint32_t)((even * 0x0008000600040002u + odd * 0x0007000500030001u) >> 48);
        *a += (uint32_t)((even + odd) * 0x0001000100010001u >> 48);
    }
#endif
    return i;
}

/* Adler-32 (RFC 1950). */
static inline uint32_t usm__trace_check(const void *data, size_t size)
{
    const unsigned char *p = (const unsigned char *)data;
    uint32_t             a = 1, b = 0;

    while (size > 0) {
        size_t n = size < 5552 ? size : 5552; /* as many as are possible before b overflows */

        for (size_t i = usm__trace_check_words(p, n, &a, &b); i < n; i++) {
            a += p[i];
            b += a;
        }
        a %= 65521;
        b %= 65521;
        p += n;
        size -= n;
    }
    return b << 16 | a;
}

#endif
