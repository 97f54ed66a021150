/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Managed memory: what is written to memory larger than the limit is there when it is read, by any
 * thread and in any order; pins, frees, fork(), the limit, calls that fail, a full tier.  Runs with
 * the mechanism that the machine has, and with copies. */
#include "base/fault.h"
#include "base/inline/atomic.h"
#include "managed/mechanism.h"
#include "plain.h"

#include <usm/usm.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB   ((size_t)1 << 10)
#define MIB   ((size_t)1 << 20)
#define LIMIT (2 * MIB) /* 32 blocks of 64 KiB */
#define SIZE  (8 * LIMIT)
#define WORDS (SIZE / sizeof(uint64_t))

static uint64_t value_of(size_t i, uint64_t salt)
{
    return (i + salt) * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Skips the case where the machine does not allow managed memory. */
static void *make_managed(size_t size)
{
    void *p = usm_alloc_managed(size);

    if (!p && usm_last_status() == USM_E_NOT_SUPPORTED)
        SKIP(usm_last_error());
    return p;
}

/* ---- in one process ------------------------------------------------------------------- */

static void what_is_written_is_read(void)
{
    uint64_t       *x     = make_managed(SIZE);
    usm_spill_stats stats = {.struct_size = sizeof stats};

    CHECK(x != NULL);
    for (size_t i = 0; i < WORDS; i += 512)
        CHECK(x[i] == 0);
    for (size_t i = 0; i < WORDS; i++)
        x[i] = value_of(i, 1);
    for (size_t i = 0; i < WORDS; i++)
        CHECK(x[i] == value_of(i, 1));
    for (size_t i = WORDS; i-- > 0;)
        CHECK(x[i] == value_of(i, 1));
    CHECK_INT(usm_spill_get_stats(NULL, &stats), USM_OK);
    CHECK(stats.resident <= LIMIT);
    usm_free(x);
}

static void any_order_will_do(void)
{
    uint64_t *x     = make_managed(SIZE);
    uint64_t *model = calloc(WORDS, sizeof *model);
    uint64_t  state = 88172645463325252;

    CHECK(x != NULL && model != NULL);
    for (int n = 0; n < 5000; n++) {
        size_t i = next_random(&state) % WORDS;

        CHECK(x[i] == model[i]);
        if (n % 3 == 0)
            x[i] = model[i] = next_random(&state);
    }
    for (size_t i = 0; i < WORDS; i++)
        CHECK(x[i] == model[i]);
    free(model);
    usm_free(x);
}

static uint64_t written_to_tiers(void)
{
    usm_spill_stats stats = {.struct_size = sizeof stats};
    uint64_t        n     = 0;

    CHECK_INT(usm_spill_get_stats(NULL, &stats), USM_OK);
    for (size_t i = 0; i < stats.ntiers; i++)
        n += stats.tiers[i].written;
    return n;
}

/* Only what was in memory when the passes began is still to be stored. */
static void what_is_only_read_is_stored_once(void)
{
    uint64_t *x = make_managed(SIZE);
    uint64_t  before;

    CHECK(x != NULL);
    for (size_t i = 0; i < WORDS; i++)
        x[i] = value_of(i, 2);
    before = written_to_tiers();
    for (int pass = 0; pass < 4; pass++)
        for (size_t i = 0; i < WORDS; i += 64)
            CHECK(x[i] == value_of(i, 2));
    CHECK(written_to_tiers() - before <= LIMIT);
    /* A block that was first read and then written is stored. */
    for (size_t k = 0; k < 3; k++) {
        for (size_t i = 0; i < WORDS; i += 512)
            x[i] += i;
        for (size_t i = 0; i < WORDS; i += 512)
            CHECK(x[i] == value_of(i, 2) + (k + 1) * i);
    }
    usm_free(x);
}

#define THREADS 4

typedef struct worker {
    pthread_t thread;
    uint64_t *x;
    size_t    number;
    bool      is_good;
} worker;

/* Each thread has every fourth word, so all of them write to the same blocks. */
static void *work(void *arg)
{
    worker   *w     = arg;
    size_t    n     = WORDS / THREADS;
    uint64_t *model = calloc(n, sizeof *model);
    uint64_t  state = 1234567 + w->number;

    w->is_good = model != NULL;
    for (int i = 0; i < 2000 && w->is_good; i++) {
        size_t    k  = next_random(&state) % n;
        uint64_t *at = &w->x[k * THREADS + w->number];

        w->is_good = *at == model[k];
        if (i % 2)
            *at = model[k] = next_random(&state);
    }
    for (size_t k = 0; k < n && w->is_good; k++)
        w->is_good = w->x[k * THREADS + w->number] == model[k];
    free(model);
    return NULL;
}

static void threads_see_what_they_wrote(void)
{
    uint64_t *x = make_managed(SIZE);
    worker    w[THREADS];

    CHECK(x != NULL);
    for (size_t i = 0; i < THREADS; i++) {
        w[i] = (worker){.x = x, .number = i};
        CHECK_INT(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        CHECK_INT(pthread_join(w[i].thread, NULL), 0);
        CHECK(w[i].is_good);
    }
    usm_free(x);
}

static void *free_and_make(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20; i++) {
        char *p = usm_alloc_managed(4 * MIB);

        for (size_t k = 0; p && k < 4 * MIB; k += 16 * KIB)
            p[k] = (char)k;
        usm_free(p);
    }
    return NULL;
}

static void ranges_come_and_go_beside_faults(void)
{
    uint64_t *x = make_managed(SIZE);
    worker    w = {.x = x, .number = 1};
    pthread_t other;

    CHECK(x != NULL);
    CHECK_INT(pthread_create(&other, NULL, free_and_make, NULL), 0);
    (void)work(&w);
    CHECK(w.is_good);
    CHECK_INT(pthread_join(other, NULL), 0);
    usm_free(x);
}

static void pinned_memory_is_for_system_calls(void)
{
    const size_t n    = 300 * KIB;
    char        *x    = make_managed(SIZE);
    char        *text = malloc(n);
    int          fd   = memfd_create("content", 0);

    CHECK(x != NULL && text != NULL && fd >= 0);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)(i % 251);
    CHECK_INT(write(fd, text, n), (long)n);
    CHECK_INT(usm_managed_pin(x + 5, n, USM_WRITE), USM_OK);
    CHECK_INT(usm_free_ctx(x, NULL), USM_E_BUSY);
    for (size_t k = MIB; k < SIZE; k += 4 * KIB)
        x[k] = 1; /* the pinned blocks stay */
    CHECK_INT(pread(fd, x + 5, n, 0), (long)n);
    CHECK_INT(usm_managed_unpin(x + 5, n, USM_WRITE), USM_OK);
    for (size_t k = MIB; k < SIZE; k += 4 * KIB)
        CHECK(x[k] == 1);
    CHECK(memcmp(x + 5, text, n) == 0);
    CHECK_INT(usm_managed_pin(x, SIZE, USM_READ), USM_E_BUDGET);
    CHECK_INT(usm_managed_pin(x + SIZE - 1, 2, USM_READ), USM_E_INVALID_POINTER);
    CHECK_INT(usm_managed_advise(x, SIZE, USM_BUFFER_SEQUENTIAL), USM_OK);
    CHECK_INT(usm_managed_advise(x, SIZE, USM_BUFFER_WILL_NEED), USM_OK);
    CHECK_INT(usm_managed_advise(x, SIZE, USM_BUFFER_DISCARD), USM_E_NOT_SUPPORTED);
    (void)close(fd);
    free(text);
    usm_free(x);
}

static void pointers_know_their_block(void)
{
    char              *x    = make_managed(100001);
    volatile uintptr_t gone = (uintptr_t)x;
    void              *base;
    size_t             size;

    CHECK(x != NULL);
    CHECK_INT((uintptr_t)x % (2 * MIB), 0);
    CHECK_INT(usm_usable_size(x), 100001);
    CHECK_INT(usm_get_address_range(x + 77, NULL, &base, &size), USM_OK);
    CHECK(base == x && size == 100001);
    CHECK_INT(usm_free_ctx(x + 77, NULL), USM_E_INTERIOR_POINTER);
    usm_free(x);
    CHECK_INT(usm_get_address_range((void *)gone, NULL, &base, &size), USM_E_INVALID_POINTER);
    CHECK_INT(usm_free_ctx((void *)gone, NULL), USM_E_INVALID_POINTER);
    x = make_managed(0);
    CHECK(x != NULL);
    usm_free(x);
    errno = 0;
    CHECK(make_managed((size_t)PTRDIFF_MAX) == NULL && errno == ENOMEM);
}

static void calls_that_fail_are_told(void)
{
    static const char *const points[] = {"os.uffd_move", "os.uffd_copy", "os.uffd_protect",
                                         "os.madvise", "os.uffd_register"};
    uint64_t                *x        = make_managed(SIZE);

    CHECK(x != NULL);
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        for (uint64_t n = 1; n < 4; n++) {
            usm_status st;

            usm__fault_arm(points[i], n, false, USM_OK);
            for (size_t k = 0; k < SIZE / (64 * KIB); k++) {
                st = usm_managed_pin((char *)x + k * 64 * KIB, 1, USM_WRITE);
                CHECK(st == USM_OK || st == USM_E_SYSTEM);
                if (st == USM_OK) {
                    x[k * 8 * KIB] = value_of(k, n);
                    CHECK_INT(usm_managed_unpin((char *)x + k * 64 * KIB, 1, USM_WRITE), USM_OK);
                }
            }
            usm__fault_disarm_all();
            for (size_t k = 0; k < SIZE / (64 * KIB); k++)
                x[k * 8 * KIB] = value_of(k, n);
            for (size_t k = 0; k < SIZE / (64 * KIB); k++)
                CHECK(x[k * 8 * KIB] == value_of(k, n));
        }
    usm_free(x);
}

#define PIPES 5
#define SLOTS 256 /* of a pipe of 1 MiB */

/* A page in so many pipes looks to the kernel as if a device used it, so that it does not move. */
static void use_page(char *page, int pipes[PIPES][2])
{
    struct iovec parts[SLOTS];

    for (size_t i = 0; i < SLOTS; i++)
        parts[i] = (struct iovec){page, 4096};
    for (size_t i = 0; i < PIPES; i++) {
        CHECK_INT(pipe(pipes[i]), 0);
        CHECK(fcntl(pipes[i][0], F_SETPIPE_SZ, (int)MIB) == (int)MIB);
        CHECK(vmsplice(pipes[i][1], parts, SLOTS, SPLICE_F_NONBLOCK) > 0);
    }
}

typedef struct moved {
    usm__mechanism m;
    char          *frame, *at; /* 64 KiB each; page i of the frame is full of i + 1 */
} moved;

static char *map_pages(void)
{
    char *p = mmap(NULL, 64 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(p != MAP_FAILED);
    CHECK_INT(madvise(p, 64 * KIB, MADV_NOHUGEPAGE), 0);
    return p;
}

static moved make_moved(void)
{
    moved v = {.m = {.fd = -1}, .frame = map_pages(), .at = map_pages()};

    usm_free(make_managed(1)); /* skips */
    CHECK_INT(usm__mechanism_open(&v.m, v.frame, 64 * KIB, true), USM_OK);
    for (size_t i = 0; i < 64 * KIB; i++)
        v.frame[i] = (char)(i / 4096 + 1);
    return v;
}

static void check_pages(const char *p)
{
    for (size_t i = 0; i < 64 * KIB; i++)
        CHECK(p[i] == (char)(i / 4096 + 1));
}

static void end_moved(moved *v)
{
    (void)close(v->m.fd);
    (void)munmap(v->frame, 64 * KIB);
    (void)munmap(v->at, 64 * KIB);
}

static void pages_that_do_not_move_are_copied(void)
{
    moved v = make_moved();
    int   pipes[PIPES][2];

    CHECK_INT(usm__mechanism_watch(&v.m, v.at, 64 * KIB), 0);
    use_page(v.frame + 32 * KIB, pipes);
    CHECK_INT(usm__mechanism_place(&v.m, v.frame, v.at, 64 * KIB, false), 0);
    check_pages(v.at);
    for (size_t i = 0; i < PIPES; i++) {
        (void)close(pipes[i][0]);
        (void)close(pipes[i][1]);
    }
    end_moved(&v);
}

/* A page is in the way; those before it go back, by being moved or copied. */
static void pages_that_cannot_come_stay(void)
{
    for (uint64_t fail = 0; fail < 2; fail++) {
        moved v = make_moved();

        v.at[32 * KIB] = 1;
        CHECK_INT(usm__mechanism_watch(&v.m, v.at, 64 * KIB), 0);
        usm__fault_arm("os.uffd_copy", 1, true, USM_OK);
        if (fail)
            usm__fault_arm("os.uffd_move", 3, true, USM_OK);
        CHECK(usm__mechanism_place(&v.m, v.frame, v.at, 64 * KIB, false) != 0);
        usm__fault_disarm_all();
        check_pages(v.frame);
        CHECK_INT(usm__mechanism_place(&v.m, v.frame, v.at, 64 * KIB, false), 0);
        check_pages(v.at);
        end_moved(&v);
    }
}

#define IS_PROTECTED (UINT64_C(1) << 57) /* of an entry of pagemap */
#define IS_SWAPPED   (UINT64_C(1) << 62)

/* How many pages of 64 KiB have the bit. */
static size_t count_pages(const char *p, uint64_t bit)
{
    uint64_t entries[16];
    size_t   n  = 0;
    int      fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

    CHECK(fd >= 0);
    CHECK_INT(pread(fd, entries, sizeof entries, (off_t)((uintptr_t)p / 4096 * sizeof *entries)),
              (long)sizeof entries);
    (void)close(fd);
    for (size_t i = 0; i < 16; i++)
        n += (entries[i] & bit) != 0;
    return n;
}

/* A frame that is protected would stop its next user.  Only tests/swap.sh makes sure that there is swap. */
static void what_was_swapped_out_leaves_unprotected(void)
{
    moved v = make_moved();

    CHECK_INT(usm__mechanism_watch(&v.m, v.at, 64 * KIB), 0);
    CHECK_INT(usm__mechanism_place(&v.m, v.frame, v.at, 64 * KIB, false), 0);
    CHECK_INT(usm__mechanism_protect(&v.m, v.at, 64 * KIB, true), 0);
    CHECK_INT(madvise(v.at, 64 * KIB, MADV_PAGEOUT), 0);
    CHECK(count_pages(v.at, IS_SWAPPED) > 0 || !getenv("USM_TEST_SWAP"));
    CHECK_INT(count_pages(v.at, IS_PROTECTED), 16);
    CHECK_INT(usm__mechanism_take(&v.m, v.at, v.frame, 64 * KIB), 0);
    CHECK_INT(count_pages(v.frame, IS_PROTECTED), 0);
    if (v.m.moves) /* else the frame has what the engine loads */
        check_pages(v.frame);
    end_moved(&v);
}

/* Many ranges, which end in another order: each pointer finds its own. */
static void each_of_many_ranges_is_found(void)
{
    char *x[100];

    for (size_t i = 0; i < 100; i++) {
        x[i] = make_managed(i + 1);
        CHECK(x[i] != NULL);
        x[i][i] = (char)i;
    }
    for (size_t k = 0; k < 100; k++) {
        size_t i = k * 37 % 100;

        CHECK_INT(usm_usable_size(x[i]), i + 1);
        CHECK(x[i][i] == (char)i);
        CHECK_INT(usm_free_ctx(x[i], NULL), USM_OK);
        CHECK_INT(usm_free_ctx(x[i], NULL), USM_E_INVALID_POINTER);
    }
}

static void end_at_signal(int signal)
{
    (void)signal;
    _exit(42);
}

/* The program `--full`: it ends with 42 when an access is not served. */
static int fill_all(void)
{
    volatile char *x = usm_alloc_managed(SIZE);

    (void)signal(SIGBUS, end_at_signal);
    (void)signal(SIGSEGV, end_at_signal); /* before Linux 6.6 */
    for (size_t k = 0; x && k < SIZE; k += 4 * KIB)
        x[k] = 1;
    return 1;
}

/* This program again, with an option and a setting; returns how it ended, and what it said. */
static int run_again(const char *option, const char *name, const char *value, char text[4096])
{
    size_t n = 0;
    int    out[2], status;
    pid_t  child;

    usm_free(make_managed(1)); /* skips */
    CHECK_INT(pipe(out), 0);
    child = fork();
    if (child == 0) {
        (void)dup2(out[1], STDERR_FILENO);
        (void)setenv(name, value, 1);
        (void)execl("/proc/self/exe", "test_managed", option, (char *)NULL);
        _exit(3);
    }
    (void)close(out[1]);
    for (ssize_t got; n < 4095 && (got = read(out[0], text + n, 4095 - n)) > 0;)
        n += (size_t)got;
    text[n] = '\0';
    (void)close(out[0]);
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void a_full_tier_ends_the_access(void)
{
    char text[4096];

    CHECK_INT(run_again("--full", "USM_SPILL", "file:/var/tmp,quota=1M", text), 42);
    CHECK_IN("managed memory: the access to", text);
    CHECK_IN("quota", text);
}

static void tell(usm_context *ctx, usm_status status, const char *message, void *user)
{
    (void)ctx;
    if (status == USM_E_SPILL_FULL && strstr(message, "managed memory: the access to"))
        usm_store_release((_Atomic(int) *)user, 1);
}

static usm_queue *make_queue(usm_context **ctx, size_t limit, _Atomic(int) *told)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_queue       *q    = NULL;

    desc.host_limit = limit;
    desc.on_error   = told ? tell : NULL;
    desc.user       = told;
    if (usm_context_create(&desc, ctx) != USM_OK ||
        usm_queue_create(*ctx, NULL, NULL, &q) != USM_OK)
        return NULL;
    return q;
}

static _Atomic(int) was_told;

static void end_if_told(int signal)
{
    (void)signal;
    _exit(usm_load_acquire(&was_told) ? 42 : 4);
}

/* The program `--told`: its error callback runs before the signal. */
static int fill_and_be_told(void)
{
    usm_context   *ctx = NULL;
    usm_queue     *q   = make_queue(&ctx, 0, &was_told);
    volatile char *x   = q ? usm_malloc_managed(SIZE, q) : NULL;

    (void)signal(SIGBUS, end_if_told);
    (void)signal(SIGSEGV, end_if_told); /* before Linux 6.6 */
    for (size_t k = 0; x && k < SIZE; k += 4 * KIB)
        x[k] = 1;
    return 1;
}

static void the_error_callback_hears_of_it_first(void)
{
    char text[4096];

    CHECK_INT(run_again("--told", "USM_SPILL", "file:/var/tmp,quota=1M", text), 42);
    CHECK(strstr(text, "the access to") == NULL);
}

/* The program `--own`: a context with a limit has an engine, which lasts as long as memory of it. */
static int use_own_engine(void)
{
    usm_context    *ctx   = NULL;
    usm_queue      *q     = make_queue(&ctx, MIB, NULL);
    uint64_t       *x     = q ? usm_malloc_managed(SIZE, q) : NULL;
    usm_spill_stats stats = {.struct_size = sizeof stats};

    if (!x || usm_malloc_managed(1, NULL))
        return 1;
    for (uint64_t pass = 0; pass < 3; pass++)
        for (size_t i = 0; i < WORDS; i += 64) {
            if (pass > 0 && x[i] != value_of(i, pass - 1))
                return 2;
            x[i] = value_of(i, pass);
        }
    if (usm_spill_get_stats(ctx, &stats) != USM_OK || stats.limit != MIB || stats.resident > MIB)
        return 3;
    usm_queue_destroy(q);
    usm_context_destroy(ctx);
    for (size_t i = 0; i < WORDS; i += 64)
        if (x[i] != value_of(i, 2))
            return 4;
    return usm_free_ctx(x, NULL) == USM_OK ? 42 : 5;
}

static void a_context_has_its_own(void)
{
    char text[4096];

    CHECK_INT(run_again("--own", "USM_LOG", "error", text), 42);
}

/* A number of KiB in such a file of /proc/self. */
static size_t memory_in(const char *path, const char *name)
{
    FILE  *f = fopen(path, "re");
    char   line[256];
    size_t kib = 0;

    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtoull(line + strlen(name), NULL, 10);
    if (f)
        (void)fclose(f);
    return kib * KIB;
}

/* Pages of the process, and those that tables of pages take. */
static size_t memory_now(void)
{
    return memory_in("/proc/self/smaps_rollup", "Anonymous:") +
           memory_in("/proc/self/status", "VmPTE:");
}

/* The program `--memory`: it ends with 42 if it never had more than the limit, and what a process of
 * this kind has otherwise: threads, blocks that move at this moment. */
static int stay_small(void)
{
    char  *small = usm_alloc_managed(64 * KIB);
    char  *x     = usm_alloc_managed(SIZE);
    size_t before, peak = 0;

    if (!small || !x)
        return 1;
    memset(small, 1, 64 * KIB);
    before = memory_now();
    for (int pass = 0; pass < 3; pass++)
        for (size_t k = 0; k < SIZE; k += 64 * KIB) {
            size_t now;

            if (pass == 1 ? x[k + 5] != 1 : memset(x + k, 1, 64 * KIB) != x + k)
                return 2;
            now  = memory_now();
            peak = now > peak ? now : peak;
        }
    (void)fprintf(stderr, "%zu before, %zu at most\n", before, peak);
    return before > 0 && peak <= before + LIMIT + MIB ? 42 : 3;
}

static void memory_stays_within_the_limit(void)
{
    char text[4096];
    int  ended = run_again("--memory", "USM_SPILL", "file:/var/tmp", text);

    CHECK_IN("at most", text);
    CHECK(ended == 42 ||
          (PLAIN_SANITIZED && ended == 3)); /* shadow memory counts as the rest does */
}

/* How many bytes of [p, p + size), a range of its own, are in huge pages. */
static size_t huge_in(const char *p, size_t size)
{
    FILE  *f = fopen("/proc/self/smaps", "re");
    char   line[512], *end;
    bool   is_inside = false;
    size_t kib       = 0;

    while (f && fgets(line, sizeof line, f)) {
        uintptr_t at = strtoull(line, &end, 16);

        if (*end == '-')
            is_inside = at - (uintptr_t)p < size;
        else if (is_inside && strncmp(line, "AnonHugePages:", 14) == 0)
            kib += strtoull(line + 14, NULL, 10);
    }
    if (f)
        (void)fclose(f);
    return kib * KIB;
}

/* The machine may refuse them, or have none left. */
static bool has_huge_pages(void)
{
    char *all = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *p   = all + (-(uintptr_t)all & (2 * MIB - 1));
    bool  has = false;

    CHECK(all != MAP_FAILED);
    if (madvise(p, 2 * MIB, MADV_HUGEPAGE) == 0) {
        *(volatile char *)p = 1;
        has                 = huge_in(all, 4 * MIB) == 2 * MIB;
    }
    (void)munmap(all, 4 * MIB);
    return has;
}

/* The program `--huge`: blocks of 2 MiB are huge pages after they have been written, stored, and
 * loaded for an access that writes. */
static int use_huge_pages(void)
{
    char *x = usm_alloc_managed(128 * MIB);

    for (int pass = 0; x && pass < 2; pass++)
        for (size_t k = 0; k < 128 * MIB; k += 2 * MIB)
            x[k + 4 * KIB] = 1;
    if (!x)
        return 1;
    (void)fprintf(stderr, "%zu of huge pages\n", huge_in(x, 128 * MIB));
    return huge_in(x, 128 * MIB) >= 2 * MIB ? 42 : 2;
}

static void a_block_stays_a_huge_page(void)
{
    char           text[4096];
    usm__mechanism m;
    char          *page = map_pages();

    usm_free(make_managed(1)); /* skips */
    CHECK_INT(usm__mechanism_open(&m, page, 64 * KIB, true), USM_OK);
    (void)close(m.fd);
    (void)munmap(page, 64 * KIB);
    if (!m.moves || !has_huge_pages())
        return; /* blocks that are copied come in small pages */
    CHECK_INT(run_again("--huge", "USM_SPILL_BLOCK", "2M", text), 42);
    CHECK_IN("of huge pages", text);
}

/* What should not be there is found, not dropped with the page table. */
static void a_page_in_the_way_of_a_huge_one_is_kept(void)
{
    char *all   = mmap(NULL, 6 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *frame = all + (-(uintptr_t)all & (2 * MIB - 1)), *at = frame + 2 * MIB;
    usm__mechanism m;

    CHECK(all != MAP_FAILED);
    usm_free(make_managed(1)); /* skips */
    CHECK_INT(usm__mechanism_open(&m, frame, 2 * MIB, true), USM_OK);
    CHECK_INT(madvise(at, 2 * MIB, MADV_NOHUGEPAGE), 0);
    memset(frame, 7, 2 * MIB);
    at[MIB] = 5;
    CHECK_INT(usm__mechanism_watch(&m, at, 2 * MIB), 0);
    CHECK(usm__mechanism_place(&m, frame, at, 2 * MIB, false) != 0);
    CHECK(at[MIB] == 5 && frame[0] == 7 && frame[MIB] == 7);
    (void)close(m.fd);
    (void)munmap(all, 6 * MIB);
}

/* A child has none of the memory, and does not disturb the parent. */
static void a_child_does_not_have_it(void)
{
    uint64_t *x = make_managed(SIZE);
    int       status;
    pid_t     child;

    CHECK(x != NULL);
    for (size_t i = 0; i < WORDS; i++)
        x[i] = value_of(i, 3);
    child = fork();
    if (child == 0) {
        (void)signal(SIGSEGV, end_at_signal);
        if (usm_usable_size(x) != 0)
            _exit(1);
        _exit((int)*(volatile uint64_t *)x); /* 42 */
    }
    for (size_t i = 0; i < WORDS; i += 512)
        x[i]++;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 42);
    for (size_t i = 0; i < WORDS; i++)
        CHECK(x[i] == value_of(i, 3) + (i % 512 == 0));
    usm_free(x);
}

/* The program `--refused`: userfaultfd cannot be had, which a sentence says; later it can. */
static int ask_in_vain(void)
{
    static const char *const points[] = {"os.userfaultfd", "os.uffd_api"};

    for (size_t i = 0; i < 2; i++) {
        usm__fault_arm(points[i], 1, true, USM_OK);
        if (usm_alloc_managed(MIB) || usm_last_status() != USM_E_NOT_SUPPORTED ||
            !strstr(usm_last_error(), "managed memory needs"))
            return 1;
        usm__fault_disarm_all();
    }
    return usm_alloc_managed(MIB) ? 42 : 2;
}

static void a_machine_that_refuses_is_named(void)
{
    char text[4096];

    CHECK_INT(run_again("--refused", "USM_LOG", "error", text), 42);
}

static const plain_case cases[] = {
    CASE(what_is_written_is_read),
    CASE(any_order_will_do),
    CASE(what_is_only_read_is_stored_once),
    CASE(threads_see_what_they_wrote),
    CASE(ranges_come_and_go_beside_faults),
    CASE(pinned_memory_is_for_system_calls),
    CASE(pointers_know_their_block),
    CASE(calls_that_fail_are_told),
    CASE(pages_that_do_not_move_are_copied),
    CASE(pages_that_cannot_come_stay),
    CASE(what_was_swapped_out_leaves_unprotected),
    CASE(each_of_many_ranges_is_found),
    CASE(a_full_tier_ends_the_access),
    CASE(memory_stays_within_the_limit),
    CASE(a_block_stays_a_huge_page),
    CASE(a_page_in_the_way_of_a_huge_one_is_kept),
    CASE(a_child_does_not_have_it),
    CASE(a_machine_that_refuses_is_named),
    CASE(the_error_callback_hears_of_it_first),
    CASE(a_context_has_its_own),
    {NULL, NULL},
};

static const struct {
    const char *option;
    int (*run)(void);
} programs[] = {{"--full", fill_all},     {"--told", fill_and_be_told}, {"--own", use_own_engine},
                {"--memory", stay_small}, {"--huge", use_huge_pages},   {"--refused", ask_in_vain}};

int main(int argc, char **argv)
{
    bool is_huge = argc > 1 && strcmp(argv[1], "--huge") == 0;

    (void)setenv("USM_MEMORY_LIMIT", is_huge ? "host:64M" : "host:2M", 1);
    (void)setenv("USM_SPILL_BLOCK", is_huge ? "2M" : "64K", 1);
    (void)setenv("USM_SPILL_WAIT", "200", 1);
    for (size_t i = 0; argc > 1 && i < sizeof programs / sizeof *programs; i++)
        if (strcmp(argv[1], programs[i].option) == 0)
            return programs[i].run();
    return plain_main(argc, argv, cases);
}
