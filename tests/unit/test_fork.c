/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* fork() while another thread holds a lock, each of those that it takes in turn: the linker puts
 * this file between (--wrap), and the thread stops before it gives back its n-th, for n = 1, 2, ...
 * until it gets through.  Either fork() waits for that lock, and the thread goes on after a while,
 * or it does not, and the child, in which nobody will ever give it back, must do without.  The
 * child makes a context of its own, allocates and frees. */
#include <plain.h>

#include <usm/usm.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GIVE_UP_MS = 10, CHILD_S = 20 };

static _Atomic(int)       locks_left; /* of the worker's, until it stops                        */
static _Atomic(bool)      has_stopped, has_forked, has_ended;
static _Thread_local bool is_worker;
static usm_context       *ctx; /* made before any fork                                        */

static void sleep_us(long us)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

int __real_pthread_mutex_unlock(pthread_mutex_t *m); /* NOLINT: the linker's */
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m); /* NOLINT */

int __wrap_pthread_mutex_unlock(pthread_mutex_t *m) /* NOLINT */
{
    if (is_worker && atomic_fetch_sub(&locks_left, 1) == 1) {
        atomic_store(&has_stopped, true);
        for (int i = 0; i < 10 * GIVE_UP_MS && !atomic_load(&has_forked); i++)
            sleep_us(100);
    }
    return __real_pthread_mutex_unlock(m);
}

static void in_child(void)
{
    usm_context *own = NULL;
    void        *p;

    (void)alarm(CHILD_S);
    if (usm_context_create(NULL, &own) != USM_OK)
        _exit(1);
    p = usm_malloc_ctx(100, NULL, own, USM_HOST);
    if (!p)
        _exit(2);
    usm_free(p);
    p = usm_malloc_ctx(100, NULL, ctx, USM_HOST);
    if (!p)
        _exit(3);
    usm_free(p);
    usm_context_destroy(own);
    _exit(0);
}

static void *work(void *body)
{
    is_worker = true;
    (*(void (**)(void))body)();
    is_worker = false;
    atomic_store(&has_ended, true);
    return NULL;
}

/* False: the worker takes fewer locks. */
static bool fork_at(int lock, void (*body)(void))
{
    pthread_t worker;
    int       status = 0;
    bool      is_held;
    pid_t     child;

    atomic_store(&has_stopped, false);
    atomic_store(&has_forked, false);
    atomic_store(&has_ended, false);
    atomic_store(&locks_left, lock);
    CHECK_INT(pthread_create(&worker, NULL, work, &body), 0);
    while (!atomic_load(&has_stopped) && !atomic_load(&has_ended))
        sleep_us(20);
    is_held = atomic_load(&has_stopped);
    if (is_held) {
        child = fork();
        if (child == 0)
            in_child();
        atomic_store(&has_forked, true);
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        if (status != 0)
            printf("# the worker held its lock number %d\n", lock);
        CHECK_INT(status, 0);
    }
    CHECK_INT(pthread_join(worker, NULL), 0);
    return is_held;
}

static void fork_at_each(void (*body)(void))
{
    int n = 1;

    CHECK_INT(usm_context_create(NULL, &ctx), USM_OK);
    while (fork_at(n, body) && n < 2000)
        n++;
    printf("# %d locks\n", n - 1);
    CHECK(n > 5);
    usm_context_destroy(ctx);
}

/* ---- what the worker does ------------------------------------------------------------------ */

static void make_and_end_a_context(void)
{
    usm_context *own = NULL;
    void        *p[3];

    CHECK_INT(usm_context_create(NULL, &own), USM_OK);
    p[0] = usm_malloc_ctx(100, NULL, own, USM_HOST);
    p[1] = usm_malloc_ctx(100000, NULL, own, USM_SHARED);
    p[2] = usm_malloc_ctx(5 << 20, NULL, own, USM_DEVICE);
    for (int i = 0; i < 3; i++) {
        CHECK(p[i] != NULL);
        usm_free(p[i]);
    }
    usm_context_destroy(own);
}

static void begin_and_end_the_library(void)
{
    CHECK_INT(usm_init(), USM_OK);
    CHECK(usm_default_queue() != NULL);
    usm_free(usm_alloc_host(100));
    usm_shutdown();
}

static void copy_and_fill(void)
{
    usm_queue *q  = NULL;
    usm_event *ev = NULL;
    char      *p;

    CHECK_INT(usm_queue_create(ctx, NULL, NULL, &q), USM_OK);
    p = usm_malloc(1000, q, USM_HOST);
    CHECK(p != NULL);
    CHECK_INT(usm_memset(q, p, 1, 1000, 0, NULL, &ev), USM_OK);
    CHECK_INT(usm_memcpy(q, p, p + 500, 500, 1, &ev, NULL), USM_OK);
    CHECK_INT(usm_queue_wait(q), USM_OK);
    usm_event_release(ev);
    usm_free(p);
    usm_queue_destroy(q);
}

static void use_a_buffer(void)
{
    usm_buffer *b = usm_buffer_new(ctx, 100000);
    usm_access  acc;

    CHECK(b != NULL);
    CHECK_INT(usm_access_begin(b, 0, 100000, USM_WRITE_NO_INIT, &acc), USM_OK);
    memset(acc.ptr, 1, 100000);
    usm_access_end(&acc);
    usm_buffer_destroy(b);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void while_a_context_is_made_and_ended(void)
{
    fork_at_each(make_and_end_a_context);
}

static void while_the_library_begins_and_ends(void)
{
    fork_at_each(begin_and_end_the_library);
}

static void while_commands_are_submitted(void)
{
    fork_at_each(copy_and_fill);
}

static void while_a_buffer_is_used(void)
{
    fork_at_each(use_a_buffer);
}

int main(int argc, char **argv)
{
    static const plain_case cases[] = {
        CASE(while_a_context_is_made_and_ended),
        CASE(while_the_library_begins_and_ends),
        CASE(while_commands_are_submitted),
        CASE(while_a_buffer_is_used),
        {NULL, NULL},
    };

    return plain_main(argc, argv, cases);
}
