/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* src/spill: residency over tiers in memory.  Contents are compared with a plain copy after
 * accesses of random ranges; frames are moved both ways (pages, memory file); what is refused, and
 * that a refused access changes nothing.  Every case has an engine of its own: a context's. */
#include "base/fault.h"
#include "fake_transport.h"
#include "heap/area.h"
#include "plain.h"
#include "spill/internal.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

typedef struct fixture {
    usm_context *ctx;
    usm__spill  *spill;
} fixture;

static fixture fixture_of(const char *tiers, size_t limit)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    fixture          f    = {0};

    CHECK_INT(usm_config_set("spill", tiers), USM_OK);
    CHECK_INT(usm_config_set("spill_wait", "200"), USM_OK);
    desc.host_limit = limit;
    CHECK_INT(usm_context_create(&desc, &f.ctx), USM_OK);
    CHECK_INT(usm__spill_of(f.ctx, &f.spill), USM_OK);
    return f;
}

static void end(fixture *f)
{
    usm_context_destroy(f->ctx);
}

static usm__space *space_of(const fixture *f, size_t size, const char *name)
{
    const usm__space_params params = {.size = size, .name = name, .ctx = f->ctx};
    usm__space             *space  = NULL;

    CHECK_INT(usm__space_create(f->spill, &params, &space), USM_OK);
    return space;
}

static usm_status pin(usm__space *space, size_t offset, size_t size, usm_access_mode mode)
{
    const usm__pin p = {space, offset, size, mode};

    return usm__spill_pin(space->spill, 1, &p);
}

/* --- contents ---------------------------------------------------------------------------- */

typedef struct model {
    usm__space    *space;
    unsigned char *bytes;
    size_t         size, steps;
    uint64_t       random;
} model;

static size_t below(model *m, size_t n)
{
    return (size_t)(fake_random(&m->random) % n);
}

static void write_both(model *m, size_t offset, size_t size)
{
    int value = below(m, 8) == 0 ? 0 : (int)below(m, 256);

    memset(m->space->base + offset, value, size);
    memset(m->bytes + offset, value, size);
}

static void step(model *m)
{
    static const usm_access_mode modes[] = {USM_READ, USM_WRITE, USM_READ_WRITE, USM_WRITE_NO_INIT};
    size_t                       offset  = below(m, m->size);
    size_t                       most    = m->size - offset;
    size_t                       size = 1 + below(m, below(m, 4) == 0 || most < 8192 ? most : 8192);
    usm_access_mode              mode = modes[below(m, 4)];

    if (size > m->space->spill->limit / 8)
        size = m->space->spill->limit / 8;
    CHECK_INT(pin(m->space, offset, size, mode), USM_OK);
    if (!(mode & USM_NO_INIT))
        CHECK(memcmp(m->space->base + offset, m->bytes + offset, size) == 0);
    if (mode & USM_WRITE)
        write_both(m, offset, size);
    usm__space_unpin(m->space, offset, size, mode);
    if (below(m, 100) == 0)
        CHECK_INT(usm__space_advise(m->space, offset, size,
                                    (usm_buffer_advice)below(m, USM_BUFFER_RANDOM + 1)),
                  USM_OK);
}

static void *run_model(void *arg)
{
    model *m = arg;

    for (size_t i = 0; i < m->steps; i++)
        step(m);
    return NULL;
}

static model model_of(const fixture *f, size_t size, uint64_t seed)
{
    model m = {.space = space_of(f, size, "model"), .size = size, .steps = 1500, .random = seed};

    m.bytes = calloc(1, size);
    CHECK(m.bytes != NULL);
    return m;
}

static void end_model(model *m)
{
    usm__space_destroy(m->space);
    free(m->bytes);
}

static void check_contents(const char *tiers)
{
    fixture         f     = fixture_of(tiers, 2 * MIB);
    model           m     = model_of(&f, 9 * MIB + 12345, 1);
    usm_spill_stats stats = {.struct_size = sizeof stats};

    (void)run_model(&m);
    CHECK_INT(usm_spill_get_stats(f.ctx, &stats), USM_OK);
    CHECK(stats.evicted_clean > 0);
    CHECK(stats.resident <= stats.limit);
    end_model(&m);
    end(&f);
    CHECK_INT(fake_counts_of(FAKE_A).violations + fake_counts_of(FAKE_P).violations, 0);
}

static void contents_survive_tiers_that_end_transfers_at_once(void)
{
    fake_reset();
    check_contents("fake_a:");
}

static void contents_survive_tiers_with_a_thread(void)
{
    fake_reset();
    fake_plan_of(FAKE_A)->thread  = true;
    fake_plan_of(FAKE_A)->shuffle = true;
    check_contents("fake_a:");
}

static void contents_survive_tiers_without_a_thread(void)
{
    fake_reset();
    fake_plan_of(FAKE_P)->shuffle = true;
    check_contents("fake_p:");
}

static void contents_survive_where_pages_cannot_be_moved(void)
{
    fixture f;
    model   m;

    fake_reset();
    CHECK(usm__fault_arm("os.mremap", 1, true, USM_OK));
    f = fixture_of("fake_a:", 2 * MIB);
    usm__fault_disarm_all();
    CHECK(f.spill->frames.fd >= 0);
    m = model_of(&f, 7 * MIB, 2);
    (void)run_model(&m);
    end_model(&m);
    end(&f);
}

static void too_many_mappings_make_others_leave(void)
{
    fixture f;
    model   m;

    fake_reset();
    f       = fixture_of("fake_a:", 2 * MIB);
    m       = model_of(&f, 7 * MIB, 3);
    m.steps = 300;
    for (uint64_t n = 1; n < 12; n++) {
        CHECK(usm__fault_arm("os.mremap", n * n, false, USM_OK));
        (void)run_model(&m);
        usm__fault_disarm_all();
    }
    end_model(&m);
    end(&f);
}

static void threads_share_frames_not_contents(void)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    model     models[THREADS];
    fixture   f;

    fake_reset();
    fake_plan_of(FAKE_A)->thread = true;
    f                            = fixture_of("fake_a:", 4 * MIB);
    for (size_t i = 0; i < THREADS; i++) {
        models[i]       = model_of(&f, (2 + i) * MIB + i * 777, i + 10);
        models[i].steps = 800;
    }
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, run_model, &models[i]) == 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (size_t i = 0; i < THREADS; i++)
        end_model(&models[i]);
    end(&f);
}

/* --- pins that tell ------------------------------------------------------------------------ */

typedef struct told {
    usm__space *space;
    unsigned    times;
} told;

static void note_pinned(void *arg)
{
    told *t = arg;

    t->times++;
    CHECK(usm__space_is_pinned(t->space, 0, MIB, true));
    t->space->base[7]++;
}

static void use_the_rest(usm__space *space)
{
    for (size_t at = MIB; at < space->size; at += MIB) {
        CHECK_INT(pin(space, at, MIB, USM_READ_WRITE), USM_OK);
        memset(space->base + at, 1, MIB);
        usm__space_unpin(space, at, MIB, USM_READ_WRITE);
    }
}

static void a_pin_tells_once_that_it_is_there(void)
{
    fixture  f;
    told     t = {NULL, 0};
    usm__pin p;

    fake_reset();
    f       = fixture_of("fake_a:", 2 * MIB);
    t.space = space_of(&f, 8 * MIB, "told");
    p       = (usm__pin){t.space, 0, f.spill->block_size, USM_READ_WRITE};
    for (unsigned round = 1; round <= 6; round++) {
        CHECK_INT(usm__spill_pin_then(f.spill, &p, note_pinned, &t), USM_OK);
        CHECK_INT(t.times, round);
        CHECK_INT(t.space->base[7], (int)round);
        usm__space_unpin(p.space, p.offset, p.size, p.mode);
        if (round % 2 == 0)
            use_the_rest(t.space); /* it is not in memory in the next round */
    }
    fake_plan_of(FAKE_A)->fetch_eio = 1000;
    CHECK_INT(usm__spill_pin_then(f.spill, &p, note_pinned, &t), USM_E_IO);
    CHECK_INT(t.times, 6);
    fake_plan_of(FAKE_A)->fetch_eio = 0;
    usm__space_destroy(t.space);
    end(&f);
}

/* --- sizes ----------------------------------------------------------------------------------- */

static size_t block_for(size_t limit, const char *wanted)
{
    size_t  block;
    fixture f;

    CHECK_INT(usm_config_set("spill_block", wanted), USM_OK);
    f     = fixture_of("fake_a:", limit);
    block = f.spill->block_size;
    CHECK(f.spill->frames.count <= 8192);
    end(&f);
    CHECK_INT(usm_config_set("spill_block", "1M"), USM_OK);
    return block;
}

static void blocks_fit_the_limit(void)
{
    fake_reset();
    CHECK_INT(block_for(256 * MIB, "1M"), MIB);
    CHECK_INT(block_for(400 * MIB, "4K"), 64 * KIB); /* at most 8192 are mappings of their own */
    CHECK_INT(block_for(20480 * MIB, "1M"), 4 * MIB);
    CHECK_INT(block_for(2 * MIB, "1M"), 64 * KIB);
    CHECK_INT(block_for(256 * MIB, "300K"), 512 * KIB);
}

static size_t block_without_setting(size_t limit, size_t usual)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_context     *ctx;
    usm__spill      *spill;
    size_t           block;

    desc.host_limit = limit;
    CHECK_INT(usm_context_create(&desc, &ctx), USM_OK);
    CHECK_INT(usm__spill_of_blocks(ctx, usual, &spill), USM_OK);
    block = spill->block_size;
    CHECK_INT(usm__spill_of(ctx, &spill), USM_OK);
    CHECK_INT(spill->block_size, block);
    usm_context_destroy(ctx);
    return block;
}

static void the_first_user_chooses_blocks_where_no_setting_does(void)
{
    fake_reset();
    CHECK_INT(usm_config_set("spill_block", NULL), USM_OK);
    CHECK_INT(block_without_setting(256 * MIB, 0), MIB);
    CHECK_INT(block_without_setting(256 * MIB, 2 * MIB), 2 * MIB);
    CHECK_INT(block_without_setting(32 * MIB, 2 * MIB), MIB);
    CHECK_INT(usm_config_set("spill_block", "64K"), USM_OK);
    CHECK_INT(block_without_setting(256 * MIB, 2 * MIB), 64 * KIB);
    CHECK_INT(usm_config_set("spill_block", "1M"), USM_OK);
}

/* --- what costs nothing, what is refused ------------------------------------------------------ */

static void a_limit_may_be_more_than_the_machine_has(void)
{
    fixture     f;
    usm__space *space;

    fake_reset();
    f     = fixture_of("fake_a:", (size_t)1 << 38);
    space = space_of(&f, MIB, "small");
    CHECK_INT(pin(space, 0, MIB, USM_READ_WRITE), USM_OK);
    memset(space->base, 1, MIB);
    usm__space_unpin(space, 0, MIB, USM_READ_WRITE);
    usm__space_destroy(space);
    end(&f);
}

static void zero_blocks_are_not_stored(void)
{
    usm_spill_stats stats = {.struct_size = sizeof stats};
    fixture         f;
    usm__space     *space;

    fake_reset();
    f     = fixture_of("fake_a:", 2 * MIB);
    space = space_of(&f, 8 * MIB, "zeros");
    for (size_t at = 0; at < space->size; at += MIB) {
        CHECK_INT(pin(space, at, MIB, USM_WRITE_NO_INIT), USM_OK);
        memset(space->base + at, 0, MIB);
        usm__space_unpin(space, at, MIB, USM_WRITE_NO_INIT);
    }
    CHECK_INT(usm_spill_get_stats(f.ctx, &stats), USM_OK);
    CHECK(stats.zero_blocks > 0);
    CHECK_INT(fake_counts_of(FAKE_A).stores, 0);
    CHECK_INT(pin(space, 0, MIB, USM_READ), USM_OK);
    CHECK_INT(space->base[12345], 0);
    usm__space_unpin(space, 0, MIB, USM_READ);
    usm__space_destroy(space);
    end(&f);
}

static void more_than_the_limit_is_refused_at_once(void)
{
    fixture     f;
    usm__space *space;

    fake_reset();
    f     = fixture_of("fake_a:", 2 * MIB);
    space = space_of(&f, 8 * MIB, "large");
    CHECK_INT(pin(space, 0, 3 * MIB, USM_READ), USM_E_BUDGET);
    CHECK_IN("2048 KiB", usm_last_error());
    CHECK_INT(pin(space, 0, 2 * MIB, USM_READ), USM_OK);
    usm__space_unpin(space, 0, 2 * MIB, USM_READ);
    usm__space_destroy(space);
    end(&f);
}

static void memory_that_others_hold_is_refused_with_their_names(void)
{
    fixture     f;
    usm__space *holder, *other;

    fake_reset();
    f      = fixture_of("fake_a:", 2 * MIB);
    holder = space_of(&f, 2 * MIB, "the holder");
    other  = space_of(&f, MIB, "other");
    CHECK_INT(pin(holder, 0, 2 * MIB, USM_WRITE), USM_OK);
    CHECK_INT(pin(other, 0, 100, USM_READ), USM_E_AGAIN);
    CHECK_IN("\"the holder\" 2048 KiB", usm_last_error());
    CHECK_INT(pin(other, 0, 100, (usm_access_mode)(USM_READ | USM_NO_WAIT)), USM_E_AGAIN);
    usm__space_unpin(holder, 0, 2 * MIB, USM_WRITE);
    CHECK_INT(pin(other, 0, 100, USM_READ), USM_OK);
    usm__space_unpin(other, 0, 100, USM_READ);
    usm__space_destroy(holder);
    usm__space_destroy(other);
    end(&f);
}

static void fill(usm__space *space, int value)
{
    for (size_t at = 0; at < space->size; at += MIB) {
        CHECK_INT(pin(space, at, MIB, USM_WRITE_NO_INIT), USM_OK);
        memset(space->base + at, value + (int)(at / MIB), MIB);
        usm__space_unpin(space, at, MIB, USM_WRITE_NO_INIT);
    }
}

static void check_filled(usm__space *space, int value)
{
    for (size_t at = 0; at < space->size; at += MIB) {
        CHECK_INT(pin(space, at, MIB, USM_READ), USM_OK);
        for (size_t i = 0; i < MIB; i += 4096)
            CHECK_INT(space->base[at + i], value + (int)(at / MIB));
        usm__space_unpin(space, at, MIB, USM_READ);
    }
}

/* NO_INIT drops content: not before the access is certain. */
static void a_refused_no_init_access_changes_nothing(void)
{
    fixture     f;
    usm__space *a, *b;
    usm__pin    list[2];

    fake_reset();
    f = fixture_of("fake_a:", 2 * MIB);
    a = space_of(&f, 6 * MIB, "a");
    b = space_of(&f, 6 * MIB, "b");
    fill(a, 10);
    fill(b, 50);
    list[0] = (usm__pin){a, 0, MIB, USM_WRITE_NO_INIT};
    list[1] = (usm__pin){b, 0, MIB + MIB / 2, USM_READ};
    CHECK_INT(usm__spill_pin(f.spill, 2, list), USM_E_AGAIN);
    fake_plan_of(FAKE_A)->fetch_eio = 1000;
    list[1].offset                  = 3 * MIB;
    list[1].size                    = MIB / 2;
    CHECK_INT(usm__spill_pin(f.spill, 2, list), USM_E_IO);
    CHECK_IN("buffer \"b\"", usm_last_error());
    fake_plan_of(FAKE_A)->fetch_eio = 0;
    check_filled(a, 10);
    check_filled(b, 50);
    usm__space_destroy(a);
    usm__space_destroy(b);
    end(&f);
}

static void full_tiers_keep_what_is_in_memory(void)
{
    fixture     f;
    usm__space *space;
    usm_status  st = USM_OK;
    size_t      at = 0;

    fake_reset();
    fake_plan_of(FAKE_A)->capacity = 16; /* of 64 KiB: 1 MiB */
    f                              = fixture_of("fake_a:", 2 * MIB);
    space                          = space_of(&f, 8 * MIB, "too much");
    for (; at < space->size; at += 64 * KIB) {
        st = pin(space, at, 64 * KIB, USM_WRITE_NO_INIT);
        if (st != USM_OK)
            break;
        memset(space->base + at, 1 + (int)(at / (64 * KIB)), 64 * KIB);
        usm__space_unpin(space, at, 64 * KIB, USM_WRITE_NO_INIT);
    }
    CHECK_INT(st, USM_E_SPILL_FULL);
    CHECK(at >= 2 * MIB);
    fake_plan_of(FAKE_A)->capacity = UINT64_MAX; /* room again: all of it is still there */
    for (size_t i = 0; i < at; i += 64 * KIB) {
        while (pin(space, i, 64 * KIB, USM_READ) == USM_E_SPILL_FULL) /* the late one, told once */
            continue;
        CHECK_INT((unsigned char)space->base[i + 77], 1 + (int)(i / (64 * KIB)));
        usm__space_unpin(space, i, 64 * KIB, USM_READ);
    }
    usm__space_destroy(space);
    end(&f);
}

static void discarded_blocks_are_zero_and_nowhere(void)
{
    fixture     f;
    usm__space *space;

    fake_reset();
    f     = fixture_of("fake_a:", 2 * MIB);
    space = space_of(&f, 6 * MIB, "gone");
    fill(space, 1);
    CHECK_INT(pin(space, 0, 10, USM_READ), USM_OK);
    CHECK_INT(usm__space_advise(space, 0, space->size, USM_BUFFER_DISCARD), USM_E_BUSY);
    usm__space_unpin(space, 0, 10, USM_READ);
    CHECK_INT(usm__space_advise(space, 0, space->size, USM_BUFFER_DISCARD), USM_OK);
    CHECK_INT(fake_counts_of(FAKE_A).blocks, 0);
    CHECK_INT(pin(space, 5 * MIB, 10, USM_READ), USM_OK);
    CHECK_INT(space->base[5 * MIB], 0);
    usm__space_unpin(space, 5 * MIB, 10, USM_READ);
    usm__space_destroy(space);
    end(&f);
}

static void small_buffers_lie_side_by_side(void)
{
    enum { COUNT = 40 };
    usm__space *spaces[COUNT];
    size_t      offsets[COUNT];
    fixture     f;

    fake_reset();
    f = fixture_of("fake_a:", 32 * MIB);
    CHECK_INT(usm__segment_max(f.spill), 256 * KIB);
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_INT(usm__segment_alloc(f.spill, 8192, &spaces[i], &offsets[i]), USM_OK);
        CHECK_INT(offsets[i], offsets[0] + i * 8192);
        CHECK(spaces[i] == spaces[0]);
    }
    CHECK_INT((uintptr_t)(spaces[0]->base + offsets[3]) % 4096, 0);
    for (size_t i = 0; i < COUNT; i++)
        usm__segment_free(spaces[i], offsets[i], 8192);
    CHECK_INT(usm__segment_alloc(f.spill, 100, &spaces[0], &offsets[0]), USM_OK);
    CHECK_INT(offsets[0] % 64, 0);
    usm__segment_free(spaces[0], offsets[0], 100);
    end(&f);
}

static void a_child_is_refused(void)
{
    fixture     f;
    usm__space *space;
    pid_t       child;
    int         status = 0;

    fake_reset();
    f     = fixture_of("fake_a:", 2 * MIB);
    space = space_of(&f, MIB, "the parent's");
    CHECK_INT(pin(space, 0, 10, USM_WRITE), USM_OK);
    usm__space_unpin(space, 0, 10, USM_WRITE);
    child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(pin(space, 0, 10, USM_READ) == USM_E_FORKED ? 0 : 1);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    CHECK_INT(pin(space, 0, 10, USM_READ), USM_OK);
    usm__space_unpin(space, 0, 10, USM_READ);
    usm__space_destroy(space);
    end(&f);
}

/* --- whose turn it is ------------------------------------------------------------------------- */

static _Atomic(uint64_t)  ahead_ns; /* of the clock                                             */
static _Atomic(unsigned)  looks;    /* of the thread that waits last                            */
static _Thread_local bool is_last;

uint64_t __real_usm__os_now_ns(void);
uint64_t __wrap_usm__os_now_ns(void);

uint64_t __wrap_usm__os_now_ns(void)
{
    if (is_last)
        atomic_fetch_add(&looks, 1);
    return __real_usm__os_now_ns() + atomic_load(&ahead_ns);
}

typedef struct waiter {
    pthread_t   thread;
    usm__space *space;
    uint32_t    block;
    bool        is_last;
    usm_status  status;
} waiter;

static usm_status pin_one(usm__space *space, uint32_t block)
{
    usm__spill *s = space->spill;

    return pin(space, (size_t)block << s->shift, s->block_size, USM_READ);
}

static void unpin_one(usm__space *space, uint32_t block)
{
    usm__spill *s = space->spill;

    usm__space_unpin(space, (size_t)block << s->shift, s->block_size, USM_READ);
}

static void *wait_for_one(void *waiter_)
{
    waiter *w = waiter_;

    is_last   = w->is_last;
    w->status = pin_one(w->space, w->block);
    return NULL;
}

static void start_waiter(waiter *w, usm__space *space, uint32_t block, bool last)
{
    *w = (waiter){.space = space, .block = block, .is_last = last};
    CHECK(pthread_create(&w->thread, NULL, wait_for_one, w) == 0);
}

static const void *whose_turn(usm__spill *s)
{
    const void *turn;

    usm__mutex_lock(&s->lock);
    turn = s->ticket;
    usm__mutex_unlock(&s->lock);
    return turn;
}

static void await_look(unsigned seen)
{
    while (atomic_load(&looks) == seen)
        usleep(1000);
}

/* All memory is held; one waits, and has the turn; another waits for its turn, the longest part of
 * its time. */
static void the_turn_of_another_is_no_time_of_ones_own(void)
{
    fixture     f     = fixture_of("fake_a:", MIB);
    usm__space *space = space_of(&f, 4 * MIB, "turns");
    uint32_t    n     = 0;
    unsigned    seen;
    waiter      first, last;
    const void *turn;

    f.spill->wait_ms = 60000; /* of the clock below */
    while (pin(space, (size_t)n << f.spill->shift, f.spill->block_size, USM_READ | USM_NO_WAIT) ==
           USM_OK)
        n++;
    while (f.spill->spare != USM__NO_FRAME) /* kept for who may wait */
        CHECK_INT(pin_one(space, n++), USM_OK);
    CHECK(n >= 3);
    start_waiter(&first, space, n, false);
    while (!(turn = whose_turn(f.spill)))
        usleep(1000);
    start_waiter(&last, space, n + 1, true);
    await_look(0);
    atomic_fetch_add(&ahead_ns, UINT64_C(50000000000));
    unpin_one(space, 0);
    CHECK(pthread_join(first.thread, NULL) == 0);
    CHECK_INT(first.status, USM_OK);
    while (!whose_turn(f.spill) || whose_turn(f.spill) == turn)
        usleep(1000);
    atomic_fetch_add(&ahead_ns, UINT64_C(20000000000)); /* more than was left of its time */
    seen = atomic_load(&looks);
    usm__mutex_lock(&f.spill->lock);
    usm__spill_changed(f.spill);
    usm__mutex_unlock(&f.spill->lock);
    await_look(seen);
    unpin_one(space, 1);
    CHECK(pthread_join(last.thread, NULL) == 0);
    CHECK_INT(last.status, USM_OK);
    for (uint32_t i = 2; i < n + 2; i++)
        unpin_one(space, i);
    usm__space_destroy(space);
    end(&f);
}

static usm__space *held; /* its block 0 is pinned */

size_t __real_usm__parts_memory_starved(usm_context *owner, size_t bytes);
size_t __wrap_usm__parts_memory_starved(usm_context *owner, size_t bytes);

/* Called without a lock, and other parts could give memory: an access ends before the thread has
 * asked to be woken by its end. */
size_t __wrap_usm__parts_memory_starved(usm_context *owner, size_t bytes)
{
    if (!held)
        return __real_usm__parts_memory_starved(owner, bytes);
    unpin_one(held, 0);
    held = NULL;
    return 0;
}

static void an_access_that_ends_before_a_thread_sleeps_is_seen(void)
{
    fixture     f     = fixture_of("fake_a:", MIB);
    usm__space *space = space_of(&f, 4 * MIB, "missed");
    uint32_t    n     = 0;

    f.spill->wait_ms = 600000; /* longer than the test may take */
    CHECK_INT(usm__quota_add_host(f.spill->owner, f.spill->block_size), USM_OK);
    while (pin(space, (size_t)n << f.spill->shift, f.spill->block_size, USM_READ | USM_NO_WAIT) ==
           USM_OK)
        n++;
    while (f.spill->spare != USM__NO_FRAME) /* kept for who may wait */
        CHECK_INT(pin_one(space, n++), USM_OK);
    held = space;
    CHECK_INT(pin_one(space, n), USM_OK);
    CHECK(!held);
    for (uint32_t i = 1; i <= n; i++)
        unpin_one(space, i);
    usm__quota_sub_host(f.spill->owner, f.spill->block_size);
    usm__space_destroy(space);
    end(&f);
}

static const plain_case cases[] = {
    CASE(contents_survive_tiers_that_end_transfers_at_once),
    CASE(contents_survive_tiers_with_a_thread),
    CASE(contents_survive_tiers_without_a_thread),
    CASE(contents_survive_where_pages_cannot_be_moved),
    CASE(too_many_mappings_make_others_leave),
    CASE(threads_share_frames_not_contents),
    CASE(a_pin_tells_once_that_it_is_there),
    CASE(blocks_fit_the_limit),
    CASE(the_first_user_chooses_blocks_where_no_setting_does),
    CASE(a_limit_may_be_more_than_the_machine_has),
    CASE(zero_blocks_are_not_stored),
    CASE(more_than_the_limit_is_refused_at_once),
    CASE(memory_that_others_hold_is_refused_with_their_names),
    CASE(a_refused_no_init_access_changes_nothing),
    CASE(full_tiers_keep_what_is_in_memory),
    CASE(discarded_blocks_are_zero_and_nowhere),
    CASE(small_buffers_lie_side_by_side),
    CASE(the_turn_of_another_is_no_time_of_ones_own),
    CASE(an_access_that_ends_before_a_thread_sleeps_is_seen),
    CASE(a_child_is_refused),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
