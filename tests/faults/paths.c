/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* See paths.h.
 *
 * A path is a hash of the call's name and of the low 12 bits of the return addresses: modules lie
 * at multiples of pages, so these bits are the same in every process.  Two paths with one hash
 * would hide each other; with 64 bits and some thousand paths that does not happen. */
#include "paths.h"

#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FRAMES = 64, OWN_FRAMES = 2, COARSE = 5, PATHS = 16384, TAKEN = 4096, KINDS = 8 };

#define RECORD "USM_SWEEP_PATHS" /* its descriptor, for children */

typedef struct path {
    uint64_t hash; /* 0: unused */
    uint64_t times;
} path;

/* Of all runs of one kind, shared between processes. */
typedef struct record {
    path     failed[PATHS]; /* times: a bit for each power of two at which it has failed */
    uint64_t calls, found;
} record;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* all below is guarded by it */
static record         *all;                              /* of the kind under way */
static record         *kinds;
static path            taken[TAKEN]; /* in this run */
static path            last;         /* what failed last, and at which time */
static uint64_t        wanted, calls, fired;
static bool            has_onwards, is_again;

static bool      is_coarse, is_shared;
static uint64_t  found_before;
static pthread_t runner;   /* who runs the scenario, and */
static int       nbeneath; /* how many return addresses lie beneath it */

void paths_share(void)
{
    char number[16];
    int  file = memfd_create("paths", 0);

    if (file < 0 || ftruncate(file, (off_t)(KINDS * sizeof(record))) != 0)
        abort();
    (void)snprintf(number, sizeof number, "%d", file);
    if (setenv(RECORD, number, 1) != 0)
        abort();
}

static void open_record(void)
{
    void *frames[FRAMES];

    if (kinds)
        return;
    (void)backtrace(frames, FRAMES); /* the first one loads a library */
    is_shared = getenv(RECORD) != NULL;
    if (!is_shared)
        paths_share(); /* with children all the same */
    kinds = mmap(NULL, KINDS * sizeof(record), PROT_READ | PROT_WRITE, MAP_SHARED,
                 atoi(getenv(RECORD)), 0);
    if (kinds == MAP_FAILED)
        abort();
    all = kinds;
}

bool paths_are_shared(void)
{
    open_record();
    return is_shared;
}

void paths_begin(unsigned kind, bool coarse)
{
    open_record();
    all          = &kinds[kind];
    is_coarse    = coarse;
    all->calls   = 0;
    found_before = all->found;
}

__attribute__((noinline)) usm_status paths_run(usm_status (*act)(struct state *s), struct state *s)
{
    void      *frames[FRAMES];
    usm_status result;

    nbeneath = backtrace(frames, FRAMES);
    runner   = pthread_self();
    result   = act(s);
    __asm__ volatile("" ::: "memory"); /* no tail call */
    return result;
}

static void arm(uint64_t n, bool onwards, bool again)
{
    open_record();
    pthread_mutex_lock(&lock);
    is_again = again;
    memset(taken, 0, sizeof taken);
    calls = fired = 0;
    wanted        = n;
    has_onwards   = onwards;
    pthread_mutex_unlock(&lock);
}

void paths_arm(uint64_t n, bool onwards)
{
    arm(n, onwards, false);
}

void paths_arm_again(bool onwards)
{
    arm(1, onwards, true);
}

void paths_disarm(void)
{
    pthread_mutex_lock(&lock);
    if (all && calls > all->calls)
        all->calls = calls;
    wanted = 0;
    pthread_mutex_unlock(&lock);
}

static uint64_t hash_here(const char *name)
{
    void    *frames[FRAMES];
    int      n    = backtrace(frames, FRAMES);
    int      end  = pthread_equal(pthread_self(), runner) ? n - nbeneath - 1 : n;
    uint64_t hash = 0xcbf29ce484222325u;

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    if (is_coarse && end > OWN_FRAMES + COARSE)
        end = OWN_FRAMES + COARSE;
    for (int i = OWN_FRAMES; i < end; i++) {
        hash = (hash ^ ((uintptr_t)frames[i] & 0xfff)) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash ? hash : 1;
}

/* Its place in a table that is never full. */
static path *find(path *table, size_t size, uint64_t hash)
{
    size_t i = hash % size, tried = 0;

    while (table[i].hash && table[i].hash != hash) {
        i = (i + 1) % size;
        if (++tried == size)
            abort();
    }
    table[i].hash = hash;
    return &table[i];
}

/* pre: lock is held */
static bool is_new(uint64_t hash)
{
    path    *now = find(taken, TAKEN, hash), *before = find(all->failed, PATHS, hash);
    uint64_t times = ++now->times;

    if (is_again)
        return hash == last.hash && times == last.times;
    all->found += before->times == 0;
    before->times |= (uint64_t)1 << 63; /* seen */
    if ((times & (times - 1)) != 0 || before->times & times || (is_coarse && times > 1))
        return false;
    before->times |= times;
    last = (path){hash, times};
    return true;
}

bool paths_hit(const char *name)
{
    bool     is_whole = getenv("USM_SWEEP_WHOLE") != NULL, fails;
    uint64_t hash     = is_whole ? 0 : hash_here(name);

    pthread_mutex_lock(&lock);
    calls++;
    if (fired > 0)
        fails = has_onwards;
    else
        fails = wanted != 0 && (is_whole ? calls == wanted : is_new(hash));
    fired += fails;
    pthread_mutex_unlock(&lock);
    return fails;
}

uint64_t paths_fired(void)
{
    uint64_t n;

    pthread_mutex_lock(&lock);
    n = fired;
    pthread_mutex_unlock(&lock);
    return n;
}

uint64_t paths_calls(void)
{
    return all ? all->calls : 0;
}

uint64_t paths_found(void)
{
    return all ? all->found - found_before : 0;
}
