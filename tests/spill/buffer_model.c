/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* buffer_model [--seed N] [--seeds COUNT] [--seconds S] [--operations N] [--threads T] [--verbose]
 *              [--planted]
 *
 * Random buffers, host accesses and commands (fills, copies, launches) on several queues of the
 * selected device, compared with the same done one after the other in plain memory.  Memory is
 * limited and the rest lies in files, so that blocks leave while commands and other threads work.
 * Threads have buffers of their own and share the queues, the memory and the tiers.
 *
 * --planted changes bytes behind the model's back: it must find that. */
#include "budget.h"
#include "mix.h"
#include "model.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 8, BLOCK = 65536, FRAMES = 96, SECONDS = 120 };

static struct {
    uint64_t operations;
    unsigned threads;
    bool     verbose, planted;
} options = {.operations = 300, .threads = 1};

static budget seeds = {.first = 1, .most = 1};

static struct {
    usm_context *ctx;
    usm_queue   *queues[3];
    usm_program *program;
    usm_kernel  *mix;
} all;

static void must(usm_status st, const char *what)
{
    if (st == USM_OK)
        return;
    printf("# %s: %s: %s\n", what, usm_status_name(st), usm_last_error());
    exit(1);
}

static void failed_late(usm_context *ctx, usm_status st, const char *reason, void *user)
{
    (void)ctx;
    (void)user;
    printf("# a failure without a caller: %s: %s\n", usm_status_name(st), reason);
    (void)fflush(NULL);
    _exit(1);
}

static void start(void)
{
    usm_context_desc desc       = USM_CONTEXT_DESC_INIT;
    usm_queue_desc   free_order = {sizeof free_order, USM_QUEUE_OUT_OF_ORDER};
    char             text[64];

    (void)snprintf(text, sizeof text, "host:%dK", BLOCK / 1024 * FRAMES);
    must(usm_config_set("memory_limit", text), "memory_limit");
    (void)snprintf(text, sizeof text, "%dK", BLOCK / 1024);
    must(usm_config_set("spill_block", text), "spill_block");
    desc.on_error = failed_late;
    must(usm_context_create(&desc, &all.ctx), "usm_context_create");
    must(usm_queue_create(all.ctx, NULL, NULL, &all.queues[0]), "usm_queue_create");
    must(usm_queue_create(all.ctx, NULL, NULL, &all.queues[1]), "usm_queue_create");
    if (usm_queue_create(all.ctx, NULL, &free_order, &all.queues[2]) != USM_OK)
        must(usm_queue_create(all.ctx, NULL, NULL, &all.queues[2]), "usm_queue_create");
    must(mix_create(all.ctx, &all.program, &all.mix), "the program");
}

static void stop(void)
{
    for (int i = 0; i < 3; i++)
        usm_queue_destroy(all.queues[i]);
    usm_kernel_destroy(all.mix);
    usm_program_destroy(all.program);
    usm_context_destroy(all.ctx);
}

static void let_go_on(void)
{
    (void)nanosleep(&(struct timespec){0, 500000}, NULL);
}

typedef struct worker {
    pthread_t    thread;
    uint64_t     seed;
    model_counts counts;
} worker;

static void *work(void *worker_)
{
    worker      *w = worker_;
    model_params p = {.seed       = w->seed,
                      .ctx        = all.ctx,
                      .block_size = BLOCK,
                      .frames     = FRAMES,
                      /* What is open never keeps a command from running: one that cannot for
                       * lack of memory fails late, when the model has long counted it. */
                      .widest =
                          FRAMES / 12 / options.threads > 2 ? FRAMES / 12 / options.threads : 2,
                      .most_bytes = (size_t)BLOCK * FRAMES * 4 / options.threads,
                      .holders    = options.threads - 1,
                      .nqueues    = 3,
                      .queues     = {all.queues[0], all.queues[1], all.queues[2], NULL},
                      .mix        = all.mix,
                      .let_go_on  = let_go_on,
                      .verbose    = options.verbose};
    model       *m = model_create(&p);

    if (options.planted)
        model_plant(m);
    for (uint64_t i = 0; i < options.operations; i++)
        model_step(m);
    model_check_all(m);
    w->counts = model_get_counts(m);
    model_destroy(m);
    return NULL;
}

static void add(model_counts *sum, const model_counts *more)
{
    sum->operations += more->operations;
    sum->commands += more->commands;
    sum->bytes_checked += more->bytes_checked;
    sum->failures += more->failures;
}

static void run_seed(uint64_t seed, model_counts *sum)
{
    worker list[THREADS_MAX];

    (void)alarm(SECONDS);
    for (unsigned i = 0; i < options.threads; i++) {
        list[i].seed = seed * THREADS_MAX + i;
        if (options.threads == 1)
            (void)work(&list[i]);
        else if (pthread_create(&list[i].thread, NULL, work, &list[i]) != 0)
            exit(1);
    }
    for (unsigned i = 0; i < options.threads; i++) {
        if (options.threads > 1)
            (void)pthread_join(list[i].thread, NULL);
        add(sum, &list[i].counts);
    }
}

static void parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0)
            options.verbose = true;
        else if (strcmp(argv[i], "--planted") == 0)
            options.planted = true;
        else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            options.threads = (unsigned)strtoul(argv[++i], NULL, 0) % (THREADS_MAX + 1);
        else if (strcmp(argv[i], "--operations") == 0 && i + 1 < argc)
            options.operations = strtoull(argv[++i], NULL, 0);
        else if (!budget_option(&seeds, argc, argv, &i))
            exit(2);
    }
}

int main(int argc, char **argv)
{
    model_counts sum = {0};
    uint64_t     seed;

    parse(argc, argv);
    start();
    while (budget_next(&seeds, &seed))
        run_seed(seed, &sum);
    stop();
    budget_print(&seeds);
    printf(", %llu operations, %llu commands, %llu MiB compared, %llu calls refused: as serial "
           "execution\n",
           (unsigned long long)sum.operations, (unsigned long long)sum.commands,
           (unsigned long long)(sum.bytes_checked >> 20), (unsigned long long)sum.failures);
    return 0;
}
