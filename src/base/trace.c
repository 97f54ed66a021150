/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The producers of the event rings: one ring for each thread, filled without a lock.
 *
 * An event is 32 bytes including a time stamp in ticks, which the writer thread converts to
 * nanoseconds.  The producer compares the head with one number, `limit`: the head at which it must
 * check the consumer's position again, either to wake the consumer (the ring is half full) or to
 * count an event as lost (it is full).  A ring is made at a thread's first event.  After the thread
 * has ended, the ring is drained, and then reused for another thread.
 *
 * Not here: the file (trace_writer.c), stacks (trace_stack.c). */
#include "base/trace.h"

#include "base/fork.h"
#include "base/inline/atomic.h"
#include "base/mutex.h"
#include "base/os.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/trace_ring.h"
#include "base/trace_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define RINGS_BYTES_MAX   ((uint64_t)256 << 20) /* all rings; threads beyond it lose events */
#define CAPACITY_MIN      64
#define STACK_BYTES_USUAL ((uint64_t)512 << 10)

usm__trace_state usm__traced = {
    .lock   = USM__MUTEX_INIT(USM__RANK_TRACE, "trace rings"),
    .stacks = {.lock = USM__MUTEX_INIT(USM__RANK_TRACE_STACK, "trace stacks")}};

/* --- time ------------------------------------------------------------------ */

/* True if the counter ticks evenly on all processors: the processor reports it, and the kernel uses
 * it as its clock. */
static bool tsc_is_good(void)
{
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    size_t   size = 0;
    bool     good = __get_cpuid(0x80000007u, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0 &&
                __get_cpuid(0x80000001u, &a, &b, &c, &d) != 0 && (d & (1u << 27)) != 0; /* RDTSCP */
    char *source;

    if (!good)
        return false;
    source = usm__os_read_file("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                               4096, &size);
    good   = source != NULL && strncmp(source, "tsc", 3) == 0;
    usm__heap_free(source);
    return good;
#else
    return false;
#endif
}

/* --- rings ----------------------------------------------------------------- */

/* pre: lock is held. */
static usm__ring *new_ring(void)
{
    uint64_t   size = sizeof(usm__ring) + usm__traced.config.capacity * sizeof(usm__trace_packed);
    usm__ring *ring;

    if (usm__traced.bytes + size > RINGS_BYTES_MAX && usm__traced.bytes > 0)
        return NULL;
    ring = usm__os_map_noreserve(size); /* zeroed */
    if (ring == NULL)
        return NULL;
    usm__traced.bytes += size;
    ring->next = usm_load_relaxed(&usm__traced.rings);
    usm_store_release(&usm__traced.rings, ring);
    return ring;
}

/* Called at the calling thread's first event; NULL: there is no room for a ring. */
static __attribute__((noinline)) usm__ring *take_ring(void)
{
    usm__thread *self = usm__thread_self();
    usm__ring   *ring;

    if (self == NULL)
        return NULL;
    usm__mutex_lock(&usm__traced.lock);
    ring = usm__traced.idle;
    if (ring != NULL)
        usm__traced.idle = ring->next_idle;
    else
        ring = new_ring();
    if (ring != NULL) {
        ring->thread       = ++usm__traced.last_thread;
        ring->limit        = usm_load_relaxed(&ring->head); /* checks the consumer at the first
                                                               event */
        ring->until_sample = 0;
        ring->random       = usm__trace_ticks() ^ (uint64_t)(uintptr_t)ring;
        usm_store_release(&ring->ended, false);
    }
    usm__mutex_unlock(&usm__traced.lock);
    self->trace = ring;
    return ring;
}

void usm__ring_retire(usm__ring *ring)
{
    usm__mutex_lock(&usm__traced.lock);
    ring->next_idle  = usm__traced.idle;
    usm__traced.idle = ring;
    usm__mutex_unlock(&usm__traced.lock);
}

/* The writer is woken, so that the next thread gets this ring, and not one of new memory. */
void usm__trace_thread_end(void *ring)
{
    usm_store_release(&((usm__ring *)ring)->ended, true);
    if (usm_load_relaxed(&usm__traced.is_writing))
        usm__trace_ring_bell();
}

/* Called when the head has reached the limit.  False: the ring is full. */
static __attribute__((noinline)) bool look(usm__ring *ring, uint64_t head)
{
    uint64_t capacity = usm__traced.config.capacity;
    uint64_t tail     = usm_load_acquire(&ring->tail); /* pairs with the consumer's release */

    if (head - tail >= capacity)
        return false;
    if (head - tail >= capacity / 2 || !usm_load_relaxed(&usm__traced.is_writing))
        usm__trace_ring_bell();
    ring->limit = head - tail >= capacity / 2 ? tail + capacity : tail + capacity / 2;
    return true;
}

static usm__ring *my_ring(void)
{
    return usm__self.block != NULL ? usm__self.block->trace : NULL;
}

usm__ring *usm__ring_with_room(void)
{
    usm__ring *ring = my_ring();
    uint64_t   head;

    if (__builtin_expect(ring == NULL, 0))
        ring = take_ring();
    head = ring != NULL ? usm_load_relaxed(&ring->head) : 0;
    return ring == NULL || (head >= ring->limit && !look(ring, head)) ? NULL : ring;
}

void usm__ring_lose(void)
{
    usm__ring *ring = my_ring();

    if (ring != NULL)
        usm_store_release(&ring->lost, usm_load_relaxed(&ring->lost) + 1);
    else
        usm_add_relaxed(&usm__traced.ringless, 1);
}

/* --- events ---------------------------------------------------------------- */

static inline uint8_t pool_byte(uint32_t pool)
{
    return (uint8_t)(pool < USM__TRACE_POOLS_MAX ? pool : USM__TRACE_POOLS_MAX);
}

static inline uint16_t tag_word(uint32_t tag)
{
    return (uint16_t)(tag <= USM__TRACE_TAGS_MAX ? tag : 0);
}

/* The ring for an event; NULL: tracing is off, or the event is lost, and counted. */
static usm__ring *ring_for_event(void)
{
    usm__ring *ring = usm__trace_is_on() ? usm__ring_with_room() : NULL;

    if (ring == NULL && usm__trace_is_on())
        usm__ring_lose();
    return ring;
}

/* Records the event, whose time is now. */
static void record(const usm__trace_packed *e)
{
    usm__ring         *ring = ring_for_event();
    uint64_t           head = ring != NULL ? usm_load_relaxed(&ring->head) : 0;
    usm__trace_packed *at;

    if (ring == NULL)
        return;
    at       = usm__ring_at(ring, head);
    *at      = *e;
    at->time = usm__trace_ticks();
    if (e->type == USM__EVENT_ALLOC)
        at->extra |= usm__stack_sample(ring, e->size);
    usm__ring_put(ring, head);
}

void usm__trace_alloc(uint32_t pool, uint32_t tag, const void *p, size_t size, size_t usable)
{
    record(&(usm__trace_packed){.address = (uint64_t)(uintptr_t)p,
                                .size    = size,
                                .extra   = usm__slack_pack(usable > size ? usable - size : 0) << 16,
                                .tag     = tag_word(tag),
                                .pool    = pool_byte(pool),
                                .type    = USM__EVENT_ALLOC});
}

void usm__trace_free(uint32_t pool, const void *p)
{
    record(&(usm__trace_packed){
        .address = (uint64_t)(uintptr_t)p, .pool = pool_byte(pool), .type = USM__EVENT_FREE});
}

void usm__trace_failed(uint32_t pool, uint32_t tag, size_t size)
{
    record(&(usm__trace_packed){
        .size = size, .tag = tag_word(tag), .pool = pool_byte(pool), .type = USM__EVENT_FAILED});
}

void usm__trace_driver(usm__trace_call call, uint32_t pool, const void *p, size_t size,
                       uint64_t start_ns, usm_status status)
{
    static const uint8_t types[] = {[USM__TRACE_TAKE]  = USM__EVENT_TAKE,
                                    [USM__TRACE_GIVE]  = USM__EVENT_GIVE,
                                    [USM__TRACE_MAP]   = USM__EVENT_MAP,
                                    [USM__TRACE_UNMAP] = USM__EVENT_UNMAP};
    uint64_t             ns      = usm__os_now_ns() - start_ns;

    record(&(usm__trace_packed){.address = status == USM_OK ? (uint64_t)(uintptr_t)p : 0,
                                .size    = size,
                                .extra   = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX,
                                .pool    = pool_byte(pool),
                                .type    = types[call]});
}

void usm__trace_caches(uint32_t pool, uint64_t bytes, uint64_t limit)
{
    record(&(usm__trace_packed){
        .address = limit, .size = bytes, .pool = pool_byte(pool), .type = USM__EVENT_CACHES});
}

void usm__trace_spill_put(const usm__trace_spill_event *e)
{
    record(&(usm__trace_packed){.address = (e->block & UINT32_MAX) | (uint64_t)e->mode << 32,
                                .size    = e->bytes,
                                .extra   = usm__ns_pack(e->ns),
                                .tag     = (uint16_t)e->space,
                                .pool    = (uint8_t)e->tier,
                                .type = (uint8_t)((unsigned)USM__EVENT_SPILL + (unsigned)e->kind)});
}

void usm__trace_work_put(const usm__trace_work_event *e)
{
    bool is_chunk = e->kind <= USM__WORK_FAILED;

    record(&(usm__trace_packed){.address = is_chunk         ? e->first
                                           : e->is_in_order ? e->ago_ns | USM__TRACE_IN_ORDER
                                                            : e->ago_ns,
                                .size    = e->n,
                                .extra   = usm__ns_pack(e->ns),
                                .tag     = (uint16_t)e->kernel,
                                .pool    = (uint8_t)e->member,
                                .type = (uint8_t)((unsigned)USM__EVENT_WORK + (unsigned)e->kind)});
}

/* --- definitions ----------------------------------------------------------- */

/* Returns an id up to max that was not returned before; 0 if there is none left. */
static uint32_t next_id(atomic_uint *last, uint32_t max)
{
    uint32_t id = usm_load_relaxed(last);

    do
        if (id == max)
            return 0;
    while (!usm_cas_acq_rel(last, &id, id + 1));
    return id + 1;
}

uint32_t usm__trace_pool(const char *name, usm_kind kind, const char *device)
{
    struct {
        uint32_t id, kind;
        char     name[32], device[64];
    } pool;

    if (!usm__trace_is_on())
        return 0;
    memset(&pool, 0, sizeof(pool));
    pool.id = next_id(&usm__traced.last_pool, USM__TRACE_POOLS_MAX);
    if (pool.id == 0)
        return USM__TRACE_POOLS_MAX;
    pool.kind = (uint32_t)kind;
    if (pool.id == USM__TRACE_POOLS_MAX) {
        name      = "(all later pools)";
        pool.kind = USM_UNKNOWN;
    }
    (void)snprintf(pool.name, sizeof(pool.name), "%s", name);
    (void)snprintf(pool.device, sizeof(pool.device), "%s", device);
    (void)usm__trace_define(USM__CHUNK_POOL, &pool, sizeof(pool));
    return pool.id;
}

/* Writes a definition, which begins with its id, to the file; returns the id, or 0 if it has none
 * or there is no room. */
static uint32_t define(usm__trace_kind kind, const void *definition, size_t size)
{
    uint32_t id;

    memcpy(&id, definition, sizeof(id));
    return id != 0 && usm__trace_define(kind, definition, size) ? id : 0;
}

uint32_t usm__trace_tag(const char *name)
{
    struct {
        uint32_t id;
        char     name[64];
    } tag = {.id = usm__trace_is_on() ? next_id(&usm__traced.last_tag, USM__TRACE_TAGS_MAX) : 0};

    (void)snprintf(tag.name, sizeof(tag.name), "%s", name);
    return define(USM__CHUNK_TAG, &tag, sizeof(tag));
}

uint32_t usm__trace_space(const char *name, uint64_t block_size, uint64_t blocks)
{
    struct {
        uint32_t id, zero;
        uint64_t block_size, blocks;
        char     name[48];
    } space = {.id =
                   usm__trace_is_on() ? next_id(&usm__traced.last_space, USM__TRACE_SPACES_MAX) : 0,
               .block_size = block_size,
               .blocks     = blocks};

    (void)snprintf(space.name, sizeof(space.name), "%s", name);
    return define(USM__CHUNK_SPACE, &space, sizeof(space));
}

static uint32_t define_name(usm__trace_kind kind, uint32_t id, const char *name)
{
    struct {
        uint32_t id, zero;
        char     name[64];
    } named = {.id = id};

    (void)snprintf(named.name, sizeof(named.name), "%s", name);
    return define(kind, &named, sizeof(named));
}

uint32_t usm__trace_tier(const char *name)
{
    return usm__trace_is_on()
               ? define_name(USM__CHUNK_TIER, next_id(&usm__traced.last_tier, USM__TRACE_TIERS_MAX),
                             name)
               : 0;
}

uint32_t usm__trace_kernel(const char *name)
{
    return usm__trace_is_on()
               ? define_name(USM__CHUNK_KERNEL,
                             next_id(&usm__traced.last_kernel, USM__TRACE_KERNELS_MAX), name)
               : 0;
}

/* pre: lock is held. */
static uint32_t find_member(const char *name)
{
    for (uint32_t i = 0; i < usm__traced.nmembers; i++)
        if (strncmp(usm__traced.members[i], name, sizeof(usm__traced.members[i]) - 1) == 0)
            return i + 1;
    return 0;
}

uint32_t usm__trace_member(const char *name)
{
    uint32_t id;
    bool     is_new = false;

    if (!usm__trace_is_on())
        return 0;
    usm__mutex_lock(&usm__traced.lock);
    id     = find_member(name);
    is_new = id == 0 && usm__traced.nmembers < USM__TRACE_MEMBERS_MAX;
    if (is_new) {
        (void)snprintf(usm__traced.members[usm__traced.nmembers], sizeof(usm__traced.members[0]),
                       "%s", name);
        id = ++usm__traced.nmembers;
    }
    usm__mutex_unlock(&usm__traced.lock);
    return is_new ? define_name(USM__CHUNK_MEMBER, id, name) : id;
}

const usm__tracer usm__trace_table = {.flush      = usm__trace_flush,
                                      .fork       = usm__trace_fork,
                                      .thread_end = usm__trace_thread_end,
                                      .pool       = usm__trace_pool,
                                      .driver     = usm__trace_driver,
                                      .caches     = usm__trace_caches};

/* --- start and fork -------------------------------------------------------- */

static bool parse_stacks(const char *text, uint64_t *mean)
{
    usm__span s  = usm__span_of(text);
    bool      is = false;

    *mean = 0;
    if (usm__span_is(s, "all"))
        *mean = 1;
    else if (usm__span_bool(s, &is)) /* accepts 0 and 1 too */
        *mean = is ? STACK_BYTES_USUAL : 0;
    else
        return usm__span_size(s, mean);
    return true;
}

bool usm__trace_check_stacks(const char *value, char *why, size_t why_size)
{
    uint64_t mean;

    (void)snprintf(why, why_size,
                   "off, on (a stack each 512 KiB on average), all, or the bytes between two "
                   "stacks, such as 64K");
    return parse_stacks(value, &mean);
}

/* The largest power of two whose events fit in `size` bytes. */
static uint64_t capacity_of(uint64_t size)
{
    uint64_t n = CAPACITY_MIN;

    while (n * 2 * sizeof(usm__trace_packed) <= size && n < (uint64_t)1 << 24)
        n *= 2;
    return n;
}

static void start(void)
{
    usm__trace_config *c    = &usm__traced.config;
    const char        *name = usm__setting_text("trace");

    if (*name == '\0')
        return;
    (void)snprintf(c->name, sizeof(c->name), "%s", name);
    for (const char *at = strchr(name, '%'); at != NULL; at = strchr(at + 2, '%'))
        c->own_file |= at[1] == 'p'; /* the check of the setting made sure that a character
                                        follows */
    c->capacity = capacity_of(usm__setting_size("trace_ring"));
    c->use_tsc  = tsc_is_good();
    (void)parse_stacks(usm__setting_text("trace_stacks"), &c->stack_bytes);
    if (c->stack_bytes != 0)
        usm__stack_start();
    if (usm__trace_open_file())
        usm_store_release(&usm__trace_on, 1);
}

void usm__trace_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, start);
}

/* Called in the child, where no other thread runs.  The parent writes the events recorded so far,
 * rings of threads that do not exist here are free, and the own thread's next event starts a
 * writer. */
static void empty_rings(void)
{
    usm__ring *mine = usm__self.block != NULL ? usm__self.block->trace : NULL;

    usm__traced.idle = NULL;
    for (usm__ring *ring = usm_load_relaxed(&usm__traced.rings); ring != NULL;
         ring            = usm_load_relaxed(&ring->next)) {
        usm_store_relaxed(&ring->tail, usm_load_relaxed(&ring->head));
        ring->lost_written = usm_load_relaxed(&ring->lost);
        ring->limit        = usm_load_relaxed(&ring->head);
        usm_store_relaxed(&ring->ended, false);
        if (ring == mine)
            continue;
        ring->next_idle  = usm__traced.idle;
        usm__traced.idle = ring;
    }
    usm_store_relaxed(&usm__traced.ringless, 0);
}

void usm__rings_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&usm__traced.lock, phase);
    if (phase == USM_FORK_CHILD)
        empty_rings();
}
