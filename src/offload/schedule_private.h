/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What schedule.c (what is given) and schedule_end.c (what comes of it) share. */
#ifndef USM_OFFLOAD_SCHEDULE_PRIVATE_H
#define USM_OFFLOAD_SCHEDULE_PRIVATE_H

#include "offload/schedule.h"

#define USM__NO_RECORD UINT32_MAX

typedef enum record_state {
    RECORD_UNUSED = 0,
    RECORD_GIVEN, /* somebody is at it, or, where nothing may be repeated, was                   */
    RECORD_BACK   /* whoever had it is lost, failed or silent: it is free                         */
} record_state;

/* A chunk that is not done. */
typedef struct record {
    uint64_t     id, first, count;
    uint32_t     prev, next; /* of its list                                                      */
    uint32_t     attempts, holders;
    uint32_t     worker; /* who got it last                                                      */
    record_state state;
    bool         is_doubled, came_back;
} record;

typedef struct record_list {
    uint32_t head, tail;
} record_list;

/* A chunk in the hands of a worker.  It outlives the record where another was first. */
typedef struct holding {
    uint64_t id, count;
    uint64_t given_ns, since_ns; /* since: from when on its silence counts                        */
    uint64_t predicted_ns;       /* 0: not known                                                  */
    uint32_t record;
    bool     is_overdue;
} holding;

/* How long a worker takes: `cost` + n / speed for n indices. */
typedef struct pace {
    uint64_t least_ns, least_count; /* of the chunk that took the shortest                       */
    double   least_each_ns;         /* an index, at best                                         */
    uint64_t last_end_ns;
    uint64_t samples;
} pace;

typedef struct worker {
    holding *held; /* in the order they were given; at most depth * train                         */
    uint32_t nheld;
    bool     is_lost, is_aside, is_silent;
    pace     pace;
} worker;

typedef struct range {
    uint64_t first, end;
} range;

/* Fixed after create: p and what it points to, the sizes of the arrays. */
struct usm__schedule {
    usm__schedule_params p;
    usm_policy_state     state; /* for the policy: kept up to date, never made anew               */
    usm_policy_member   *members;
    worker              *workers;
    holding             *holdings;
    record              *records;
    uint32_t             nrecords, unused; /* a list by `next`                                    */
    record_list          given, back;      /* in the order of giving; in the order of indices     */
    range               *fresh;            /* never given: in order, from at on                   */
    size_t               nfresh, at, fresh_cap;
    range               *scratch; /* of nrecords: for usm__schedule_done_ranges()                 */
    uint64_t             limit;   /* indices from here on are not wanted                          */
    uint64_t             next_id;
    uint64_t             begin_ns;              /* of the first chunk; UINT64_MAX: none is given  */
    uint64_t             fresh_left, back_left; /* wanted indices that are free                   */
    uint64_t             live;                  /* records that are wanted                        */
    uint64_t             active;                /* holdings that are not overdue                  */
    uint32_t             well;                  /* workers that may get something, now or later   */
    usm__schedule_stats  stats;
};

/* A record leaves its list; RECORD_BACK also what is free. */
void usm__record_unlink(usm__schedule *s, uint32_t r);
/* To the end of the given ones. */
void usm__record_link_given(usm__schedule *s, uint32_t r);
/* Among those that are free, by its indices. */
void usm__record_link_back(usm__schedule *s, uint32_t r);
/* It is done, or not wanted. */
void usm__record_release(usm__schedule *s, uint32_t r);

/* How long `count` indices will take the worker; 0: not known. */
uint64_t usm__schedule_predict_ns(const usm__schedule *s, uint32_t w, uint64_t count);
/* The given record that `worker` should do as well; USM__NO_RECORD. */
uint32_t usm__schedule_late_record(const usm__schedule *s, uint32_t w, uint64_t now_ns);

static inline uint64_t usm__round_up(uint64_t n, uint64_t multiple)
{
    uint64_t odd = n % multiple;

    if (odd == 0)
        return n;
    return n > UINT64_MAX - multiple ? UINT64_MAX - UINT64_MAX % multiple : n + multiple - odd;
}

static inline bool usm__is_wanted(const usm__schedule *s, const record *r)
{
    return r->first < s->limit;
}

/* Nobody else may get it while it is held. */
static inline bool usm__is_in_place(const usm__schedule *s, const record *r)
{
    return s->p.never_twice || (r->attempts == 1 && r->worker >= s->p.in_place &&
                                r->worker - s->p.in_place < s->p.nin_place);
}

/* The record of what is held; NULL: it is done, or not wanted. */
static inline record *usm__record_of(const usm__schedule *s, const holding *h)
{
    record *r = &s->records[h->record];

    return r->state != RECORD_UNUSED && r->id == h->id ? r : NULL;
}

static inline bool usm__worker_is_well(const worker *w)
{
    return !w->is_lost && !w->is_aside;
}

#endif
