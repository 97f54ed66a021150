/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* base/trace*.c: what a process records is in its file, and nothing else is.  Each case is a child
 * process, because a process has one trace; what it wrote is read by profile/trace.h. */
#include "base/fault.h"
#include "base/inline/atomic.h"
#include "base/os.h"
#include "base/trace.h"
#include "base/trace_ring.h"
#include "base/trace_spill.h"
#include "plain.h"
#include "profile/trace.h"

#include <usm/buffer.h>
#include <usm/init.h>

#include <inttypes.h>
#include <signal.h>
#include <sys/stat.h>

/* Which lets no child of a process with threads start one. */
#if defined(__SANITIZE_THREAD__)
#define NO_FORK_WITH_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NO_FORK_WITH_THREADS 1
#endif
#endif

#define ADDRESS(n) ((void *)(uintptr_t)(0x100000 + (n)*64))

static char trace_path[512];

/* In a child: the library with a trace. */
static void start(const char *path, const char *ring, const char *stacks)
{
    CHECK(setenv("USM_TRACE", path, 1) == 0);
    CHECK(setenv("USM_TRACE_RING", ring, 1) == 0);
    CHECK(setenv("USM_TRACE_STACKS", stacks, 1) == 0);
    CHECK(usm_init() == USM_OK);
    usm__trace_start();
}

static const char *new_path(const char *name)
{
    (void)snprintf(trace_path, sizeof(trace_path), "%s", plain_path(name));
    return trace_path;
}

static usm__profile *open_trace(const char *path)
{
    usm__profile *t = NULL;

    if (usm__profile_open(path, &t) != USM_OK)
        printf("# %s\n", usm_last_error());
    CHECK(t != NULL);
    return t;
}

/* --- what is recorded -------------------------------------------------------- */

static void record_one_of_each(void)
{
    uint32_t pool, tag;
    uint64_t now;

    start(trace_path, "1M", "off");
    CHECK(usm__trace_on);
    pool = usm__trace_pool("slab", USM_DEVICE, "host:0");
    tag  = usm__trace_tag("solver");
    now  = usm__os_now_ns();
    usm__trace_driver(USM__TRACE_TAKE, pool, ADDRESS(0), 1 << 20, now - 5000, USM_OK);
    usm__trace_alloc(pool, tag, ADDRESS(1), 100, 128);
    usm__trace_failed(pool, 0, (size_t)1 << 40);
    usm__trace_driver(USM__TRACE_MAP, pool, ADDRESS(7), 4096, now, USM_E_NO_MEMORY);
    usm__trace_caches(pool, 4096, 1 << 20);
    usm__trace_free(pool, ADDRESS(1));
    usm__trace_driver(USM__TRACE_GIVE, pool, ADDRESS(0), 1 << 20, now, USM_OK);
    exit(0);
}

static void events_come_back_as_they_were(void)
{
    static const uint32_t types[] = {USM__EVENT_TAKE, USM__EVENT_ALLOC, USM__EVENT_FAILED,
                                     USM__EVENT_MAP,  USM__EVENT_FREE,  USM__EVENT_GIVE};
    usm__profile         *t;

    new_path("one");
    CHECK_INT(plain_child(record_one_of_each, NULL), 0);
    t = open_trace(trace_path);
    CHECK_STR(t->damage, "");
    CHECK(t->ended);
    CHECK_INT(t->lost, 0);
    CHECK_INT(t->nrecords, 6);
    for (size_t i = 0; i < 6; i++) {
        CHECK_INT(t->records[i].e.type, types[i]);
        CHECK_INT(t->records[i].e.pool, 1);
        CHECK_INT(t->records[i].thread, 1);
        CHECK(i == 0 || t->records[i].e.time_ns >= t->records[i - 1].e.time_ns);
    }
    CHECK(t->records[0].e.extra >= 5000 && t->records[0].e.extra < 4000000000u);
    CHECK_INT(t->records[1].e.address, (uintptr_t)ADDRESS(1));
    CHECK_INT(t->records[1].e.size, 100);
    CHECK_INT(t->records[1].e.usable, 128);
    CHECK_STR(t->tags[t->records[1].e.tag], "solver");
    CHECK_INT(t->records[2].e.size, (size_t)1 << 40);
    CHECK_INT(t->records[3].e.address, 0);
    CHECK_INT(t->ncaches, 1);
    CHECK_INT(t->caches[0].room, 4096);
    CHECK_INT(t->caches[0].limit, 1 << 20);
    CHECK_INT(t->caches[0].pool, 1);
    CHECK_STR(t->pools[0].name, "slab");
    CHECK_STR(t->pools[0].device, "host:0");
    CHECK_INT(t->pools[0].kind, USM_DEVICE);
    CHECK_IN("test_trace", t->header.command);
    usm__profile_close(t);
}

static void record_spilling(void)
{
    uint32_t space, tier;

    CHECK_INT(usm__trace_space("early", 1, 1), 0); /* nothing is recorded yet */
    usm__trace_spill(&(usm__trace_spill_event){.kind = USM__SPILL_FETCH});
    start(trace_path, "1M", "off");
    space = usm__trace_space("a buffer", 1 << 20, 64);
    tier  = usm__trace_tier("/scratch");
    CHECK(space > 0 && tier > 0 && usm__trace_is_on());
    for (int kind = 0; kind < USM__SPILL_KINDS; kind++)
        usm__trace_spill(&(usm__trace_spill_event){.kind  = (usm__trace_spill_kind)kind,
                                                   .space = space,
                                                   .tier  = tier,
                                                   .mode  = USM_READ,
                                                   .block = UINT32_MAX,
                                                   .bytes = (uint64_t)kind << 33,
                                                   .ns    = 1234567890123});
    exit(0);
}

static void spilling_comes_back_as_it_was(void)
{
    usm__profile *t;

    new_path("spill");
    CHECK_INT(plain_child(record_spilling, NULL), 0);
    t = open_trace(trace_path);
    CHECK_STR(t->damage, "");
    CHECK_INT(t->nrecords, 0);
    CHECK_INT(t->nspills, USM__SPILL_KINDS);
    for (size_t i = 0; i < t->nspills; i++) {
        const usm__profile_spill_record *r = &t->spills[i];

        CHECK_INT(r->kind, i);
        CHECK_INT(r->block, UINT32_MAX);
        CHECK_INT(r->bytes, (uint64_t)i << 33);
        CHECK_INT(r->mode, USM_READ);
        CHECK(r->ns <= 1234567890123 && r->ns > 1234567890123 - 100000);
        CHECK_STR(t->spaces[r->space - 1].name, "a buffer");
        CHECK_STR(t->tiers[r->tier - 1], "/scratch");
    }
    CHECK_INT(t->spaces[0].block_size, 1 << 20);
    CHECK_INT(t->spaces[0].blocks, 64);
    usm__profile_close(t);
}

static void slack_is_kept_within_a_five_hundredth(void)
{
    for (uint64_t slack = 0; slack < (uint64_t)1 << 41; slack += 1 + slack / 77) {
        uint64_t back = usm__slack_unpack(usm__slack_pack(slack));

        CHECK(back >= slack && back - slack <= slack / 512);
    }
    for (uint64_t slack = 0; slack < 2048; slack++)
        CHECK_INT(usm__slack_unpack(usm__slack_pack(slack)), slack);
    CHECK(usm__slack_unpack(usm__slack_pack(UINT64_MAX)) >= (uint64_t)1 << 41);
}

/* RFC 1950, word for word. */
static uint32_t check_byte_by_byte(const unsigned char *p, size_t n)
{
    uint32_t a = 1, b = 0;

    for (size_t i = 0; i < n; i++) {
        a = (a + p[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

static void chunks_are_checked_by_adler_32(void)
{
    static unsigned char bytes[20000];

    for (unsigned fill = 0; fill < 2; fill++) {
        for (size_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = (unsigned char)(fill == 0 ? 255 : i * i >> 3);
        for (size_t n = 0; n < 100; n++)
            CHECK_INT(usm__trace_check(bytes + n, n), check_byte_by_byte(bytes + n, n));
        for (size_t n = 5545; n < sizeof(bytes); n += 1007)
            CHECK_INT(usm__trace_check(bytes, n), check_byte_by_byte(bytes, n));
    }
}

/* --- threads ------------------------------------------------------------------ */

enum { THREADS = 4, EACH = 20000 };

static void *record_in_order(void *arg)
{
    uint32_t who = (uint32_t)(uintptr_t)arg;

    for (uint32_t i = 0; i < EACH; i++)
        usm__trace_alloc(1, 0, ADDRESS(i), ((size_t)who << 32) | i, 0);
    return NULL;
}

static void record_on_threads(void)
{
    pthread_t threads[THREADS];

    start(trace_path, "4M", "off");
    (void)usm__trace_pool("slab", USM_DEVICE, "host:0");
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, record_in_order, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    exit(0);
}

static void threads_keep_their_order_and_lose_nothing_with_room(void)
{
    uint32_t      next[THREADS + 1] = {0}, thread[THREADS + 1] = {0};
    usm__profile *t;

    new_path("threads");
    CHECK_INT(plain_child(record_on_threads, NULL), 0);
    t = open_trace(trace_path);
    CHECK_INT(t->lost, 0);
    CHECK_INT(t->nrecords, THREADS * EACH);
    for (size_t i = 0; i < t->nrecords; i++) {
        uint32_t who = (uint32_t)(t->records[i].e.size >> 32);

        CHECK(who >= 1 && who <= THREADS);
        CHECK_INT((uint32_t)t->records[i].e.size, next[who]++);
        if (thread[who] == 0)
            thread[who] = t->records[i].thread;
        CHECK_INT(t->records[i].thread, thread[who]);
    }
    usm__profile_close(t);
}

static void record_too_much(void)
{
    pthread_t threads[THREADS];

    start(trace_path, "2K", "off");
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, record_in_order, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    exit(0);
}

static void what_finds_no_room_is_counted(void)
{
    usm__profile *t;

    new_path("overload");
    CHECK_INT(plain_child(record_too_much, NULL), 0);
    t = open_trace(trace_path);
    CHECK(t->lost > 0);
    CHECK(t->nrecords > 0);
    CHECK_INT(t->nrecords + t->lost, THREADS * EACH);
    usm__profile_close(t);
}

static void record_one_after_the_other(void)
{
    pthread_t thread;

    start(trace_path, "2M", "off");
    for (uintptr_t i = 1; i <= 20; i++) {
        CHECK(pthread_create(&thread, NULL, record_in_order, (void *)i) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        usm__trace_flush(); /* a ring that is empty is the next thread's */
    }
    CHECK(usm_load_relaxed(&usm__traced.rings) != NULL);
    CHECK(usm_load_relaxed(&usm_load_relaxed(&usm__traced.rings)->next) == NULL);
    exit(0);
}

static void a_ring_goes_from_thread_to_thread(void)
{
    usm__profile *t;

    new_path("rings");
    CHECK_INT(plain_child(record_one_after_the_other, NULL), 0);
    t = open_trace(trace_path);
    CHECK_INT(t->nrecords + t->lost, 20 * EACH);
    CHECK_INT(t->records[t->nrecords - 1].thread, 20);
    usm__profile_close(t);
}

/* --- ends --------------------------------------------------------------------- */

static off_t size_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? st.st_size : 0;
}

static void record_until_killed(void)
{
    start(trace_path, "1M", "off");
    usm__trace_alloc(0, 0, ADDRESS(1), 64, 64);
    /* The writer comes by itself; the alarm of plain_child() is for when it does not. */
    while (size_of(trace_path) <= (off_t)sizeof(usm__trace_header))
        usm__os_sleep_ns(1000000);
    (void)kill(getpid(), SIGKILL);
}

static void a_killed_process_leaves_a_file_that_can_be_read(void)
{
    usm__profile *t;
    int           status;

    new_path("killed");
    status = plain_child(record_until_killed, NULL);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    t = open_trace(trace_path);
    CHECK_STR(t->damage, "");
    CHECK(!t->ended);
    CHECK_INT(t->nrecords, 1);
    usm__profile_close(t);
}

static bool has_map(const char *path)
{
    static char bytes[1 << 20];
    int         fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t     n  = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);

    (void)close(fd);
    return n > 0 && memmem(bytes, (size_t)n, " r-xp ", 6) != NULL;
}

static void record_a_stack_until_killed(void)
{
    start(trace_path, "1M", "all");
    usm__trace_alloc(0, 0, ADDRESS(1), 64, 64);
    while (!has_map(trace_path)) /* as above */
        usm__os_sleep_ns(1000000);
    (void)kill(getpid(), SIGKILL);
}

/* The map of code, by which readers name the addresses of stacks, comes with the stacks. */
static void a_killed_process_leaves_the_names_of_its_call_sites(void)
{
    int status;

    new_path("killed");
    status = plain_child(record_a_stack_until_killed, NULL);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void record_on_a_full_disk(void)
{
    start(trace_path, "1M", "off");
    usm__trace_alloc(0, 0, ADDRESS(1), 64, 64);
    usm__trace_flush();
    CHECK(usm__fault_arm("os.write", 1, true, USM_OK));
    for (int i = 0; i < 3; i++) {
        usm__trace_alloc(0, 0, ADDRESS(2), 64, 64);
        usm__trace_flush();
    }
    CHECK_INT(usm__trace_on, 0);
    exit(0);
}

static void a_full_disk_is_told_once_and_ends_the_trace(void)
{
    char          text[1024];
    const char   *said, *errors = plain_path("full.err");
    usm__profile *t;

    new_path("full");
    CHECK_INT(plain_child(record_on_a_full_disk, errors), 0);
    said = strstr(plain_read(errors, text, sizeof(text)), "No space left");
    CHECK(said != NULL);
    CHECK(strstr(said + 1, "No space left") == NULL);
    t = open_trace(trace_path);
    CHECK_STR(t->damage, "");
    CHECK_INT(t->nrecords, 1);
    usm__profile_close(t);
}

/* --- fork ----------------------------------------------------------------------- */

/* The leak checker takes all locks of its allocator.  In a child of a process with threads one may
 * be held for ever by a thread that is not there (seen with gcc 12's in one run of thirty). */
static bool is_child_of_threads;

/* Called by the sanitizer's runtime, in programs that define it. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);

int __lsan_is_turned_off(void)
{
    return is_child_of_threads;
}

/* Parent and child both record, the parent before and after. */
static void record_and_fork(const char *path)
{
    int   status = 0;
    pid_t pid;

    start(path, "1M", "off");
    (void)usm__trace_pool("slab", USM_DEVICE, "host:0");
    usm__trace_alloc(1, 0, ADDRESS(1), 1, 1);
    pid = fork();
    CHECK(pid >= 0);
    usm__trace_alloc(1, 0, ADDRESS(2), pid == 0 ? 1000 : 2, 0);
    is_child_of_threads = pid == 0;
    if (pid == 0)
        exit(0); /* with the handlers: they must not write the parent's */
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    usm__trace_alloc(1, 0, ADDRESS(3), 3, 3);
    exit(0);
}

static void record_and_fork_here(void)
{
    record_and_fork(trace_path);
}

static void check_sizes(const usm__profile *t, size_t n, const uint64_t *sizes)
{
    CHECK_STR(t->damage, "");
    CHECK(t->ended);
    CHECK_INT(t->nrecords, n);
    for (size_t i = 0; i < n; i++)
        CHECK_INT(t->records[i].e.size, sizes[i]);
}

static void a_forked_child_leaves_the_parents_file_alone(void)
{
    usm__profile *t;

    new_path("fork");
    CHECK_INT(plain_child(record_and_fork_here, NULL), 0);
    t = open_trace(trace_path);
    check_sizes(t, 3, (const uint64_t[]){1, 2, 3});
    usm__profile_close(t);
}

#ifndef NO_FORK_WITH_THREADS
static void a_forked_child_has_a_file_of_its_own_with_its_process_in_the_name(void)
{
    char          pattern[600], command[1300], list[2048];
    char         *parent, *child, *save = NULL;
    usm__profile *t, *other;

    new_path("own.%p");
    CHECK_INT(plain_child(record_and_fork_here, NULL), 0);
    (void)snprintf(pattern, sizeof(pattern), "%s", trace_path);
    (void)snprintf(command, sizeof(command), "ls %.*s* > %s", (int)strlen(pattern) - 2, pattern,
                   plain_path("list"));
    CHECK_INT(system(command), 0);
    (void)plain_read(plain_path("list"), list, sizeof(list));
    parent = strtok_r(list, "\n", &save);
    child  = strtok_r(NULL, "\n", &save);
    CHECK(child != NULL && strtok_r(NULL, "\n", &save) == NULL);
    t     = open_trace(parent);
    other = open_trace(child);
    if (t->nrecords < other->nrecords) { /* numbers of processes may wrap around */
        usm__profile *swap = t;

        t     = other;
        other = swap;
    }
    check_sizes(t, 3, (const uint64_t[]){1, 2, 3});
    check_sizes(other, 1, (const uint64_t[]){1000});
    CHECK_STR(other->pools[0].name, "slab"); /* defined before the fork */
    CHECK(t->header.pid != other->header.pid);
    usm__profile_close(t);
    usm__profile_close(other);
}
#endif

/* --- names and refusals ------------------------------------------------------------ */

static void start_only(void)
{
    start(trace_path, "1M", "off");
    exit(usm__trace_on ? 0 : 3);
}

static void refused(const char *why)
{
    char        text[1024];
    const char *errors = plain_path("refused.err");
    int         status = plain_child(start_only, errors);

    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    CHECK_IN(why, plain_read(errors, text, sizeof(text)));
}

static void files_that_are_no_traces_are_left_alone(void)
{
    char text[64];

    plain_write(new_path("letter"), "Dear reader");
    refused("is not a trace");
    CHECK_STR(plain_read(trace_path, text, sizeof(text)), "Dear reader");
    (void)snprintf(trace_path, sizeof(trace_path), "/dev/null");
    refused("not a regular file");
    new_path("no/such/folder");
    refused("No such file");
}

static void record_while_another_does(void)
{
    pid_t pid;
    int   status = 0;

    start(trace_path, "1M", "off");
    pid = fork(); /* which is as another program here: it has the library anew */
    if (pid == 0) {
        (void)execl("/proc/self/exe", "test_trace", "--start-only", (char *)NULL);
        _exit(1);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 3);
    usm__trace_alloc(0, 0, ADDRESS(1), 5, 5);
    exit(0);
}

static void two_programs_do_not_write_one_file(void)
{
    char          text[1024];
    const char   *errors = plain_path("busy.err");
    usm__profile *t;

    new_path("busy");
    CHECK_INT(plain_child(record_while_another_does, errors), 0);
    CHECK_IN("another process is recording into it", plain_read(errors, text, sizeof(text)));
    t = open_trace(trace_path);
    check_sizes(t, 1, (const uint64_t[]){5});
    usm__profile_close(t);
}

static void names_say_host_rank_and_process(void)
{
    char host[65] = "", name[256], expected[256], why[256];

    CHECK(gethostname(host, sizeof(host) - 1) == 0);
    CHECK(setenv("PMI_RANK", "17", 1) == 0);
    CHECK(usm__trace_expand("a%%b/%h.%r.%p", name, sizeof(name)));
    (void)snprintf(expected, sizeof(expected), "a%%b/%s.17.%d", host, (int)getpid());
    CHECK_STR(name, expected);
    CHECK(unsetenv("PMI_RANK") == 0);
    CHECK(usm__trace_expand("%r", name, sizeof(name)));
    CHECK_STR(name, "0");
    CHECK(!usm__trace_expand("%h%h", name, 3));
    CHECK(usm__trace_check_name("x.%h.%r.%p.%%", why, sizeof(why)));
    CHECK(!usm__trace_check_name("x.%q", why, sizeof(why)));
    CHECK(!usm__trace_check_name("x.%", why, sizeof(why)));
    CHECK(usm__trace_check_stacks("64K", why, sizeof(why)));
    CHECK(!usm__trace_check_stacks("some", why, sizeof(why)));
}

/* --- stacks -------------------------------------------------------------------------- */

static void record_with_stacks(void)
{
    start(trace_path, "1M", "all");
    for (volatile int i = 0; i < 10; i++) /* volatile: unrolled it would be ten call sites */
        usm__trace_alloc(0, 0, ADDRESS(i), 64, 64);
    usm__trace_free(0, ADDRESS(1));
    exit(0);
}

static void a_call_site_is_one_stack(void)
{
    usm__profile *t;

    new_path("stacks");
    CHECK_INT(plain_child(record_with_stacks, NULL), 0);
    t = open_trace(trace_path);
    CHECK_INT(t->nstacks, 1);
    CHECK(t->stacks[0].depth >= 3);
    CHECK_INT(t->nrecords, 11);
    for (size_t i = 0; i < 10; i++)
        CHECK_INT(t->records[i].e.extra, 1);
    CHECK_INT(t->records[10].e.extra, 0);
    CHECK(t->sources[0].maps != NULL);
    CHECK_IN("test_trace", t->sources[0].maps);
    usm__profile_close(t);
}

static void record_with_sampled_stacks(void)
{
    start(trace_path, "4M", "64K");
    for (int i = 0; i < 50000; i++)
        usm__trace_alloc(0, 0, ADDRESS(i), 4096, 4096);
    exit(0);
}

/* 3125 samples are expected; the deviation is 56. */
static void stacks_are_sampled_by_bytes(void)
{
    usm__profile *t;
    size_t        n = 0;

    new_path("sampled");
    CHECK_INT(plain_child(record_with_sampled_stacks, NULL), 0);
    t = open_trace(trace_path);
    CHECK_INT(t->header.stack_bytes, 65536);
    for (size_t i = 0; i < t->nrecords; i++)
        n += t->records[i].e.extra != 0;
    CHECK_INT(t->lost, 0);
    CHECK(n > 3125 - 500 && n < 3125 + 500);
    usm__profile_close(t);
}

static const plain_case cases[] = {
    CASE(events_come_back_as_they_were),
    CASE(spilling_comes_back_as_it_was),
    CASE(slack_is_kept_within_a_five_hundredth),
    CASE(chunks_are_checked_by_adler_32),
    CASE(threads_keep_their_order_and_lose_nothing_with_room),
    CASE(what_finds_no_room_is_counted),
    CASE(a_ring_goes_from_thread_to_thread),
    CASE(a_killed_process_leaves_a_file_that_can_be_read),
    CASE(a_killed_process_leaves_the_names_of_its_call_sites),
    CASE(a_full_disk_is_told_once_and_ends_the_trace),
    CASE(a_forked_child_leaves_the_parents_file_alone),
#ifndef NO_FORK_WITH_THREADS
    CASE(a_forked_child_has_a_file_of_its_own_with_its_process_in_the_name),
#endif
    CASE(files_that_are_no_traces_are_left_alone),
    CASE(two_programs_do_not_write_one_file),
    CASE(names_say_host_rank_and_process),
    CASE(a_call_site_is_one_stack),
    CASE(stacks_are_sampled_by_bytes),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--start-only") == 0) {
        usm__trace_start();
        return usm__trace_on ? 0 : 3;
    }
    return plain_main(argc, argv, cases);
}
