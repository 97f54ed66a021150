/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Graphs of usm-run that were started elsewhere, by the files that it has beside its monitor page: see
 * web.h.  They are read while somebody listens, once for all that do. */
#include "web.h"

#include "monitor/graph_file.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

enum { READ_MS = 95, GRAPHS_MAX = 64 };

/* All below is guarded by `lock`. */
static pthread_mutex_t     lock = PTHREAD_MUTEX_INITIALIZER;
static usm__monitor_reader reader;
static bool                is_open, was_tried;
static uint64_t            version, next_ms;
static char               *text; /* of the last time */

/* With the lock. */
static bool open_reader(void)
{
    if (!was_tried)
        is_open = usm__monitor_open(&reader);
    was_tried = true;
    return is_open;
}

/* ---- the stream -------------------------------------------------------------------------------- */

/* With the lock.  Runs of this program have their own event. */
static void write_graph(usm__json *j, uint32_t pid)
{
    usm__monitor_graph_found found;
    char                    *progress;

    if (runs_has_child((pid_t)pid) || !usm__monitor_read_graph(&reader, pid, false, &found))
        return;
    progress = usm__monitor_read_progress(&reader, pid);
    usm__json_object_begin(j, NULL);
    usm__json_number(j, "pid", pid);
    usm__json_number(j, "start", found.start_ticks);
    usm__json_text(j, "path", found.name);
    usm__json_text(j, "progress", progress);
    usm__json_object_end(j);
    free(progress);
    free(found.bytes);
}

/* With the lock. */
static void sample(void)
{
    uint32_t  pids[GRAPHS_MAX];
    size_t    n    = usm__monitor_list_graphs(&reader, pids, GRAPHS_MAX), size;
    char     *news = NULL;
    FILE     *file = open_memstream(&news, &size);
    usm__json j    = {.out = {.file = file}, .form = USM__JSON_COMPACT};

    if (!file)
        return;
    usm__json_array_begin(&j, NULL);
    for (size_t i = 0; i < n && i < GRAPHS_MAX; i++)
        write_graph(&j, pids[i]);
    usm__json_array_end(&j);
    if (fclose(file) != 0 || (text && strcmp(text, news) == 0)) {
        free(news);
        return;
    }
    free(text);
    text = news;
    version++;
}

bool graphs_write_new(usm__json *j, uint64_t *seen, uint64_t now_ms)
{
    bool is_new;

    (void)pthread_mutex_lock(&lock);
    if (open_reader() && now_ms >= next_ms) {
        sample();
        next_ms = now_ms + READ_MS;
    }
    is_new = version > *seen;
    if (is_new) {
        usm__out_bytes(&j->out, text, strlen(text));
        *seen = version;
    }
    (void)pthread_mutex_unlock(&lock);
    return is_new;
}

/* ---- requests ---------------------------------------------------------------------------------- */

/* Reads the graph of the process that the query names by its id and its start.  False: it has
 * ended. */
static bool read_asked(const request *r, usm__monitor_graph_found *found, uint32_t *pid)
{
    char     number[32], start[32];
    uint64_t ticks;
    bool     is_there;

    if (!query_text(r, "pid", number, sizeof number) ||
        !query_text(r, "start", start, sizeof start))
        return false;
    *pid  = (uint32_t)strtoul(number, NULL, 10);
    ticks = strtoull(start, NULL, 10);
    (void)pthread_mutex_lock(&lock);
    is_there = open_reader() && usm__monitor_read_graph(&reader, *pid, true, found);
    (void)pthread_mutex_unlock(&lock);
    if (is_there && found->start_ticks == ticks)
        return true;
    if (is_there)
        free(found->bytes);
    return false;
}

static int answer_ended(request *r)
{
    return answer_error(r, 404, "there is no such run any more: its process has ended");
}

int graphs_text(request *r)
{
    usm__monitor_graph_found found;
    uint32_t                 pid;
    int                      status;

    if (!read_asked(r, &found, &pid))
        return answer_ended(r);
    status = answer(r, 200, "application/octet-stream", found.text, strlen(found.text));
    free(found.bytes);
    return status;
}

int graphs_stop(request *r)
{
    usm__monitor_graph_found found;
    char                     number[32] = "";
    uint32_t                 pid;
    int                      process, status = 404;

    /* Opened before it is looked at: its number may not become another process's meanwhile. */
    (void)query_text(r, "pid", number, sizeof number);
    process = pidfd_open((pid_t)strtol(number, NULL, 10), 0);
    if (process >= 0 && read_asked(r, &found, &pid)) {
        free(found.bytes);
        status = pidfd_send_signal(process, SIGTERM, NULL, 0) == 0 ? 200 : 404;
    }
    if (process >= 0)
        (void)close(process);
    return status == 200 ? answer(r, 200, "application/json", "{}", 2) : answer_ended(r);
}
