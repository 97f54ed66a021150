/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The reader of trace files.  It trusts nothing in a file: it checks sizes against the file's size,
 * checksums against payloads, numbers against definitions.  What is read before the first damage is
 * kept.  Numbers of pools, tags, stacks and threads are made unique over all parts of a merged
 * file, and the parts' real times put all times on one scale.  Called by tools. */
#include "profile/trace.h"

#include "base/os.h"
#include "base/status.h"
#include "base/trace_work.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_MAX ((uint32_t)1 << 24) /* of one part */

/* Maps the numbers of the current part to unique ones; 0: not defined. */
typedef struct numbers {
    uint32_t pool[USM__TRACE_POOLS_MAX + 1];
    uint32_t tag[USM__TRACE_TAGS_MAX + 1];
    uint32_t stack[USM__TRACE_STACKS_MAX + 1];
    uint32_t space[USM__TRACE_SPACES_MAX + 1];
    uint32_t tier[USM__TRACE_TIERS_MAX + 1];
    uint32_t member[USM__TRACE_MEMBERS_MAX + 1];
    uint32_t kernel[USM__TRACE_KERNELS_MAX + 1];
    uint32_t thread_base, thread_last;
} numbers;

typedef struct reader {
    const unsigned char *data;
    size_t               size, at;
    usm__profile        *t;
    numbers             *n;
    size_t               records_room, pools_room, tags_room, stacks_room, sources_room;
    size_t               spills_room, spaces_room, tiers_room;
    size_t               works_room, members_room, kernels_room, caches_room, energies_room;
    bool                 out_of_memory;
} reader;

/* Room for n + 1 elements; false, and out_of_memory, if there is none. */
static bool grow(reader *r, void *array, size_t n, size_t *have, size_t each)
{
    if (usm__heap_room(array, n, have, each))
        return true;
    r->out_of_memory = true;
    return false;
}

static void copy_name(char *out, size_t size, const void *from)
{
    memcpy(out, from, size - 1);
    out[size - 1] = '\0';
}

/* --- parts ------------------------------------------------------------------ */

/* NULL, or the header's flaw. */
static const char *check_header(const void *data, size_t size, usm__trace_header *h)
{
    if (size < sizeof(*h))
        return "it is too short for a trace";
    memcpy(h, data, sizeof(*h));
    if (memcmp(h->magic, USM__TRACE_MAGIC, sizeof(h->magic)) != 0)
        return "it is not a trace of libusm";
    if (h->byte_order != USM__TRACE_BYTE_ORDER)
        return "it was written on a machine of another byte order";
    if (h->version < 1 || h->version > USM__TRACE_VERSION || h->header_size != sizeof(*h))
        return "its version is not one that this libusm knows";
    h->host[sizeof(h->host) - 1]       = '\0';
    h->command[sizeof(h->command) - 1] = '\0';
    return NULL;
}

static bool begin_source(reader *r, const usm__trace_header *h)
{
    usm__profile *t = r->t;

    if (!grow(r, &t->sources, t->nsources, &r->sources_room, sizeof(*t->sources)))
        return false;
    t->sources[t->nsources++] = (usm__profile_source){.header = *h};
    r->n->thread_base += r->n->thread_last;
    r->n->thread_last = 0;
    memset(r->n, 0, offsetof(numbers, thread_base));
    return true;
}

static usm__profile_source *source(reader *r)
{
    return &r->t->sources[r->t->nsources - 1];
}

/* --- definitions: each returns NULL, or the flaw ------------------------------ */

static const char *add_pool(reader *r, uint32_t id, uint32_t kind, const char *name,
                            const char *device)
{
    usm__profile *t = r->t;

    if (!grow(r, &t->pools, t->npools, &r->pools_room, sizeof(*t->pools)))
        return NULL;
    t->pools[t->npools] = (usm__profile_pool_info){
        .id = (uint32_t)t->npools + 1, .kind = kind, .source = (uint32_t)t->nsources - 1};
    (void)snprintf(t->pools[t->npools].name, sizeof(t->pools->name), "%s", name);
    (void)snprintf(t->pools[t->npools].device, sizeof(t->pools->device), "%s", device);
    r->n->pool[id] = (uint32_t)++t->npools;
    return NULL;
}

static const char *read_pool(reader *r, const unsigned char *p, uint32_t size)
{
    uint32_t id, kind;
    char     name[32], device[64];

    if (size != 104)
        return "a pool of a wrong size";
    memcpy(&id, p, 4);
    memcpy(&kind, p + 4, 4);
    copy_name(name, sizeof(name), p + 8);
    copy_name(device, sizeof(device), p + 40);
    if (id == 0 || id > USM__TRACE_POOLS_MAX || kind > 3)
        return "a pool that cannot be";
    return add_pool(r, id, kind, name, device);
}

static const char *read_tag(reader *r, const unsigned char *p, uint32_t size)
{
    usm__profile *t = r->t;
    uint32_t      id;
    size_t        i = 1;
    char          name[64];

    if (size != 68)
        return "a tag of a wrong size";
    memcpy(&id, p, 4);
    copy_name(name, sizeof(name), p + 4);
    if (id == 0 || id > USM__TRACE_TAGS_MAX)
        return "a tag that cannot be";
    while (i < t->ntags && strcmp(t->tags[i], name) != 0) /* one tag for each name        */
        i++;
    if (i == t->ntags) {
        if (!grow(r, &t->tags, t->ntags, &r->tags_room, sizeof(*t->tags)))
            return NULL;
        memcpy(t->tags[t->ntags++], name, sizeof(name));
    }
    r->n->tag[id] = (uint32_t)i;
    return NULL;
}

static const char *read_stack(reader *r, const unsigned char *p, uint32_t size)
{
    usm__profile *t = r->t;
    uint32_t      id, depth;
    uint64_t     *frames;

    if (size < 8)
        return "a stack of a wrong size";
    memcpy(&id, p, 4);
    memcpy(&depth, p + 4, 4);
    if (id == 0 || id > USM__TRACE_STACKS_MAX || depth > USM__TRACE_DEPTH_MAX ||
        size != 8 + depth * sizeof(uint64_t))
        return "a stack that cannot be";
    if (!grow(r, &t->stacks, t->nstacks, &r->stacks_room, sizeof(*t->stacks)))
        return NULL;
    frames = usm__heap_alloc(depth * sizeof(uint64_t));
    if (frames == NULL) {
        r->out_of_memory = true;
        return NULL;
    }
    memcpy(frames, p + 8, depth * sizeof(uint64_t));
    t->stacks[t->nstacks] = (usm__profile_stack_info){(uint32_t)t->nstacks + 1, depth, frames,
                                                      (uint32_t)t->nsources - 1};
    r->n->stack[id]       = (uint32_t)++t->nstacks;
    return NULL;
}

static const char *read_space(reader *r, const unsigned char *p, uint32_t size)
{
    usm__profile_space_info space = {.source = (uint32_t)r->t->nsources - 1};
    uint32_t                id;

    if (size != 72)
        return "a space of a wrong size";
    memcpy(&id, p, 4);
    memcpy(&space.block_size, p + 8, 8);
    memcpy(&space.blocks, p + 16, 8);
    copy_name(space.name, sizeof(space.name), p + 24);
    if (id == 0 || id > USM__TRACE_SPACES_MAX || space.blocks > UINT32_MAX)
        return "a space that cannot be";
    if (!grow(r, &r->t->spaces, r->t->nspaces, &r->spaces_room, sizeof(*r->t->spaces)))
        return NULL;
    r->t->spaces[r->t->nspaces++] = space;
    r->n->space[id]               = (uint32_t)r->t->nspaces;
    return NULL;
}

/* A list of names: of tiers, members or kernels. */
typedef struct names {
    char (**list)[64];
    size_t   *n, *room;
    uint32_t *id_of, most;
} names;

static const char *read_name(reader *r, const unsigned char *p, uint32_t size, names to)
{
    uint32_t id;

    if (size != 72)
        return "a name of a wrong size";
    memcpy(&id, p, 4);
    if (id == 0 || id > to.most)
        return "a name that cannot be";
    if (!grow(r, to.list, *to.n, to.room, sizeof(**to.list)))
        return NULL;
    copy_name((*to.list)[(*to.n)++], sizeof(**to.list), p + 8);
    to.id_of[id] = (uint32_t)*to.n;
    return NULL;
}

static const char *read_map(reader *r, const unsigned char *p, uint32_t size)
{
    char *text = usm__heap_alloc((size_t)size + 1);

    if (text == NULL) {
        r->out_of_memory = true;
        return NULL;
    }
    memcpy(text, p, size);
    usm__heap_free(source(r)->maps);
    source(r)->maps = text;
    return NULL;
}

static const char *read_lost(reader *r, const unsigned char *p, uint32_t size)
{
    uint64_t n;

    if (size != sizeof(n))
        return "a count of a wrong size";
    memcpy(&n, p, sizeof(n));
    source(r)->lost += n;
    r->t->lost += n;
    return NULL;
}

static const char *read_source(reader *r, const unsigned char *p, uint32_t size)
{
    usm__trace_header h;
    const char       *wrong = check_header(p, size, &h);

    if ((r->t->header.flags & USM__TRACE_MERGED) == 0)
        return "a part in a file that was not merged";
    if (wrong == NULL)
        (void)begin_source(r, &h);
    return wrong;
}

/* --- events -------------------------------------------------------------------- */

static const char *read_spill(reader *r, const usm__trace_packed *e, uint32_t thread)
{
    usm__profile             *t = r->t;
    usm__profile_spill_record o = {
        .time_ns = e->time,
        .ns      = usm__ns_unpack(e->extra),
        .bytes   = e->size,
        .kind    = (uint32_t)e->type - USM__EVENT_SPILL,
        .block   = (uint32_t)e->address,
        .mode    = (uint32_t)(e->address >> 32),
        .space   = r->n->space[e->tag],
        .tier    = r->n->tier[e->pool],
        .thread  = r->n->thread_base + thread,
        .source  = (uint32_t)t->nsources - 1,
    };

    if (o.kind >= USM__SPILL_KINDS)
        return NULL; /* an event of a newer libusm */
    if (grow(r, &t->spills, t->nspills, &r->spills_room, sizeof(*t->spills)))
        t->spills[t->nspills++] = o;
    return NULL;
}

static const char *read_energy(reader *r, const usm__trace_packed *e, uint32_t thread)
{
    usm__profile              *t = r->t;
    usm__profile_energy_record o = {
        .time_ns     = e->time,
        .microjoules = e->size,
        .thread      = r->n->thread_base + thread,
        .member      = r->n->member[e->pool],
        .kernel      = r->n->kernel[e->tag],
        .source      = (uint32_t)t->nsources - 1,
        .is_stated   = e->type == USM__EVENT_WORK + USM__WORK_ENERGY_STATED,
    };

    if (grow(r, &t->energies, t->nenergies, &r->energies_room, sizeof(*t->energies)))
        t->energies[t->nenergies++] = o;
    return NULL;
}

static const char *read_work(reader *r, const usm__trace_packed *e, uint32_t thread)
{
    usm__profile            *t = r->t;
    usm__profile_work_record o = {
        .time_ns = e->time,
        .ns      = usm__ns_unpack(e->extra),
        .first   = e->address,
        .n       = e->size,
        .kind    = (uint32_t)e->type - USM__EVENT_WORK,
        .member  = r->n->member[e->pool],
        .kernel  = r->n->kernel[e->tag],
        .thread  = r->n->thread_base + thread,
        .source  = (uint32_t)t->nsources - 1,
    };

    if (o.kind >= USM__WORK_KINDS)
        return NULL; /* an event of a newer libusm */
    if (o.kind > USM__WORK_FAILED) {
        o.is_in_order = (e->address & USM__TRACE_IN_ORDER) != 0;
        o.first &= ~USM__TRACE_IN_ORDER;
        o.time_ns -= o.first < o.time_ns ? o.first : o.time_ns;
        o.first = 0;
    }
    if (grow(r, &t->works, t->nworks, &r->works_room, sizeof(*t->works)))
        t->works[t->nworks++] = o;
    return NULL;
}

/* The number of an event's pool, which gets a name if its definition is missing. */
static uint32_t pool_of(reader *r, uint8_t id)
{
    char name[32];

    if (id != 0 && r->n->pool[id] == 0) {
        (void)snprintf(name, sizeof(name), "pool %u", id);
        (void)add_pool(r, id, 0, name, "");
    }
    return r->n->pool[id];
}

static const char *read_caches(reader *r, const usm__trace_packed *e, uint32_t thread)
{
    usm__profile             *t = r->t;
    usm__profile_cache_record o = {
        .time_ns = e->time,
        .room    = e->size,
        .limit   = e->address,
        .pool    = pool_of(r, e->pool),
        .thread  = r->n->thread_base + thread,
        .source  = (uint32_t)t->nsources - 1,
    };

    if (o.pool != 0 && grow(r, &t->caches, t->ncaches, &r->caches_room, sizeof(*t->caches)))
        t->caches[t->ncaches++] = o;
    return NULL;
}

static const char *read_event(reader *r, const usm__trace_packed *e, uint32_t thread)
{
    usm__profile       *t = r->t;
    usm__profile_record o = {
        .e      = {.time_ns = e->time,
                   .address = e->address,
                   .size    = e->size,
                   .extra   = e->extra,
                   .tag     = r->n->tag[e->tag],
                   .type    = e->type},
        .thread = r->n->thread_base + thread,
        .source = (uint32_t)t->nsources - 1,
    };

    if (e->type == USM__EVENT_CACHES)
        return read_caches(r, e, thread);
    if (e->type >= USM__EVENT_SPILL && e->type < USM__EVENT_SPILL_END)
        return read_spill(r, e, thread);
    if (e->type == USM__EVENT_WORK + USM__WORK_ENERGY ||
        e->type == USM__EVENT_WORK + USM__WORK_ENERGY_STATED)
        return read_energy(r, e, thread);
    if (e->type >= USM__EVENT_WORK && e->type < USM__EVENT_WORK_END)
        return read_work(r, e, thread);
    if (e->type < USM__EVENT_ALLOC || e->type > USM__EVENT_UNMAP)
        return "an event of an unknown type";
    o.e.pool = pool_of(r, e->pool);
    if (e->type == USM__EVENT_ALLOC) {
        o.e.usable = e->size + usm__slack_unpack(e->extra >> 16);
        o.e.extra  = r->n->stack[e->extra & 0xffff];
    }
    if (grow(r, &t->records, t->nrecords, &r->records_room, sizeof(*t->records)))
        t->records[t->nrecords++] = o;
    return NULL;
}

static const char *read_events(reader *r, const unsigned char *p, uint32_t size, uint32_t thread)
{
    usm__trace_packed e;
    const char       *wrong = NULL;

    if (size % sizeof(e) != 0)
        return "events of a wrong size";
    if (thread == 0 || thread > THREADS_MAX)
        return "events of no thread";
    if (thread > r->n->thread_last)
        r->n->thread_last = thread;
    for (uint32_t i = 0; i < size && wrong == NULL && !r->out_of_memory; i += sizeof(e)) {
        memcpy(&e, p + i, sizeof(e));
        wrong = read_event(r, &e, thread);
    }
    return wrong;
}

static const char *read_payload(reader *r, const usm__trace_chunk *c, const unsigned char *p)
{
    switch (c->kind) {
    case USM__CHUNK_SOURCE:
        return read_source(r, p, c->size);
    case USM__CHUNK_EVENTS:
        return read_events(r, p, c->size, c->thread);
    case USM__CHUNK_POOL:
        return read_pool(r, p, c->size);
    case USM__CHUNK_TAG:
        return read_tag(r, p, c->size);
    case USM__CHUNK_STACK:
        return read_stack(r, p, c->size);
    case USM__CHUNK_MAP:
        return read_map(r, p, c->size);
    case USM__CHUNK_SPACE:
        return read_space(r, p, c->size);
    case USM__CHUNK_TIER:
        return read_name(
            r, p, c->size,
            (names){&r->t->tiers, &r->t->ntiers, &r->tiers_room, r->n->tier, USM__TRACE_TIERS_MAX});
    case USM__CHUNK_MEMBER:
        return read_name(r, p, c->size,
                         (names){&r->t->members, &r->t->nmembers, &r->members_room, r->n->member,
                                 USM__TRACE_MEMBERS_MAX});
    case USM__CHUNK_KERNEL:
        return read_name(r, p, c->size,
                         (names){&r->t->kernels, &r->t->nkernels, &r->kernels_room, r->n->kernel,
                                 USM__TRACE_KERNELS_MAX});
    case USM__CHUNK_LOST:
        return read_lost(r, p, c->size);
    case USM__CHUNK_END:
        source(r)->ended = true;
        return NULL;
    default:
        return NULL; /* a chunk of a newer libusm */
    }
}

/* NULL, or the flaw of the current chunk. */
static const char *read_chunk(reader *r)
{
    usm__trace_chunk     c;
    const unsigned char *p;
    size_t               left = r->size - r->at;
    const char          *wrong;

    if (left < sizeof(c))
        return "the file ends within it";
    memcpy(&c, r->data + r->at, sizeof(c));
    p = r->data + r->at + sizeof(c);
    if (c.size > USM__TRACE_CHUNK_MAX)
        return "its size cannot be";
    if (c.size > left - sizeof(c))
        return "the file ends within it";
    if (usm__trace_check(p, c.size) != c.check)
        return "its checksum is wrong";
    if (r->t->nsources == 0 && c.kind != USM__CHUNK_SOURCE)
        return "it belongs to no part";
    if (r->t->nsources > 0 && source(r)->ended && c.kind != USM__CHUNK_SOURCE)
        return "it follows the end";
    wrong = read_payload(r, &c, p);
    if (wrong == NULL)
        r->at += sizeof(c) + c.size;
    return wrong;
}

/* --- order ----------------------------------------------------------------------- */

/* First element after the ascending run that begins at `i`. */
static size_t run_end(const usm__profile_record *a, size_t i, size_t n)
{
    for (i++; i < n && a[i - 1].e.time_ns <= a[i].e.time_ns; i++)
        ;
    return i;
}

static void merge_runs(const usm__profile_record *from, usm__profile_record *to, const size_t at[3])
{
    size_t i = at[0], k = at[1], o = at[0];

    while (i < at[1] && k < at[2])
        to[o++] = from[k].e.time_ns < from[i].e.time_ns ? from[k++] : from[i++];
    while (i < at[1])
        to[o++] = from[i++];
    while (k < at[2])
        to[o++] = from[k++];
}

/* A natural merge sort: each chunk is an ascending run already, and equal times keep their
 * order. */
static bool sort_records(reader *r)
{
    usm__profile        *t = r->t;
    usm__profile_record *a = t->records, *b, *swap;
    size_t               n = t->nrecords, runs = 2;

    if (n == 0 || run_end(a, 0, n) == n)
        return true;
    b = usm__heap_alloc(n * sizeof(*b));
    if (b == NULL)
        return false;
    while (runs > 1) {
        runs = 0;
        for (size_t at[3] = {0}; at[0] < n; at[0] = at[2], runs++) {
            at[1] = run_end(a, at[0], n);
            at[2] = at[1] < n ? run_end(a, at[1], n) : n;
            merge_runs(a, b, at);
        }
        swap = a;
        a    = b;
        b    = swap;
    }
    t->records = a;
    usm__heap_free(b);
    return true;
}

/* Times count from the start of the earliest part. */
static void align_times(usm__profile *t)
{
    uint64_t first = UINT64_MAX;

    t->ended = t->nsources > 0;
    for (size_t i = 0; i < t->nsources; i++) {
        if (t->sources[i].header.start_real_ns < first)
            first = t->sources[i].header.start_real_ns;
        t->ended &= t->sources[i].ended;
    }
    if (t->nsources > 0)
        t->header.start_real_ns = first;
    for (size_t i = 0; i < t->nrecords; i++)
        t->records[i].e.time_ns += t->sources[t->records[i].source].header.start_real_ns - first;
    for (size_t i = 0; i < t->nspills; i++)
        t->spills[i].time_ns += t->sources[t->spills[i].source].header.start_real_ns - first;
    for (size_t i = 0; i < t->nworks; i++)
        t->works[i].time_ns += t->sources[t->works[i].source].header.start_real_ns - first;
    for (size_t i = 0; i < t->nenergies; i++)
        t->energies[i].time_ns += t->sources[t->energies[i].source].header.start_real_ns - first;
    for (size_t i = 0; i < t->ncaches; i++)
        t->caches[i].time_ns += t->sources[t->caches[i].source].header.start_real_ns - first;
}

static int by_time(const void *a, const void *b)
{
    const usm__profile_spill_record *x = a, *y = b;

    if (x->time_ns != y->time_ns)
        return x->time_ns < y->time_ns ? -1 : 1;
    return x->thread != y->thread ? (x->thread < y->thread ? -1 : 1) : 0;
}

static int works_by_time(const void *a, const void *b)
{
    const usm__profile_work_record *x = a, *y = b;

    if (x->time_ns != y->time_ns)
        return x->time_ns < y->time_ns ? -1 : 1;
    return x->thread != y->thread ? (x->thread < y->thread ? -1 : 1) : 0;
}

static int energies_by_time(const void *a, const void *b)
{
    const usm__profile_energy_record *x = a, *y = b;

    return (x->time_ns > y->time_ns) - (x->time_ns < y->time_ns);
}

static int caches_by_time(const void *a, const void *b)
{
    const usm__profile_cache_record *x = a, *y = b;

    if (x->time_ns != y->time_ns)
        return x->time_ns < y->time_ns ? -1 : 1;
    return x->thread != y->thread ? (x->thread < y->thread ? -1 : 1) : 0;
}

/* --- interface ---------------------------------------------------------------------- */

static void read_all(reader *r)
{
    const char *wrong = NULL;

    if ((r->t->header.flags & USM__TRACE_MERGED) == 0)
        (void)begin_source(r, &r->t->header);
    r->at = sizeof(usm__trace_header);
    while (r->at < r->size && wrong == NULL && !r->out_of_memory)
        wrong = read_chunk(r);
    if (wrong != NULL)
        (void)snprintf(r->t->damage, sizeof(r->t->damage),
                       "the chunk at byte %zu of %zu cannot be read: %s", r->at, r->size, wrong);
}

static bool prepare(reader *r)
{
    r->t = usm__heap_alloc(sizeof(*r->t));
    r->n = usm__heap_alloc(sizeof(*r->n));
    if (r->t == NULL || r->n == NULL)
        return false;
    if (!grow(r, &r->t->tags, 0, &r->tags_room, sizeof(*r->t->tags)))
        return false;
    memset(r->t->tags[0], 0, sizeof(*r->t->tags));
    r->t->ntags = 1;
    return true;
}

usm_status usm__profile_parse(const void *data, size_t size, const char *name, usm__profile **trace)
{
    reader            r = {.data = data, .size = size};
    usm__trace_header h;
    const char       *wrong = check_header(data, size, &h);
    bool              fine;

    if (wrong != NULL)
        return usm__fail(USM_E_FORMAT, "%s cannot be read as a trace: %s", name, wrong);
    fine = prepare(&r);
    if (fine) {
        r.t->header = h;
        read_all(&r);
        fine = !r.out_of_memory;
    }
    if (fine) {
        align_times(r.t);
        fine = sort_records(&r);
        if (r.t->nspills > 1)
            qsort(r.t->spills, r.t->nspills, sizeof(*r.t->spills), by_time);
        if (r.t->nworks > 1)
            qsort(r.t->works, r.t->nworks, sizeof(*r.t->works), works_by_time);
        if (r.t->nenergies > 1)
            qsort(r.t->energies, r.t->nenergies, sizeof(*r.t->energies), energies_by_time);
        if (r.t->ncaches > 1)
            qsort(r.t->caches, r.t->ncaches, sizeof(*r.t->caches), caches_by_time);
    }
    usm__heap_free(r.n);
    if (fine) {
        *trace = r.t;
        return USM_OK;
    }
    usm__profile_close(r.t);
    return usm__fail(USM_E_NO_MEMORY, "no memory to read the trace %s of %zu bytes", name, size);
}

usm_status usm__profile_open(const char *path, usm__profile **trace)
{
    size_t     size = 0;
    void      *data = usm__os_read_file(path, SIZE_MAX, &size);
    usm_status st;
    char       why[128];

    if (data == NULL && errno == ENOMEM)
        return usm__fail(USM_E_NO_MEMORY, "no memory to read the trace %s", path);
    if (data == NULL)
        return usm__fail(USM_E_SYSTEM, "the trace %s cannot be read: %s", path,
                         strerror_r(errno, why, sizeof(why)));
    st = usm__profile_parse(data, size, path, trace);
    usm__heap_free(data);
    return st;
}

void usm__profile_close(usm__profile *t)
{
    if (t == NULL)
        return;
    for (size_t i = 0; i < t->nstacks; i++)
        usm__heap_free((void *)(uintptr_t)t->stacks[i].frames);
    for (size_t i = 0; i < t->nsources; i++)
        usm__heap_free(t->sources[i].maps);
    usm__heap_free(t->records);
    usm__heap_free(t->spills);
    usm__heap_free(t->spaces);
    usm__heap_free(t->tiers);
    usm__heap_free(t->works);
    usm__heap_free(t->energies);
    usm__heap_free(t->caches);
    usm__heap_free(t->members);
    usm__heap_free(t->kernels);
    usm__heap_free(t->pools);
    usm__heap_free(t->tags);
    usm__heap_free(t->stacks);
    usm__heap_free(t->sources);
    usm__heap_free(t);
}

const usm__profile_pool_info *usm__profile_find_pool(const usm__profile *t, uint32_t id)
{
    return id > 0 && id <= t->npools ? &t->pools[id - 1] : NULL;
}

const usm__profile_stack_info *usm__profile_find_stack(const usm__profile *t, uint32_t id)
{
    return id > 0 && id <= t->nstacks ? &t->stacks[id - 1] : NULL;
}
