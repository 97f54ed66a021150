/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Class "lifecycle": start and end of the library, fork, exit. */
#include "common.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

TestAlone(lifecycle, init_and_shutdown_are_counted)
{
    CHECK_OK(usm_init());
    CHECK_OK(usm_init());
    void *p = usm_alloc_device(100);
    CHECK(p, "%s", usm_last_error());
    usm_shutdown();
    CHECK(usm_get_pointer_type(p, NULL) == USM_DEVICE, "gone after the first of two");
    usm_free(p);
    usm_shutdown();
    CHECK_NO_BLOCK(usm_alloc_device(8), USM_E_SHUTDOWN);
}

TestAlone(lifecycle, without_init_the_first_use_starts_and_shutdown_ends_it)
{
    void *p = usm_alloc_device(100);

    CHECK(p, "%s", usm_last_error());
    usm_shutdown();
    CHECK_NO_BLOCK(usm_alloc_device(8), USM_E_SHUTDOWN);
}

TestAlone(lifecycle, after_the_last_shutdown_the_default_forms_say_so)
{
    usm_queue   *q   = usm_default_queue();
    usm_context *ctx = usm_default_context();
    char         c   = 0;

    CHECK(q && ctx, "%s", usm_last_error());
    usm_shutdown();
    CHECK(!usm_default_queue(), "a default queue");
    CHECK_IS(usm_last_status(), USM_E_SHUTDOWN);
    CHECK(story_names("usm_init"), "the remedy is not named: %s", usm_last_error());
    CHECK(!usm_default_context(), "a default context");
    CHECK_IS(usm_last_status(), USM_E_SHUTDOWN);
    CHECK_NO_BLOCK(usm_alloc(8, USM_SHARED), USM_E_SHUTDOWN);
    CHECK_NO_BLOCK(usm_calloc(1, 8, USM_SHARED), USM_E_SHUTDOWN);
    CHECK_NO_BLOCK(usm_aligned_alloc(64, 8, USM_SHARED), USM_E_SHUTDOWN);
    CHECK_NO_BLOCK(usm_realloc(NULL, 8, USM_SHARED), USM_E_SHUTDOWN);
    usm_status s = usm_queue_wait(q);
    CHECK(s == USM_E_INVALID_HANDLE || s == USM_E_SHUTDOWN, "%s", usm_status_name(s));
    s = usm_memset(q, &c, 0, 1, 0, NULL, NULL);
    CHECK(s == USM_E_INVALID_HANDLE || s == USM_E_SHUTDOWN, "%s", usm_status_name(s));
}

TestAlone(lifecycle, late_frees_are_harmless)
{
    rig   r = rig_first();
    void *p[30], *own;

    for (int i = 0; i < 30; i++) {
        usm_kind k = (usm_kind)(i % 3 + 1);
        p[i]       = usm_alloc((size_t)i * 100, has(&r, need_kind(k)) ? k : USM_DEVICE);
        CHECK(p[i], "%s", usm_last_error());
    }
    own = mem(&r, USM_DEVICE, 100);
    usm_shutdown();
    for (int i = 0; i < 30; i++)
        usm_free(p[i]);
    usm_free(own);
    usm_free(NULL);
    rig_end(&r);
}

TestAlone(lifecycle, init_after_shutdown_starts_anew)
{
    for (int i = 0; i < 5; i++) {
        CHECK_OK(usm_init());
        void *p = usm_alloc_device(1000);
        CHECK(p, "round %d: %s", i, usm_last_error());
        CHECK_OK(usm_queue_wait(usm_default_queue()));
        usm_shutdown(); /* p goes with it */
        CHECK(usm_get_pointer_type(p, NULL) == USM_UNKNOWN, "round %d: it lives on", i);
    }
}

TestAlone(lifecycle, more_shutdowns_than_inits_are_harmless)
{
    usm_shutdown();
    usm_shutdown();
    CHECK_OK(usm_init());
    usm_shutdown();
    usm_shutdown();
    CHECK_OK(usm_init());
    void *p = usm_alloc_device(8);
    CHECK(p, "%s", usm_last_error());
    usm_free(p);
    usm_shutdown();
}

/* A plugin that begins and ends libusm for itself, in a program that never did. */
TestAlone(lifecycle, a_pair_of_calls_leaves_what_the_first_use_started)
{
    char *p = usm_alloc_device(100);

    CHECK(p, "%s", usm_last_error());
    CHECK_OK(usm_init());
    usm_shutdown();
    CHECK(usm_get_pointer_type(p, NULL) == USM_DEVICE, "the program's memory went");
    usm_free(p);
    usm_shutdown();
    CHECK_NO_BLOCK(usm_alloc_device(8), USM_E_SHUTDOWN);
}

/* Lives of the library that began, threads that have seen the end of one. */
static atomic_uint lives, seen;
static atomic_int  failure;

enum { ALLOCATING = 3, LIVES = 40 };

static void nap(void)
{
    (void)nanosleep(&(struct timespec){0, 100000}, NULL);
}

/* Until the library ends. */
static void allocate_for_a_life(unsigned seed)
{
    static const size_t sizes[] = {1, 100, 5000, 70000, 300000};
    void               *kept[8] = {NULL};

    for (unsigned i = seed;; i += 7) {
        void **p = &kept[i % 8];

        usm_free(*p);
        *p = usm_alloc(sizes[i % 5], USM_DEVICE);
        if (!*p)
            break;
    }
    if (usm_last_status() != USM_E_SHUTDOWN)
        atomic_store(&failure, usm_last_status());
    for (int i = 0; i < 8; i++)
        usm_free(kept[i]); /* it went: accepted */
}

static void *allocate_until_the_end(void *seed)
{
    for (unsigned life = 1; life <= LIVES; life++) {
        while (atomic_load(&lives) < life)
            nap();
        allocate_for_a_life((unsigned)(uintptr_t)seed);
        (void)atomic_fetch_add(&seen, 1);
    }
    return NULL;
}

/* None of them is the last to use what the others end.  A block of one life is not freed in the
 * next, where its address may be another's. */
TestAlone(lifecycle, threads_allocate_and_free_beside_the_end)
{
    pthread_t threads[ALLOCATING];

    for (uintptr_t i = 0; i < ALLOCATING; i++)
        CHECK(pthread_create(&threads[i], NULL, allocate_until_the_end, (void *)i) == 0, "%s",
              "no thread");
    for (unsigned life = 1; life <= LIVES; life++) {
        if (life == 1)
            atomic_store(&lives, life); /* whose use is the first? */
        CHECK_OK(usm_init());
        atomic_store(&lives, life);
        for (int i = 0; i < 10; i++)
            nap();
        usm_shutdown();
        usm_shutdown(); /* where a thread's use was the first */
        while (atomic_load(&seen) < ALLOCATING * life)
            nap();
    }
    for (int i = 0; i < ALLOCATING; i++)
        (void)pthread_join(threads[i], NULL);
    CHECK(atomic_load(&failure) == USM_OK, "an allocation failed for another reason: %s",
          usm_status_name((usm_status)atomic_load(&failure)));
}

static void *first_use(void *arg)
{
    (void)arg;
    (void)pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL);
    usm_free(usm_alloc_device(10));
    for (;;)
        pthread_testcancel();
    return NULL;
}

TestAlone(lifecycle, a_thread_that_is_cancelled_in_its_first_use_leaves_no_lock)
{
    pthread_t thread;
    void     *p;

    CHECK(pthread_create(&thread, NULL, first_use, NULL) == 0, "%s", "no thread");
    (void)pthread_cancel(thread);
    (void)pthread_join(thread, NULL);
    p = usm_alloc_device(100);
    CHECK(p, "%s", usm_last_error());
    usm_free(p);
}

TestAlone(lifecycle, own_contexts_outlive_the_shutdown)
{
    EACH_DEVICE (r) {
        char *p = mem(&r, USM_DEVICE, 100);
        CHECK(usm_alloc_device(10), "%s", usm_last_error());
        usm_shutdown();
        CHECK(usm_get_pointer_type(p, r.ctx) == USM_DEVICE, "%s: its memory went", r.name);
        CHECK_OK(usm_queue_barrier(r.q, 0, NULL, NULL));
        CHECK_OK(usm_queue_wait(r.q));
        void *more = usm_malloc_device(100, r.q);
        CHECK(more, "%s: %s", r.name, usm_last_error());
        usm_free(more);
        CHECK_OK(usm_free_ctx(p, r.ctx));
        CHECK_OK(usm_init());
    }
}

/* --- fork ------------------------------------------------------------------------------------- */

/* Runs `body` in a forked child that must end by itself; its result is the exit code. */
static void in_child(int (*body)(void *arg), void *arg, const char *what)
{
    int   status = 0;
    pid_t child;

    fflush(NULL);
    child = fork();
    CHECK(child >= 0, "no process");
    if (child == 0) {
        alarm(60); /* hundreds of contexts of a real driver, on a machine that is busy */
        _exit(body(arg));
    }
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    CHECK(!WIFSIGNALED(status), "%s: the child died by signal %d", what, WTERMSIG(status));
    CHECK(WEXITSTATUS(status) == 0, "%s: step %d failed in the child", what, WEXITSTATUS(status));
}

typedef struct inherited {
    rig   r;
    bool  is_host;
    void *p[4]; /* by kind */
} inherited;

static bool is_host_backend(const rig *r)
{
    usm_device_info info = USM_DEVICE_INFO_INIT;

    CHECK_OK(usm_device_get_info(r->dev, &info));
    return !strcmp(info.backend, "host");
}

static inherited inherit(rig r)
{
    inherited i = {.r = r, .is_host = is_host_backend(&r)};

    EACH_KIND (k)
        if (has(&r, need_kind(k)))
            i.p[k] = mem(&r, k, 5000);
    return i;
}

static int host_pools_go_on(void *arg)
{
    inherited *i = arg;

    for (int k = USM_HOST; k <= USM_SHARED; k++) {
        void *p = usm_malloc(3000, i->r.q, (usm_kind)k);
        if (!p)
            return 10 + k;
        if (k != USM_DEVICE)
            memset(p, k, 3000);
        if (usm_free_ctx(p, i->r.ctx))
            return 20 + k;
        if (usm_free_ctx(i->p[k], i->r.ctx))
            return 30 + k;
    }
    return 0;
}

TestAlone(lifecycle, in_a_forked_child_the_hosts_pools_go_on)
{
    EACH_DEVICE (r) {
        inherited   i     = inherit(r);
        const char *guard = "";
        CHECK_OK(usm_config_get("host_guard_device", &guard, NULL));
        if (!i.is_host || strcmp(guard, "0")) {
            not_offered("%s", i.is_host ? "guarded memory is shared with the parent"
                                        : "a driver's memory");
            continue;
        }
        tried();
        in_child(host_pools_go_on, &i, r.name);
        EACH_KIND (k)
            CHECK_OK(usm_free_ctx(i.p[k], r.ctx)); /* the child's free was the child's */
    }
}

static int device_pools_are_inert(void *arg)
{
    inherited *i = arg;

    for (int k = USM_HOST; k <= USM_SHARED; k++) {
        if (!i->p[k])
            continue;
        if (usm_malloc(3000, i->r.q, (usm_kind)k))
            return 10 + k;
        if (usm_last_status() != USM_E_FORKED)
            return 20 + k;
        usm_free(i->p[k]); /* no-ops */
        if (usm_free_ctx(i->p[k], NULL) && usm_last_status() != USM_E_FORKED)
            return 30 + k;
    }
    return 0;
}

TestAlone(lifecycle, in_a_forked_child_the_devices_pools_are_inert)
{
    EACH_DEVICE (r) {
        inherited i = inherit(r);
        if (i.is_host) {
            not_offered("%s: no driver's memory", r.name);
            continue;
        }
        tried();
        in_child(device_pools_are_inert, &i, r.name);
        EACH_KIND (k)
            if (i.p[k])
                CHECK_OK(usm_free_ctx(i.p[k], r.ctx));
    }
}

static int queues_are_refused(void *arg)
{
    inherited *i  = arg;
    usm_event *ev = NULL;
    char       c  = 0;

    if (usm_queue_barrier(i->r.q, 0, NULL, &ev) != USM_E_FORKED)
        return 1;
    if (usm_memset(i->r.q, &c, 0, 1, 0, NULL, NULL) != USM_E_FORKED)
        return 2;
    if (usm_queue_wait(i->r.q) != USM_E_FORKED)
        return 3;
    usm_queue_destroy(i->r.q);
    usm_context_destroy(i->r.ctx);
    usm_shutdown();
    return 0;
}

TestAlone(lifecycle, in_a_forked_child_queues_are_refused_and_ends_are_harmless)
{
    EACH_DEVICE (r) {
        inherited i = inherit(r);
        in_child(queues_are_refused, &i, r.name);
        CHECK_OK(usm_queue_barrier(r.q, 0, NULL, NULL)); /* the parent goes on */
        CHECK_OK(usm_queue_wait(r.q));
    }
}

/* A worker may still be putting the command away.  Nothing of libusm minds a fork then, but
 * LeakSanitizer does, in the child: it calls what only that thread knew of a leak, or waits for a
 * lock that the thread held. */
static void settle(void)
{
#if defined(__SANITIZE_ADDRESS__)
    nanosleep(&(struct timespec){0, 100000000}, NULL);
#endif
}

static int exit_quietly(void *arg)
{
    (void)arg;
    exit(0); /* with destructors and atexit handlers */
}

TestAlone(lifecycle, a_forked_child_exits_quietly)
{
    EACH_DEVICE (r) {
        inherited i = inherit(r);
        CHECK_OK(usm_queue_barrier(r.q, 0, NULL, NULL));
        /* With a command in flight Intel's runtime aborts in the child's destructors. */
        CHECK_OK(usm_queue_wait(r.q));
        settle();
        in_child(exit_quietly, &i, r.name);
    }
}

static int use_afresh(void *arg)
{
    (void)arg;
    usm_device *list[8];
    size_t      n = 0;

    if (usm_get_devices(list, 8, &n) || n == 0)
        return 1;
    for (size_t i = 0; i < n && i < 8; i++) {
        usm_context_desc desc = USM_CONTEXT_DESC_INIT;
        usm_context     *ctx  = NULL;
        desc.ndevices         = 1;
        desc.devices          = &list[i];
        if (usm_context_create(&desc, &ctx))
            return 2;
        if (!usm_malloc_ctx(100, NULL, ctx, USM_DEVICE))
            return 3;
        usm_context_destroy(ctx);
    }
    return 0;
}

TestAlone(lifecycle, a_child_forked_before_the_first_use_has_all_of_the_library)
{
    in_child(use_afresh, NULL, "afresh");
    EACH_DEVICE (r)
        CHECK_OK(usm_queue_wait(r.q));
}

/* --- exit ------------------------------------------------------------------------------------- */

static usm_status sleep_long(void *user)
{
    (void)user;
    sleep(100);
    return USM_OK;
}

static int exit_while_busy(void *arg)
{
    rig        r    = rig_first();
    usm_event *gate = gate_new(&r);

    (void)arg;
    (void)!usm_host_task(r.q, sleep_long, NULL, 0, NULL, NULL);
    (void)!usm_queue_barrier(usm_default_queue(), 1, &gate, NULL);
    exit(0);
}

TestAlone(lifecycle, exit_does_not_hang_while_queues_are_busy)
{
    in_child(exit_while_busy, NULL, "exit"); /* forked before the first use: the child's own */
}

/* On a driver without its destructors: Intel's race with its own threads at exit, and abort
 * now and then ("pure virtual method called"), whoever uses them. */
static void leave(bool is_host)
{
    if (is_host)
        exit(0);
    _exit(0);
}

static bool is_on_host(void)
{
    usm_device_info info = USM_DEVICE_INFO_INIT;
    usm_device     *dev  = NULL;
    size_t          n    = 0;

    return usm_get_devices(&dev, 1, &n) == USM_OK && usm_device_get_info(dev, &info) == USM_OK &&
           !strcmp(info.backend, "host");
}

static int shutdown_while_busy(void *arg)
{
    usm_queue *q       = usm_default_queue();
    char      *p       = usm_alloc_device(1 << 20);
    bool       is_host = is_on_host();

    (void)arg;
    if (!q || !p)
        return 1;
    for (int i = 0; i < 20; i++)
        if (usm_memset(q, p, i, 1 << 20, 0, NULL, NULL) && usm_last_status() != USM_E_NO_DATA_MOVED)
            return 2;
    usm_shutdown();
    leave(is_host);
    return 0;
}

/* The last command ends the default context on a thread of the library, while frees come late. */
static int free_after_a_busy_shutdown(void *arg)
{
    bool is_host = is_on_host();

    (void)arg;
    for (int i = 0; i < 500; i++) {
        usm_queue *q = usm_init() == USM_OK ? usm_default_queue() : NULL;
        char      *p = usm_alloc_device(1000), *other = usm_alloc_device(1000);

        if (!q || !p || !other)
            return 1;
        if (usm_memset(q, p, i, 1000, 0, NULL, NULL) && usm_last_status() != USM_E_NO_DATA_MOVED)
            return 2;
        usm_shutdown();
        (void)usm_get_pointer_type(other, NULL);
        usm_free(p);
        usm_free(other);
    }
    leave(is_host);
    return 0;
}

/* No driver is started in this process: one that has threads does not survive the fork. */
static bool commands_can_be_tried(void)
{
    if (commands_crash())
        not_offered("the driver crashes at the first command without its GPU");
    else
        tried();
    return !commands_crash();
}

TestAlone(lifecycle, frees_after_a_shutdown_with_work_in_flight_are_harmless)
{
    if (commands_can_be_tried())
        in_child(free_after_a_busy_shutdown, NULL, "frees after shutdown");
}

TestAlone(lifecycle, shutdown_with_work_in_flight_is_harmless)
{
    if (commands_can_be_tried())
        in_child(shutdown_while_busy, NULL, "shutdown");
}

static void *come_and_go(void *stop)
{
    while (!atomic_load((atomic_int *)stop)) {
        usm_context *ctx = NULL;
        if (usm_context_create(NULL, &ctx))
            return NULL;
        usm_free(usm_malloc_ctx(100, NULL, ctx, USM_DEVICE));
        usm_context_destroy(ctx);
    }
    return NULL;
}

/* The default objects are made under a lock of the library, and with the backend's. */
static void *default_comes_and_goes(void *stop)
{
    while (!atomic_load((atomic_int *)stop)) {
        if (usm_init())
            return NULL;
        (void)usm_default_queue();
        usm_shutdown();
    }
    return NULL;
}

/* A fork holds the locks of all contexts and pools for a moment, whoever makes and ends them. */
TestAlone(lifecycle, forks_while_contexts_come_and_go_are_harmless)
{
#if UNDER_SANITIZER
    not_offered("the sanitizer's runtime does not survive a fork while threads allocate");
    return;
#endif
    rig        r       = rig_first();
    bool       is_host = !strncmp(r.name, "host", 4); /* drivers do not work in a child */
    atomic_int stop    = 0;
    pthread_t  t[3];

    for (int i = 0; i < 3; i++)
        CHECK(!pthread_create(&t[i], NULL, i ? come_and_go : default_comes_and_goes, &stop),
              "no thread");
    for (int i = 0; i < 200; i++) {
        int   status = 0;
        pid_t child  = fork();
        if (child == 0) {
            usm_context *ctx = NULL;
            alarm(60);
            usm_free(usm_malloc_ctx(100, NULL, r.ctx, USM_DEVICE));
            if (is_host && usm_context_create(NULL, &ctx))
                _exit(1);
            usm_context_destroy(ctx);
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child, "no child");
        CHECK(status == 0, "child %d ended with status 0x%x", i, status);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    rig_end(&r);
}

static int realloc_goes_on(void *arg)
{
    inherited *i = arg;

    for (int k = USM_HOST; k <= USM_SHARED; k++) {
        char *p = i->p[k], *grown, x = 'x';
        if (!p)
            continue;
        if (usm_copy(p, &x, 1) != USM_OK)
            return 10 + k;
        grown = usm_realloc(p, 9000, USM_UNKNOWN);
        x     = 'y';
        if (!grown || usm_copy(&x, grown, 1) != USM_OK || x != 'x')
            return k;
    }
    return 0;
}

static int calloc_goes_on(void *arg)
{
    (void)arg;
    for (int k = USM_HOST; k <= USM_SHARED; k++) {
        char *p = usm_calloc(100, 50, (usm_kind)k), back[5000] = "x";
        if (!p || usm_copy(back, p, sizeof back) != USM_OK)
            return k;
        for (size_t b = 0; b < sizeof back; b++)
            if (back[b] != 0)
                return 10 + k;
        usm_free(p);
    }
    return 0;
}

TestAlone(lifecycle, in_a_forked_child_realloc_and_calloc_go_on_with_the_hosts_pools)
{
    EACH_DEVICE (r) {
        inherited   i     = inherit(r);
        const char *guard = "";
        CHECK_OK(usm_config_get("host_guard_device", &guard, NULL));
        if (!i.is_host || strcmp(guard, "0")) {
            not_offered("%s", i.is_host ? "guarded memory is shared with the parent"
                                        : "a driver's memory");
            continue;
        }
        tried();
        in_child(realloc_goes_on, &i, r.name);
        if (r.index == 1) {                  /* the default context's first device */
            usm_free(usm_alloc_device(100)); /* which the child has from before it was one */
            in_child(calloc_goes_on, NULL, r.name);
        }
    }
}
