/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The doorbell of transports/mpi: no ring is missed, whenever it comes, and nobody calls the system
 * who need not.  The system call is counted (CMakeLists.txt). */
#include "mpi/bell.h"
#include "plain.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS   UINT64_C(1000000)
#define LONG (20000 * MS)

static uint64_t now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- counting ------------------------------------------------------------------------- */

static _Atomic unsigned wakes;

/* NOLINTBEGIN(bugprone-reserved-identifier): names of the linker */
long __real_syscall(long number, void *word, long op, long value, void *time, void *word2,
                    long mask);
long __wrap_syscall(long number, void *word, long op, long value, void *time, void *word2,
                    long mask);

long __wrap_syscall(long number, void *word, long op, long value, void *time, void *word2,
                    long mask)
{
    if (number == SYS_futex && op == FUTEX_WAKE)
        wakes++;
    return __real_syscall(number, word, op, value, time, word2, mask);
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* How often the system is called for two rings, of the own process and of another. */
static unsigned calls_for(mpi_bell_sleep sleep)
{
    mpi_bell b = {.sleep = (uint32_t)sleep};
    unsigned before;

    before = wakes;
    mpi_bell_ring(&b);
    CHECK_INT(b.sent, 0);
    before = 10 * (wakes - before) - wakes;
    mpi_bell_ring_for_message(&b);
    CHECK_INT(b.sent, 1);
    CHECK_INT(b.word, 2);
    return before + wakes;
}

static void only_a_sleeping_thread_is_woken(void)
{
    CHECK_INT(calls_for(MPI_BELL_AWAKE), 0);
    CHECK_INT(calls_for(MPI_BELL_FOR_OWN), 10);
    CHECK_INT(calls_for(MPI_BELL_FOR_PEERS), 11);
}

/* ---- rounds ---------------------------------------------------------------------------- */

typedef struct looker {
    mpi_bell *b;
    unsigned  rings; /* that come while it looks */
    uint64_t  sleep_ns;
    bool      for_own, was_rung;
    unsigned  looks;
} looker;

static mpi_bell_rest look(void *arg, bool was_rung)
{
    looker *l = arg;

    l->was_rung = was_rung;
    l->looks++;
    for (unsigned i = 0; i < l->rings; i++)
        mpi_bell_ring_for_message(l->b);
    return (mpi_bell_rest){.until = l->sleep_ns ? now() + l->sleep_ns : 0, .for_own = l->for_own};
}

/* A ring between the look and the sleep is the case in which a message would be missed. */
static void a_ring_during_the_look_ends_the_sleep(void)
{
    for (int for_own = 0; for_own < 2; for_own++) {
        mpi_bell b    = {0};
        looker   l    = {.b = &b, .rings = 1, .sleep_ns = 500 * MS, .for_own = for_own};
        uint32_t seen = 0;

        mpi_bell_round(&b, &seen, look, &l);
        CHECK(!l.was_rung);
        l.rings    = 0;
        l.sleep_ns = 0;
        mpi_bell_round(&b, &seen, look, &l);
        CHECK(l.was_rung);
        mpi_bell_round(&b, &seen, look, &l);
        CHECK(!l.was_rung);
        CHECK_INT(b.sleep, MPI_BELL_AWAKE);
    }
}

static void a_sleep_has_an_end(void)
{
    mpi_bell       b     = {0};
    looker         l     = {.b = &b, .sleep_ns = 2 * MS};
    uint32_t       seen  = 0;
    const uint64_t start = now();

    mpi_bell_round(&b, &seen, look, &l);
    CHECK(now() - start >= 2 * MS);
    CHECK_INT(b.sleep, MPI_BELL_AWAKE);
}

static void *sleeper(void *arg)
{
    looker  *l    = arg;
    uint32_t seen = 0;

    mpi_bell_round(l->b, &seen, look, l);
    return NULL;
}

/* Which kind of ring ends a sleep of that kind; LONG is longer than the test may take. */
static void check_woken(bool for_own, void (*ring)(mpi_bell *b))
{
    mpi_bell       b     = {0};
    looker         l     = {.b = &b, .sleep_ns = LONG, .for_own = for_own};
    const uint64_t start = now();
    pthread_t      thread;

    CHECK_INT(pthread_create(&thread, NULL, sleeper, &l), 0);
    while (atomic_load(&b.sleep) == MPI_BELL_AWAKE)
        (void)sched_yield();
    ring(&b);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK(now() - start < LONG);
}

static void a_ring_wakes_the_thread(void)
{
    for (int i = 0; i < 200; i++) {
        check_woken(false, mpi_bell_ring_for_message);
        check_woken(false, mpi_bell_ring);
        check_woken(true, mpi_bell_ring);
    }
}

/* ---- two processes ---------------------------------------------------------------------- */

enum { MESSAGES = 10000 };

typedef struct side {
    mpi_bell         bell;
    _Atomic uint32_t box; /* the number of the last message */
} side;

typedef struct player {
    side    *own, *other;
    uint32_t number; /* of the message that it awaits */
    uint64_t until;  /* of its sleep; 0: it did not sleep */
    bool     has_missed;
} player;

/* Answers the message that has come, or sleeps until one does. */
static mpi_bell_rest answer(void *arg, bool was_rung)
{
    player *p = arg;

    (void)was_rung;
    p->has_missed |= p->until && now() >= p->until;
    p->until = 0;
    if (atomic_load(&p->own->box) == p->number) {
        atomic_store(&p->other->box, p->number + 1);
        mpi_bell_ring_for_message(&p->other->bell);
        p->number += 2;
        return (mpi_bell_rest){0};
    }
    p->until = now() + LONG / 2;
    return (mpi_bell_rest){.until = p->until};
}

static bool play(side *own, side *other, uint32_t first)
{
    player   p    = {.own = own, .other = other, .number = first};
    uint32_t seen = 0;

    while (p.number < MESSAGES && !p.has_missed)
        mpi_bell_round(&own->bell, &seen, answer, &p);
    return !p.has_missed;
}

static void no_message_between_processes_is_missed(void)
{
    side *s = mmap(NULL, 2 * sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int   status = -1;
    pid_t child;

    CHECK(s != MAP_FAILED);
    (void)fflush(NULL);
    child = fork();
    if (child == 0)
        _exit(!play(&s[1], &s[0], 1));
    CHECK(child > 0);
    CHECK(play(&s[0], &s[1], 0)); /* the box has 0, which it answers */
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    CHECK_INT(s[0].bell.sent + s[1].bell.sent, MESSAGES);
    (void)munmap(s, 2 * sizeof(*s));
}

static const plain_case cases[] = {
    CASE(only_a_sleeping_thread_is_woken),
    CASE(a_ring_during_the_look_ends_the_sleep),
    CASE(a_sleep_has_an_end),
    CASE(a_ring_wakes_the_thread),
    CASE(no_message_between_processes_is_missed),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
