/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-prof report: the tables and the advice, for people. */
#include "prof.h"

#include "base/inline/plural.h"
#include "base/os.h"
#include "base/text.h"
#include "columns.h"
#include "profile/peaks.h"

#include <stdio.h>
#include <string.h>

#define LINE_WIDTH 100

static void print_sources(const usm__profile *t)
{
    for (size_t i = 0; i < t->nsources; i++) {
        const usm__profile_source *s = &t->sources[i];

        printf("  process %u on %s", s->header.pid, s->header.host);
        if (s->header.rank >= 0)
            printf(", rank %d", s->header.rank);
        printf(": %.60s%s\n", s->header.command, s->ended ? "" : " (did not end in order)");
    }
}

static void print_head(const char *path, const usm__profile *t, const usm__analysis *a)
{
    size_t events = t->nrecords + t->nspills + t->nworks + t->ncaches + t->nenergies;
    char   duration[32], time[32], saved[32];

    printf(
        "Trace %s: %zu %s in %s, %llu lost\n", path, events, usm__plural(events, "event", "events"),
        time_text((double)a->duration_ns, duration, sizeof(duration)), (unsigned long long)t->lost);
    print_sources(t);
    if (t->damage[0] != '\0')
        printf("  damaged: %s\n", t->damage);
    printf("\n%llu %s%llu %s (%s) for memory, %llu avoided", (unsigned long long)a->all.allocations,
           usm__plural(a->all.allocations, "allocation, ", "allocations, "),
           (unsigned long long)a->takes + a->gives,
           usm__plural(a->takes + a->gives, "driver call", "driver calls"),
           time_text((double)a->driver_ns, time, sizeof(time)), (unsigned long long)a->avoided);
    if (a->take_ns + a->give_ns > 0)
        printf(", which would have cost %s",
               time_text((double)a->avoided_ns, saved, sizeof(saved)));
    if (a->take_ns > 0)
        printf("\n  at this trace's medians of %s a call that takes",
               time_text((double)a->take_ns, time, sizeof(time)));
    if (a->give_ns > 0)
        printf(", %s a call that gives back", time_text((double)a->give_ns, time, sizeof(time)));
    putchar('\n');
}

static void heads(columns *c, const char *const *names)
{
    for (; *names != NULL; names++)
        columns_add(c, "%s", *names);
}

static double mean_life(const usm__usage *u)
{
    return u->ended ? u->life_ns / (double)u->ended : 0;
}

static void print_pools(const usm__analysis *a)
{
    static const char *const names[] = {"pool",          "allocations", "reuse",     "driver",
                                        "avoided",       "saved",       "mean life", "live peak",
                                        "reserved peak", "unused",      "caches",    NULL};
    columns                 *c       = columns_new(11);

    heads(c, names);
    for (size_t i = 0; i < a->npools; i++) {
        const usm__profile_pool *p = &a->pools[i];

        if (p->u.allocations + p->takes + p->u.failed == 0)
            continue;
        columns_add(c, "%s", p->u.name);
        columns_add(c, "%llu", (unsigned long long)p->u.allocations);
        columns_share(c, p->u.allocations > p->takes ? p->u.allocations - p->takes : 0,
                      p->u.allocations);
        columns_add(c, "%llu", (unsigned long long)p->takes + p->gives);
        columns_add(c, "%llu", (unsigned long long)p->avoided);
        columns_time(c, (double)p->avoided_ns);
        columns_time(c, mean_life(&p->u));
        columns_bytes(c, p->u.live_peak);
        columns_bytes(c, p->reserved_peak);
        columns_share(c, p->reserved_peak > p->live_then ? p->reserved_peak - p->live_then : 0,
                      p->reserved_peak);
        columns_bytes(c, p->caches_peak);
    }
    puts("\nPools (reuse: allocations that needed no driver call; unused: of what was reserved at "
         "its peak;\n  caches: the most that those of threads could hold)");
    columns_print(c);
}

static void print_usages(const char *title, const char *first, const usm__usages *rows, size_t top)
{
    const char *const names[] = {first,    "allocations", "bytes",  "reuse",  "mean life",
                                 "< 1 ms", "live peak",   "failed", "at end", NULL};
    columns          *c       = columns_new(9);
    size_t            n       = top && top < rows->n ? top : rows->n;

    heads(c, names);
    for (size_t i = 0; i < n; i++) {
        const usm__usage *u = &rows->rows[i];

        columns_add(c, "%s", u->name);
        columns_add(c, "%llu", (unsigned long long)u->allocations);
        columns_bytes(c, u->bytes);
        columns_share(c, u->hits, u->allocations);
        columns_time(c, mean_life(u));
        columns_share(c, u->brief, u->ended);
        columns_bytes(c, u->live_peak);
        columns_add(c, "%llu", (unsigned long long)u->failed);
        columns_add(c, "%llu", (unsigned long long)u->blocks);
    }
    printf("\n%s\n", title);
    columns_print(c);
    if (n < rows->n)
        printf("  ... and %zu more (--top 0 shows all)\n", rows->n - n);
}

static void print_sites(const usm__profile *t, const usm__analysis *a, size_t top)
{
    char     title[200];
    uint64_t mean = t->nsources > 0 ? t->sources[0].header.stack_bytes : 0;
    char     text[32];

    if (a->sites.n == 0)
        return;
    if (mean > 1)
        (void)snprintf(
            title, sizeof(title),
            "Call sites (estimated from stacks sampled every %s on average; peak and end: "
            "of the sampled)",
            usm__format_bytes(mean, text, sizeof(text)));
    else
        (void)snprintf(title, sizeof(title), "Call sites");
    print_usages(title, "call site", &a->sites, top);
}

/* --- out of memory ------------------------------------------------------------------------ */

static uint32_t first_refused(const usm__profile *t)
{
    uint32_t i = 0;

    while (i < t->nrecords && t->records[i].e.type != USM__EVENT_FAILED)
        i++;
    return i;
}

static void print_holders(const usm__profile_holder *list, size_t nlist, size_t top)
{
    size_t   n = top && top < nlist ? top : nlist;
    columns *c = columns_new(3);

    heads(c, (const char *const[]){"held by", "bytes", "blocks", NULL});
    for (size_t i = 0; i < n; i++) {
        columns_add(c, "%s", list[i].name);
        columns_bytes(c, list[i].bytes);
        columns_add(c, "%llu", (unsigned long long)list[i].blocks);
    }
    columns_print(c);
    if (n < nlist)
        printf("  ... and %zu more (--top 0 shows all)\n", nlist - n);
}

/* Who held the memory that was refused, of all processes, when that happened for the first time. */
static void print_refused(const usm__profile *t, size_t top)
{
    uint32_t             at   = first_refused(t), row;
    usm__profile_holder *list = NULL;
    usm__profile_peaks   peaks;
    size_t               n = 0;
    char                 size[32], time[32];

    if (at == t->nrecords || usm__profile_peaks_find(t, 0, &peaks) != 0)
        return;
    row = peaks.row_of[t->records[at].e.pool];
    if (row != USM__NEVER && usm__profile_peaks_holders(&peaks, row, at, &list, &n) == 0) {
        printf("\nHeld when memory was first refused: %s of %s, after %s\n",
               usm__format_bytes(t->records[at].e.size, size, sizeof(size)), peaks.rows[row].name,
               time_text((double)t->records[at].e.time_ns, time, sizeof(time)));
        print_holders(list, n, top);
    }
    usm__heap_free(list);
    usm__profile_peaks_free(&peaks);
}

/* --- spilling --------------------------------------------------------------------------- */

static void print_spill_buffers(const usm__profile_spill_usages *u, size_t top)
{
    static const char *const names[] = {"buffer",  "waits",       "waited", "median",  "p99",
                                        "in",      "ahead",       "out",    "guesses", "wasted",
                                        "evicted", "of it dirty", "pinned", NULL};
    columns                 *c       = columns_new(13);
    size_t                   n       = top && top < u->nbuffers ? top : u->nbuffers;

    heads(c, names);
    for (size_t i = 0; i < n; i++) {
        const usm__profile_spill_buffer *b = &u->buffers[i];

        columns_add(c, "%s", b->name);
        columns_add(c, "%llu", (unsigned long long)b->waits.n);
        columns_time(c, (double)b->waits.sum_ns);
        columns_time(c, (double)b->waits.p50_ns);
        columns_time(c, (double)b->waits.p99_ns);
        columns_bytes(c, b->in);
        columns_share(c, b->in_ahead, b->in);
        columns_bytes(c, b->out);
        columns_add(c, "%llu", (unsigned long long)b->used + b->wasted);
        columns_share(c, b->wasted, b->used + b->wasted);
        columns_add(c, "%llu", (unsigned long long)b->evicted_clean + b->evicted_dirty);
        columns_share(c, b->evicted_dirty, b->evicted_clean + b->evicted_dirty);
        columns_time(c, (double)b->pinned_ns);
    }
    columns_print(c);
    if (n < u->nbuffers)
        printf("  ... and %zu more (--top 0 shows all)\n", u->nbuffers - n);
}

static void print_spill_tiers(const usm__profile_spill_usages *u)
{
    static const char *const names[] = {"tier",   "reads", "in",     "median", "p99",
                                        "writes", "out",   "median", "p99",    NULL};
    columns                 *c       = columns_new(9);

    heads(c, names);
    for (size_t i = 0; i < u->ntiers; i++) {
        const usm__profile_spill_tier *t = &u->tiers[i];

        columns_add(c, "%s", t->name);
        columns_add(c, "%llu", (unsigned long long)t->reads.n);
        columns_bytes(c, t->in);
        columns_time(c, (double)t->reads.p50_ns);
        columns_time(c, (double)t->reads.p99_ns);
        columns_add(c, "%llu", (unsigned long long)t->writes.n);
        columns_bytes(c, t->out);
        columns_time(c, (double)t->writes.p50_ns);
        columns_time(c, (double)t->writes.p99_ns);
    }
    columns_print(c);
}

static void print_spill(const usm__profile_spill_usages *u, size_t top)
{
    char time[32], bytes[32];

    if (u->nevents == 0)
        return;
    puts("\nSpilling (waits: accesses that waited; pinned: while others waited for memory; hits "
         "are not in a trace)");
    if (u->has_first)
        printf("  memory of %s was full for the first time after %s\n",
               usm__format_bytes(u->first_limit, bytes, sizeof(bytes)),
               time_text((double)u->first_ns, time, sizeof(time)));
    print_spill_buffers(u, top);
    if (u->ntiers == 0)
        return;
    puts("\nTiers (times of transfers)");
    print_spill_tiers(u);
}

/* --- launches over teams ------------------------------------------------------------------ */

static void add_device(columns *c, const usm__profile *t, const usm__profile_work_device *d)
{
    if (t->nsources > 1)
        columns_add(c, "%s of process %u", d->name, t->sources[d->source].header.pid);
    else
        columns_add(c, "%s", d->name);
}

/* Of other runtimes. */
static void print_queues(const usm__profile *t, const usm__profile_work_usages *u)
{
    static const char *const names[] = {"queue", "commands", "computes", "copies", "bytes", NULL};
    columns                 *c;

    if (u->nqueues == 0)
        return;
    c = columns_new(5);
    heads(c, names);
    for (size_t i = 0; i < u->ndevices; i++) {
        const usm__profile_work_device *d = &u->devices[i];

        if (d->commands == 0)
            continue;
        add_device(c, t, d);
        columns_add(c, "%llu", (unsigned long long)d->commands);
        columns_time(c, (double)d->kernel_ns);
        columns_time(c, (double)d->copy_ns);
        columns_bytes(c, d->bytes_in);
    }
    puts("\nQueues of the program (copies: fills and maps as well)");
    columns_print(c);
}

static void print_work(const usm__profile *t, const usm__profile_work_usages *u)
{
    static const char *const names[] = {"device", "chunks",  "failed", "indices", "computes",
                                        "copies", "hidden",  "in",     "out",     "idle",
                                        "gaps",   "longest", NULL};
    columns                 *c;

    if (u->ndevices == u->nqueues)
        return;
    c = columns_new(12);
    heads(c, names);
    for (size_t i = 0; i < u->ndevices; i++) {
        const usm__profile_work_device *d = &u->devices[i];

        if (d->commands > 0)
            continue;
        add_device(c, t, d);
        columns_add(c, "%llu", (unsigned long long)d->chunks);
        columns_add(c, "%llu", (unsigned long long)d->failed);
        columns_add(c, "%llu", (unsigned long long)d->items);
        columns_share(c, d->kernel_ns, d->launched_ns);
        columns_share(c, d->copy_ns, d->launched_ns);
        columns_share(c, d->hidden_ns, d->copy_ns);
        columns_bytes(c, d->bytes_in);
        columns_bytes(c, d->bytes_out);
        columns_share(c, d->idle_ns, d->launched_ns);
        columns_add(c, "%zu", d->ngaps);
        columns_time(c, (double)d->longest_ns);
    }
    printf("\nDevices in %llu split launches (shares of the time that launches were under way; "
           "hidden: copies behind kernels)\n",
           (unsigned long long)u->launches);
    columns_print(c);
}

static void print_energy(const usm__profile *t, const usm__profile_energy *e)
{
    static const char *const names[] = {"device", "kernel", "joules", "from", NULL};
    columns                 *c;

    if (e->n == 0 && e->idle == 0)
        return;
    c = columns_new(4);
    heads(c, names);
    for (size_t i = 0; i < e->n; i++) {
        const usm__profile_energy_row *r    = &e->rows[i];
        const char                    *name = usm__profile_work_member_name(t, r->member);

        if (t->nsources > 1)
            columns_add(c, "%s of process %u", name, t->sources[r->source].header.pid);
        else
            columns_add(c, "%s", name);
        columns_add(c, "%s", usm__profile_work_kernel_name(t, r->kernel));
        columns_add(c, "%.3f", (double)r->microjoules / 1e6);
        columns_add(c, "%s", r->is_stated ? "USM_WATTS" : "powercap");
    }
    printf("\nEnergy of launches (the host's packages, while its processors had none: %.3f J)\n",
           (double)e->idle / 1e6);
    columns_print(c);
}

/* Prints the words of `text` in lines of LINE_WIDTH. */
static void print_wrapped(const char *text)
{
    size_t column = 1;

    putchar('*');
    while (*text != '\0') {
        size_t n = strcspn(text, " ");

        if (column + 1 + n > LINE_WIDTH) {
            printf("\n ");
            column = 1;
        }
        printf(" %.*s", (int)n, text);
        column += n + 1;
        text += n + (text[n] != '\0');
    }
    putchar('\n');
}

void report_text(const char *path, const usm__profile *t, const usm__analysis *a, size_t top)
{
    print_head(path, t, a);
    print_pools(a);
    print_usages("Sizes", "size", &a->classes, 0);
    print_sites(t, a, top);
    if (a->tags.n > 1 || (a->tags.n == 1 && strcmp(a->tags.rows[0].name, "(no tag)") != 0))
        print_usages("Tags", "tag", &a->tags, top);
    print_refused(t, top);
    print_spill(&a->spill, top);
    print_work(t, &a->work);
    print_queues(t, &a->work);
    print_energy(t, &a->energy);
    puts("\nAdvice");
    for (size_t i = 0; i < a->nadvice; i++)
        print_wrapped(a->advice[i]);
    if (a->nadvice == 0)
        puts("* Nothing stands out.");
}
