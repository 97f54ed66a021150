/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* See near_sim.h. */
#include "near_sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { AREAS = 4096, PAGE = 4096 };

/* What both have of an area; each has a far_area of his own. */
typedef struct shared {
    _Atomic uint64_t word;
    far_lease        lease;
    unsigned char   *bytes;
    uint32_t         lender;
} shared;

typedef struct area {
    far_area     a; /* first */
    shared      *s;
    struct area *next;
} area;

static shared  *all[AREAS];
static uint32_t nareas;
static area    *areas;

static near_sim *sim_of(far_near *n)
{
    return (near_sim *)(void *)n;
}

static area *area_make(shared *s, bool is_mapped)
{
    area *a = calloc(1, sizeof *a);

    if (!a)
        abort();
    a->a.word  = &s->word;
    a->a.bytes = is_mapped ? s->bytes : NULL;
    a->s       = s;
    a->next    = areas;
    areas      = a;
    return a;
}

static void area_free(far_area *a)
{
    for (area **at = &areas; *at; at = &(*at)->next)
        if (&(*at)->a == a) {
            area *gone = *at;

            *at = gone->next;
            free(gone);
            return;
        }
    abort(); /* it was given back before */
}

static uint64_t host(far_near *n)
{
    return sim_of(n)->host;
}

static far_area *lend(far_near *n, const far_lease *lease, uint32_t where[2])
{
    shared *s;

    if (sim_of(n)->cannot_lend || nareas == AREAS)
        return NULL;
    s = calloc(1, sizeof *s);
    if (!s)
        abort();
    s->lease  = *lease;
    s->lender = sim_of(n)->node;
    s->bytes  = mmap(NULL, lease->size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->bytes == MAP_FAILED)
        abort();
    atomic_store(&s->word, lease->number);
    where[0]      = sim_of(n)->node;
    where[1]      = nareas;
    all[nareas++] = s;
    sim_of(n)->lent++;
    return &area_make(s, false)->a;
}

static void take_back(far_near *n, far_area *a)
{
    shared *s = ((area *)(void *)a)->s;

    if (atomic_load(&s->word) != 0)
        abort(); /* far has not cleared it */
    (void)madvise(s->bytes, s->lease.size, MADV_DONTNEED);
    sim_of(n)->lent--;
    area_free(a);
}

static far_area *map(far_near *n, const far_lease *lease, const uint32_t where[2])
{
    shared *s = where[1] < nareas ? all[where[1]] : NULL;

    if (sim_of(n)->cannot_map || !s || s->lender != where[0] ||
        atomic_load(&s->word) != lease->number || s->lease.size != lease->size)
        return NULL;
    sim_of(n)->mapped++;
    return &area_make(s, true)->a;
}

static void unmap(far_near *n, far_area *a)
{
    sim_of(n)->mapped--;
    area_free(a);
}

static void give_back(far_near *n, far_area *a, uint64_t at, uint64_t size)
{
    sim_of(n)->given_back += size;
    (void)madvise(a->bytes + at, size, MADV_DONTNEED);
}

static uint32_t lender_of(const unsigned char *bytes)
{
    for (uint32_t i = 0; i < nareas; i++)
        if (bytes >= all[i]->bytes && bytes < all[i]->bytes + all[i]->lease.size)
            return all[i]->lender;
    abort(); /* it is no area */
}

static void copy(far_near *n, void *to, const void *from, size_t size, far_near_copy kind)
{
    near_sim *s      = sim_of(n);
    size_t    half   = size / 2;
    uint32_t  lender = lender_of(kind == FAR_COPY_OUT ? from : to);

    memcpy(to, from, half);
    if (s->middle)
        s->middle(s->user, lender);
    memcpy((char *)to + half, (const char *)from + half, size - half);
    s->copied += size;
}

void near_sim_init(near_sim *n, uint32_t node, uint64_t host_)
{
    static const far_near_ops ops = {
        .host      = host,
        .lend      = lend,
        .take_back = take_back,
        .map       = map,
        .unmap     = unmap,
        .give_back = give_back,
        .copy      = copy,
    };

    *n = (near_sim){.base = {&ops}, .node = node, .host = host_};
}

void near_sim_free_all(void)
{
    while (areas)
        area_free(&areas->a);
    while (nareas > 0) {
        shared *s = all[--nareas];

        (void)munmap(s->bytes, s->lease.size);
        free(s);
    }
}
