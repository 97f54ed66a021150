/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* sweep [--whole] [SCENARIO...] (or sweep SCENARIO N: a call loses the device): fails heap, system
 * and backend calls, one in each run, until each scenario passes without meeting a failure; once
 * with single failures, once with all later calls failing too (the machine stays out of memory).
 * Over the software Level Zero driver then the same with the calls of that driver, whose failures
 * are what it answers: out of the device's memory, out of the host's, the device lost.
 *
 * The call that fails is the first one whose path has not failed before (paths.h): on the host in
 * this scenario, over a driver in any.  With --whole it is the n-th, n = 1, 2, ...: every one.
 *
 * After each run: the failure had a status with a name and a story (the driver's: the one that
 * belongs to its answer); what was allocated is back to what it was before (blocks of the heap,
 * descriptors, bytes of the device, objects of the driver); and the scenario
 * passes when nothing fails.  Each scenario is a process of its own with an alarm, so that a hang
 * or a crash has its name; with ASan its exit also looks for leaks.
 *
 * The accounting wraps the functions of base/os.h by the linker's --wrap: it sees every file of
 * libusm but os.c itself. */
#include "sweep.h"
#include "paths.h"

#include "base/fault.h"
#include "base/os.h"
#include "base/settings.h"
#include "base/thread.h"
#include "heap/area.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SCENARIO_SECONDS 240
#define MAX_N            3000
#define MAX_LIVE         65536
#define PATIENCE         2000 /* times 2 ms, for what ends on other threads */
#define LITTLE_PATIENCE  100
#define REPEATS          4

/* --- the account
 * ---------------------------------------------------------------------------------- */

static pthread_mutex_t account_lock = PTHREAD_MUTEX_INITIALIZER;
static void           *live[MAX_LIVE];  /* blocks of the heap, open addressing; guarded, as below */
static void           *maker[MAX_LIVE]; /* where live[i] was allocated                            */
static uint64_t        birth[MAX_LIVE]; /* its number among all                                   */
static size_t          live_count;
static uint64_t        births;
static const char      gone; /* marks a place that was left */

static size_t place_of(const void *p)
{
    return (size_t)((uintptr_t)p >> 4) * 2654435761u % MAX_LIVE;
}

static void note_alloc(void *p, void *from)
{
    size_t i = place_of(p);

    if (!p)
        return;
    pthread_mutex_lock(&account_lock);
    while (live[i] && live[i] != &gone)
        i = (i + 1) % MAX_LIVE;
    live[i]  = p;
    maker[i] = from;
    birth[i] = ++births;
    if (++live_count > MAX_LIVE / 2)
        abort();
    pthread_mutex_unlock(&account_lock);
}

static void note_free(const void *p)
{
    size_t i = place_of(p);

    if (!p)
        return;
    pthread_mutex_lock(&account_lock);
    for (; live[i]; i = (i + 1) % MAX_LIVE) {
        if (live[i] == p) {
            live[i] = (void *)(uintptr_t)&gone;
            live_count--;
            break;
        }
    }
    pthread_mutex_unlock(&account_lock);
}

void *__real_usm__heap_alloc(size_t size);
void *__real_usm__heap_realloc(void *p, size_t size);
void  __real_usm__heap_free(void *p);
void *__wrap_usm__heap_alloc(size_t size);
void *__wrap_usm__heap_realloc(void *p, size_t size);
void  __wrap_usm__heap_free(void *p);
bool  __wrap_usm__fault_hit_slow(const char *name, usm_status *status);

void *__wrap_usm__heap_alloc(size_t size)
{
    void *p = __real_usm__heap_alloc(size);

    note_alloc(p, __builtin_return_address(0));
    return p;
}

void *__wrap_usm__heap_realloc(void *p, size_t size)
{
    void *q = __real_usm__heap_realloc(p, size);

    if (q) {
        note_free(p);
        note_alloc(q, __builtin_return_address(0));
    }
    return q;
}

void __wrap_usm__heap_free(void *p)
{
    note_free(p);
    __real_usm__heap_free(p);
}

/* What failed, for reports; a free that the driver refused is memory that is lost. */
static char        hit_name[64]; /* guarded by account_lock */
static atomic_bool hit_free, hit_driver;

bool __wrap_usm__fault_hit_slow(const char *name, usm_status *status)
{
    (void)status; /* the call's usual failure */
    if (usm__self.fault_benign > 0 || strncmp(name, "die.", 4) == 0 || !paths_hit(name))
        return false;
    pthread_mutex_lock(&account_lock);
    if (!hit_name[0])
        snprintf(hit_name, sizeof hit_name, "%s", name);
    pthread_mutex_unlock(&account_lock);
    if (!strcmp(name, "mem_free") || !strcmp(name, "vmem_release") || !strcmp(name, "phys_destroy"))
        atomic_store(&hit_free, true);
    if (!strcmp(name, "devices") || !strcmp(name, "os.dlopen"))
        atomic_store(&hit_driver, true);
    return true;
}

typedef struct account {
    size_t   blocks, descriptors;
    uint64_t births;
    uint64_t ours, pooled;
    uint64_t objects; /* of the software driver */
} account;

/* The software driver keeps memory for later, and tells of what is in use by driver_live(). */
static bool is_of_driver(int folder, const char *name)
{
    char target[64] = "";

    (void)!readlinkat(folder, name, target, sizeof target - 1);
    return strstr(target, "memfd:ze_soft-chunk") != NULL;
}

static size_t count_descriptors(void)
{
    DIR           *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    size_t         n = 0;

    while (dir && (entry = readdir(dir)))
        n += !is_of_driver(dirfd(dir), entry->d_name);
    if (dir)
        closedir(dir);
    return n;
}

static usm_device *device(void)
{
    static usm_device *first;
    size_t             count;

    if (!first && usm_get_devices(&first, 1, &count))
        first = NULL;
    return first;
}

static account take_account(void)
{
    account         a = {.descriptors = count_descriptors(), .objects = driver_live()};
    usm_memory_info m = USM_MEMORY_INFO_INIT;

    if (!usm_device_memory(device(), &m)) {
        a.ours   = m.ours;
        a.pooled = m.pooled;
    }
    pthread_mutex_lock(&account_lock);
    a.blocks = live_count;
    a.births = births;
    pthread_mutex_unlock(&account_lock);
    return a;
}

/* Where the blocks were allocated that are younger than `before`: for addr2line -e. */
static void print_makers(const account *before)
{
    Dl_info info;

    pthread_mutex_lock(&account_lock);
    for (size_t i = 0; i < MAX_LIVE; i++)
        if (live[i] && live[i] != &gone && birth[i] > before->births && dladdr(maker[i], &info))
            printf("    a block from %s+%#zx\n", info.dli_fname,
                   (size_t)((char *)maker[i] - (char *)info.dli_fbase));
    pthread_mutex_unlock(&account_lock);
}

static bool leaks(const account *now, const account *before)
{
    return now->blocks > before->blocks || now->descriptors > before->descriptors ||
           now->ours > before->ours || now->pooled > before->pooled ||
           now->objects > before->objects;
}

/* --- states ----------------------------------------------------------------------------------- */

bool sweep_has(usm_aspect aspect)
{
    return usm_device_has(device(), aspect);
}

const char *sweep_backend(void)
{
    usm_device_info info = USM_DEVICE_INFO_INIT;

    return usm_device_get_info(device(), &info) ? "" : info.backend;
}

usm_kind sweep_kind(void)
{
    return sweep_has(USM_ASPECT_USM_DEVICE_ALLOCATIONS) ? USM_DEVICE : USM_HOST;
}

static bool moves_data(void)
{
    char       text[64] = "", *p = usm_alloc(64, sweep_kind());
    usm_status status = usm_copy(p, text, sizeof text);

    usm_free(p);
    return status != USM_E_NO_DATA_MOVED;
}

static bool state_begin(state *s)
{
    memset(s, 0, sizeof *s);
    for (size_t i = 0; i < sizeof s->host; i++)
        s->host[i] = (char)(i * 7 + 3);
    return !usm_context_create(NULL, &s->ctx) && !usm_context_create(NULL, &s->other) &&
           !usm_queue_create(s->ctx, NULL, NULL, &s->q) &&
           !usm_queue_create(s->other, NULL, NULL, &s->other_q);
}

static void state_end(state *s)
{
    if (s->gate)
        (void)!usm_event_signal(s->gate, USM_OK);
    usm_context *all[] = {s->ctx, s->other, s->made_ctx};
    for (int i = 0; i < 3; i++)
        if (all[i])
            (void)!usm_context_wait(all[i]);
    if (s->used_default)
        usm_queue_wait(usm_default_queue());
    for (int i = 0; i < SLOTS; i++) {
        if (s->ev[i])
            usm_event_wait(s->ev[i]);
        usm_event_release(s->ev[i]);
        usm_free(s->p[i]);
    }
    usm_event_release(s->gate);
    usm_parallel_release(s->run);
    usm_graph_destroy(s->graph);
    for (int i = 0; i < 3; i++)
        usm_template_destroy(s->template[i]);
    usm_team_kernel_destroy(s->team_kernel);
    usm_team_kernel_destroy(s->second_kernel);
    usm_team_destroy(s->team);
    usm_buffer_destroy(s->buffer);
    usm_kernel_destroy(s->kernel);
    usm_program_destroy(s->program);
    if (s->area)
        usm__area_give(s->pool, s->area);
    usm_pool_destroy(s->pool);
    usm_queue_destroy(s->made_q);
    usm_queue_destroy(s->q);
    usm_queue_destroy(s->other_q);
    for (int i = 0; i < 3; i++)
        usm_context_destroy(all[i]);
}

/* --- one run ---------------------------------------------------------------------------------- */

/* What fails: calls of libusm, or of the software driver. */
typedef struct source {
    const char *name;
    uint32_t    code; /* what the driver answers; 0: calls of libusm fail             */
    usm_status  status;
    unsigned    step; /* from one n to the next                                       */
    bool        onwards;
} source;

static const source sources[] = {
    {"libusm's calls, one at a time", 0, USM_OK, 1, false},
    {"libusm's calls from there on", 0, USM_OK, 1, true},
    {"the driver out of its memory once", 0x70000003, USM_E_NO_MEMORY, 1, false},
    {"the driver out of its memory", 0x70000003, USM_E_NO_MEMORY, 1, true},
    {"the driver out of the host's memory once", 0x70000002, USM_E_NO_MEMORY, 1, false},
    {"the driver out of the host's memory", 0x70000002, USM_E_NO_MEMORY, 3, true},
    {"the device lost", 0x70000001, USM_E_DEVICE_LOST, 3, true},
};
#define NSOURCES (sizeof sources / sizeof sources[0])
#define DRIVERS  (&sources[2])            /* the first of the driver's */
#define LOST     (&sources[NSOURCES - 1]) /* for good: each n is a process of its own */

typedef struct run {
    const scenario *sc;
    const source   *from;
    uint64_t        n;
    bool            is_again; /* the call fails that failed in the last run             */
    uint64_t        fired;
    usm_status      status;
} run;

static int failures;

static bool is_whole(void)
{
    return getenv("USM_SWEEP_WHOLE") != NULL;
}

/* How the processes end that run a scenario once. */
enum { CAME_THROUGH = 40, MET_A_FAILURE = 41 };

static void complain(const run *r, const char *what, const char *more)
{
    printf("%s: n = %llu of %s (%s): %s %s\n", r->sc->name, (unsigned long long)r->n, r->from->name,
           hit_name[0] ? hit_name : "nothing failed", what, more);
    fflush(stdout);
    failures++;
}

/* What waited for a command that failed says so; and a driver that fails when devices are listed is
 * one that is not there. */
static bool may_differ(const run *r)
{
    if (r->status == USM_E_DEPENDENCY)
        return true;
    if (r->sc->flags & MAY_LACK && r->status == USM_E_NOT_SUPPORTED)
        return true;
    return r->sc->flags & COLD && (r->status == USM_E_NO_DEVICE || r->status == USM_E_NO_BACKEND);
}

/* The status and the story of a failure. */
static void check_status(const run *r, const state *s)
{
    if (s->wrong)
        complain(r, "wrong:", s->wrong);
    if (!r->status)
        return;
    if (!r->fired && !(r->sc->flags & MAY_REFUSE))
        complain(r, "failed though no call failed:", usm_last_error());
    if (r->status > 0 || !strcmp(usm_status_name(r->status), "unknown status"))
        complain(r, "a status without a name", "");
    if (r->status == USM_E_INTERNAL)
        complain(r, "USM_E_INTERNAL:", usm_last_error());
    if (!usm_last_error()[0])
        complain(r, usm_status_name(r->status), "without a message");
    if (r->fired && r->from->code && r->status != r->from->status && !may_differ(r))
        complain(r, "not the status of the driver's answer:", usm_last_error());
}

static void arm(run *r)
{
    pthread_mutex_lock(&account_lock);
    hit_name[0] = 0;
    pthread_mutex_unlock(&account_lock);
    atomic_store(&hit_free, false);
    if (r->is_again && !is_whole())
        paths_arm_again(r->from->onwards);
    else
        paths_arm(r->n, r->from->onwards);
    if (r->n && r->from->code)
        driver_arm(r->from->code);
    else if (r->n && !usm__fault_arm("*", 0, false, USM_OK)) /* so that calls ask */
        complain(r, "no room for a rule", "");
}

static void disarm(run *r)
{
    if (!r->from->code) {
        r->fired = r->n ? paths_fired() : 0;
    } else {
        r->fired = r->n && driver_has_failed();
        pthread_mutex_lock(&account_lock);
        snprintf(hit_name, sizeof hit_name, "%s", r->fired ? driver_failed_call() : "");
        pthread_mutex_unlock(&account_lock);
        if (r->fired && r->sc->flags & COLD)
            atomic_store(&hit_driver, true);
    }
    usm__fault_disarm_all();
    driver_disarm();
    paths_disarm();
}

static void run_once(run *r)
{
    state s;

    if (!state_begin(&s)) {
        complain(r, "cannot begin:", usm_last_error());
        state_end(&s);
        return;
    }
    arm(r);
    r->status = paths_run(r->sc->act, &s);
    disarm(r);
    check_status(r, &s);
    state_end(&s);
}

/* This program with other arguments, in a process of its own; the wait status. */
static int run_program(const char *name, const char *n)
{
    int   status;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "sweep", name, n, (char *)NULL);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        abort();
    return status;
}

/* What ends on other threads may take a moment: so many times 2 ms at most. */
static bool still_leaks(account *now, const account *before, int patience)
{
    struct timespec wait = {0, 2000000};

    *now = take_account();
    for (int i = 0; i < patience && leaks(now, before); i++) {
        nanosleep(&wait, NULL);
        *now = take_account();
    }
    return leaks(now, before);
}

static void check_account(const run *r, const account *before)
{
    char    text[250];
    account now;

    if (atomic_load(&hit_free) || !still_leaks(&now, before, PATIENCE))
        return;
    snprintf(text, sizeof text,
             "%zu blocks (%zu), %zu descriptors (%zu), %llu bytes (%llu), held %llu (%llu), "
             "%llu objects of the driver (%llu)",
             now.blocks, before->blocks, now.descriptors, before->descriptors,
             (unsigned long long)now.ours, (unsigned long long)before->ours,
             (unsigned long long)now.pooled, (unsigned long long)before->pooled,
             (unsigned long long)now.objects, (unsigned long long)before->objects);
    complain(r, "leaks, with before in brackets:", text);
    print_makers(before);
}

/* The call that fails behind the n-th; where paths fail, the number of the run. */
static uint64_t next_n(const run *r)
{
    return r->n + (is_whole() ? r->from->step : 1);
}

/* A scenario while whose n-th call the device is lost, in a process of its own; its exit status. */
static int run_lost(const scenario *sc, uint64_t n)
{
    run     clean = {.sc = sc, .from = LOST}, r = {.sc = sc, .from = LOST, .n = n};
    account before;

    driver_open();
    paths_begin(NSOURCES - 1, true);
    for (int i = 0; i < 2; i++)
        run_once(&clean);
    before = take_account();
    run_once(&r);
    check_account(&r, &before);
    return failures ? 1 : r.fired ? MET_A_FAILURE : CAME_THROUGH;
}

static uint64_t sweep_lost(const scenario *sc)
{
    run      r     = {.sc = sc, .from = LOST, .n = 1};
    uint64_t tried = 0;

    for (;; r.n = is_whole() ? next_n(&r) + r.n / 8 : r.n + 1, tried++) {
        char text[24];
        int  status;

        snprintf(text, sizeof text, "%llu", (unsigned long long)r.n);
        status = run_program(sc->name, text);
        if (WIFSIGNALED(status))
            complain(&r, "died by", strsignal(WTERMSIG(status)));
        else if (WEXITSTATUS(status) != CAME_THROUGH && WEXITSTATUS(status) != MET_A_FAILURE)
            failures++;
        if ((WIFEXITED(status) && WEXITSTATUS(status) == CAME_THROUGH) || failures >= 10 ||
            r.n >= MAX_N)
            return tried;
    }
}

/* A value is kept from when it is first read, which may be when a failure is logged. */
static void read_settings(void)
{
    for (size_t i = 0; usm__settings[i].key; i++)
        (void)usm__setting_text(usm__settings[i].key);
}

/* How many calls were made to fail. */
static uint64_t sweep_warm(const scenario *sc, const source *from)
{
    if (from == LOST)
        return sweep_lost(sc);

    run      clean = {.sc = sc, .from = from}, r = {.sc = sc, .from = from, .n = 1};
    uint64_t tried   = 0;
    bool     has_met = true;
    int      repeats = 0;
    account  before, now;

    read_settings();
    for (int i = 0; i < 3; i++) /* what is made once and kept */
        run_once(&clean);
    while (has_met && failures < 20 && r.n < MAX_N) {
        before = take_account();
        run_once(&r); /* always from here, for the path leads through here */
        has_met = r.is_again || r.fired > 0;
        /* A leak comes back each time the same call fails.  Descriptors that are kept for life do
         * not, nor do more recycled blocks than ever before, which is a matter of how threads
         * happened to run. */
        r.is_again = !atomic_load(&hit_free) && repeats < REPEATS &&
                     still_leaks(&now, &before, LITTLE_PATIENCE);
        repeats = r.is_again ? repeats + 1 : 0;
        if (r.is_again)
            continue;
        check_account(&r, &before);
        if (tried % 8 == 7 || !has_met)
            run_once(&clean);
        if (has_met) {
            tried++;
            r.n = next_n(&r);
        }
    }
    if (r.n >= MAX_N)
        complain(&r, "still not through", "");
    return tried;
}

/* --- cold runs -------------------------------------------------------------------------------- */

static int run_cold(run *r)
{
    state s = {0};

    for (size_t i = 0; i < sizeof s.host; i++)
        s.host[i] = (char)(i * 7 + 3);
    alarm(60);
    arm(r);
    r->status = paths_run(r->sc->act, &s);
    disarm(r);
    check_status(r, &s);
    state_end(&s);
    /* What failed to start starts now; only a module that does not load and a driver that
     * lists no devices are not asked again. */
    if (r->sc->act(&s) != USM_OK && (!atomic_load(&hit_driver) || !usm_last_error()[0]))
        complain(r, "afterwards:", usm_last_error());
    state_end(&s);
    usm_shutdown();
    return failures ? 1 : r->fired ? MET_A_FAILURE : CAME_THROUGH;
}

static uint64_t sweep_cold(const scenario *sc, const source *from)
{
    run      r      = {.sc = sc, .from = from, .n = 1};
    uint64_t tried  = 0;
    int      status = 0;

    for (;; r.n = next_n(&r), tried++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0)
            exit(run_cold(&r));
        if (child < 0 || waitpid(child, &status, 0) != child)
            abort();
        if (WIFSIGNALED(status))
            complain(&r, "died by", strsignal(WTERMSIG(status)));
        else if (WEXITSTATUS(status) != CAME_THROUGH && WEXITSTATUS(status) != MET_A_FAILURE)
            failures++;
        if ((WIFEXITED(status) && WEXITSTATUS(status) == CAME_THROUGH) || failures >= 10 ||
            r.n >= MAX_N)
            break;
    }
    return tried;
}

/* --- scenarios -------------------------------------------------------------------------------- */

static const char *why_not(const scenario *sc)
{
    if (sc->flags & NEEDS_DATA && !moves_data())
        return "no data moves";
    if ((sc->flags & NEEDS_RUN) == NEEDS_RUN && !sweep_has(USM_ASPECT_KERNELS))
        return "no kernels run";
    if (sc->flags & NEEDS_NATIVE && !strcmp(sweep_backend(), "host"))
        return "no native objects";
    if (sc->flags & NEEDS_HOST && strcmp(sweep_backend(), "host") != 0)
        return "its kernels are the host's";
    return NULL;
}

/* Kinds of failures of which a few return addresses tell the paths apart: over a driver each run of
 * these scenarios opens it anew or compiles, and the driver's first kind has taken the same paths
 * as its others, which may be retried for a second. */
static bool is_coarse(const scenario *sc, const source *from)
{
    if (from == LOST)
        return true;
    return paths_are_shared() && (sc->flags & (COLD | SLOW) || (from->code && from != DRIVERS));
}

static int sweep_one(const scenario *sc)
{
    const char *why        = sc->flags & COLD ? NULL : why_not(sc);
    bool        has_driver = driver_open();

    if (!why && has_driver && sc->flags & SLOW && !is_whole())
        why = "left to ./run soak";
    if (why) {
        printf("%s: not offered: %s\n", sc->name, why);
        return 0;
    }
    for (size_t i = 0; i < NSOURCES; i++) {
        const source *from = &sources[i];
        uint64_t      tried;

        if (from->code && !has_driver)
            break;
        paths_begin((unsigned)i, is_coarse(sc, from));
        tried = sc->flags & COLD ? sweep_cold(sc, from) : sweep_warm(sc, from);
        if (!paths_calls() && !from->code)
            complain(&(run){.sc = sc, .from = from}, "no call of it can fail: it tests nothing",
                     "");
        printf("%s: %s: %llu failures of %s (%llu calls on %llu paths)\n",
               failures ? "not ok" : "ok", sc->name, (unsigned long long)tried, from->name,
               (unsigned long long)paths_calls(), (unsigned long long)paths_found());
        fflush(stdout);
    }
    return failures ? 1 : 0;
}

static bool passes_alone(const char *name)
{
    int status = run_program(name, NULL);

    if (WIFSIGNALED(status))
        printf("not ok: %s: died by %s\n", name, strsignal(WTERMSIG(status)));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* What the sweep must catch: a block that is lost when the call behind it fails. */
static usm_status lose_a_block(state *s)
{
    void *first = usm__heap_alloc(100), *second = usm__heap_alloc(100);

    (void)s;
    if (!second)
        return usm_malloc(1, NULL, USM_HOST) ? USM_OK : usm_last_status(); /* first is lost */
    usm__heap_free(first);
    usm__heap_free(second);
    return USM_OK;
}

static const scenario planted[] = {{"planted_leak", lose_a_block, 0}, {NULL, NULL, 0}};

static const scenario *find(const char *name)
{
    const scenario *lists[] = {scenarios, command_scenarios, offload_scenarios, planted};

    for (int l = 0; l < 4; l++)
        for (const scenario *sc = lists[l]; sc->name; sc++)
            if (!strcmp(sc->name, name))
                return sc;
    return NULL;
}

/* A folder for the scenario that caches programs; gone at the end. */
static void remove_cache(const char *folder)
{
    pid_t child = fork();

    if (child == 0) {
        execlp("rm", "rm", "-rf", folder, (char *)NULL);
        _exit(127);
    }
    (void)waitpid(child, NULL, 0);
}

static int sweep_all(void)
{
    const char *tmp = getenv("TMPDIR");
    char        cache[256];

    /* A run over a driver costs ten times as much, and the host's runs have shown what depends on
     * the state that a scenario brings. */
    if (strcmp(sweep_backend(), "host") != 0)
        paths_share();
    snprintf(cache, sizeof cache, "%.200s/usm-sweep-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(cache) || setenv("USM_SWEEP_CACHE", cache, 1))
        abort();

    const scenario *lists[] = {scenarios, command_scenarios, offload_scenarios};
    int             total = 0, bad = 0;

    for (int l = 0; l < 3; l++) {
        for (const scenario *sc = lists[l]; sc->name; sc++, total++)
            bad += !passes_alone(sc->name);
    }
    printf("the next must be caught:\n");
    if (passes_alone(planted[0].name)) {
        printf("not ok: the planted leak was not caught\n");
        bad++;
    }
    remove_cache(cache);
    printf("%d scenarios, %d failed\n", total, bad);
    return bad ? 1 : 0;
}

int main(int argc, char **argv)
{
    const scenario *sc;
    int             rc = 0;

    setenv("USM_CACHE_DIR", "off", 1);
    setenv("USM_LOG", "off", 0); /* failures are what is made here */
    if (argc > 1 && !strcmp(argv[1], "--whole")) {
        setenv("USM_SWEEP_WHOLE", "1", 1);
        argv[1] = argv[0];
        argv++;
        argc--;
    }
    if (argc == 1)
        return sweep_all();
    if (argc == 3 && strtoull(argv[2], NULL, 10) && find(argv[1])) {
        alarm(60);
        return run_lost(find(argv[1]), strtoull(argv[2], NULL, 10));
    }
    for (int i = 1; i < argc; i++) {
        sc = find(argv[i]);
        if (!sc) {
            fprintf(stderr, "no scenario %s\n", argv[i]);
            return 2;
        }
        alarm(SCENARIO_SECONDS);
        rc |= sweep_one(sc);
    }
    return rc;
}
