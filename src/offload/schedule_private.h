/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by schedule.c, schedule_end.c and schedule_range.c. */
#ifndef USM_OFFLOAD_SCHEDULE_PRIVATE_H
#define USM_OFFLOAD_SCHEDULE_PRIVATE_H

#include "offload/schedule.h"

#define USM__NO_RECORD UINT32_MAX

typedef enum record_state {
    RECORD_UNUSED = 0,
    RECORD_GIVEN, /* a worker has it, or had it and it may not be repeated */
    RECORD_BACK   /* free again: its worker was lost, failed or silent */
} record_state;

/* A chunk that is not done. */
typedef struct record {
    uint64_t     id, first, count;
    uint32_t     prev, next; /* in its list */
    uint32_t     attempts, holders;
    uint32_t     worker; /* the one that got it last */
    record_state state;
    bool         is_doubled, came_back;
} record;

typedef struct record_list {
    uint32_t head, tail;
} record_list;

/* A chunk that a worker has in progress.  It outlives the record if another worker's result came
 * first. */
typedef struct holding {
    uint64_t id, count;
    uint64_t given_ns, since_ns; /* since: when the time allowed for it started */
    uint64_t predicted_ns;       /* 0: unknown */
    uint32_t record;
    bool     is_overdue;
} holding;

/* Measures how long a worker takes: `cost` + n / speed for n indices. */
typedef struct pace {
    uint64_t least_ns, least_count; /* of the shortest chunk */
    double   least_each_ns;         /* shortest time per index */
    uint64_t last_end_ns;
    uint64_t samples;
} pace;

typedef struct worker {
    holding *held; /* in the order of handing out; at most depth * train */
    uint32_t nheld;
    bool     is_lost, is_aside, is_silent;
    pace     pace;
} worker;

typedef struct range {
    uint64_t first, end;
} range;

/* Fixed after create: p and what it points to, and the sizes of the arrays. */
struct usm__schedule {
    usm__schedule_params p;
    usm_policy_state     state; /* for the policy: kept up to date, never rebuilt */
    usm_policy_member   *members;
    worker              *workers;
    holding             *holdings;
    record              *records;
    uint32_t             nrecords, unused; /* first of a list by `next` */
    record_list          given, back;      /* in the order of handing out; in the order of
                                              indices */
    range               *fresh;            /* never handed out: in order, from `at` on */
    size_t               nfresh, at, fresh_cap;
    range               *scratch; /* nrecords long: for usm__schedule_done_ranges() */
    uint64_t             limit;   /* indices from here on are not wanted */
    uint64_t             next_id;
    uint64_t             begin_ns;              /* when the first chunk was handed out; UINT64_MAX:
                                                   none was */
    uint64_t             fresh_left, back_left; /* wanted indices that are free */
    uint64_t             live;                  /* records that are wanted */
    uint64_t             active;                /* holdings that are not overdue */
    uint32_t             well;                  /* workers that may get chunks, now or later */
    usm__schedule_stats  stats;
};

/* Removes a record from its list; a BACK one also from what is free. */
void usm__schedule_record_unlink(usm__schedule *s, uint32_t r);
/* Appends a record to the given ones. */
void usm__schedule_record_link_given(usm__schedule *s, uint32_t r);
/* Adds a record to the free ones, in the order of indices. */
void usm__schedule_record_link_back(usm__schedule *s, uint32_t r);
/* Frees a record that is done or not wanted. */
void usm__schedule_record_release(usm__schedule *s, uint32_t r);

/* How long `count` indices will take the worker; 0: unknown. */
uint64_t usm__schedule_predict_ns(const usm__schedule *s, uint32_t w, uint64_t count);
/* The given record that `worker` should do as well; USM__NO_RECORD: none. */
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

/* Whether no other worker may get the chunk while one has it. */
static inline bool usm__is_in_place(const usm__schedule *s, const record *r)
{
    return s->p.never_twice || (r->attempts == 1 && r->worker >= s->p.in_place &&
                                r->worker - s->p.in_place < s->p.nin_place);
}

/* The record of a holding; NULL: it is done, or not wanted. */
static inline record *usm__schedule_record_of(const usm__schedule *s, const holding *h)
{
    record *r = &s->records[h->record];

    return r->state != RECORD_UNUSED && r->id == h->id ? r : NULL;
}

static inline bool usm__worker_is_well(const worker *w)
{
    return !w->is_lost && !w->is_aside;
}

#endif
