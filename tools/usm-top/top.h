/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of usm-top share.
 *
 *     main.c         the command line, the loop without a terminal
 *     model.c        processes: their pages of now and of the sample before, rates, growth, order
 *     layout.c       lines of text: the list, the details of a process
 *     json.c, openmetrics.c   the same for programs
 *     screen.c       the terminal, by ncurses; no_screen.c without it
 *
 * One thread. */
#ifndef USM_TOP_TOP_H
#define USM_TOP_TOP_H

#include "base/inline/atomic.h"
#include "base/json.h"
#include "monitor/reader.h"

#define TOP_PROCESSES 256
#define TOP_GROWS     3 /* samples in a row in which a tag or pool grew, if nothing else is wanted */

typedef enum top_order {
    TOP_BY_LIVE,
    TOP_BY_RESERVED,
    TOP_BY_ALLOCATIONS,
    TOP_BY_COMMANDS,
    TOP_BY_DEPTH,
    TOP_BY_SPILL,
    TOP_BY_PID,
    TOP_BY_PROGRAM,
    TOP_ORDERS
} top_order;

/* In how many samples up to the last one the live bytes of a tag or pool rose, without one in between
 * in which they did not. */
typedef struct top_growth {
    uint64_t key;   /* a pool's serial; of a tag a hash of its name */
    uint64_t live;  /* at the last sample                  */
    uint64_t grown; /* bytes in the last `rises` samples */
    unsigned rises;
    bool     is_growing;
} top_growth;

/* How busy the members of a launch were, sample by sample: a mark for each, the last at the end. */
#define TOP_MARKS 40
typedef struct top_strip {
    uint64_t start_ns; /* of the launch; 0: none */
    uint64_t busy_ns[USM__MONITOR_MEMBERS];
    char     marks[USM__MONITOR_MEMBERS][TOP_MARKS + 1];
} top_strip;

/* Sums over the pools of a process, and rates in a second. */
typedef struct top_sums {
    uint64_t live; /* the least, if the process is not sampled: also by_kind */
    uint64_t reserved, reserved_peak, blocks, cached;
    uint64_t by_kind[4]; /* live, by usm_kind */
    uint64_t commands, depth, spilled;
    double   allocations_rate, commands_rate, read_rate, written_rate;
    double   use[USM__MONITOR_DEVICES]; /* of each device, 0 to 1; negative: not known yet */
    double   most_use;                  /* likewise: of the busiest one                    */
} top_sums;

typedef struct top_process {
    uint32_t          pid;
    bool              is_sampled; /* lately: else only what the pools themselves count is known */
    bool              is_refused; /* its page cannot be used: `why`                             */
    char              why[USM__MONITOR_WHY];
    unsigned          grows_after; /* samples in a row: what grew in each of them is growing    */
    usm__monitor_page now, before; /* before.samples 0: none yet */
    top_sums          sums;
    top_growth        tags[USM__MONITOR_TAGS], pools[USM__MONITOR_POOLS];
    top_strip         strips[USM__MONITOR_LAUNCHES];
} top_process;

typedef struct top_model {
    usm__monitor_reader reader;
    uint64_t            now_ns;
    uint32_t            only_pid; /* 0: all */
    const char         *filter;   /* part of the program's name; NULL or "": all */
    top_order           order;
    bool                is_reversed;
    unsigned            grows_after; /* 0: TOP_GROWS */
    size_t       n, gone, left_out;  /* gone: that ended between this sample and the one before */
    top_process *list[TOP_PROCESSES];
} top_model;

/* The host's memory is in the list of devices, and is none: it has no queues. */
static inline bool top_has_queues(const usm__monitor_device *d)
{
    return d->name[0] != '\0' || d->commands > 0;
}

/* In a copy of a page, which nobody writes. */
static inline uint64_t top_load(const _Atomic(uint64_t) *at)
{
    return usm_load_relaxed((_Atomic(uint64_t) *)(uintptr_t)at);
}
static inline bool top_is_pool(const usm__monitor_pool *p)
{
    return top_load(&p->serial) != 0;
}

/* What is live in a pool for certain: its counters say so at any time. */
static inline uint64_t top_least(const usm__monitor_pool *p)
{
    uint64_t low  = (uint64_t)usm_load_relaxed((_Atomic(int64_t) *)(uintptr_t)&p->held.low_bytes);
    uint64_t live = top_load(&p->held.large_bytes) + low;

    return live <= INT64_MAX ? live : 0; /* in caches may be more than was handed out just now */
}

/* ---- model.c ---- */
/* Announces the reader, reads all pages and puts them in order.  False: no memory. */
bool top_take(top_model *m);
void top_drop(top_model *m);
/* Computes the sums of p->now, and against p->before. */
void top_sum(top_process *p);
/* What grows, and how busy members of launches are: p->now is a new sample. */
void top_follow(top_process *p);
/* "live", "reserved", ...; TOP_ORDERS: there is no such. */
const char *top_order_name(top_order order);
top_order   top_order_of(const char *name);

/* ---- layout.c: lines that end with \n, of at most `width` characters ---- */
void top_put_title(usm__out *o, const top_model *m, unsigned width);
void top_put_head(usm__out *o, const top_model *m, unsigned width);
void top_put_row(usm__out *o, const top_process *p, unsigned width);
void top_put_details(usm__out *o, const top_process *p, unsigned width);

/* ---- for programs ---- */
void top_put_json(usm__json *j, const top_model *m);
void top_put_openmetrics(usm__out *o, const top_model *m);

/* ---- screen.c ---- */
typedef struct top_screen {
    unsigned every_ms;
    bool     has_no_colours;
    bool (*each)(void *arg, const top_model *m); /* after each sample; false: end */
    void *arg;
} top_screen;
/* False: this usm-top was built without ncurses. */
bool top_can_show(void);
/* Returns the exit status. */
int top_show(top_model *m, const top_screen *s);

#endif
