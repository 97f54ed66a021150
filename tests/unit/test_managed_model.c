/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Managed memory against a model of its content: four threads write, read, pin, advise, copy, fork,
 * allocate and free at random, over one range in which each has every fourth word, and over ranges of
 * their own.  Every word that is read is the one that was written last.
 *
 *     test_managed_model [--seed N] [--seeds COUNT] [--seconds S] [CASE...] */
#include "budget.h"

#include <plain.h>
#include <usm/usm.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB     ((size_t)1 << 10)
#define BLOCK   (64 * KIB)
#define SIZE    (128 * BLOCK) /* 4 times the limit */
#define OWN     (24 * BLOCK)  /* of a range of a thread's own, at most */
#define STEP    128           /* words: the model has one of so many */
#define CELLS   (SIZE / 8 / STEP)
#define THREADS 4
#define ROUNDS  400

static budget options = {.first = 1, .most = 1000};

typedef struct actor {
    pthread_t   thread;
    uint64_t    random;
    size_t      number;
    uint64_t   *shared;       /* of all: this one's word of cell i is shared[i * STEP + number] */
    uint64_t    model[CELLS]; /* of those words                                                 */
    uint64_t   *own;          /* `words`, of which own_model has every STEP-th; or NULL         */
    size_t      words;
    uint64_t    own_model[OWN / 8 / STEP];
    const char *wrong; /* what was; NULL: nothing */
} actor;

static uint64_t next(actor *a)
{
    a->random ^= a->random << 13;
    a->random ^= a->random >> 7;
    a->random ^= a->random << 17;
    return a->random;
}

static void expect(actor *a, bool holds, const char *what)
{
    if (!holds && !a->wrong)
        a->wrong = what;
}

/* A run of cells: near each other, so that accesses hit as well as miss. */
static void pass(actor *a, bool writes)
{
    size_t first = next(a) % CELLS, n = 1 + next(a) % 100;

    for (size_t i = first; i < first + n && i < CELLS; i++) {
        volatile uint64_t *at = &a->shared[i * STEP + a->number];

        expect(a, *at == a->model[i], "a word of the range of all");
        if (writes)
            *at = a->model[i] = next(a);
    }
}

static void pin(actor *a)
{
    usm_access_mode    mode = next(a) % 2 ? USM_READ : USM_READ_WRITE;
    size_t             i    = next(a) % (CELLS - 40);
    volatile uint64_t *at   = &a->shared[i * STEP + a->number];
    size_t             size = 30 * STEP * 8;
    usm_status         st   = usm_managed_pin((void *)(uintptr_t)at, size, mode);

    expect(a, st == USM_OK || st == USM_E_AGAIN, "the status of a pin");
    if (st != USM_OK)
        return;
    for (size_t k = 0; k < 30; k++) {
        expect(a, at[k * STEP] == a->model[i + k], "a word that is pinned");
        if (mode != USM_READ)
            at[k * STEP] = a->model[i + k] = next(a);
    }
    expect(a, usm_managed_unpin((void *)(uintptr_t)at, size, mode) == USM_OK, "an unpin");
    /* Written at once after a pin for reading. */
    at[0] = a->model[i] = next(a);
}

static void advise(actor *a)
{
    static const usm_buffer_advice list[] = {USM_BUFFER_NORMAL, USM_BUFFER_WILL_NEED,
                                             USM_BUFFER_WONT_NEED, USM_BUFFER_SEQUENTIAL,
                                             USM_BUFFER_RANDOM};
    size_t                         at     = next(a) % (SIZE - 4 * BLOCK);

    expect(a,
           usm_managed_advise((char *)a->shared + at, 4 * BLOCK,
                              list[next(a) % (sizeof list / sizeof *list)]) == USM_OK,
           "an advice");
}

static void renew(actor *a)
{
    for (size_t i = 0; a->own && i < a->words; i += STEP)
        expect(a, a->own[i] == a->own_model[i / STEP], "a word of its own");
    usm_free(a->own);
    a->words = (1 + next(a) % (OWN / BLOCK)) * BLOCK / 8;
    a->own   = usm_alloc_managed(a->words * 8);
    expect(a, a->own != NULL, "an allocation");
    for (size_t i = 0; a->own && i < a->words; i += STEP) {
        expect(a, a->own[i] == 0, "fresh memory");
        a->own[i] = a->own_model[i / STEP] = next(a);
    }
}

/* The child does not have the memory, and harms nobody. */
static void fork_one(actor *a)
{
    int   status = 1;
    pid_t child  = fork();

    if (child == 0)
        _exit(usm_usable_size(a->shared) == 0 ? 0 : 1);
    expect(a, child > 0 && waitpid(child, &status, 0) == child && status == 0, "a child");
}

static void *act(void *arg)
{
    actor *a = arg;

    for (int i = 0; i < ROUNDS && !a->wrong; i++)
        switch (next(a) % 16) {
        case 0:
        case 1:
            pin(a);
            break;
        case 2:
            advise(a);
            break;
        case 3:
            if (next(a) % 8 == 0)
                renew(a);
            break;
        case 4:
            if (next(a) % 50 == 0)
                fork_one(a);
            break;
        case 5:
        case 6:
        case 7:
        case 8:
            pass(a, true);
            break;
        default:
            pass(a, false);
        }
    return NULL;
}

static void run_seed(uint64_t seed)
{
    uint64_t *shared = usm_alloc_managed(SIZE);
    actor    *actors = calloc(THREADS, sizeof *actors);

    if (!shared && usm_last_status() == USM_E_NOT_SUPPORTED)
        SKIP(usm_last_error());
    CHECK(shared != NULL && actors != NULL);
    for (size_t i = 0; i < THREADS; i++) {
        actors[i].random = (seed * THREADS + i + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
        actors[i].number = i;
        actors[i].shared = shared;
        CHECK_INT(pthread_create(&actors[i].thread, NULL, act, &actors[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        CHECK_INT(pthread_join(actors[i].thread, NULL), 0);
        for (size_t k = 0; k < CELLS; k++)
            expect(&actors[i], shared[k * STEP + i] == actors[i].model[k], "a word at the end");
        usm_free(actors[i].own);
        if (actors[i].wrong)
            printf("# seed %llu, thread %zu: %s\n", (unsigned long long)seed, i, actors[i].wrong);
        CHECK(!actors[i].wrong);
    }
    usm_free(shared);
    free(actors);
}

static void what_was_written_last_is_read(void)
{
    budget   seeds = options;
    uint64_t seed;

    while (budget_next(&seeds, &seed))
        run_seed(seed);
    printf("# ");
    budget_print(&seeds);
    printf("\n");
}

static const plain_case cases[] = {
    CASE(what_was_written_last_is_read),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    int n = 1; /* what remains for plain_main() */

    (void)setenv("USM_MEMORY_LIMIT", "host:2M", 1);
    (void)setenv("USM_SPILL_BLOCK", "64K", 1);
    (void)setenv("USM_LOG", "error", 1);
    for (int i = 1; i < argc; i++)
        if (!budget_option(&options, argc, argv, &i))
            argv[n++] = argv[i];
    return plain_main(n, argv, cases);
}
