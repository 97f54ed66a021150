/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The processes that use libusm, by their monitor pages: see web.h.  They are what usm-top shows,
 * in its JSON.  Pages are read while somebody listens, once for all that do. */
#include "web.h"

#include "usm-top/top.h"

#include <pthread.h>
#include <stdlib.h>

enum { READ_MS = 95 }; /* a process samples every 100 ms */

/* All below is guarded by `lock`, which makes the model one thread's at a time. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static top_model       model;
static bool            is_open, is_refused;
static uint64_t        version, next_ms;
static char           *text; /* of the last sample */
static size_t          text_size;

/* With the lock. */
static void sample(void)
{
    char  *news = NULL;
    size_t size = 0;
    FILE  *file = open_memstream(&news, &size);

    if (!file)
        return;
    (void)top_take(&model); /* without memory the processes that it has are shown */
    top_put_json(&(usm__json){.out = {.file = file}, .form = USM__JSON_COMPACT}, &model);
    if (fclose(file) != 0) {
        free(news);
        return;
    }
    free(text);
    text      = news;
    text_size = size;
    version++;
}

bool processes_write_new(usm__json *j, uint64_t *seen, uint64_t now_ms)
{
    bool is_new;

    (void)pthread_mutex_lock(&lock);
    if (!is_open && !is_refused) {
        is_open    = usm__monitor_open(&model.reader);
        is_refused = !is_open;
    }
    if (is_open && now_ms >= next_ms) {
        sample();
        next_ms = now_ms + READ_MS;
    }
    is_new = version > *seen;
    if (is_new) {
        usm__out_bytes(&j->out, text, text_size);
        *seen = version;
    }
    (void)pthread_mutex_unlock(&lock);
    return is_new;
}

/* ---- the map of one ------------------------------------------------------------------------- */

/* With the lock.  NULL: there is no such process, or its page cannot be used. */
static const top_process *find(uint32_t pid)
{
    for (size_t i = 0; i < model.n; i++)
        if (model.list[i]->pid == pid && !model.list[i]->is_refused)
            return model.list[i];
    return NULL;
}

/* One character for each cell: 64 values, those of base64. */
static void put_segment(usm__json *j, const usm__monitor_map *m, const usm__monitor_segment *s)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char              cells[USM__MONITOR_CELLS + 1];
    size_t            n = (size_t)((s->size - 1) >> s->shift) + 1;

    for (size_t i = 0; i < n; i++)
        cells[i] = digits[m->cells[s->first + i]];
    cells[n] = '\0';
    usm__json_object_begin(j, NULL);
    usm__json_number(j, "pool", s->pool);
    usm__json_address(j, "base", s->base);
    usm__json_number(j, "size", s->size);
    usm__json_number(j, "cell", (uint64_t)1 << s->shift);
    usm__json_text(j, "cells", cells);
    usm__json_object_end(j);
}

static void put_map(usm__json *j, const top_process *p)
{
    const usm__monitor_map *m = &p->now.map;

    usm__json_object_begin(j, NULL);
    usm__json_number(j, "sampled_ns", p->now.sampled_ns);
    usm__json_number(j, "taken_ns", m->taken_ns);
    usm__json_number(j, "cost_ns", m->cost_ns);
    usm__json_array_begin(j, "segments");
    for (uint32_t i = 0; i < m->nsegments; i++)
        put_segment(j, m, &m->segments[i]);
    usm__json_array_end(j);
    usm__json_object_end(j);
}

uint32_t processes_asked(request *r)
{
    char          given[16] = "", *end = given;
    unsigned long pid;
    bool          is_there;

    pid = query_text(r, "pid", given, sizeof given) ? strtoul(given, &end, 10) : 0;
    (void)pthread_mutex_lock(&lock);
    is_there = *given && !*end && pid <= INT32_MAX && find((uint32_t)pid) != NULL;
    (void)pthread_mutex_unlock(&lock);
    if (is_there)
        return (uint32_t)pid;
    (void)answer_error(r, 404, "no process of yours with that number uses libusm");
    return 0;
}

int processes_map(request *r)
{
    uint32_t           pid = processes_asked(r);
    const top_process *p;
    json_answer        a;

    if (pid == 0)
        return 404;
    if (!json_open(r, &a))
        return 503;
    (void)pthread_mutex_lock(&lock);
    p = find(pid);
    if (p)
        put_map(&a.j, p);
    else
        usm__json_null(&a.j, NULL); /* it has ended meanwhile */
    (void)pthread_mutex_unlock(&lock);
    return json_close(r, 200, &a);
}
