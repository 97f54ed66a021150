/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The common part of all backing stores, above all statistics, and the simplest of them: memory
 * that is only read.  Files are in home_file.c, functions of the user in home_user.c.  Called by
 * the engine. */
#include "base/log.h"
#include "base/os.h"
#include "base/trace_spill.h"
#include "spill/home_private.h"

#include <stdio.h>
#include <string.h>

void usm__home_init(usm__home *home, const usm__home_kind *kind, const usm__home_params *params,
                    const char *name)
{
    home->kind   = kind;
    home->params = *params;
    (void)snprintf(home->name, sizeof(home->name), "home:%s", name);
    home->trace = usm__trace_tier(home->name);
    usm__mutex_init(&home->lock, USM__RANK_TIER, "home");
    (void)pthread_cond_init(&home->committed, NULL);
}

void usm__home_fini(usm__home *home)
{
    (void)pthread_cond_destroy(&home->committed);
    usm__mutex_fini(&home->lock);
}

void usm__home_close(usm__home *home)
{
    if (home != NULL)
        home->kind->close(home);
}

bool usm__home_is_writable(const usm__home *home)
{
    return home->is_writable;
}

/* --- reading -------------------------------------------------------------------- */

static size_t size_of(const usm__home *home, const usm__io *io)
{
    return (size_t)io->count * home->params.sector_size;
}

uint64_t usm__home_offset(const usm__home *home, const usm__io *io)
{
    return io->block * home->params.block_size + (uint64_t)io->first * home->params.sector_size;
}

size_t usm__home_inside(const usm__home *home, const usm__io *io)
{
    uint64_t at = usm__home_offset(home, io), end = home->params.size;
    size_t   size = size_of(home, io);

    if (at >= end)
        return 0;
    return end - at < size ? (size_t)(end - at) : size;
}

void usm__home_read(usm__home *home, usm__io *io)
{
    io->owner    = home;
    io->attempts = 0;
    io->start_ns = usm__os_now_ns();
    usm__mutex_lock(&home->lock);
    usm__flow_begin(&home->reads, io->start_ns);
    usm__mutex_unlock(&home->lock);
    home->kind->read(home, io);
}

static void warn_once(const usm__home *home, const usm__io *io, usm_status status, uint64_t errors)
{
    if (errors == 1 && status != USM_E_NO_MEMORY)
        usm__warn("%s: %zu bytes at %llu cannot be read: %s; further failures are not reported",
                  home->name, usm__home_inside(home, io),
                  (unsigned long long)usm__home_offset(home, io), usm_last_error());
}

void usm__home_end_read(usm__home *home, usm__io *io, usm_status status)
{
    size_t   inside = usm__home_inside(home, io), size = size_of(home, io);
    uint64_t now = usm__os_now_ns(), errors;

    if (status == USM_OK && inside < size)
        memset((char *)io->data + inside, 0, size - inside);
    usm__mutex_lock(&home->lock);
    usm__flow_end(&home->reads, now, io->start_ns, inside, status == USM_OK);
    home->errors += status != USM_OK;
    errors = home->errors;
    usm__mutex_unlock(&home->lock);
    if (status != USM_OK)
        warn_once(home, io, status, errors);
    io->done(io, status);
}

/* --- commits -------------------------------------------------------------------- */

/* Commits of two threads run one after the other. */
static void begin_commit(usm__home *home)
{
    usm__mutex_lock(&home->lock);
    while (home->is_committing)
        (void)usm__mutex_wait(&home->lock, &home->committed, NULL);
    home->is_committing = true;
    usm__flow_begin(&home->writes, usm__os_now_ns());
    usm__mutex_unlock(&home->lock);
}

static void end_commit(usm__home *home, uint64_t start, size_t blocks, usm_status status)
{
    uint64_t now = usm__os_now_ns();

    usm__mutex_lock(&home->lock);
    usm__flow_end(&home->writes, now, start, blocks * home->params.block_size, status == USM_OK);
    home->errors += status != USM_OK;
    home->is_committing = false;
    pthread_cond_signal(&home->committed);
    usm__mutex_unlock(&home->lock);
}

usm_status usm__home_commit(usm__home *home, const usm__dirty_blocks *dirty)
{
    uint64_t   start = usm__os_now_ns();
    usm_status status;

    if (!home->is_writable)
        return usm__fail(USM_E_READ_ONLY, "%s was opened for reading: nothing can be committed",
                         home->name);
    begin_commit(home);
    status = home->kind->commit(home, dirty);
    end_commit(home, start, dirty->n, status);
    return status;
}

uint32_t usm__home_trace(const usm__home *home)
{
    return home->trace;
}

void usm__home_get_stats(usm__home *home, usm_tier_stats *stats)
{
    uint64_t now = usm__os_now_ns();

    memset(stats, 0, sizeof(*stats));
    memcpy(stats->name, home->name, sizeof(stats->name));
    stats->used = stats->capacity = home->params.size;
    usm__mutex_lock(&home->lock);
    stats->read         = home->reads.bytes;
    stats->reads        = home->reads.transfers;
    stats->read_ns      = usm__flow_busy(&home->reads, now);
    stats->read_p50_ns  = usm__times_quantile(&home->reads.times, 0.5);
    stats->read_p99_ns  = usm__times_quantile(&home->reads.times, 0.99);
    stats->written      = home->writes.bytes;
    stats->writes       = home->writes.transfers;
    stats->write_ns     = usm__flow_busy(&home->writes, now);
    stats->write_p50_ns = usm__times_quantile(&home->writes.times, 0.5);
    stats->write_p99_ns = usm__times_quantile(&home->writes.times, 0.99);
    stats->errors       = home->errors;
    usm__mutex_unlock(&home->lock);
}

/* --- memory that is only read ------------------------------------------------------ */

typedef struct memory_home {
    usm__home   base;
    const char *data;
} memory_home;

static void memory_read(usm__home *home, usm__io *io)
{
    const memory_home *m = usm_container_of(home, memory_home, base);
    size_t             n = usm__home_inside(home, io);

    if (n > 0)
        memcpy(io->data, m->data + usm__home_offset(home, io), n);
    usm__home_end_read(home, io, USM_OK);
}

static usm_status memory_commit(usm__home *home, const usm__dirty_blocks *dirty)
{
    (void)home; /* never called: the memory is not writable */
    (void)dirty;
    return USM_E_READ_ONLY;
}

static void memory_close(usm__home *home)
{
    usm__home_fini(home);
    usm__heap_free(usm_container_of(home, memory_home, base));
}

usm_status usm__home_open_memory(const void *data, const usm__home_params *params, usm__home **home)
{
    static const usm__home_kind kind = {memory_read, memory_commit, memory_close};
    memory_home                *m    = usm__heap_alloc(sizeof(*m));

    if (m == NULL)
        return usm__fail(USM_E_NO_MEMORY, "no memory for a backing store of %zu bytes",
                         params->size);
    usm__home_init(&m->base, &kind, params, "memory");
    m->data = data;
    *home   = &m->base;
    return USM_OK;
}
