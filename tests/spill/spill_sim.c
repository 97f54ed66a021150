/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* spill_sim [--seed N] [--seeds COUNT] [--seconds S] [--operations N] [--verbose]
 *           [--planted=lost|model]
 *
 * Deterministic simulation of buffers that outgrow memory: one thread, a clock that moves only when
 * somebody waits, tiers in memory whose transfers end in an order that the seed chooses
 * (fake_store.h) and that fail in every way.  Random operations on random buffers are compared with
 * a model; at the end of a seed all faults are taken back, and every byte must be there: an
 * operation may fail while a medium fails, nothing may be lost.
 *
 * Each seed runs in a process of its own, so that it is as repeatable alone as among thousands, and
 * what hangs or dies is told by its seed.  Waiting where nobody could wake is a deadlock, and found
 * at once: pthread_cond_wait() and the clock are replaced (--wrap), and this thread is the only
 * one.
 *
 * --planted: the store loses blocks for good, or bytes change behind the model's back: the
 * simulation must find either, or it would let everything through. */
#include "budget.h"
#include "fake_store.h"
#include "model.h"

#include "base/fault.h"
#include "base/os.h"
#include "command/executor.h"
#include "device/registry.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 60, WAITS_MAX = 20000, SEGMENTS_MAX = 24, JOBS_MAX = 256 };

static struct {
    uint64_t    operations;
    bool        verbose;
    const char *planted;
} options = {.operations = 400};

static budget seeds = {.first = 1, .most = 1};

typedef struct result {
    uint64_t operations, faults, failures, bytes, memory;
    uint64_t injected[FAKE_FAULTS];
} result;

static uint64_t draw; /* for the configuration of a seed, and the order of jobs */

static uint64_t drawn(uint64_t n)
{
    draw ^= draw << 13;
    draw ^= draw >> 7;
    draw ^= draw << 17;
    return (draw >> 11) % n;
}

/* ---- time, and waiting --------------------------------------------------------------- */

static pthread_t the_thread;
static uint64_t  clock_ns = 1000000000;
static unsigned  waits; /* of the operation under way */

/* What the library would have its threads do: done here, in an order of the seed, while we wait. */
static usm__executor_job *jobs[JOBS_MAX];
static unsigned           njobs;

int __real_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __real_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at);
uint64_t __wrap_usm__os_now_ns(void);
void     __wrap_usm__executor_post(usm__executor_job *job);
void     __wrap_usm__os_sleep_ns(uint64_t ns);

static bool is_ours(void)
{
    return pthread_equal(the_thread, pthread_self());
}

void __wrap_usm__executor_post(usm__executor_job *job)
{
    if (njobs == JOBS_MAX)
        abort();
    jobs[njobs++] = job;
}

static bool run_job(void)
{
    unsigned           i;
    usm__executor_job *job;

    if (njobs == 0)
        return false;
    i       = (unsigned)drawn(njobs);
    job     = jobs[i];
    jobs[i] = jobs[--njobs];
    job->run(job);
    clock_ns += 1000000; /* it took its time */
    return true;
}

static void let_go_on(void)
{
    (void)run_job();
}

static bool run_job_unlocked(pthread_mutex_t *m)
{
    bool ran;

    (void)pthread_mutex_unlock(m);
    ran = run_job();
    (void)pthread_mutex_lock(m);
    return ran;
}

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    if (!is_ours())
        return __real_pthread_cond_wait(c, m);
    if (run_job_unlocked(m))
        return 0;
    (void)printf("# deadlock: the only thread waits, %llu transfers are under way\n",
                 (unsigned long long)fake_get_counts().pending);
    (void)fflush(NULL);
    abort();
}

/* Nobody wakes us before the time is over, so it is over; whoever goes on waiting hangs. */
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at)
{
    if (!is_ours())
        return __real_pthread_cond_timedwait(c, m, at);
    if (run_job_unlocked(m))
        return 0;
    clock_ns += 100000000;
    if (++waits < WAITS_MAX)
        return ETIMEDOUT;
    (void)printf("# hang: the only thread waits again and again, %llu transfers are under way\n",
                 (unsigned long long)fake_get_counts().pending);
    (void)fflush(NULL);
    abort();
}

uint64_t __wrap_usm__os_now_ns(void)
{
    return clock_ns += 1000;
}

void __wrap_usm__os_sleep_ns(uint64_t ns)
{
    clock_ns += ns;
}

/* ---- a seed -------------------------------------------------------------------------- */

static unsigned chance_of[FAKE_FAULTS];
static unsigned memory_chance; /* of 1000 operations; a call for memory or a move of pages fails */
static uint64_t memory_faults;

/* Some seeds know no faults, most one or two kinds, some all. */
static void choose_faults(void)
{
    unsigned kinds = (unsigned)drawn(5);

    for (unsigned i = 0; i < kinds; i++)
        chance_of[drawn(FAKE_FAULTS)] = 20 + (unsigned)drawn(800);
    if (kinds == 4)
        for (unsigned i = 0; i < FAKE_FAULTS; i++)
            chance_of[i] = 50;
    memory_chance = drawn(3) == 0 ? 5 + (unsigned)drawn(200) : 0;
}

static void maybe_out_of_memory(void)
{
    if (drawn(1000) >= memory_chance)
        return;
    memory_faults += usm__fault_fired();
    usm__fault_disarm_all();
    (void)usm__fault_arm(drawn(3) ? "os.mremap" : "heap.alloc", 1 + drawn(12), false, USM_OK);
}

static void faults_go_on(void)
{
    fake_enforce_quotas();
    for (int i = 0; i < FAKE_FAULTS; i++)
        fake_set_fault((fake_fault)i, chance_of[i]);
}

static void heal(void)
{
    memory_faults += usm__fault_fired();
    usm__fault_disarm_all();
    fake_no_faults();
    fake_heal();
}

static bool home_fails(bool is_write)
{
    return fake_hits(is_write ? FAKE_WRITE_EIO : FAKE_READ_EIO);
}

static bool may_fail(usm_status st)
{
    fake_counts     c = fake_get_counts();
    const uint64_t *n = c.injected;

    switch ((int)st) {
    case USM_E_IO:
        return n[FAKE_READ_EIO] + n[FAKE_READ_BAD] + n[FAKE_WRITE_EIO] + n[FAKE_WRITE_LATE] +
                   n[FAKE_WRITE_SHORT] >
               0;
    case USM_E_CORRUPT:
        return n[FAKE_FLIP] + n[FAKE_SWAP] + n[FAKE_STALE] > 0;
    case USM_E_NO_MEMORY:
    case USM_E_SYSTEM: /* a thread could not be started */
        return memory_faults + usm__fault_fired() > 0;
    case USM_E_SPILL_FULL:
        return c.refused + n[FAKE_FULL] > 0;
    default:
        return false;
    }
}

static void set(const char *key, const char *value)
{
    if (options.verbose)
        printf("        %s = %s\n", key, value);
    if (usm_config_set(key, value) == USM_OK)
        return;
    printf("# %s = %s: %s\n", key, value, usm_last_error());
    exit(1);
}

/* Where the modules are there. */
static void choose_codec(void)
{
    static const char *const codecs[] = {"lz4", "aes_gcm", "lz4,aes_gcm", "auto"};
    uint64_t                 which    = drawn(12);

    if (which < 4 && usm__registry_codec("lz4") != NULL && usm__registry_codec("aes_gcm") != NULL)
        set("spill_codec", codecs[which]);
}

static void configure(size_t *most)
{
    size_t block  = (size_t)4096 << drawn(5);
    size_t frames = block > 4096 ? 32 + (size_t)drawn(30) : 6 + (size_t)drawn(60);
    char   text[128], quota[64];

    *most = block * frames * (1 + (size_t)drawn(6));
    (void)snprintf(text, sizeof text, "host:%zuK", block * frames / 1024);
    set("memory_limit", text);
    (void)snprintf(text, sizeof text, "%zuK", block / 1024);
    set("spill_block", text);
    (void)snprintf(quota, sizeof quota, "quota=%zu",
                   1 + *most / block * (1 + (size_t)drawn(9)) / 10);
    switch (drawn(4)) {
    case 0: /* too little for all of it */
        (void)snprintf(text, sizeof text, "fake:%s", quota);
        break;
    case 1:
        (void)snprintf(text, sizeof text, "fake:quota=9;fake:");
        break;
    case 2:
        (void)snprintf(text, sizeof text, "fake:quota=20;fake:%s", quota);
        break;
    default:
        (void)snprintf(text, sizeof text, "fake:");
        break;
    }
    set("spill", text);
    choose_codec();
    (void)setenv("USM_DEVICE_SELECTOR", "host:*", 1);
    (void)setenv("USM_LOG", "off", 0);
}

/* What the engine made of the limit. */
static void ask_for_sizes(model_params *p)
{
    usm_spill_stats stats = {.struct_size = sizeof stats};

    if (usm_spill_get_stats(p->ctx, &stats) != USM_OK) {
        printf("# no engine: %s\n", usm_last_error());
        exit(1);
    }
    p->block_size = (size_t)stats.block_size;
    p->frames     = (size_t)(stats.limit / stats.block_size);
}

static void add_result(result *r, const model *m)
{
    model_counts mc = model_get_counts(m);
    fake_counts  fc = fake_get_counts();

    r->operations = mc.operations;
    r->failures   = mc.failures;
    r->bytes      = mc.bytes_checked;
    r->faults     = fc.refused + memory_faults;
    r->memory     = memory_faults;
    for (int i = 0; i < FAKE_FAULTS; i++) {
        r->injected[i] = fc.injected[i];
        r->faults += fc.injected[i];
    }
}

static void ignore_error(usm_context *ctx, usm_status st, const char *reason, void *user)
{
    (void)ctx;
    (void)user;
    if (options.verbose)
        printf("        told late: %s: %s\n", usm_status_name(st), reason);
}

/* Empty segments of small buffers may be kept, one of a size. */
static void nothing_is_left(usm_context *ctx)
{
    usm_spill_stats stats = {.struct_size = sizeof stats};
    uint64_t        used  = 0;

    if (usm_spill_get_stats(ctx, &stats) != USM_OK)
        exit(1);
    for (size_t i = 0; i < stats.ntiers; i++)
        used += stats.tiers[i].used;
    used = (used + stats.resident) / stats.block_size;
    if (stats.pinned == 0 && used <= SEGMENTS_MAX)
        return;
    printf("# %llu blocks are still there when all buffers have gone, %llu bytes pinned\n",
           (unsigned long long)used, (unsigned long long)stats.pinned);
    exit(1);
}

static void run_seed(uint64_t seed, result *r)
{
    model_params     p    = {.seed       = seed,
                             .verbose    = options.verbose,
                             .may_fail   = may_fail,
                             .home_fails = home_fails,
                             .let_go_on  = let_go_on,
                             .heal       = heal,
                             .resume     = faults_go_on};
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    model           *m;

    the_thread = pthread_self();
    draw       = (seed + 1) * 0x9E3779B97F4A7C15u | 1;
    (void)drawn(2);
    fake_register();
    fake_seed(seed);
    fake_set_verbose(options.verbose);
    configure(&p.most_bytes);
    choose_faults();
    faults_go_on();
    if (options.planted != NULL && strcmp(options.planted, "lost") == 0)
        fake_plant_loss(7);
    desc.on_error = ignore_error;
    if (usm_context_create(&desc, &p.ctx) != USM_OK) {
        printf("# no context: %s\n", usm_last_error());
        exit(1);
    }
    ask_for_sizes(&p);
    m = model_create(&p);
    if (options.planted != NULL && strcmp(options.planted, "model") == 0)
        model_plant(m);
    for (uint64_t i = 0; i < options.operations; i++) {
        waits = 0;
        maybe_out_of_memory();
        model_step(m);
        if (drawn(4) == 0)
            (void)run_job();
    }
    heal();
    model_check_all(m);
    add_result(r, m);
    model_destroy(m);
    nothing_is_left(p.ctx);
    usm_context_destroy(p.ctx);
}

/* ---- many seeds ---------------------------------------------------------------------- */

static void child(uint64_t seed, int out)
{
    result r = {0};

    (void)alarm(SECONDS);
    run_seed(seed, &r);
    (void)fflush(NULL);
    if (write(out, &r, sizeof r) != (ssize_t)sizeof r)
        _exit(3);
    _exit(0);
}

static bool run_child(uint64_t seed, result *sum)
{
    result r = {0};
    int    ends[2], status = -1;
    bool   ok;
    pid_t  pid;

    if (pipe(ends) != 0)
        return false;
    (void)fflush(NULL);
    pid = fork();
    if (pid == 0)
        child(seed, ends[1]);
    (void)close(ends[1]);
    ok = pid > 0 && read(ends[0], &r, sizeof r) == (ssize_t)sizeof r;
    (void)close(ends[0]);
    ok = pid > 0 && waitpid(pid, &status, 0) == pid && ok && status == 0;
    if (!ok)
        printf("seed %llu failed (%s %d); again: spill_sim --seed %llu --verbose\n",
               (unsigned long long)seed, WIFSIGNALED(status) ? "signal" : "exit",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
               (unsigned long long)seed);
    sum->operations += r.operations;
    sum->faults += r.faults;
    sum->failures += r.failures;
    sum->bytes += r.bytes;
    sum->memory += r.memory;
    for (int i = 0; i < FAKE_FAULTS; i++)
        sum->injected[i] += r.injected[i];
    return ok;
}

static void parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";

        if (strcmp(argv[i], "--verbose") == 0)
            options.verbose = true;
        else if (strncmp(argv[i], "--planted=", 10) == 0)
            options.planted = argv[i] + 10;
        else if (strcmp(argv[i], "--operations") == 0)
            options.operations = strtoull(value, NULL, 0), i++;
        else if (!budget_option(&seeds, argc, argv, &i))
            exit(2);
    }
}

int main(int argc, char **argv)
{
    result   sum    = {0};
    uint64_t failed = 0, seed;

    parse(argc, argv);
    while (failed < 10 && budget_next(&seeds, &seed))
        failed += !run_child(seed, &sum);
    for (int i = 0; i < FAKE_FAULTS; i++)
        printf("  %8llu  %s\n", (unsigned long long)sum.injected[i], fake_fault_names[i]);
    printf("  %8llu  no memory\n", (unsigned long long)sum.memory);
    budget_print(&seeds);
    printf(", %llu operations, %llu faults injected, %llu accesses failed by them, "
           "%llu MiB compared: %s\n",
           (unsigned long long)sum.operations, (unsigned long long)sum.faults,
           (unsigned long long)sum.failures, (unsigned long long)(sum.bytes >> 20),
           failed ? "FAILED" : "nothing lost");
    return failed ? 1 : 0;
}
