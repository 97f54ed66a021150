/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Meetings (src/group/meet.h) in which one of three processes, at each of its system calls in turn,
 * is killed, does not run until its time is over, or meets a failure.  It, or another process in
 * its place, comes again.  In the end there must be one group of three, whose members all have its
 * page, and their connections.
 *
 * A process that took a page for complete which others had left would wait in vain for their marks
 * in it.  So would the others. */
#include "ipc/group.h"

#include "base/fault.h"
#include "device/registry.h"
#include "group/meet.h"

#include <poll.h>
#include <sys/socket.h>

#define SIZE    3
#define VICTIM  1
#define LATE_MS 40 /* the time of a victim that is late; it sleeps for longer */
#define LONG_MS 20000
#define SHARED  ((size_t)SIZE * sizeof(_Atomic(int)))

typedef enum mode { KILLED, LATE, FAILING, STOPPED } mode;

/* ---- the steps ----------------------------------------------------------------------------- */

static _Atomic(int) steps_left; /* 0: nobody counts */
static mode         at_step;

bool __real_usm__fault_hit_slow(const char *name, usm_status *status); /* NOLINT: the linker's */
bool __wrap_usm__fault_hit_slow(const char *name, usm_status *status); /* NOLINT */

bool __wrap_usm__fault_hit_slow(const char *name, usm_status *status) /* NOLINT */
{
    (void)status;
    if (strncmp(name, "os.", 3) != 0 || strcmp(name, "os.munmap") == 0 ||
        atomic_load(&steps_left) == 0 || atomic_fetch_sub(&steps_left, 1) != 1)
        return false;
    if (at_step == KILLED || at_step == STOPPED)
        (void)raise(at_step == KILLED ? SIGKILL : SIGSTOP);
    if (at_step == LATE)
        group_sleep_ms(LATE_MS + 10);
    return at_step == FAILING;
}

static void begin(mode how, int step)
{
    at_step = how;
    atomic_store(&usm__faults.armed, 1);
    atomic_store(&steps_left, step);
}

/* Until a process has the name, or the victim, which was to have it, has ended. */
static void wait_for_host(const group *g)
{
    static char text[1 << 20];

    for (int ms = 0; atomic_load(&g->page->go) == 0; ms += 2) {
        if (strstr(plain_read("/proc/net/unix", text, sizeof text), g->name))
            return;
        CHECK(ms < LONG_MS);
        group_sleep_ms(2);
    }
}

/* ---- a member ------------------------------------------------------------------------------ */

static int links[SIZE] = {-1, -1, -1};

static void set_link(void *user, uint32_t rank, int fd)
{
    (void)user;
    if (links[rank] >= 0)
        (void)close(links[rank]);
    links[rank] = fd;
}

static usm_status meet(const group *g, uint32_t rank, bool has_links, uint32_t timeout_ms,
                       usm__group *met)
{
    char               hello[16];
    usm__group_meeting m = {.api         = &usm__registry_api,
                            .name        = g->name,
                            .what        = "the test",
                            .place       = "name",
                            .release     = 7,
                            .rank        = rank,
                            .size        = SIZE,
                            .timeout_ms  = timeout_ms,
                            .other_size  = USM_E_SIZE,
                            .hello       = hello,
                            .hello_size  = sizeof hello,
                            .shared_size = SHARED,
                            .link        = has_links ? set_link : NULL};

    (void)snprintf(hello, sizeof hello, "from %u", rank);
    return usm__group_meet(&m, met);
}

/* Each member has written its mark.  One that was killed may not have; then `go` is set. */
static void check_page(const group *g, const usm__group *met, uint32_t rank)
{
    _Atomic(int) *marks = usm__group_shared(met);

    CHECK_INT((uintptr_t)marks % 64, 0);
    CHECK_INT(atomic_exchange(&marks[rank], (int)getpid()), 0);
    for (uint32_t r = 0; r < SIZE; r++) {
        char hello[16];

        (void)snprintf(hello, sizeof hello, "from %u", r);
        CHECK_STR(usm__group_hello(met, r), hello);
        for (int ms = 0; atomic_load(&marks[r]) == 0; ms++) {
            if (r == VICTIM && atomic_load(&g->page->go) != 0 && ms > 50)
                break;
            CHECK(ms < LONG_MS);
            group_sleep_ms(1);
        }
    }
}

/* Each pair of living members has a connection. */
static void check_links(const group *g, uint32_t rank)
{
    for (uint32_t r = 0; r < SIZE; r++) {
        const char byte = (char)('0' + rank);

        CHECK(links[r] >= 0);
        if (r != rank && send(links[r], &byte, 1, MSG_NOSIGNAL) != 1)
            CHECK(r == VICTIM && atomic_load(&g->page->go) != 0);
    }
    for (uint32_t r = 0; r < SIZE; r++) {
        struct pollfd p    = {.fd = links[r], .events = POLLIN};
        char          byte = 0;

        if (r == rank)
            continue;
        CHECK_INT(poll(&p, 1, LONG_MS), 1);
        if (recv(links[r], &byte, 1, 0) != 1)
            CHECK(r == VICTIM);
        else
            CHECK_INT(byte, '0' + (char)r);
    }
}

/* In the group's page: value[0][0] the mode, [1] the step, [2] whether the victim is the host, [3]
 * whether there are connections; step[rank]: it has met. */
static void be_member(group *g, uint32_t rank, bool is_victim)
{
    const int  descriptors = group_descriptors();
    const mode how         = (mode)g->page->value[0][0];
    const bool has_links   = g->page->value[0][3] != 0;
    usm__group met         = {NULL, 0};
    usm_status st;

    if (is_victim != (g->page->value[0][2] != 0))
        wait_for_host(g);
    if (is_victim)
        begin(how, (int)g->page->value[0][1]);
    st = meet(g, rank, has_links, is_victim && how == LATE ? LATE_MS : LONG_MS, &met);
    if (is_victim) {
        g->page->value[1][0] = atomic_exchange(&steps_left, 0); /* 0: the step was reached */
        atomic_store(&usm__faults.armed, 0);
        CHECK(st == USM_OK || (how == LATE && st == USM_E_PEER) ||
              (how == FAILING && st == USM_E_SYSTEM));
        if (st != USM_OK)
            CHECK_INT(group_descriptors(), descriptors);
        if (st != USM_OK) /* comes again */
            st = meet(g, rank, has_links, LONG_MS, &met);
    }
    CHECK_INT(st, USM_OK);
    atomic_store(&g->page->step[rank], 1);
    check_page(g, &met, rank);
    if (has_links)
        check_links(g, rank);
    CHECK_INT(usm__registry_api.os->unmap(met.page, met.page_size), 0);
    for (uint32_t r = 0; r < SIZE; r++)
        set_link(NULL, r, -1);
    CHECK_INT(group_descriptors(), descriptors);
    CHECK_INT(group_mappings(), 0);
}

static void member(group *g, int number)
{
    be_member(g, (uint32_t)number, number == VICTIM);
}

static void second_victim(group *g, int number)
{
    (void)number;
    be_member(g, VICTIM, false);
}

/* ---- the sweep ------------------------------------------------------------------------------- */

/* The group was complete without the second, which waits for another one. */
static void end_second(group *g)
{
    for (int r = SIZE; r < g->n; r++)
        if (waitpid(g->pid[r], &g->status[r], WNOHANG) == g->pid[r])
            g->has_ended[r] = true;
        else
            group_kill(g, r);
}

/* False: the victim got through before that step. */
static bool meet_at(mode how, int step, bool is_host, bool has_links)
{
    group g;
    bool  was_reached = true;

    group_begin(&g);
    g.page->value[0][0] = how;
    g.page->value[0][1] = step;
    g.page->value[0][2] = is_host;
    g.page->value[0][3] = has_links;
    g.page->value[1][0] = -1;
    while (g.n < SIZE)
        (void)group_add(&g, member);
    if (how == KILLED && group_end_of(&g, VICTIM) != 0) {
        CHECK(WIFSIGNALED(g.status[VICTIM]));
        atomic_store(&g.page->go, 1);
        for (int ms = 0; ms < 20 && atomic_load(&g.page->step[0]) == 0; ms++)
            group_sleep_ms(1);
        if (atomic_load(&g.page->step[0]) == 0)
            (void)group_add(&g, second_victim);
    }
    for (int r = 0; r < SIZE; r++)
        (void)group_end_of(&g, r);
    end_second(&g);
    if (g.page->value[1][0] != -1)
        was_reached = g.page->value[1][0] == 0;
    group_end(&g);
    return was_reached;
}

static void meet_at_each_step(mode how)
{
    for (int which = 0; which < 4; which++) {
        int step = 1;

        while (meet_at(how, step, which & 1, which & 2))
            CHECK(++step < 1000);
        printf("# %s, %s: %d steps\n", which & 1 ? "host" : "client",
               which & 2 ? "with connections" : "without", step - 1);
        CHECK(step > 5);
    }
}

static void one_that_is_killed_at_any_step_leaves_one_group(void)
{
    meet_at_each_step(KILLED);
}

static void one_that_is_late_at_any_step_is_in_the_group_or_comes_again(void)
{
    meet_at_each_step(LATE);
}

static void one_that_meets_a_failure_at_any_step_is_in_the_group_or_comes_again(void)
{
    meet_at_each_step(FAILING);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* In this step it waits for what the host gives, and has its rank. */
#define CAME_STEP 7

static void stand_still(group *g, int number)
{
    usm__group met;

    if (number == VICTIM)
        begin(STOPPED, CAME_STEP);
    CHECK_INT(meet(g, (uint32_t)number, true, number == VICTIM ? LONG_MS : 1500, &met), USM_E_PEER);
    CHECK_IN("the test did not meet within 1500 ms: rank ", usm_last_error());
    if (number == 0)
        CHECK_IN("rank 1 of 3 did not come", usm_last_error());
}

static void one_that_stands_still_is_named(void)
{
    group g;
    int   status = 0;

    group_begin(&g);
    (void)group_add(&g, stand_still);
    wait_for_host(&g);
    (void)group_add(&g, stand_still);
    CHECK(waitpid(g.pid[VICTIM], &status, WUNTRACED) == g.pid[VICTIM] && WIFSTOPPED(status));
    (void)group_add(&g, stand_still);
    (void)group_end_of(&g, 0);
    (void)group_end_of(&g, 2);
    group_kill(&g, VICTIM);
    group_end(&g);
}

static const plain_case cases[] = {
    CASE(one_that_is_killed_at_any_step_leaves_one_group),
    CASE(one_that_is_late_at_any_step_is_in_the_group_or_comes_again),
    CASE(one_that_meets_a_failure_at_any_step_is_in_the_group_or_comes_again),
    CASE(one_that_stands_still_is_named),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
