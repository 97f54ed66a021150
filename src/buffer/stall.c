/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Warns, with a list of who waits for what, when deferred commands have made no progress for
 * USM_QUEUE_WAIT. Nothing in libusm waits in a circle (grant.c), but a program may wait for
 * something that only it can provide.
 *
 * One thread does this, from the first command that is deferred until none has been for a while.
 * It sleeps and looks in turn; no other thread wakes it.  Called by grant.c. */
#include "buffer/stall.h"

#include "base/log.h"
#include "base/os.h"
#include "base/settings.h"
#include "buffer/command.h"
#include "buffer/grant.h"
#include "command/outside.h"

#include <stdarg.h>
#include <stdio.h>

#define LOOKS 4 /* within the configured time                                                   */
#define TOLD  4 /* commands that are described                                                  */

/* ---- the text -------------------------------------------------------------------------- */

typedef struct text {
    char   at[900];
    size_t len;
} text;

static void put(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(text *t, const char *format, ...)
{
    va_list args;
    int     n;

    va_start(args, format);
    n = vsnprintf(t->at + t->len, sizeof t->at - t->len, format, args);
    va_end(args);
    if (n > 0)
        t->len = t->len + (size_t)n < sizeof t->at ? t->len + (size_t)n : sizeof t->at - 1;
}

/* The access of the host that c waits for; NULL. */
static const usm__access_entry *access_before(const usm__command *c)
{
    const usm__access_entry *h = NULL;

    for (size_t i = 0; !h && i < c->nuses; i++)
        if (!c->uses[i].is_empty)
            h = usm__grant_access_before(c, &c->uses[i], NULL);
    return h;
}

static void put_reason(text *t, const usm__command *c, bool is_first)
{
    bool                     is_blocked = usm__command_state_of(c) == USM__COMMAND_BLOCKED;
    const usm__access_entry *h          = is_blocked ? access_before(c) : NULL;
    char                     title[USM__SPACE_TITLE];

    if (h)
        put(t, "an open access of the host to %s", usm__space_title(h->root->space, title));
    else if (is_blocked)
        put(t, "a command before it over the same bytes");
    else if (usm__outside_awaited())
        put(t, "what is before it in its queue, while commands wait for an event that only the "
               "program or another process completes");
    else
        put(t, "%s", is_first ? "its turn" : "those before it");
}

static void put_command(text *t, const usm__command *c, bool is_first)
{
    char title[USM__SPACE_TITLE];

    put(t, "; a command over");
    for (size_t i = 0; i < c->nuses && i < 3; i++)
        put(t, "%s %s", i ? "," : "", usm__space_title(c->uses[i].root->space, title));
    put(t, "%s waits for ", c->nuses > 3 ? ", ..." : "");
    put_reason(t, c, is_first);
}

/* Under the lock. */
static void describe(text *t)
{
    const usm_list *line = usm__grant_line();
    size_t          n    = 0;

    if (usm__grant_under_way())
        put(t, "; one asks for memory that commands and open accesses hold");
    USM_LIST_FOREACH (it, line) {
        if (n < TOLD)
            put_command(t, usm_container_of(it, usm__command, in_line), n == 0);
        n++;
    }
    if (n > TOLD)
        put(t, "; and %zu more", n - TOLD);
}

/* ---- the thread ------------------------------------------------------------------------ */

typedef struct look {
    uint64_t moves;
    unsigned unmoved, idle; /* looks in a row                                               */
} look;

/* Looks once.  false: there is nothing to look at any more. */
static bool look_once(look *l, uint64_t ms)
{
    uint64_t moves = usm__grant_moves();
    text     t     = {.len = 0};

    l->idle    = usm__grant_is_idle() ? l->idle + 1 : 0;
    l->unmoved = moves == l->moves && l->idle == 0 ? l->unmoved + 1 : 0;
    l->moves   = moves;
    if (l->unmoved == LOOKS) {
        usm__track_lock();
        describe(&t);
        usm__track_unlock();
        usm__warn("commands over buffers have not moved for %llu ms (USM_QUEUE_WAIT)%s",
                  (unsigned long long)ms, t.at);
    }
    return l->idle < LOOKS;
}

static void run(void *unused)
{
    look     l  = {usm__grant_moves(), 0, 0};
    uint64_t ms = usm__setting_size("queue_wait");

    (void)unused;
    do
        usm__os_sleep_ns(ms * 1000000 / LOOKS + 1000);
    while (look_once(&l, ms));
    usm_store_release(&usm__tracking.has_stall_thread, false);
}

void usm__stall_watch(void)
{
    if (usm_load_relaxed(&usm__tracking.has_stall_thread) || usm__setting_size("queue_wait") == 0 ||
        atomic_exchange(&usm__tracking.has_stall_thread, true))
        return;
    if (usm__os_thread(run, NULL, "usm-stall") != 0)
        usm_store_release(&usm__tracking.has_stall_thread, false);
}

void usm__stall_in_child(void)
{
    usm_store_relaxed(&usm__tracking.has_stall_thread, false);
}
