/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The stream of server-sent events: see web.h.  The page reads it by fetch(), since an EventSource
 * cannot send the token's header.
 *
 *     event: use     processors and memory, once a second
 *     event: processes   what their monitor pages say, every 100 ms
 *     event: graphs  those of usm-run that were started elsewhere, if they have changed
 *     event: runs    the runs that have changed, as soon as they do, at most every 40 ms
 *
 * A page that is gone is noticed by the next write, within a second. */
#include "web.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { PAUSE_MS = 40, USE_MS = 1000 };

static _Atomic(bool) is_over;

typedef struct stream {
    request    *r;
    machine_use use;
    uint64_t    runs, processes, graphs; /* the versions that the page has seen */
    uint64_t    next_use;
} stream;

static uint64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

typedef bool write_fn(usm__json *j, stream *s);

static bool write_use(usm__json *j, stream *s)
{
    if (now_ms() < s->next_use)
        return false;
    s->next_use = now_ms() + USE_MS;
    machine_write_use(j, &s->use);
    return true;
}

static bool write_runs(usm__json *j, stream *s)
{
    return runs_write_new(j, &s->runs);
}

static bool write_processes(usm__json *j, stream *s)
{
    return processes_write_new(j, &s->processes, now_ms());
}

static bool write_graphs(usm__json *j, stream *s)
{
    return graphs_write_new(j, &s->graphs, now_ms());
}

/* Sends an event unless `fn` has nothing new; false when the page is gone, or no memory is left. */
static bool send_event(stream *s, const char *name, write_fn *fn)
{
    char     *text = NULL;
    size_t    size = 0;
    FILE     *file = open_memstream(&text, &size);
    usm__json j    = {.out = {.file = file}, .form = USM__JSON_COMPACT};
    bool      is_new, is_ok;

    if (!file)
        return false;
    fprintf(file, "event: %s\ndata: ", name);
    is_new = fn(&j, s);
    fputs("\n\n", file);
    is_ok = fclose(file) == 0 && (!is_new || mg_write(s->r->c, text, size) == (int)size);
    free(text);
    return is_ok;
}

static void serve(request *r)
{
    stream *s = calloc(1, sizeof *s);

    if (!s)
        return;
    s->r = r;
    while (!atomic_load(&is_over) && send_event(s, "use", write_use) &&
           send_event(s, "processes", write_processes) && send_event(s, "graphs", write_graphs) &&
           send_event(s, "runs", write_runs)) {
        const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};

        (void)nanosleep(&pause, NULL); /* of many changes one event */
        runs_wait(s->runs, PAUSE_MS);
    }
    free(s);
}

void live_end(void)
{
    atomic_store(&is_over, true);
}

int live_stream(request *r)
{
    static _Atomic(int) streams;

    if (atomic_fetch_add(&streams, 1) >= STREAMS_MAX) {
        (void)atomic_fetch_sub(&streams, 1);
        return answer_error(r, 503, "%d pages listen already: close one of them", STREAMS_MAX);
    }
    answer_head(r, 200, "text/event-stream");
    (void)mg_printf(r->c, "Connection: close\r\n\r\n");
    serve(r);
    (void)atomic_fetch_sub(&streams, 1);
    return 200;
}
