/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The thread that reads and writes the pipes of all units: see crew.h.
 *
 *     run of the graph --ops--> peer --frames--> pipe --> the command's standard input
 *                      <-next-- peer <--frames-- pipe <-- its standard output
 *
 * One lock is around all of it, but poll().  Whoever adds frames wakes the thread by a pipe. */
#include "units/crew.h"

#include "base/inline/plural.h"
#include "base/os.h"
#include "units/peer.h"
#include "units/pipe.h"
#include "units/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define END_NS  UINT64_C(2000000000) /* how long units have to end */
#define GONE_NS UINT64_C(500000000)  /* how long the command of one whose pipe is closed has */

typedef struct unit {
    unit_crew   *crew;
    const char  *command; /* NULL: it is a rank */
    unit_process process;
    unit_pipe    pipe;
    peer         peer;
    bool         is_open;
    uint64_t     heard_ns;
    char         why[2 * UNIT_TEXT];
} unit;

struct unit_crew {
    unit_crew_desc   desc;
    pthread_mutex_t  lock; /* guards what follows */
    pthread_t        thread;
    bool             has_thread, is_closing, is_quiet;
    uint64_t         end_ns; /* is_closing: when units are killed */
    int              wake[2];
    usm__graph_mail *mail;
    unit            *units;
};

static const char who[] = "usm-run";

/* ---- losses ---------------------------------------------------------------------------------- */

static void wake(unit_crew *c)
{
    (void)!write(c->wake[1], "", 1); /* full: it will wake anyway */
}

static void ring(unit_crew *c)
{
    if (c->mail)
        usm__graph_mail_ring(c->mail);
}

/* Prints a line about a unit, in one piece: several processes may share stderr. */
static void report(const unit *u, const char *text)
{
    const char *command = u->command;

    fprintf(stderr, "usm-run: %s%u%s%s%s: %s\n", command ? "unit " : "--unit: rank ",
            u->peer.unit + 1, command ? " (" : "", command ? command : "", command ? ")" : "",
            text);
}

static void report_loss(const unit *u, const char *why, const char *how)
{
    bool is_new = u->peer.phase == PEER_STARTS;
    char text[3 * UNIT_TEXT];

    (void)snprintf(text, sizeof text, "%s%s%s%s", why, *how ? ", with " : "", how,
                   is_new ? ", and had said nothing" : "; what it had is done elsewhere");
    report(u, text);
}

static void lose(unit *u, const char *why, bool has_ended)
{
    uint64_t now     = usm__os_now_ns();
    char     how[32] = "";

    if (!u->is_open)
        return;
    u->is_open = false;
    unit_pipe_close(&u->pipe);
    unit_process_end(&u->process, has_ended ? now + GONE_NS : now, how, sizeof how);
    if (!u->crew->is_quiet)
        report_loss(u, why, has_ended ? how : "");
    peer_lose(&u->peer);
    ring(u->crew);
}

static void check(unit *u, bool is_ok)
{
    if (!is_ok)
        lose(u, "no memory is left for it", false);
}

/* ---- the table of the run, which calls it from its thread -------------------------------------- */

static void attach(void *user, usm__graph_mail *mail)
{
    unit_crew *c = user;

    (void)pthread_mutex_lock(&c->lock);
    c->mail = mail;
    ring(c);
    /* The run has ended, or was called off: blocks are not there much longer */
    c->is_quiet = !mail;
    for (uint32_t i = 0; i < c->desc.n && !mail; i++)
        if (unit_pipe_holds(&c->units[i].pipe, UNIT_BLOCKS))
            lose(&c->units[i], "", false);
    (void)pthread_mutex_unlock(&c->lock);
}

static bool next(void *user, usm__unit_event *ev)
{
    unit_crew *c    = user;
    bool       came = false;

    (void)pthread_mutex_lock(&c->lock);
    for (uint32_t i = 0; i < c->desc.n && !came; i++)
        came = peer_next(&c->units[i].peer, ev);
    (void)pthread_mutex_unlock(&c->lock);
    return came;
}

/* NULL: it is lost. */
static unit *enter(unit_crew *c, uint32_t i)
{
    (void)pthread_mutex_lock(&c->lock);
    return c->units[i].is_open ? &c->units[i] : NULL;
}

static void leave(unit_crew *c)
{
    (void)pthread_mutex_unlock(&c->lock);
    wake(c);
}

static void unroll(void *user, uint32_t i, uint32_t node, uint32_t parts)
{
    unit *u = enter(user, i);

    if (u)
        check(u, peer_unroll(&u->peer, node, parts));
    leave(user);
}

static void send(void *user, uint32_t i, const usm__graph_range *range, const void *data,
                 size_t size)
{
    unit *u = enter(user, i);

    if (u)
        check(u, peer_send(&u->peer, range, data, size));
    leave(user);
}

static void fetch(void *user, uint32_t i, const usm__graph_range *range, size_t size)
{
    unit *u = enter(user, i);

    if (u)
        check(u, peer_fetch(&u->peer, range, size));
    leave(user);
}

static void run(void *user, uint32_t i, uint32_t part, const usm__graph_range *range, size_t size,
                bool comes_back)
{
    unit *u = enter(user, i);

    if (u)
        check(u, peer_run(&u->peer, part, range, size, comes_back));
    leave(user);
}

static void drop(void *user, uint32_t i, uint32_t node)
{
    unit *u = enter(user, i);

    if (u)
        check(u, peer_drop(&u->peer, node));
    leave(user);
}

static void give_up(void *user, uint32_t i, const char *why)
{
    unit *u = enter(user, i);

    if (u)
        lose(u, why, false);
    leave(user);
}

usm__unit_crew unit_crew_table(unit_crew *c)
{
    static const usm__unit_ops ops = {attach, next, unroll, send, fetch, run, drop, give_up};

    return (usm__unit_crew){&ops, c, c->desc.n, c->desc.no_local};
}

/* ---- frames ---------------------------------------------------------------------------------- */

static bool put(void *user, const unit_frame *f, const void *data, bool owned)
{
    unit *u = user;

    return unit_pipe_put(&u->pipe, f, data, owned);
}

static void begins(void *user, const unit_frame *f)
{
    unit *u = user;

    peer_begins(&u->peer, f, usm__os_now_ns());
}

static const char *expects(void *user, const unit_frame *f)
{
    unit *u = user;

    return peer_expects(&u->peer, f);
}

static const char *take(void *user, const unit_frame *f, unsigned char *bytes)
{
    unit       *u   = user;
    const char *why = peer_take(&u->peer, f, bytes, usm__os_now_ns());

    if (u->peer.first)
        ring(u->crew);
    return why;
}

/* What came in the place of a frame, as far as it is text: a greeting of the shell, mostly. */
static const char *explain(unit *u, const char *why)
{
    char text[25];

    if (u->peer.phase != PEER_STARTS || u->pipe.has_head || u->pipe.got == 0 ||
        (why != unit_no_frame && why != unit_has_ended))
        return why;
    unit_text(text, sizeof text, u->pipe.head, (size_t)u->pipe.got);
    (void)snprintf(u->why, sizeof u->why,
                   "it begins with '%s': no usm-run --unit speaks there, or something there prints "
                   "before it does",
                   text);
    return u->why;
}

static void read_from(unit *u)
{
    const unit_reader reader = {u, expects, take};
    size_t            n;
    const char       *why = unit_pipe_read(&u->pipe, &reader, &n);

    if (n)
        u->heard_ns = usm__os_now_ns();
    if (why)
        lose(u, explain(u, why), why == unit_has_ended);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* When a unit that says nothing is given up; 0: it may take its time. */
static uint64_t silent_at(const unit *u)
{
    if (!u->is_open || u->peer.phase == PEER_STARTS)
        return 0;
    return u->heard_ns + (uint64_t)u->crew->desc.silence_ms * 1000000;
}

static int wait_ms(const unit_crew *c, uint64_t now)
{
    uint64_t first = c->is_closing ? c->end_ns : UINT64_MAX;

    for (uint32_t i = 0; i < c->desc.n; i++) {
        uint64_t at = silent_at(&c->units[i]);

        if (at && at < first)
            first = at;
    }
    if (first == UINT64_MAX)
        return -1;
    return first > now ? (int)((first - now) / 1000000) + 1 : 0;
}

static void list_files(const unit_crew *c, struct pollfd *fds)
{
    fds[0] = (struct pollfd){.fd = c->wake[0], .events = POLLIN};
    for (uint32_t i = 0; i < c->desc.n; i++) {
        const unit *u = &c->units[i];

        fds[1 + 2 * i] = (struct pollfd){.fd = u->is_open ? u->pipe.in : -1, .events = POLLIN};
        fds[2 + 2 * i] =
            (struct pollfd){.fd = u->is_open && unit_pipe_has_output(&u->pipe) ? u->pipe.out : -1,
                            .events = POLLOUT};
    }
}

static void handle(unit_crew *c, const struct pollfd *fds)
{
    char some[64];

    while (fds[0].revents && read(c->wake[0], some, sizeof some) == (ssize_t)sizeof some) {}
    for (uint32_t i = 0; i < c->desc.n; i++) {
        unit *u = &c->units[i];

        if (u->is_open && fds[1 + 2 * i].revents)
            read_from(u);
        if (u->is_open && fds[2 + 2 * i].revents && !unit_pipe_write(&u->pipe, begins, u))
            lose(u, unit_has_ended, true);
    }
}

static void check_silence(unit_crew *c)
{
    uint64_t now = usm__os_now_ns();
    char     why[96];

    for (uint32_t i = 0; i < c->desc.n; i++) {
        unit    *u  = &c->units[i];
        uint64_t at = silent_at(u);

        if (!at || now < at)
            continue;
        (void)snprintf(why, sizeof why, "it has said nothing for %.3g s",
                       (double)c->desc.silence_ms / 1e3);
        lose(u, why, false);
    }
}

static bool has_open(const unit_crew *c)
{
    for (uint32_t i = 0; i < c->desc.n; i++)
        if (c->units[i].is_open)
            return true;
    return false;
}

static void *work(void *user)
{
    unit_crew    *c = user;
    struct pollfd fds[1 + 2 * USM__UNITS_MAX];

    (void)pthread_mutex_lock(&c->lock);
    while (!c->is_closing || (has_open(c) && usm__os_now_ns() < c->end_ns)) {
        int ms = wait_ms(c, usm__os_now_ns());
        int n;

        list_files(c, fds);
        (void)pthread_mutex_unlock(&c->lock);
        n = poll(fds, 1 + 2 * c->desc.n, ms);
        (void)pthread_mutex_lock(&c->lock);
        if (n > 0)
            handle(c, fds);
        check_silence(c);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* 0, or an error number. */
static int start_process(unit *u)
{
    const unit_crew *c = u->crew;

    if (u->command)
        return unit_process_start(&u->process, u->command);
    u->process.in  = c->desc.ranks[u->peer.unit];
    u->process.out = fcntl(u->process.in, F_DUPFD_CLOEXEC, 0);
    return u->process.out < 0 ? errno : 0;
}

static bool start(unit_crew *c, uint32_t i)
{
    unit *u = &c->units[i];
    char  text[UNIT_TEXT];
    int   error;

    *u = (unit){.crew    = c,
                .command = c->desc.commands ? c->desc.commands[i] : NULL,
                .peer    = {.unit = i, .app = c->desc.app, .put = put, .user = u}};
    peer_init(&u->peer);
    error = start_process(u);
    if (error) {
        (void)snprintf(text, sizeof text, "it cannot be started: %s", strerror(error));
        report(u, text);
        return false;
    }
    u->is_open = true;
    return unit_pipe_open(&u->pipe, u->process.in, u->process.out) && peer_hello(&u->peer, who);
}

unit_crew *unit_crew_open(const unit_crew_desc *desc)
{
    unit_crew *c     = usm__heap_alloc(sizeof *c);
    bool       is_ok = true;

    if (!c)
        return NULL;
    c->desc  = *desc;
    c->units = usm__heap_alloc(desc->n * sizeof *c->units);
    (void)pthread_mutex_init(&c->lock, NULL);
    if (!c->units || pipe2(c->wake, O_CLOEXEC | O_NONBLOCK) != 0) {
        fprintf(stderr, "usm-run: no memory or no pipe for %u %s\n", desc->n,
                usm__plural(desc->n, "unit", "units"));
        usm__heap_free(c->units);
        usm__heap_free(c);
        return NULL;
    }
    for (c->desc.n = 0; c->desc.n < desc->n && is_ok; c->desc.n++)
        is_ok = start(c, c->desc.n);
    if (is_ok)
        is_ok = c->has_thread = pthread_create(&c->thread, NULL, work, c) == 0;
    if (is_ok)
        return c;
    unit_crew_close(c);
    return NULL;
}

void unit_crew_report(unit_crew *c)
{
    (void)pthread_mutex_lock(&c->lock);
    for (uint32_t i = 0; i < c->desc.n; i++) {
        const peer *p = &c->units[i].peer;
        char        text[2 * UNIT_TEXT];

        (void)snprintf(text, sizeof text, "%llu %s, %llu bytes sent, %llu came back%s%s%s",
                       (unsigned long long)p->ended, usm__plural(p->ended, "launch", "launches"),
                       (unsigned long long)p->bytes_sent, (unsigned long long)p->bytes_come,
                       p->phase == PEER_LOST ? ", lost" : "", *p->who ? ", on " : "", p->who);
        report(&c->units[i], text);
    }
    (void)pthread_mutex_unlock(&c->lock);
}

static void say_bye(unit_crew *c)
{
    (void)pthread_mutex_lock(&c->lock);
    c->mail       = NULL;
    c->is_closing = c->is_quiet = true;
    c->end_ns                   = usm__os_now_ns() + END_NS;
    for (uint32_t i = 0; i < c->desc.n; i++) {
        unit *u = &c->units[i];

        if (!u->is_open)
            continue;
        if (u->peer.phase == PEER_STARTS)
            lose(u, "", false); /* it still connects, or waits in a queue */
        else
            (void)unit_pipe_put(&u->pipe, &(unit_frame){.op = UNIT_BYE}, NULL, false);
    }
    (void)pthread_mutex_unlock(&c->lock);
    wake(c);
}

void unit_crew_close(unit_crew *c)
{
    if (!c)
        return;
    say_bye(c);
    if (c->has_thread)
        (void)pthread_join(c->thread, NULL);
    for (uint32_t i = 0; i < c->desc.n; i++) {
        lose(&c->units[i], "", false);
        peer_fini(&c->units[i].peer);
    }
    (void)close(c->wake[0]);
    (void)close(c->wake[1]);
    (void)pthread_mutex_destroy(&c->lock);
    usm__heap_free(c->units);
    usm__heap_free(c);
}
