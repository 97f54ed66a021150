/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A unit: see serve.h.
 *
 * One thread reads and writes the pipe, confirms what has come, and gives a sign of life twice a
 * second whatever the devices do.  The other one builds the app, then runs the graph as it is told
 * (offload/graph_serve.c), with the other ranks of its job as units of its own (crew.h). */
#include "units/serve.h"

#include "base/os.h"
#include "units/crew.h"
#include "units/pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ALIVE_MS = 500, FLYING_MAX = 1024, RANK_SILENCE_MS = 30000 };
#define BLOCKS_MAX (UINT64_C(1) << 42)

/* A frame that has come. */
typedef struct letter {
    struct letter *next;
    unit_frame     frame;
    unsigned char *bytes;
} letter;

/* A launch that is under way. */
typedef struct flight {
    uint32_t node, part;
    bool     comes; /* its blocks are to be sent */
} flight;

typedef struct server {
    unit_serve_desc  desc;
    pthread_mutex_t  lock; /* guards what follows, up to the line */
    pthread_cond_t   came;
    unit_pipe        pipe;
    letter          *first, **last;
    usm__graph_mail *mail;
    bool             has_ended, is_closing;
    int              wake[2];
    pthread_t        thread;
    /* ---- of the thread that runs the graph */
    unit_app        app;
    unsigned char **files; /* by image */
    usm_graph      *graph;
    unit_crew      *crew; /* the other ranks; NULL: there are none */
    usm__graph_run *run;
    flight          flights[FLYING_MAX];
    uint32_t        nflights;
    bool            is_ready, has_failed;
} server;

/* ---- the thread of the pipe ------------------------------------------------------------------ */

static void wake(server *s)
{
    (void)!write(s->wake[1], "", 1);
}

static void end(server *s)
{
    s->has_ended = true;
    (void)pthread_cond_signal(&s->came);
    if (s->mail)
        usm__graph_mail_ring(s->mail);
}

static const char *expects(void *user, const unit_frame *f)
{
    uint64_t most = 0;

    (void)user;
    if (f->op == UNIT_HELLO)
        most = UNIT_TEXT;
    else if (f->op == UNIT_APP)
        most = 2 * UNIT_APP_MAX;
    else if (f->op == UNIT_FILE)
        most = UNIT_FILE_MAX;
    else if (f->op == UNIT_BLOCKS)
        most = BLOCKS_MAX;
    return f->size <= most ? NULL : "a frame is too large";
}

static const char *take(void *user, const unit_frame *f, unsigned char *bytes)
{
    server    *s   = user;
    unit_frame got = {.op = UNIT_GOT, .number = f->number};
    letter    *l;

    if (f->op == UNIT_ECHO)
        return unit_pipe_put(&s->pipe, f, NULL, false) ? NULL : "no memory";
    l = usm__heap_alloc(sizeof *l);
    if (!l || (f->op == UNIT_BLOCKS && !unit_pipe_put(&s->pipe, &got, NULL, false))) {
        usm__heap_free(l);
        usm__heap_free(bytes);
        return "no memory";
    }
    l->frame = *f;
    l->bytes = bytes;
    *s->last = l;
    s->last  = &l->next;
    (void)pthread_cond_signal(&s->came);
    if (s->mail)
        usm__graph_mail_ring(s->mail);
    return NULL;
}

static void handle_pipe(server *s, const struct pollfd *fds)
{
    const unit_reader reader = {s, expects, take};
    char              some[64];
    size_t            n;
    const char       *why = NULL;

    while (fds[0].revents && read(s->wake[0], some, sizeof some) == (ssize_t)sizeof some) {}
    if (fds[1].revents)
        why = unit_pipe_read(&s->pipe, &reader, &n);
    if (why && why != unit_has_ended)
        fprintf(stderr, "usm-run: --unit: what comes from the other usm-run cannot be read: %s\n",
                why);
    if (why || (fds[2].revents && !unit_pipe_write(&s->pipe, NULL, NULL)))
        end(s);
}

static void *io(void *user)
{
    server  *s     = user;
    uint64_t alive = 0;

    (void)pthread_mutex_lock(&s->lock);
    while (!s->has_ended && !(s->is_closing && !unit_pipe_has_output(&s->pipe))) {
        uint64_t      now = usm__os_now_ns();
        struct pollfd fds[3];
        int           n;

        if (now >= alive && !unit_pipe_has_output(&s->pipe)) {
            (void)unit_pipe_put(&s->pipe, &(unit_frame){.op = UNIT_ALIVE}, NULL, false);
            alive = now + ALIVE_MS * UINT64_C(1000000);
        }
        fds[0] = (struct pollfd){.fd = s->wake[0], .events = POLLIN};
        fds[1] = (struct pollfd){.fd = s->pipe.in, .events = POLLIN};
        fds[2] = (struct pollfd){.fd     = unit_pipe_has_output(&s->pipe) ? s->pipe.out : -1,
                                 .events = POLLOUT};
        (void)pthread_mutex_unlock(&s->lock);
        n = poll(fds, 3, ALIVE_MS);
        (void)pthread_mutex_lock(&s->lock);
        if (n > 0)
            handle_pipe(s, fds);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- frames, from the other thread -------------------------------------------------------------- */

/* owned data are freed in any case. */
static bool put(server *s, const unit_frame *f, void *owned)
{
    bool is_ok;

    (void)pthread_mutex_lock(&s->lock);
    is_ok = unit_pipe_put(&s->pipe, f, owned, true);
    (void)pthread_mutex_unlock(&s->lock);
    if (!is_ok)
        usm__heap_free(owned);
    wake(s);
    return is_ok;
}

static bool put_copy(server *s, unit_frame *f, const void *bytes, uint64_t size)
{
    unsigned char *copy = size ? usm__heap_alloc((size_t)size) : NULL;

    if (size && !copy)
        return false;
    if (size)
        memcpy(copy, bytes, (size_t)size);
    f->size = size;
    return put(s, f, copy);
}

static bool put_text(server *s, unit_frame *f, const char *text)
{
    size_t size = strlen(text);

    return put_copy(s, f, text, size < UNIT_TEXT ? size : UNIT_TEXT);
}

/* waits: until there is one; false: there is none, or there will be none. */
static bool take_letter(server *s, bool waits, unit_frame *f, unsigned char **bytes)
{
    letter *l;

    (void)pthread_mutex_lock(&s->lock);
    while (waits && !s->first && !s->has_ended)
        (void)pthread_cond_wait(&s->came, &s->lock);
    l = s->first;
    if (l) {
        s->first = l->next;
        if (!s->first)
            s->last = &s->first;
        *f     = l->frame;
        *bytes = l->bytes;
    }
    (void)pthread_mutex_unlock(&s->lock);
    usm__heap_free(l);
    return l != NULL;
}

static bool has_ended(server *s)
{
    bool ended;

    (void)pthread_mutex_lock(&s->lock);
    ended = s->has_ended && !s->first;
    (void)pthread_mutex_unlock(&s->lock);
    return ended;
}

/* ---- before the run: hello, the app, its images ------------------------------------------------- */

/* The next frame must be of this kind. */
static bool await(server *s, unit_op op, unit_frame *f, unsigned char **bytes)
{
    *bytes = NULL;
    if (!take_letter(s, true, f, bytes))
        return false;
    if (f->op == op)
        return true;
    usm__heap_free(*bytes);
    if (f->op != UNIT_BYE) /* the run has ended meanwhile */
        fprintf(stderr, "usm-run: --unit: the other usm-run says %d where %d is due\n", f->op, op);
    return false;
}

/* Before the thread of the pipe begins: no sign of life may come before it. */
static bool greet(server *s)
{
    unit_frame mine            = {.op = UNIT_HELLO, .first = UNIT_LEAST, .count = UNIT_MOST};
    char       name[UNIT_TEXT] = "a unit";

    (void)gethostname(name, sizeof name - 1);
    return put_text(s, &mine, name);
}

static bool negotiate(server *s)
{
    unit_frame     f;
    unsigned char *bytes;

    if (!await(s, UNIT_HELLO, &f, &bytes))
        return false;
    usm__heap_free(bytes);
    if (unit_version(&f))
        return true;
    fprintf(stderr,
            "usm-run: --unit: the other usm-run speaks versions %u to %u of the protocol, and this "
            "one %d to %d: put the same libusm on both machines\n",
            f.first, f.count, UNIT_LEAST, UNIT_MOST);
    return false;
}

static bool get_app(server *s)
{
    unit_frame     f;
    unsigned char *bytes;
    bool           is_ok;

    if (!await(s, UNIT_APP, &f, &bytes))
        return false;
    is_ok = unit_app_decode(bytes, f.size, &s->app);
    usm__heap_free(bytes);
    if (is_ok)
        s->files = usm__heap_alloc((size_t)(s->app.nimages + 1) * sizeof *s->files);
    if (!is_ok || !s->files)
        fputs("usm-run: --unit: the app of the other usm-run cannot be read\n", stderr);
    return is_ok && s->files;
}

static bool get_file(server *s)
{
    unit_frame     f;
    unsigned char *bytes;
    usm__hash      hash = USM__HASH_INIT;

    if (!await(s, UNIT_FILE, &f, &bytes))
        return false;
    if (f.first < s->app.nimages && !s->files[f.first] && f.size == s->app.images[f.first].size) {
        usm__hash_add(&hash, bytes, (size_t)f.size);
        if (hash.hi == s->app.images[f.first].hash.hi &&
            hash.lo == s->app.images[f.first].hash.lo) {
            s->files[f.first] = bytes;
            return true;
        }
    }
    usm__heap_free(bytes);
    fputs("usm-run: --unit: an image of a kernel is not the one that was asked for\n", stderr);
    return false;
}

/* Asks once for images with the same content. */
static bool get_files(server *s)
{
    uint64_t       n    = s->app.nimages;
    unsigned char *want = usm__heap_alloc((size_t)n + 1);
    bool           is_ok;

    for (uint64_t i = 0; i < n && want; i++)
        want[i] = unit_app_first(&s->app, i) == i;
    is_ok = want && put_copy(s, &(unit_frame){.op = UNIT_WANT}, want, n);
    for (uint64_t i = 0; i < n && is_ok; i++)
        is_ok = !want[i] || get_file(s);
    usm__heap_free(want);
    for (uint64_t i = 0; i < n && is_ok; i++)
        s->app.images[i].data = s->files[unit_app_first(&s->app, i)];
    return is_ok;
}

/* They build while this rank does. */
static bool open_ranks(server *s)
{
    unit_crew_desc d = {
        .ranks = s->desc.ranks, .n = s->desc.nranks, .app = &s->app, .silence_ms = RANK_SILENCE_MS};

    if (d.n)
        s->crew = unit_crew_open(&d);
    s->desc.nranks = 0; /* their sockets are the crew's */
    return !d.n || s->crew;
}

static bool prepare(server *s)
{
    unit_frame refuse = {.op = UNIT_REFUSE, .status = USM_E_BUILD};

    if (!negotiate(s) || !get_app(s) || !get_files(s) || !open_ranks(s))
        return false;
    s->graph = s->desc.build(s->desc.user, &s->app);
    if (!s->graph)
        (void)put_text(s, &refuse, usm_last_error());
    return s->graph != NULL;
}

/* ---- during the run ----------------------------------------------------------------------------- */

static void attach(void *user, usm__graph_mail *mail)
{
    server *s = user;

    (void)pthread_mutex_lock(&s->lock);
    s->mail = mail;
    (void)pthread_mutex_unlock(&s->lock);
}

static usm_status send_blocks(server *s, const usm__graph_range *range)
{
    unit_frame f = {
        .op = UNIT_BLOCKS, .node = range->node, .first = range->first, .count = range->count};
    void      *data = NULL;
    size_t     size = 0;
    usm_status st   = usm__graph_serve_blocks(s->run, range, &data, &size);

    if (st == USM_OK && !put_copy(s, &f, data, size))
        st = usm__fail(USM_E_NO_MEMORY, "no host memory to send %zu bytes", size);
    return st;
}

static usm_status get_blocks(server *s, const unit_frame *f, const unsigned char *bytes)
{
    usm__graph_range range = {f->node, f->first, f->count};
    void            *data  = NULL;
    size_t           size  = 0;
    usm_status       st    = usm__graph_serve_blocks(s->run, &range, &data, &size);

    if (st == USM_OK && size != f->size)
        st = usm__fail(USM_E_INVALID, "blocks of %zu bytes came with %llu", size,
                       (unsigned long long)f->size);
    if (st != USM_OK)
        return st;
    memcpy(data, bytes, size);
    usm__graph_serve_filled(s->run, &range);
    return USM_OK;
}

static void tell_failure(server *s, uint32_t node, uint32_t part, usm_status status,
                         const char *why)
{
    unit_frame f = {.op = UNIT_FAILED, .node = node, .first = part, .status = (int32_t)status};

    (void)put_text(s, &f, why);
}

static usm_status start(server *s, const unit_frame *f)
{
    usm_status st = USM_E_BUSY;

    if (s->nflights < FLYING_MAX)
        st = usm__graph_serve_task(s->run, f->node, f->first);
    if (st == USM_OK)
        s->flights[s->nflights++] = (flight){f->node, f->first, f->flags & UNIT_COMES};
    else
        tell_failure(s, f->node, f->first, st,
                     st == USM_E_BUSY ? "too many launches at a time" : usm_last_error());
    return USM_OK;
}

/* Returns whether its blocks are to be sent. */
static bool land(server *s, const usm__graph_task *task)
{
    for (uint32_t i = 0; i < s->nflights; i++)
        if (s->flights[i].node == task->node && s->flights[i].part == task->part) {
            bool comes = s->flights[i].comes;

            s->flights[i] = s->flights[--s->nflights];
            return comes;
        }
    return false;
}

static void on_done(void *user, const usm__graph_task *task, uint64_t busy_ns, double speed)
{
    server                *s     = user;
    const usm__graph_node *n     = &s->graph->nodes[task->node];
    usm__graph_range       range = {task->node, task->part, 1};
    unit_frame    f = {.op = UNIT_DONE, .node = task->node, .first = task->part, .number = busy_ns};
    unsigned char bytes[UNIT_SPEED];

    if (n->ntasks == 1)
        range = (usm__graph_range){task->node, 0, n->nblocks};
    if (land(s, task) && send_blocks(s, &range) != USM_OK) {
        tell_failure(s, task->node, task->part, usm_last_status(), usm_last_error());
        return;
    }
    unit_put_speed(bytes, speed);
    (void)put_copy(s, &f, bytes, sizeof bytes);
}

static void on_failed(void *user, const usm__graph_task *task, usm_status status, const char *why)
{
    (void)land(user, task);
    tell_failure(user, task->node, task->part, status, why);
}

static usm_status obey(server *s, const unit_frame *f, const unsigned char *bytes)
{
    usm__graph_range range = {f->node, f->first, f->count};

    switch (f->op) {
    case UNIT_UNROLL:
        return usm__graph_serve_unroll(s->run, f->node, f->count);
    case UNIT_BLOCKS:
        return get_blocks(s, f, bytes);
    case UNIT_FETCH:
        return send_blocks(s, &range);
    case UNIT_RUN:
        return start(s, f);
    case UNIT_DROP:
        usm__graph_serve_drop(s->run, f->node);
        return USM_OK;
    default:
        return usm__fail(USM_E_INVALID, "the other usm-run says %d, which no unit understands",
                         f->op);
    }
}

static bool say_ready(server *s)
{
    uint32_t       n   = s->graph->nnodes;
    unit_frame     f   = {.op = UNIT_READY, .size = n};
    unsigned char *can = usm__heap_alloc(n);

    for (uint32_t i = 0; i < n && can; i++)
        can[i] = usm__graph_serve_can(s->run, i);
    f.count = usm__graph_serve_devices(s->run);
    return can && put(s, &f, can);
}

static bool handle(void *user, usm__graph_run *r)
{
    server        *s = user;
    unit_frame     f;
    unsigned char *bytes;

    s->run = r;
    if (!usm__graph_serve_is_ready(r))
        return !has_ended(s);
    if (!s->is_ready && !say_ready(s))
        return false;
    s->is_ready = true;
    while (take_letter(s, false, &f, &bytes)) {
        usm_status st = f.op == UNIT_BYE ? USM_OK : obey(s, &f, bytes);

        usm__heap_free(bytes);
        if (st != USM_OK)
            fprintf(stderr, "usm-run: --unit: %s\n", usm_last_error());
        s->has_failed |= st != USM_OK;
        if (st != USM_OK || f.op == UNIT_BYE)
            return false;
    }
    return !has_ended(s);
}

/* ---- begin and end ------------------------------------------------------------------------------ */

static void finish(server *s)
{
    unit_frame     f;
    unsigned char *bytes;

    unit_crew_close(s->crew); /* meanwhile the other side gets signs of life */
    (void)pthread_mutex_lock(&s->lock);
    s->is_closing = true;
    (void)pthread_mutex_unlock(&s->lock);
    wake(s);
    (void)pthread_join(s->thread, NULL);
    while (take_letter(s, false, &f, &bytes))
        usm__heap_free(bytes);
    unit_pipe_close(&s->pipe);
    for (uint32_t i = 0; i < s->desc.nranks; i++)
        (void)close(s->desc.ranks[i]);
    for (uint64_t i = 0; i < s->app.nimages && s->files; i++)
        usm__heap_free(s->files[i]);
    usm__heap_free(s->files);
    unit_app_free(&s->app);
    (void)close(s->wake[0]);
    (void)close(s->wake[1]);
}

static bool serve(server *s)
{
    const usm__graph_server table = {s, attach, handle, on_done, on_failed};
    usm__unit_crew          crew;

    if (!prepare(s))
        return false;
    if (s->crew)
        crew = unit_crew_table(s->crew);
    if (usm__graph_serve(s->graph, &table, s->crew ? &crew : NULL) != USM_OK) {
        fprintf(stderr, "usm-run: --unit: %s\n", usm_last_error());
        return false;
    }
    return !s->has_failed;
}

int unit_serve(const unit_serve_desc *desc)
{
    server *s = usm__heap_alloc(sizeof *s);
    bool    is_ok;

    if (!s)
        return 1;
    s->desc = *desc;
    s->last = &s->first;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->came, NULL);
    is_ok = pipe2(s->wake, O_CLOEXEC | O_NONBLOCK) == 0 &&
            unit_pipe_open(&s->pipe, desc->in, desc->out) && greet(s) &&
            pthread_create(&s->thread, NULL, io, s) == 0;
    if (is_ok) {
        is_ok = serve(s);
        finish(s);
    } else {
        fputs("usm-run: --unit: no pipe or thread for it\n", stderr);
    }
    (void)pthread_cond_destroy(&s->came);
    (void)pthread_mutex_destroy(&s->lock);
    usm__heap_free(s);
    return is_ok ? 0 : 1;
}
