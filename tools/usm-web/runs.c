/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Apps that run: see web.h.  A run is a child, usm-run --progress=json, and a thread that reads
 * what it writes.  Of its progress the last line is kept, which tells all; messages and results are
 * kept up to a bound.  A run that has ended gives its place to a new one, the oldest first.  One that
 * was stopped, or was killed, is resumed as a new run that goes on from what is kept (kept.c). */
#include "web.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGES_MAX = 1 << 16, RESULT_MAX = 4 << 20, DEVICE_MAX = 1024 };

/* What a run is started with. */
typedef struct run_order {
    char   path[PATH_MAX], device[DEVICE_MAX]; /* device "": all */
    char   kept[PATH_MAX]; /* the folder of what has ended, to be resumed from; "": none */
    char  *app;
    size_t size;
} run_order;

typedef struct run {
    uint64_t   number; /* 0: this place is free; from 1 on, in the order of their starts */
    uint64_t   version;
    bool       is_running, is_stopped;
    int        status; /* of waitpid(), once it has ended */
    run_order  order;
    char      *progress; /* the last line of JSON */
    child_text messages; /* the other lines */
    child_text result;
    child      c; /* its pid is valid while is_running */
} run;

/* All below is guarded by `lock`; `changed` is signalled after each change. */
static pthread_mutex_t lock    = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t  changed = PTHREAD_COND_INITIALIZER;
static run             runs[RUNS_MAX];
static uint64_t        last_number, last_version;

/* With the lock. */
static void notify_change(run *r)
{
    r->version = ++last_version;
    (void)pthread_cond_broadcast(&changed);
}

static run *find(uint64_t number)
{
    for (size_t i = 0; i < RUNS_MAX; i++)
        if (number && runs[i].number == number)
            return &runs[i];
    return NULL;
}

/* ---- the thread of a run --------------------------------------------------------------------- */

/* With the lock. */
static void take_line(run *r, const char *line, size_t size)
{
    child_text *m = &r->messages;
    char       *more;

    if (*line == '{') {
        free(r->progress);
        r->progress = strndup(line, size);
        return;
    }
    if (m->size + size + 1 > MESSAGES_MAX) {
        m->is_cut = true;
        return;
    }
    more = realloc(m->text, m->size + size + 2);
    if (!more)
        return;
    memcpy(more + m->size, line, size);
    memcpy(more + m->size + size, "\n", 2);
    m->text = more;
    m->size += size + 1;
}

/* Takes the whole lines of `err`, and leaves the rest; with the lock. */
static bool take_lines(run *r, child_text *err)
{
    size_t at = 0;
    char  *end;

    while (at < err->size && (end = memchr(err->text + at, '\n', err->size - at))) {
        take_line(r, err->text + at, (size_t)(end - err->text) - at);
        at = (size_t)(end - err->text) + 1;
    }
    if (at == 0 && err->size == err->max)
        at = err->size; /* no line is that long */
    err->size -= at;
    if (at)
        memmove(err->text, err->text + at, err->size + 1);
    return at > 0;
}

static void *read_run(void *of)
{
    run       *r   = of;
    child      c   = r->c;
    child_text out = {.max = RESULT_MAX}, err = {.max = TEXT_MAX};
    int        status;

    while (child_read(&c, &out, &err, -1)) {
        (void)pthread_mutex_lock(&lock);
        if (take_lines(r, &err))
            notify_change(r);
        (void)pthread_mutex_unlock(&lock);
    }
    /* The child may have closed its streams and go on.  It is reaped with the lock alone, so that
     * the number that runs_stop() signals is nobody else's. */
    while (waitid(P_PID, (id_t)c.pid, &(siginfo_t){.si_pid = 0}, WEXITED | WNOWAIT) &&
           errno == EINTR)
        ;
    (void)pthread_mutex_lock(&lock);
    if (err.size)
        take_line(r, err.text, err.size);
    status        = child_end(&c);
    r->status     = status;
    r->result     = out;
    r->is_running = false;
    notify_change(r);
    (void)pthread_mutex_unlock(&lock);
    free(err.text);
    return NULL;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* A place for a run: a free one, or that of the oldest that has ended; NULL: all run.  With the
 * lock. */
static run *take_place(void)
{
    run *place = NULL;

    for (size_t i = 0; i < RUNS_MAX; i++)
        if (!runs[i].is_running && (!place || runs[i].number < place->number))
            place = &runs[i];
    if (!place)
        return NULL;
    kept_remove(place->order.kept);
    free(place->progress);
    free(place->messages.text);
    free(place->result.text);
    free(place->order.app);
    *place = (run){.number = 0};
    return place;
}

/* Takes the app, unless it fails.  With the lock.  0, or errno. */
static int start(const web *w, const child_plan *plan, const run_order *order, uint64_t *number)
{
    run      *r = take_place();
    pthread_t thread;
    int       error;

    if (!r)
        return EBUSY;
    error = child_start(w, plan, &r->c);
    if (error)
        return error;
    r->is_running = true;
    error         = pthread_create(&thread, NULL, read_run, r);
    if (error) {
        r->is_running = false;
        (void)kill(-r->c.pid, SIGKILL);
        (void)child_end(&r->c);
        return error;
    }
    (void)pthread_detach(thread);
    r->order = *order;
    *number = r->number = ++last_number;
    notify_change(r);
    return 0;
}

static int answer_start(request *r, int error, uint64_t number)
{
    json_answer a;

    if (error == EBUSY)
        return answer_error(r, 409, "%d apps run already: stop one of them", RUNS_MAX);
    if (error)
        return answer_error(r, 500, "usm-run: %s", strerror(error));
    if (!json_open(r, &a))
        return 503;
    usm__json_object_begin(&a.j, NULL);
    usm__json_number(&a.j, "run", number);
    usm__json_object_end(&a.j);
    return json_close(r, 200, &a);
}

static uint64_t number_of(const request *r)
{
    char text[32];

    return query_text(r, "run", text, sizeof text) ? strtoull(text, NULL, 10) : 0;
}

/* With the lock.  `resumed`: the run whose kept folder the new one gets; 0: it begins anew, and is kept
 * if `keeps`. */
static int start_order(request *r, int folder, run_order *order, uint64_t resumed, bool keeps,
                       uint64_t *number)
{
    const char *args[9 + 2 * STORES_MAX] = {"-", "--progress=json", "--within", r->w->folder.path};
    child_plan  plan                     = {.program = "usm-run",
                                            .args    = args,
                                            .in      = order->app,
                                            .in_size = order->size,
                                            .folder  = folder};
    size_t      n                        = child_add_stores(r->w, args, 4);
    run        *old                      = find(resumed);
    int         error;

    if (old)
        old->order.kept[0] = '\0'; /* it is no longer that run's: its place may be the next */
    else if (keeps)
        kept_path(r->w, last_number + 1, order->kept, sizeof order->kept);
    if (*order->device) {
        args[n++] = "--device";
        args[n++] = order->device;
    }
    if (*order->kept) {
        args[n++] = "--resume";
        args[n++] = order->kept;
    }
    error = start(r->w, &plan, order, number);
    old   = find(resumed);
    if (old && error)
        memcpy(old->order.kept, order->kept, sizeof old->order.kept);
    else if (old)
        notify_change(old);
    return error;
}

/* Frees the app if no run has it. */
static int begin(request *r, run_order *order, uint64_t resumed, bool keeps)
{
    uint64_t number = 0;
    int      folder = compose_folder_of(r, order->path), error;

    if (folder < 0) {
        free(order->app);
        return 400;
    }
    (void)pthread_mutex_lock(&lock);
    error = start_order(r, folder, order, resumed, keeps, &number);
    (void)pthread_mutex_unlock(&lock);
    (void)close(folder);
    if (error)
        free(order->app);
    return answer_start(r, error, number);
}

int runs_start(request *r)
{
    run_order order = {.path = ""};
    char      keeps[4];

    order.app = read_body(r, &order.size);
    if (!order.app)
        return 400;
    (void)query_text(r, "path", order.path, sizeof order.path);
    (void)query_text(r, "device", order.device, sizeof order.device);
    return begin(r, &order, 0,
                 query_text(r, "keep", keeps, sizeof keeps) && strcmp(keeps, "1") == 0);
}

/* With the lock. */
static bool can_resume(const run *r)
{
    return !r->is_running && r->status != 0 && kept_is_there(r->order.kept);
}

int runs_resume(request *r)
{
    uint64_t  number = number_of(r);
    run_order order  = {.app = NULL};
    run      *old;

    (void)pthread_mutex_lock(&lock);
    old = find(number);
    if (old && can_resume(old)) {
        order     = old->order;
        order.app = strdup(old->order.app);
    }
    (void)pthread_mutex_unlock(&lock);
    if (!order.app)
        return answer_error(r, 409,
                            "run %" PRIu64 " cannot be resumed: it still runs, is done, or nothing "
                            "of it was kept; start its app again",
                            number);
    return begin(r, &order, number, false);
}

/* The first time launches under way may end; the second time none is waited for. */
int runs_stop(request *r)
{
    run *found;

    (void)pthread_mutex_lock(&lock);
    found = find(number_of(r));
    if (found && found->is_running) {
        (void)kill(-found->c.pid, found->is_stopped ? SIGKILL : SIGTERM);
        found->is_stopped = true;
        notify_change(found);
    }
    (void)pthread_mutex_unlock(&lock);
    return found ? answer(r, 200, "application/json", "{}", 2)
                 : answer_error(r, 404, "there is no such run");
}

/* A copy of what a run has: its app, or what it has printed; NULL: there is no such run, or it has
 * printed nothing yet. */
static char *copy_of(uint64_t number, bool is_app, size_t *size)
{
    char *text = NULL;
    run  *r;

    (void)pthread_mutex_lock(&lock);
    r = find(number);
    if (r && (is_app || !r->is_running)) {
        const char *from = is_app ? r->order.app : r->result.text;

        *size = is_app ? r->order.size : r->result.size;
        text  = malloc(*size + 1);
        if (text && *size)
            memcpy(text, from, *size);
    }
    (void)pthread_mutex_unlock(&lock);
    return text;
}

static int answer_copy(request *r, bool is_app)
{
    size_t size = 0;
    char  *text = copy_of(number_of(r), is_app, &size);
    int    status;

    if (!text)
        return answer_error(r, 404, "there is no such run, or it has not ended");
    status = answer(r, 200, "application/octet-stream", text, size);
    free(text);
    return status;
}

int runs_result(request *r)
{
    return answer_copy(r, false);
}

int runs_app(request *r)
{
    return answer_copy(r, true);
}

/* ---- the stream ------------------------------------------------------------------------------ */

static void write_run(usm__json *j, const run *r)
{
    char end[128];

    usm__json_object_begin(j, NULL);
    usm__json_number(j, "run", r->number);
    usm__json_text(j, "path", r->order.path);
    usm__json_bool(j, "is_running", r->is_running);
    usm__json_bool(j, "is_stopped", r->is_stopped);
    usm__json_bool(j, "is_ok", !r->is_running && r->status == 0);
    usm__json_bool(j, "can_resume", can_resume(r));
    usm__json_text(j, "end", r->is_running ? "" : child_end_text(r->status, end, sizeof end));
    usm__json_text(j, "progress", r->progress);
    usm__json_text(j, "messages", r->messages.text ? r->messages.text : "");
    usm__json_number(j, "result", r->result.size);
    usm__json_object_end(j);
}

bool runs_write_new(usm__json *j, uint64_t *version)
{
    bool is_new;

    (void)pthread_mutex_lock(&lock);
    is_new = last_version > *version;
    if (is_new) {
        usm__json_array_begin(j, NULL);
        for (size_t i = 0; i < RUNS_MAX; i++)
            if (runs[i].number && runs[i].version > *version)
                write_run(j, &runs[i]);
        usm__json_array_end(j);
        *version = last_version;
    }
    (void)pthread_mutex_unlock(&lock);
    return is_new;
}

void runs_wait(uint64_t version, int ms)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)ms * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&lock);
    while (last_version <= version && pthread_cond_timedwait(&changed, &lock, &until) != ETIMEDOUT)
        ;
    (void)pthread_mutex_unlock(&lock);
}

bool runs_has_child(pid_t pid)
{
    bool is_own = false;

    (void)pthread_mutex_lock(&lock);
    for (size_t i = 0; i < RUNS_MAX; i++)
        is_own |= runs[i].is_running && runs[i].c.pid == pid;
    (void)pthread_mutex_unlock(&lock);
    return is_own;
}

void runs_end(const web *w)
{
    (void)pthread_mutex_lock(&lock);
    for (size_t i = 0; i < RUNS_MAX; i++) {
        if (runs[i].is_running)
            (void)kill(-runs[i].c.pid, SIGKILL);
        while (runs[i].is_running) /* until then it may write what is to be removed */
            (void)pthread_cond_wait(&changed, &lock);
        kept_remove(runs[i].order.kept);
    }
    (void)pthread_mutex_unlock(&lock);
    kept_end(w);
}
