/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Start, end, the default context and queue, and fork.
 *
 * Starting is cheap and touches no driver.  The default context is made at
 * first use from the selector's first device.  Shutdown ends only that: other
 * contexts belong to others.  There is no destructor: a process that ends makes
 * no driver call on the library's behalf, and the library's exit handlers only
 * wait and write (docs/threading.md). */
#include "core/init.h"

#include "base/fork.h"
#include "base/inline/bits.h"
#include "base/job.h"
#include "base/log.h"
#include "base/os.h"
#include "base/settings.h"
#include "base/trace.h"
#include "core/area.h"
#include "core/debug.h"
#include "core/executor.h"
#include "core/magazine.h"
#include "core/observe.h"
#include "core/order_check.h"
#include "core/outside.h"
#include "core/pool.h"
#include "core/pool_setting.h"
#include "core/queue.h"
#include "core/selector.h"

#include <pthread.h>
#include <stdlib.h>
#include <strings.h>

#include <usm/version.h>

#define DEVICES_MAX 64 /* that ranks of one node take turns over                             */

static struct {
    usm__mutex             lock;
    unsigned               count;      /* usm_init() calls                                 */
    bool                   is_implied; /* the first use counts as one                      */
    _Atomic(bool)          down, has_started;
    _Atomic(usm_context *) context;
    _Atomic(usm_queue *)   queue;
    _Atomic(unsigned)      fork_generation;
} lib = {.lock = USM__MUTEX_INIT(USM__RANK_INIT, "library")};

_Atomic(uint8_t) usm__default_slots[4];

/* Calls that are at work on the default context, or on memory that may be its; by the thread, so
 * that threads do not meet in one line of the cache; and by the round in which they began. */
#define CALLERS 16
static struct {
    _Atomic(size_t) n;
    char            others[64 - sizeof(size_t)];
} callers[2][CALLERS];

static _Atomic(unsigned) current_round; /* 0 or 1; changed under the lock                    */
static usm__mutex        ending = USM__MUTEX_INIT(USM__RANK_ENDING, "end of the default context");

void (*usm__fork_above)(usm_fork_phase phase, bool before_contexts);
void (*usm__context_above)(usm_context *ctx);

static pthread_once_t start_once = PTHREAD_ONCE_INIT;

int usm_version(void)
{
    return USM_VERSION;
}

/* ---- who is at work on the default context ------------------------------------------------------
 *
 * usm_shutdown() ends the context for all to see, and gives its memory back when the calls are
 * through that may not have seen it.  Such a call counts itself in before it looks at the context;
 * the end looks at the counters after it is visible; a fence is in between on both sides, so one of
 * both sees the other.  Hence it is enough to see each counter at 0 once, at any moment.
 *
 * That it ends.  Threads that go on allocating and freeing while they share a counter may keep it
 * above 0 for good, although each call is short.  So there are two sets of counters, and the end
 * has new calls count in the other one: then a counter rises at most once more for each thread,
 * which may have read the round just before, and otherwise falls as calls end.  The wait lasts as
 * long as the longest call that was under way, and the next look (NAP_NS).
 *
 *     1. the set that new calls do not use: what is in it began before the round last changed
 *     2. the round changes
 *     3. the set that new calls used until then
 *
 * One end at a time does so (`ending`), or the second one would send new calls to where the first
 * one waits.  A call that ends the context from inside (a pool's or a backend's function may, on
 * behalf of an allocation) waits for nobody: two of these would wait for each other, and one that
 * waits for `ending` would hold up its owner.  Its context goes when the outermost call is through.
 *
 * What comes after the wait ends as well: thread caches that are in use are waited for so many naps
 * and then left (magazine.c); who empties caches of a pool, or is its guest, is counted, and such a
 * counter only falls once the pool is in no list (magazine.c, pool_give.c); commands are not waited
 * for, unless no thread can be had that waits in our place. */

#define NAP_NS 20000

static _Atomic(size_t) *own_callers(unsigned round)
{
    return &callers[round][((uintptr_t)&usm__self >> 12) * 0x9e3779b9u % CALLERS].n;
}

void usm__default_enter(void)
{
    if (usm__self.in_default++ > 0)
        return; /* counted, and before it looked at any context */
    usm__self.default_round = (uint16_t)usm_load_relaxed(&current_round);
    (void)usm_add_relaxed(own_callers(usm__self.default_round), (size_t)1);
    atomic_thread_fence(memory_order_seq_cst);
}

static __attribute__((noinline)) void end_put_off(void)
{
    usm_context *ctx;

    while ((ctx = usm__self.put_off)) {
        usm__self.put_off = ctx->put_off;
        if (usm__default_await_left(ctx))
            usm__context_let_go(ctx);
    }
}

void usm__default_leave(void)
{
    if (--usm__self.in_default > 0)
        return;
    (void)atomic_fetch_sub_explicit(own_callers(usm__self.default_round), (size_t)1,
                                    memory_order_release);
    if (__builtin_expect(usm__self.put_off != NULL, 0))
        end_put_off();
}

static void await_round(unsigned round)
{
    for (unsigned i = 0; i < CALLERS; i++)
        while (usm_load_acquire(&callers[round][i].n) > 0)
            usm__os_sleep_ns(NAP_NS);
}

bool usm__default_await_left(usm_context *ctx)
{
    unsigned round;

    if (usm__self.in_default > 0) {
        ctx->put_off      = usm__self.put_off;
        usm__self.put_off = ctx;
        return false;
    }
    atomic_thread_fence(memory_order_seq_cst);
    usm__mutex_lock(&ending);
    round = usm_load_relaxed(&current_round);
    await_round(!round);
    atomic_store(&current_round, !round);
    await_round(round);
    usm__mutex_unlock(&ending);
    return true;
}

static void forget_callers(void)
{
    for (unsigned i = 0; i < CALLERS; i++) {
        atomic_store(&callers[0][i].n, (size_t)0);
        atomic_store(&callers[1][i].n, (size_t)0);
    }
    usm__self.put_off = NULL; /* the parent's */
    if (usm__self.in_default > 0)
        atomic_store(own_callers(usm__self.default_round), (size_t)1);
    usm__mutex_reset_in_child(&ending);
}

unsigned usm__fork_generation(void)
{
    return usm_load_relaxed(&lib.fork_generation);
}

/* Locks are taken in the order of their ranks, so that nothing is half changed
 * in the child; contexts' and pools' go through their own handler. */
static void fork_all(usm_fork_phase phase)
{
    if (phase == USM_FORK_PREPARE)
        usm__mutex_lock_for_fork(&lib.lock);
    else if (phase == USM_FORK_PARENT)
        usm__mutex_unlock_after_fork(&lib.lock);
    else
        usm__mutex_reset_in_child(&lib.lock);
    if (usm__fork_above)
        usm__fork_above(phase, true);
    usm__registry_fork(phase);
    usm__observe_fork((int)phase); /* before the pools': a reset of watched blocks holds both */
    usm__contexts_fork(phase);
    usm__pools_give_fork(phase);
    usm__outside_fork(phase);
    usm__magazine_fork((int)phase);
    if (usm__fork_above)
        usm__fork_above(phase, false);
    usm__map_fork(phase);
    usm__executor_fork(phase);
    usm__order_fork((int)phase);
}

static void fork_prepare(void)
{
    fork_all(USM_FORK_PREPARE);
}

static void fork_parent(void)
{
    fork_all(USM_FORK_PARENT);
}

static void fork_child(void)
{
    usm_add_relaxed(&lib.fork_generation, 1u);
    forget_callers();
    fork_all(USM_FORK_CHILD);
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

/* fork() prepares in the reverse order of registration: so the core's locks are
 * taken first, then those of the built-in backends, then base's, as everywhere. */
static void start(void)
{
    (void)pthread_atfork(base_prepare, base_parent, base_child);
    usm__compose(); /* before the checks: pools are known by name then */
    usm__setting_set_check("pool", usm__pool_setting_check);
    usm__setting_set_translate("pool", usm__pool_setting_translate);
    usm__setting_set_check("memory_limit", usm__account_check);
    usm__setting_set_check("hooks", usm__hooks_check);
    usm__setting_set_check("debug", usm__debug_check);
    usm__settings_warn_unknown();
    usm__magazine_start();
    (void)pthread_atfork(fork_prepare, fork_parent, fork_child);
}

usm_status usm__start(void)
{
    int cancel;

    if (usm_load_acquire(&lib.has_started))
        return USM_OK;
    cancel = usm__os_cancel_off(); /* a cancelled beginning would begin once more */
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

    (void)usm__start(); /* the core's checks must be in place */
    /* A selector from the environment that does not parse must not be dropped with a
     * warning, as others are: the program would run on another device.  So it is
     * refused where devices are asked for, and only here where it is set. */
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
    usm_queue   *q   = NULL;

    usm__mutex_lock(&lib.lock);
    if (lib.count > 0)
        lib.count--;
    else
        lib.is_implied = false;
    if (lib.count == 0 && !lib.is_implied) {
        usm_store_release(&lib.down, true);
        q   = usm_swap_acq_rel(&lib.queue, NULL);
        ctx = atomic_exchange(&lib.context, NULL);
        for (int kind = USM_HOST; kind <= USM_SHARED; kind++)
            usm_store_relaxed(&usm__default_slots[kind], (uint8_t)0);
    }
    usm__mutex_unlock(&lib.lock);
    if (q)
        usm__queue_retire(q);
    if (ctx)
        usm__context_end(ctx);
    usm__trace_flush();
}

/* A mask by which the launcher or the user has already dealt out devices: the first that is seen
 * is this process's own. */
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

/* Ranks of one node take turns over the devices that are like the first: never over a GPU and the
 * CPU beside it. */
static size_t choose_device(usm_device *const *devs, size_t n)
{
    usm__job_place p    = usm__job_place_get();
    size_t         like = 1;

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
            return NULL; /* the parent's; else it was ended between the two looks */
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

/* Under the lock, like the end of the default context: the slot may be another pool's after that.
 */
void usm__default_slot_set(const usm_pool *pool)
{
    if (!usm_load_relaxed(&pool->alloc_slot))
        return;
    usm__mutex_lock(&lib.lock);
    if (usm_load_relaxed(&lib.context) == pool->ctx)
        usm_store_relaxed(&usm__default_slots[pool->kind], usm_load_relaxed(&pool->alloc_slot));
    usm__mutex_unlock(&lib.lock);
}

usm_queue *usm_default_queue(void)
{
    usm_context *ctx = usm_default_context();
    usm_queue   *q   = NULL;

    if (!ctx)
        return NULL;
    q = usm_load_acquire(&lib.queue);
    if (q)
        return q;
    usm__mutex_lock(&lib.lock);
    q = usm_load_acquire(&lib.queue);
    if (!q && usm_load_acquire(&lib.context) == ctx &&
        usm__queue_make(ctx, 0, USM_QUEUE_IN_ORDER, &q) == USM_OK) {
        q->is_internal = true;
        usm_store_release(&lib.queue, q);
    }
    usm__mutex_unlock(&lib.lock);
    return q;
}
