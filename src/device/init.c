/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Start, end, the default context, and fork.
 *
 * Starting is cheap and calls no driver.  The default context is created at its first use, from the
 * first device of the selector.  usm_shutdown() ends only the default context, because the others
 * belong to other parts of the program.  There is no destructor: when a process ends, the library
 * makes no driver call, and its exit handlers only wait and write (docs/threading.md). */
#include "device/init.h"

#include "base/fork.h"
#include "base/inline/bits.h"
#include "base/job.h"
#include "base/log.h"
#include "base/os.h"
#include "base/part.h"
#include "base/settings.h"
#include "base/trace.h"
#include "device/context.h"
#include "device/selector.h"

#include <pthread.h>
#include <stdlib.h>
#include <strings.h>

#include <usm/version.h>

#define DEVICES_MAX 64 /* devices among which the ranks of a node are distributed */

#define CALLERS 16

static struct {
    /* The numbers of calls in progress that use the default context, or memory that may belong to
     * it.  Threads are distributed over several counters, so that they do not share a cache line,
     * and there is a set of counters for each of two rounds: a call counts in the set of the round
     * in which it began. */
    struct {
        _Alignas(64) _Atomic(size_t) n;
    } callers[2][CALLERS];
    _Atomic(unsigned)      round;  /* 0 or 1; changed under `ending`                     */
    usm__mutex             ending; /* taken without `lock`                               */
    usm__mutex             lock;
    unsigned               count;      /* calls of usm_init()                            */
    bool                   is_implied; /* the first use without usm_init() counts as one */
    _Atomic(bool)          down, has_started;
    _Atomic(usm_context *) context;
    _Atomic(unsigned)      fork_generation;
} lib = {.lock   = USM__MUTEX_INIT(USM__RANK_INIT, "library"),
         .ending = USM__MUTEX_INIT(USM__RANK_ENDING, "end of the default context")};

/* Of this thread. */
static __thread struct {
    unsigned     depth;   /* of nested calls that use the default context            */
    uint16_t     round;   /* the one whose counter has the outermost of them         */
    usm_context *put_off; /* contexts that they ended, released when it returns      */
} self __attribute__((tls_model("initial-exec")));

static pthread_once_t start_once = PTHREAD_ONCE_INIT;

int usm_version(void)
{
    return USM_VERSION;
}

/* ---- calls that use the default context ---------------------------------------------------------
 *
 * usm_shutdown() first ends the context visibly.  It returns the memory when all calls that may not
 * have seen the end have returned.  Such a call increments a counter before it reads the context;
 * usm_shutdown() reads the counters after the end is visible.  A fence lies in between on both
 * sides, so at least one of the two sees the other.  Hence it is sufficient to see each counter at
 * 0 once, at any moment.
 *
 * Why the wait ends.  Threads that continually allocate and free and share a counter may keep it
 * above 0 forever, although each call is short.  Therefore there are two sets of counters, and
 * usm_shutdown() directs new calls to the other set.  After that a counter rises at most once more
 * for each thread, which may have read the round just before, and otherwise falls as calls return.
 * The wait takes as long as the longest call in progress, plus one sleep (NAP_NS).  The steps:
 *
 *     1. wait for the set that new calls do not use: these began before the last change of round
 *     2. change the round
 *     3. wait for the set that new calls used until then
 *
 * Only one thread at a time does so (the lock `ending`); a second one would direct new calls to the
 * set on which the first waits.  A call may end the context from inside: an allocation can call a
 * function of a pool or backend that calls usm_shutdown().  Such a call does not wait: two of them
 * would wait for each other, and one that waited for `ending` would block the thread that holds it.
 * Its context is released when the outermost call returns.
 *
 * The steps after the wait end as well.  Thread caches that are in use are waited for a fixed
 * number of sleeps, and then left (magazine.c).  Threads that empty caches of a pool, or free
 * memory of it for others, are counted, and such a counter only falls once the pool is in no list
 * any more (magazine.c, pool_give.c).  Commands are not waited for, unless no thread can be started
 * to wait instead of the caller. */

#define NAP_NS 20000

static _Atomic(size_t) *own_callers(unsigned round)
{
    return &lib.callers[round][((uintptr_t)&self >> 12) * 0x9e3779b9u % CALLERS].n;
}

void usm__default_enter(void)
{
    if (self.depth++ > 0)
        return; /* the outermost call is counted, and was so before it read any context */
    self.round = (uint16_t)usm_load_relaxed(&lib.round);
    (void)usm_add_relaxed(own_callers(self.round), (size_t)1);
    atomic_thread_fence(memory_order_seq_cst);
}

static __attribute__((noinline)) void end_put_off(void)
{
    usm_context *ctx;

    while ((ctx = self.put_off)) {
        self.put_off = ctx->put_off;
        if (usm__default_await_left(ctx))
            usm__context_let_go(ctx);
    }
}

void usm__default_leave(void)
{
    if (--self.depth > 0)
        return;
    (void)atomic_fetch_sub_explicit(own_callers(self.round), (size_t)1, memory_order_release);
    if (__builtin_expect(self.put_off != NULL, 0))
        end_put_off();
}

static void await_round(unsigned round)
{
    for (unsigned i = 0; i < CALLERS; i++)
        while (usm_load_acquire(&lib.callers[round][i].n) > 0)
            usm__os_sleep_ns(NAP_NS);
}

bool usm__default_await_left(usm_context *ctx)
{
    unsigned round;

    if (self.depth > 0) {
        ctx->put_off = self.put_off;
        self.put_off = ctx;
        return false;
    }
    atomic_thread_fence(memory_order_seq_cst);
    usm__mutex_lock(&lib.ending);
    round = usm_load_relaxed(&lib.round);
    await_round(!round);
    atomic_store(&lib.round, !round);
    await_round(round);
    usm__mutex_unlock(&lib.ending);
    return true;
}

static void forget_callers(void)
{
    for (unsigned i = 0; i < CALLERS; i++) {
        atomic_store(&lib.callers[0][i].n, (size_t)0);
        atomic_store(&lib.callers[1][i].n, (size_t)0);
    }
    self.put_off = NULL; /* the parent's */
    if (self.depth > 0)
        atomic_store(own_callers(self.round), (size_t)1);
    usm__mutex_reset_in_child(&lib.ending);
}

unsigned usm__fork_generation(void)
{
    return usm_load_relaxed(&lib.fork_generation);
}

static void fork_lock(usm_fork_phase phase)
{
    usm__mutex_fork(&lib.lock, phase);
}

static void fork_prepare(void)
{
    usm__parts_fork(USM_FORK_PREPARE);
}

static void fork_parent(void)
{
    usm__parts_fork(USM_FORK_PARENT);
}

static void fork_child(void)
{
    usm_add_relaxed(&lib.fork_generation, 1u);
    forget_callers();
    usm__parts_fork(USM_FORK_CHILD);
}

static void base_prepare(void)
{
    usm__base_fork(USM_FORK_PREPARE);
}

static void base_parent(void)
{
    usm__base_fork(USM_FORK_PARENT);
}

static void base_child(void)
{
    usm__base_fork(USM_FORK_CHILD);
}

/* fork() calls the prepare handlers in the reverse order of registration.  So the core's locks are
 * taken first, then those of the built-in backends, then those of src/base: the order of the
 * ranks. */
static void start(void)
{
    (void)pthread_atfork(base_prepare, base_parent, base_child);
    usm__compose(); /* before the checks of settings, because it registers the names of the pools */
    usm__parts_start();
    usm__settings_warn_unknown();
    (void)pthread_atfork(fork_prepare, fork_parent, fork_child);
}

usm_status usm__start(void)
{
    int cancel;

    if (usm_load_acquire(&lib.has_started))
        return USM_OK;
    cancel = usm__os_cancel_off(); /* if it were cancelled, it would run a second time */
    (void)pthread_once(&start_once, start);
    usm__os_cancel_restore(cancel);
    usm_store_release(&lib.has_started, true);
    return USM_OK;
}

static bool is_selector(const char *key)
{
    return strcasecmp(key, "device_selector") == 0 || strcasecmp(key, "usm_device_selector") == 0;
}

usm_status usm_config_set(const char *key, const char *value)
{
    char why[512];

    (void)usm__start(); /* installs the checks of the core */
    /* Other settings from the environment are dropped with a warning if they are invalid.  An
     * invalid selector must not be, because the program would run on another device: it is refused
     * when devices are listed, and here only when a program sets it. */
    if (key && value && is_selector(key) && !usm__selector_check(value, why, sizeof why))
        return usm__fail(USM_E_SETTING, "setting device_selector cannot be \"%.128s\": %s", value,
                         why);
    return usm__settings_set(key, value);
}

usm_status usm_config_get(const char *key, const char **value, const char **origin)
{
    (void)usm__start();
    return usm__settings_get(key, value, origin);
}

bool usm__is_down(void)
{
    return usm_load_acquire(&lib.down);
}

usm_status usm__up(void)
{
    if (usm__is_down())
        return usm__fail(USM_E_SHUTDOWN, "libusm was shut down; call usm_init() to use it again");
    return usm__start();
}

usm_status usm_init(void)
{
    usm_status st = usm__start();

    if (st != USM_OK)
        return st;
    usm__mutex_lock(&lib.lock);
    lib.count++;
    usm_store_release(&lib.down, false);
    usm__mutex_unlock(&lib.lock);
    return USM_OK;
}

void usm_shutdown(void)
{
    usm_context *ctx = NULL;

    usm__mutex_lock(&lib.lock);
    if (lib.count > 0)
        lib.count--;
    else
        lib.is_implied = false;
    if (lib.count == 0 && !lib.is_implied) {
        usm_store_release(&lib.down, true);
        ctx = atomic_exchange(&lib.context, NULL);
        usm__parts_shutdown();
    }
    usm__mutex_unlock(&lib.lock);
    if (ctx)
        usm__context_end(ctx);
    if (usm__tracer_now)
        usm__tracer_now->flush();
}

/* True if the launcher or the user already assigned devices by a mask: the first visible device is
 * then this process's own. */
static bool has_affinity_mask(void)
{
    static const char *const masks[] = {"ZE_AFFINITY_MASK", "CUDA_VISIBLE_DEVICES",
                                        "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                        "GPU_DEVICE_ORDINAL"};

    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++)
        if (getenv(masks[i])) /* NOLINT(concurrency-mt-unsafe): once, at the start */
            return true;
    return false;
}

/* The ranks of one node are distributed over the devices that are like the first one: never over a
 * GPU and the CPU beside it. */
static size_t choose_device(usm_device *const *devs, size_t n)
{
    usm__launcher_place p    = usm__launcher_place_get();
    size_t              like = 1;

    while (like < n && devs[like]->be == devs[0]->be && devs[like]->desc.type == devs[0]->desc.type)
        like++;
    if (!p.is_job || *usm__setting_text("device_selector") || has_affinity_mask())
        return 0;
    return p.local_rank % like;
}

/* Under the lock. */
static usm_context *make_default_context(void)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_device      *devs[DEVICES_MAX], *dev;
    size_t           count = 0, mine;
    usm_context     *ctx   = NULL;

    if (usm_get_devices(devs, DEVICES_MAX, &count) != USM_OK)
        return NULL;
    mine          = choose_device(devs, usm_min_size(count, DEVICES_MAX));
    dev           = devs[mine];
    desc.ndevices = 1;
    desc.devices  = &dev;
    if (usm_context_create(&desc, &ctx) != USM_OK)
        return NULL;
    ctx->is_default = true;
    usm__info("using %s (%s), because %s", dev->term, dev->desc.name,
              *usm__setting_text("device_selector") ? "the device selector names it first"
              : mine > 0 ? "the job's ranks on this node take turns over their devices"
                         : "it comes first in the default order: GPU, CPU, host");
    return ctx;
}

usm_context *usm_default_context(void)
{
    usm_context *ctx;
    int          cancel;

    while ((ctx = usm_load_acquire(&lib.context)) != NULL) {
        if (usm__context_check(ctx) == USM_OK)
            return ctx;
        if (usm_load_acquire(&lib.context) == ctx)
            return NULL; /* it is the parent's; otherwise it ended between the two reads */
    }
    if (usm__up() != USM_OK)
        return NULL;
    usm__mutex_lock(&lib.lock);
    ctx = usm_load_acquire(&lib.context);
    if (!ctx && usm__up() == USM_OK) {
        cancel = usm__os_cancel_off();
        ctx    = make_default_context();
        usm__os_cancel_restore(cancel);
        lib.is_implied = ctx && lib.count == 0;
        usm_store_release(&lib.context, ctx);
    }
    usm__mutex_unlock(&lib.lock);
    return ctx;
}

bool usm__default_run(const usm_context *ctx, void (*fn)(void *arg), void *arg)
{
    bool is_default;

    usm__mutex_lock(&lib.lock);
    is_default = usm_load_relaxed(&lib.context) == ctx;
    if (is_default)
        fn(arg);
    usm__mutex_unlock(&lib.lock);
    return is_default;
}

const usm_part usm__device_part = {.name = "device",
                                   .fork = {{USM__RANK_INIT, fork_lock},
                                            {USM__RANK_REGISTRY, usm__registry_fork},
                                            {USM__RANK_REGISTRY, usm__contexts_fork}}};
