/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes a trace as a snapshot of PyTorch's allocator, which pytorch.org/memory_viz draws.
 *
 * A snapshot has the segments that are held at its end, each cut into blocks without a gap, and for
 * each device the events that led there, which the viewer undoes one by one.
 *
 *     segment    an area that a pool had from its driver; mapped ones that touch are one
 *     device     memory of one kind on one device in one process, since addresses must be unique;
 *                the number that the viewer shows is the index of its name in "usm_devices"
 *     stream     the number of the pool
 *     frames     the call stack from the program's own frame on, then tag, then pool: these come
 *                as frames too, because the viewer shows no other text
 *
 * Events have the size that was asked for; blocks have both sizes.  Of a failed allocation the
 * trace does not have the memory that was free: "device_free" is 0. */
#include "profile/blocks.h"
#include "profile/export.h"
#include "profile/export_file.h"
#include "profile/pickle.h"
#include "profile/symbols.h"

#include "base/os.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* In the order in which they happen at one record. */
enum { DIED, GAVE, TOOK, BORN, FAILED };

typedef struct moment {
    uint32_t device, record, what, index; /* of a block or an area */
} moment;

typedef struct segment {
    uint32_t device, pool;
    bool     is_mapped;
    uint64_t address, size;
} segment;

typedef struct frames {
    bool     is_written;
    uint32_t memo, pool, tag; /* a stack may serve several of both: the last ones */
} frames;

typedef struct writer {
    const usm__profile  *t;
    usm__profile_blocks *found;
    usm__pickle          p;
    usm__symbols        *symbols;
    frames              *frames;    /* by stack id; [0]: of no stack                     */
    uint32_t            *device_of; /* by pool id, from 1                                */
    uint32_t            *first;     /* by device: id of its first pool                   */
    uint32_t             ndevices;
    moment              *moments;  /* by device, then time                              */
    segment             *segments; /* by device, then address                           */
    uint32_t            *live;     /* blocks, the same                                  */
    size_t               nmoments, nsegments, nlive;
} writer;

static const usm__profile_event *event_at(const writer *w, uint32_t record)
{
    return &w->t->records[record].e;
}

/* --- what there is --------------------------------------------------------------------------- */

static void find_devices(writer *w)
{
    for (size_t i = 0; i < w->t->npools; i++) {
        const usm__profile_pool_info *pool = &w->t->pools[i];
        uint32_t                      d    = 0;

        for (; d < w->ndevices; d++) {
            const usm__profile_pool_info *first = &w->t->pools[w->first[d] - 1];

            if (first->kind == pool->kind && first->source == pool->source &&
                strcmp(first->device, pool->device) == 0)
                break;
        }
        if (d == w->ndevices)
            w->first[w->ndevices++] = pool->id;
        w->device_of[pool->id] = d;
    }
}

static void add_moment(writer *w, uint32_t of, uint32_t record, uint32_t what, uint32_t index)
{
    uint32_t pool = event_at(w, of)->pool;

    if (record != USM__NEVER && pool != 0)
        w->moments[w->nmoments++] = (moment){w->device_of[pool], record, what, index};
}

static int by_time(const void *a, const void *b)
{
    const moment *x = a, *y = b;

    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->record != y->record)
        return x->record < y->record ? -1 : 1;
    if (x->what != y->what)
        return x->what < y->what ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static void find_moments(writer *w)
{
    const usm__profile_blocks *found = w->found;

    for (uint32_t i = 0; i < found->nblocks; i++) {
        add_moment(w, found->blocks[i].born, found->blocks[i].born, BORN, i);
        add_moment(w, found->blocks[i].born, found->blocks[i].died, DIED, i);
    }
    for (uint32_t i = 0; i < found->nareas; i++) {
        add_moment(w, found->areas[i].took, found->areas[i].took, TOOK, i);
        add_moment(w, found->areas[i].took, found->areas[i].gave, GAVE, i);
    }
    for (uint32_t i = 0; i < w->t->nrecords; i++)
        if (event_at(w, i)->type == USM__EVENT_FAILED)
            add_moment(w, i, i, FAILED, i);
    qsort(w->moments, w->nmoments, sizeof(*w->moments), by_time);
}

static bool is_mapped(const writer *w, const usm__profile_area *a)
{
    return event_at(w, a->took)->type != USM__EVENT_TAKE;
}

static int by_address(const void *a, const void *b)
{
    const segment *x = a, *y = b;

    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    return (x->address > y->address) - (x->address < y->address);
}

/* The last of the first n segments that begins at the block or before it and has its address, or
 * NULL. */
static const segment *segment_of(const writer *w, size_t n, uint32_t device, uint64_t address)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t         mid = low + (high - low) / 2;
        const segment *s   = &w->segments[mid];

        if (s->device < device || (s->device == device && s->address <= address))
            low = mid + 1;
        else
            high = mid;
    }
    if (low == 0 || w->segments[low - 1].device != device ||
        address - w->segments[low - 1].address >= w->segments[low - 1].size)
        return NULL;
    return &w->segments[low - 1];
}

static void merge_mapped(writer *w)
{
    size_t n = 0;

    for (size_t i = 0; i < w->nsegments; i++) {
        segment *s = &w->segments[i], *before = n > 0 ? &w->segments[n - 1] : NULL;

        if (before != NULL && before->is_mapped && s->is_mapped && before->pool == s->pool &&
            before->address + before->size == s->address)
            before->size += s->size;
        else
            w->segments[n++] = *s;
    }
    w->nsegments = n;
}

/* Areas that are held at the end, and a segment for each live block that is in none of them: the
 * record of its area was lost. */
static void find_segments(writer *w)
{
    size_t nareas;

    for (size_t i = 0; i < w->found->nareas; i++) {
        const usm__profile_area *a    = &w->found->areas[i];
        uint32_t                 pool = event_at(w, a->took)->pool;

        if (a->gave == USM__NEVER && pool != 0)
            w->segments[w->nsegments++] =
                (segment){w->device_of[pool], pool, is_mapped(w, a), a->address, a->size};
    }
    qsort(w->segments, w->nsegments, sizeof(*w->segments), by_address);
    merge_mapped(w);
    nareas = w->nsegments;
    for (uint32_t i = 0; i < w->found->nblocks; i++) {
        const usm__profile_block *b    = &w->found->blocks[i];
        uint32_t                  pool = event_at(w, b->born)->pool;

        if (b->died != USM__NEVER || pool == 0)
            continue;
        w->live[w->nlive++] = i;
        if (segment_of(w, nareas, w->device_of[pool], b->address) == NULL)
            w->segments[w->nsegments++] =
                (segment){w->device_of[pool], pool, false, b->address, b->usable ? b->usable : 1};
    }
    qsort(w->segments, w->nsegments, sizeof(*w->segments), by_address);
}

/* Blocks have no pointer to their trace: what they are sorted by is put beside them. */
typedef struct placed {
    uint64_t address;
    uint32_t device, block;
} placed;

static int by_place(const void *a, const void *b)
{
    const placed *x = a, *y = b;

    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    return (x->address > y->address) - (x->address < y->address);
}

static bool sort_live(writer *w)
{
    placed *all = usm__heap_alloc(w->nlive * sizeof(*all));

    if (all == NULL)
        return false;
    for (size_t i = 0; i < w->nlive; i++) {
        const usm__profile_block *b = &w->found->blocks[w->live[i]];

        all[i] = (placed){b->address, w->device_of[event_at(w, b->born)->pool], w->live[i]};
    }
    qsort(all, w->nlive, sizeof(*all), by_place);
    for (size_t i = 0; i < w->nlive; i++)
        w->live[i] = all[i].block;
    usm__heap_free(all);
    return true;
}

/* --- frames ---------------------------------------------------------------------------------- */

static void frame(writer *w, size_t *n, const char *file, const char *name)
{
    usm__pickle_list_next(&w->p, (*n)++);
    usm__pickle_dict_begin(&w->p);
    usm__pickle_word(&w->p, "filename");
    usm__pickle_text(&w->p, file);
    usm__pickle_word(&w->p, "line");
    usm__pickle_number(&w->p, 0);
    usm__pickle_word(&w->p, "name");
    usm__pickle_text(&w->p, name);
    usm__pickle_dict_end(&w->p);
}

/* "function+0x12 (module)" is the function in a file that is called as the module is. */
static void frame_of_address(writer *w, size_t *n, uint32_t source, uint64_t address)
{
    char  name[320], *module;
    char *end;

    (void)usm__symbols_name(w->symbols, source, address, name, sizeof(name));
    module = strrchr(name, '(');
    end    = module ? strrchr(module, ')') : NULL;
    if (end == NULL || module == name) {
        frame(w, n, "", name);
        return;
    }
    *end       = '\0';
    module[-1] = '\0';
    frame(w, n, module + 1, name);
}

static void memory_name(const writer *w, uint32_t pool, char *out, size_t size)
{
    static const char *const      kinds[] = {"", "host ", "device ", "shared "};
    const usm__profile_pool_info *p       = &w->t->pools[pool - 1];
    const usm__profile_source    *s       = &w->t->sources[p->source];
    int                           n =
        snprintf(out, size, "%smemory%s%s", kinds[p->kind], p->device[0] ? " of " : "", p->device);

    if (w->t->nsources > 1 && n > 0 && (size_t)n < size)
        (void)snprintf(out + n, size - (size_t)n, ", process %u on %s", s->header.pid,
                       s->header.host);
}

static void write_frames(writer *w, const usm__profile_stack_info *stack, uint32_t tag,
                         uint32_t pool)
{
    char     memory[200], name[64];
    uint32_t site = stack ? usm__symbols_site(w->symbols, stack) : 0;
    size_t   n    = 0;

    usm__pickle_list_begin(&w->p);
    for (uint32_t i = stack && site < stack->depth ? site : 0; stack && i < stack->depth; i++)
        frame_of_address(w, &n, stack->source, stack->frames[i]);
    if (tag != 0)
        frame(w, &n, "tag", w->t->tags[tag]);
    memory_name(w, pool, memory, sizeof(memory));
    (void)snprintf(name, sizeof(name), "pool %u %s", pool, w->t->pools[pool - 1].name);
    frame(w, &n, memory, name);
    usm__pickle_list_end(&w->p);
}

static void put_frames(writer *w, uint32_t stack, uint32_t tag, uint32_t pool)
{
    frames *f = &w->frames[stack];

    usm__pickle_word(&w->p, "frames");
    if (f->is_written && f->pool == pool && f->tag == tag) {
        usm__pickle_again(&w->p, f->memo);
        return;
    }
    write_frames(w, usm__profile_find_stack(w->t, stack), tag, pool);
    *f = (frames){true, usm__pickle_remember(&w->p), pool, tag};
}

/* --- events ---------------------------------------------------------------------------------- */

static void put_number(writer *w, const char *key, uint64_t value)
{
    usm__pickle_word(&w->p, key);
    usm__pickle_number(&w->p, value);
}

/* `of`: the event that made the block or the area; it gives pool and frames. */
static void put_event(writer *w, size_t *n, const char *action, const moment *m, uint32_t of,
                      uint64_t address, uint64_t size)
{
    const usm__profile_event *e = event_at(w, of);

    usm__pickle_list_next(&w->p, (*n)++);
    usm__pickle_dict_begin(&w->p);
    usm__pickle_word(&w->p, "action");
    usm__pickle_word(&w->p, action);
    put_number(w, m->what == FAILED ? "device_free" : "addr", address);
    put_number(w, "size", size);
    put_number(w, "stream", e->pool);
    put_number(w, "time_us", (w->t->header.start_real_ns + event_at(w, m->record)->time_ns) / 1000);
    put_frames(w, e->type == USM__EVENT_ALLOC ? e->extra : 0,
               e->type <= USM__EVENT_FAILED ? e->tag : 0, e->pool);
    usm__pickle_dict_end(&w->p);
}

static void put_moment(writer *w, size_t *n, const moment *m)
{
    const usm__profile_block *b =
        m->what == BORN || m->what == DIED ? &w->found->blocks[m->index] : NULL;
    const usm__profile_area *a =
        m->what == TOOK || m->what == GAVE ? &w->found->areas[m->index] : NULL;

    if (b != NULL && m->what == BORN) {
        put_event(w, n, "alloc", m, b->born, b->address, b->size);
    } else if (b != NULL) {
        put_event(w, n, "free_requested", m, b->born, b->address, b->size);
        put_event(w, n, "free_completed", m, b->born, b->address, b->size);
    } else if (a != NULL && m->what == TOOK) {
        put_event(w, n, is_mapped(w, a) ? "segment_map" : "segment_alloc", m, a->took, a->address,
                  a->size);
    } else if (a != NULL) {
        put_event(w, n, is_mapped(w, a) ? "segment_unmap" : "segment_free", m, a->took, a->address,
                  a->size);
    } else {
        put_event(w, n, "oom", m, m->record, 0, event_at(w, m->record)->size);
    }
}

static void put_traces(writer *w)
{
    size_t at = 0;

    usm__pickle_word(&w->p, "device_traces");
    usm__pickle_list_begin(&w->p);
    for (uint32_t d = 0; d < w->ndevices; d++) {
        size_t n = 0;

        usm__pickle_list_next(&w->p, d);
        usm__pickle_list_begin(&w->p);
        for (; at < w->nmoments && w->moments[at].device == d; at++)
            put_moment(w, &n, &w->moments[at]);
        usm__pickle_list_end(&w->p);
    }
    usm__pickle_list_end(&w->p);
}

/* --- segments -------------------------------------------------------------------------------- */

/* b NULL: free memory. */
static void put_block(writer *w, size_t *n, uint64_t address, uint64_t size,
                      const usm__profile_block *b)
{
    usm__pickle_list_next(&w->p, (*n)++);
    usm__pickle_dict_begin(&w->p);
    put_number(w, "address", address);
    put_number(w, "size", size);
    put_number(w, "requested_size", b ? b->size : 0);
    usm__pickle_word(&w->p, "state");
    usm__pickle_word(&w->p, b ? "active_allocated" : "inactive");
    if (b != NULL) {
        const usm__profile_event *e = event_at(w, b->born);

        put_frames(w, e->extra, e->tag, e->pool);
    } else {
        usm__pickle_word(&w->p, "frames");
        usm__pickle_list_begin(&w->p);
        usm__pickle_list_end(&w->p);
    }
    usm__pickle_dict_end(&w->p);
}

/* The block's size up to the next one, and to the segment's end: usable sizes are rounded. */
static uint64_t room_of(const writer *w, const segment *s, size_t live, size_t end)
{
    const usm__profile_block *b    = &w->found->blocks[w->live[live]];
    uint64_t                  stop = s->address + s->size;

    if (live + 1 < end && w->found->blocks[w->live[live + 1]].address < stop)
        stop = w->found->blocks[w->live[live + 1]].address;
    return b->usable < stop - b->address ? b->usable : stop - b->address;
}

static void put_blocks(writer *w, const segment *s, size_t first, size_t end)
{
    uint64_t at = s->address;
    size_t   n  = 0;

    usm__pickle_word(&w->p, "blocks");
    usm__pickle_list_begin(&w->p);
    for (size_t i = first; i < end; i++) {
        const usm__profile_block *b    = &w->found->blocks[w->live[i]];
        uint64_t                  size = room_of(w, s, i, end);

        if (b->address > at)
            put_block(w, &n, at, b->address - at, NULL);
        put_block(w, &n, b->address, size, b);
        at = b->address + size;
    }
    if (at < s->address + s->size)
        put_block(w, &n, at, s->address + s->size - at, NULL);
    usm__pickle_list_end(&w->p);
}

static bool is_in(const writer *w, const segment *s, size_t live)
{
    const usm__profile_block *b = &w->found->blocks[w->live[live]];

    return w->device_of[event_at(w, b->born)->pool] == s->device &&
           b->address - s->address < s->size;
}

static void put_segment(writer *w, const segment *s, size_t first, size_t end)
{
    uint64_t active = 0, requested = 0;

    for (size_t i = first; i < end; i++) {
        active += room_of(w, s, i, end);
        requested += w->found->blocks[w->live[i]].size;
    }
    usm__pickle_dict_begin(&w->p);
    put_number(w, "device", s->device);
    put_number(w, "address", s->address);
    put_number(w, "total_size", s->size);
    put_number(w, "allocated_size", active);
    put_number(w, "active_size", active);
    put_number(w, "requested_size", requested);
    put_number(w, "stream", s->pool);
    usm__pickle_word(&w->p, "segment_type");
    usm__pickle_word(&w->p, "large");
    usm__pickle_word(&w->p, "is_expandable");
    usm__pickle_bool(&w->p, s->is_mapped);
    put_frames(w, 0, 0, s->pool);
    put_blocks(w, s, first, end);
    usm__pickle_dict_end(&w->p);
}

static void put_segments(writer *w)
{
    size_t live = 0;

    usm__pickle_word(&w->p, "segments");
    usm__pickle_list_begin(&w->p);
    for (size_t i = 0; i < w->nsegments; i++) {
        size_t first = live;

        while (live < w->nlive && is_in(w, &w->segments[i], live))
            live++;
        usm__pickle_list_next(&w->p, i);
        put_segment(w, &w->segments[i], first, live);
    }
    usm__pickle_list_end(&w->p);
}

/* --- all of it ------------------------------------------------------------------------------- */

static void put_devices(writer *w)
{
    char name[200];

    usm__pickle_word(&w->p, "usm_devices");
    usm__pickle_list_begin(&w->p);
    for (uint32_t d = 0; d < w->ndevices; d++) {
        usm__pickle_list_next(&w->p, d);
        memory_name(w, w->first[d], name, sizeof(name));
        usm__pickle_text(&w->p, name);
    }
    usm__pickle_list_end(&w->p);
}

static void put_all(writer *w, FILE *out)
{
    usm__pickle_begin(&w->p, out);
    usm__pickle_dict_begin(&w->p);
    put_segments(w);
    put_traces(w);
    usm__pickle_word(&w->p, "allocator_settings");
    usm__pickle_dict_begin(&w->p);
    usm__pickle_dict_end(&w->p);
    usm__pickle_word(&w->p, "external_annotations");
    usm__pickle_list_begin(&w->p);
    usm__pickle_list_end(&w->p);
    put_devices(w);
    usm__pickle_dict_end(&w->p);
    usm__pickle_end(&w->p);
}

static int prepare(writer *w)
{
    const usm__profile *t = w->t;
    size_t              n;
    int                 status = usm__profile_blocks_find(t, &w->found);

    if (status != 0)
        return status;
    n            = w->found->nblocks + w->found->nareas;
    w->symbols   = usm__symbols_open(t);
    w->frames    = usm__heap_alloc((t->nstacks + 1) * sizeof(*w->frames));
    w->device_of = usm__heap_alloc((t->npools + 1) * sizeof(*w->device_of));
    w->first     = usm__heap_alloc((t->npools + 1) * sizeof(*w->first));
    w->moments   = usm__heap_alloc((2 * n + t->nrecords) * sizeof(*w->moments));
    w->segments  = usm__heap_alloc(n * sizeof(*w->segments));
    w->live      = usm__heap_alloc(w->found->nblocks * sizeof(*w->live));
    if (!w->symbols || !w->frames || !w->device_of || !w->first || !w->moments || !w->segments ||
        !w->live)
        return ENOMEM;
    find_devices(w);
    find_moments(w);
    find_segments(w);
    return sort_live(w) ? 0 : ENOMEM;
}

int usm__export_pytorch(const usm__profile *t, const char *path)
{
    writer w      = {.t = t};
    FILE  *out    = NULL;
    int    status = prepare(&w);

    if (status == 0)
        status = usm__export_open(path, &out);
    if (status == 0) {
        put_all(&w, out);
        status = usm__export_close(out, path, 0);
    }
    usm__profile_blocks_free(w.found);
    usm__symbols_close(w.symbols);
    usm__heap_free(w.frames);
    usm__heap_free(w.device_of);
    usm__heap_free(w.first);
    usm__heap_free(w.moments);
    usm__heap_free(w.segments);
    usm__heap_free(w.live);
    return status;
}
