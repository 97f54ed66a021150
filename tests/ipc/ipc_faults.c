/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Events and channels when the n-th system or heap call fails, for n = 1, 2, ... until all goes
 * well: each answer is a status that names it, nothing hangs, and nothing is left. */
#include "group.h"

#include <usm/usm.h>

#include "base/fault.h"
#include "base/inline/atomic.h"
#include "device/context.h"

#define OK(call) CHECK_INT((call), USM_OK)
#define SOON     20000

static bool is_named(usm_status st)
{
    if (st == USM_OK)
        return true;
    CHECK(usm_last_error()[0] != '\0');
    if (st != USM_E_NO_MEMORY && st != USM_E_SYSTEM)
        printf("# %s: %s\n", usm_status_name(st), usm_last_error());
    return st == USM_E_NO_MEMORY || st == USM_E_SYSTEM;
}

/* References to the default context: each event holds one. */
static int context_refs(void)
{
    return (int)usm_load_relaxed(&usm_default_context()->refs);
}

typedef struct held {
    int descriptors, mappings, refs;
} held;

static held held_now(void)
{
    return (held){group_descriptors(), group_mappings(), context_refs()};
}

/* What ends on other threads is waited for. */
static void settle(const held *before)
{
    for (int ms = 0; ms < 5000; ms++) {
        const held now = held_now();

        if (memcmp(&now, before, sizeof now) == 0)
            return;
        group_sleep_ms(1);
    }
    CHECK_INT(group_descriptors(), before->descriptors);
    CHECK_INT(group_mappings(), before->mappings);
    CHECK_INT(context_refs(), before->refs);
}

/* All but "os.munmap", after which a mapping rightly stays. */
static const char *const points[] = {
    "heap.alloc", "os.memfd",   "os.mmap",       "os.ftruncate",     "os.stat",
    "os.socket",  "os.connect", "os.accept",     "os.send",          "os.receive",
    "os.epoll",   "os.poll",    "os.futex_wait", "os.pidfd",         "os.thread",
    "os.dup",     "os.random",  "barrier",       "event_create_user"};

/* Runs it with each fault in turn. */
static void sweep(bool (*run)(group *g, int rank), group *g, int rank)
{
    held before;
    int  fired = 0;

    CHECK(run(g, rank));
    group_sleep_ms(50); /* nothing is on its way any more */
    before = held_now();
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        int n = 1;

        do {
            CHECK(n < 500);
            CHECK(usm__fault_arm(points[i], (uint64_t)n, false, USM_E_NO_MEMORY));
            (void)run(g, rank);
            usm__fault_disarm_all();
            settle(&before);
        } while (usm__fault_fired() > 0 && ++n);
        fired += n - 1;
    }
    printf("# %d faults\n", fired);
    CHECK(fired > 5);
}

/* ---- events --------------------------------------------------------------------------------- */

static void use(usm_ipc_event *ev, usm_queue *q)
{
    usm_event *out = NULL;
    usm_status st  = usm_ipc_event_record(ev, q, 0, NULL);

    CHECK(is_named(st));
    CHECK(is_named(usm_ipc_event_signal(ev)));
    st = usm_ipc_event_wait(ev, q, &out);
    CHECK(is_named(st));
    if (out) {
        CHECK(is_named(usm_event_wait(out)));
        usm_event_release(out);
    }
    CHECK(is_named(usm_ipc_event_sync(ev, SOON)));
    (void)usm_queue_wait(q);
}

static bool use_own_event(group *g, int rank)
{
    usm_ipc_event *ev = NULL, *again = NULL;
    usm_ipc_handle handle;
    usm_status     st = usm_ipc_event_create(usm_default_context(), &ev);

    (void)g;
    (void)rank;
    CHECK(is_named(st));
    if (st != USM_OK)
        return false;
    OK(usm_ipc_event_get(ev, &handle));
    st = usm_ipc_event_open(&handle, usm_default_context(), &again);
    CHECK(is_named(st));
    use(again ? again : ev, usm_default_queue());
    usm_ipc_event_destroy(again);
    usm_ipc_event_destroy(ev);
    return true;
}

static bool use_other_event(group *g, int rank)
{
    usm_ipc_event *ev = NULL;
    usm_ipc_handle handle;
    usm_status     st;

    (void)rank;
    memcpy(handle.bytes, g->page->bytes, sizeof handle.bytes);
    st = usm_ipc_event_open(&handle, usm_default_context(), &ev);
    CHECK(is_named(st) || st == USM_E_OWNER_GONE); /* a connection that fails looks so */
    if (st != USM_OK)
        return false;
    use(ev, usm_default_queue());
    usm_ipc_event_destroy(ev);
    return true;
}

static void sweep_own(group *g, int rank)
{
    CHECK(usm_default_queue() != NULL);
    sweep(use_own_event, g, rank);
}

static void sweep_other(group *g, int rank)
{
    CHECK(usm_default_queue() != NULL);
    if (rank == 0) {
        usm_ipc_event *ev = NULL;
        usm_ipc_handle handle;

        OK(usm_ipc_event_create(NULL, &ev));
        OK(usm_ipc_event_get(ev, &handle));
        memcpy(g->page->bytes, handle.bytes, sizeof handle.bytes);
        atomic_store(&g->page->ready, 1);
        CHECK(group_wait_for(&g->page->go, 1));
        usm_ipc_event_destroy(ev);
        return;
    }
    CHECK(group_wait_for(&g->page->ready, 1));
    sweep(use_other_event, g, rank);
    atomic_store(&g->page->go, 1);
}

static void events_of_one_process(void)
{
    group g;

    group_start(&g, 1, sweep_own);
    group_end(&g);
}

static void events_of_another_process(void)
{
    group g;

    group_start(&g, 2, sweep_other);
    group_end(&g);
}

/* ---- channels
 * ------------------------------------------------------------------------------------ */

static bool use_channel(group *g, int rank)
{
    usm_ipc_channel_desc desc = USM_IPC_CHANNEL_DESC_INIT;
    usm_ipc_channel     *ch   = NULL;
    int                  in = 7, out = 0;
    usm_status           st;

    (void)rank;
    desc.name       = g->name;
    desc.timeout_ms = 2000;
    st              = usm_ipc_channel_open(&desc, &ch);
    CHECK(is_named(st) || st == USM_E_PEER);
    if (st != USM_OK)
        return false;
    OK(usm_ipc_channel_barrier(ch));
    OK(usm_ipc_channel_gather(ch, &in, sizeof in, &out));
    CHECK_INT(out, 7);
    usm_ipc_channel_close(ch);
    return true;
}

static void sweep_channel(group *g, int rank)
{
    sweep(use_channel, g, rank);
}

static void channels_of_one(void)
{
    group g;

    group_start(&g, 1, sweep_channel);
    group_end(&g);
}

/* One of two has faults; it tries again until it is in, the other waits for it. */
static bool meet(group *g, int rank)
{
    usm_ipc_channel_desc desc = USM_IPC_CHANNEL_DESC_INIT;
    usm_ipc_channel     *ch   = NULL;
    usm_status           st, first;

    desc.name = g->name;
    desc.rank = (uint32_t)rank;
    desc.size = 2;
    first = st = usm_ipc_channel_open(&desc, &ch);
    CHECK(is_named(st));
    if (st != USM_OK && rank == 1) { /* the other may be in a group with us, which we left */
        st = usm_ipc_channel_open(&desc, &ch);
        CHECK(is_named(st));
    }
    if (st != USM_OK)
        return false;
    st = usm_ipc_channel_barrier(ch);
    CHECK(st == USM_OK || st == USM_E_PEER);
    usm_ipc_channel_close(ch);
    return first == USM_OK;
}

static void sweep_meeting(group *g, int rank)
{
    int met = 0;

    if (rank == 1) {
        sweep(meet, g, rank);
        atomic_store(&g->page->go, 1);
        return;
    }
    while (atomic_load(&g->page->go) == 0) {
        usm_ipc_channel_desc desc = USM_IPC_CHANNEL_DESC_INIT;
        usm_ipc_channel     *ch   = NULL;

        desc.name       = g->name;
        desc.size       = 2;
        desc.timeout_ms = 300;
        if (usm_ipc_channel_open(&desc, &ch) != USM_OK)
            continue;
        met++;
        (void)usm_ipc_channel_barrier(ch);
        usm_ipc_channel_close(ch);
    }
    CHECK(met > 5);
}

static void meetings_of_two(void)
{
    group g;

    group_start(&g, 2, sweep_meeting);
    group_end(&g);
}

int main(int argc, char **argv)
{
    static const plain_case cases[] = {
        CASE(events_of_one_process),
        CASE(events_of_another_process),
        CASE(channels_of_one),
        CASE(meetings_of_two),
        {NULL, NULL},
    };

    return plain_main(argc, argv, cases);
}
