/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What base promises about statuses and stories, thread blocks, ranked mutexes, fault points, the
 * metadata arena, hashes, keys and fork.  Settings and the log are in test_settings.c, system calls
 * in test_os.c. */
#include "plain.h"

#include "base/fault.h"
#include "base/fork.h"
#include "base/hash.h"
#include "base/inline/hex.h"
#include "base/log.h"
#include "base/meta.h"
#include "base/mutex.h"
#include "base/os.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/thread.h"

#include <errno.h>
#include <link.h>
#include <sys/mman.h>

/* --- helpers -------------------------------------------------------------- */

typedef void *thread_fn(void *);

static void run_thread(thread_fn *fn, void *arg)
{
    pthread_t thread;

    CHECK_INT(pthread_create(&thread, NULL, fn, arg), 0);
    CHECK_INT(pthread_join(thread, NULL), 0);
}

/* --- statuses and stories ------------------------------------------------- */

static void every_status_has_its_name_and_a_meaning(void)
{
#define CHECK_NAME(name, number, meaning)                                                          \
    CHECK_INT(name, number);                                                                       \
    CHECK_STR(usm_status_name(name), #name);                                                       \
    CHECK_STR(usm_status_string(name), meaning);
    USM_STATUS_LIST(CHECK_NAME)
#undef CHECK_NAME
}

static void an_unknown_number_is_an_unknown_status(void)
{
    CHECK_STR(usm_status_name((usm_status)-50), "unknown status");
    CHECK_STR(usm_status_string((usm_status)1), "unknown status");
}

static void *look_before_any_failure(void *arg)
{
    (void)arg;
    CHECK_STR(usm_last_error(), "");
    CHECK_INT(usm_last_status(), USM_OK);
    CHECK(usm__self.block == NULL); /* asking costs nothing */
    return NULL;
}

static void a_thread_without_failure_has_no_story(void)
{
    run_thread(look_before_any_failure, NULL);
}

static void a_failure_leaves_its_status_and_story(void)
{
    CHECK_INT(usm__fail(USM_E_KIND, "kind %d is none", 7), USM_E_KIND);
    CHECK_STR(usm_last_error(), "kind 7 is none");
    CHECK_INT(usm_last_status(), USM_E_KIND);
}

static void a_long_story_ends_after_a_whole_character(void)
{
    char   text[3 * USM__STORY_SIZE];
    size_t n;

    for (size_t shift = 0; shift < 3; shift++) { /* a three-byte character at each position */
        memset(text, 'x', sizeof(text));
        for (n = shift; n + 3 < sizeof(text); n += 3)
            memcpy(text + n, "\xe2\x82\xac", 3);
        text[n] = '\0';
        usm__note(USM_E_INVALID, "%s", text);
        n = strlen(usm_last_error());
        CHECK(n > USM__STORY_SIZE - 8 && n < USM__STORY_SIZE);
        CHECK_STR(usm_last_error() + n - 3, "...");
        CHECK_INT((n - 3 - shift) % 3, 0);
        CHECK(memcmp(usm_last_error(), text, n - 3) == 0);
    }
}

static void a_story_that_just_fits_is_whole(void)
{
    char text[USM__STORY_SIZE];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    usm__note(USM_E_INVALID, "%s", text);
    CHECK_STR(usm_last_error(), text);
}

static void a_story_ends_without_a_newline(void)
{
    usm__note(USM_E_BUILD, "%s", "error: no\r\n\n");
    CHECK_STR(usm_last_error(), "error: no");
    usm__note(USM_E_BUILD, "%s", "\n");
    CHECK_STR(usm_last_error(), "");
}

static void a_story_may_quote_the_one_before(void)
{
    usm__note(USM_E_DEVICE, "the driver said -5");
    usm__note(USM_E_DEVICE, "queue 1: %s, again: %s", usm_last_error(), usm_last_error());
    CHECK_STR(usm_last_error(), "queue 1: the driver said -5, again: the driver said -5");
}

static void noting_leaves_errno_alone(void)
{
    errno = EDOM;
    usm__note(USM_E_SYSTEM, "%s", "x");
    CHECK_INT(errno, EDOM);
}

static void *fail_differently(void *arg)
{
    (void)arg;
    CHECK_STR(usm_last_error(), "");
    usm__note(USM_E_BUSY, "theirs");
    CHECK_STR(usm_last_error(), "theirs");
    return NULL;
}

static void each_thread_has_a_story_of_its_own(void)
{
    usm__note(USM_E_KIND, "mine");
    run_thread(fail_differently, NULL);
    CHECK_STR(usm_last_error(), "mine");
    CHECK_INT(usm_last_status(), USM_E_KIND);
}

static void a_story_is_put_aside_and_taken_up_again(void)
{
    usm__message s;

    usm__note(USM_E_KIND, "first");
    usm__message_save(&s);
    usm__note(USM_E_BUSY, "second");
    usm__message_restore(&s);
    CHECK_STR(usm_last_error(), "first");
    CHECK_INT(usm_last_status(), USM_E_KIND);
}

static void *put_aside_nothing(void *arg)
{
    usm__message s;

    (void)arg;
    usm__message_save(&s);
    usm__note(USM_E_BUSY, "second");
    usm__message_restore(&s);
    CHECK_STR(usm_last_error(), "");
    CHECK_INT(usm_last_status(), USM_OK);
    return NULL;
}

static void having_had_no_failure_is_taken_up_again_too(void)
{
    run_thread(put_aside_nothing, NULL);
}

/* --- thread blocks -------------------------------------------------------- */

static int tls_of_program(struct dl_phdr_info *info, size_t size, void *bytes)
{
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS)
            *(size_t *)bytes = info->dlpi_phdr[i].p_memsz;
    return 1; /* the first object is the program, with all of base in it */
}

static void thread_local_state_stays_under_128_bytes(void)
{
    size_t bytes = 0;

    CHECK(sizeof(usm__tls) <= 64);
    CHECK(dl_iterate_phdr(tls_of_program, &bytes) == 1);
    CHECK(bytes >= sizeof(usm__tls)); /* it was found */
    CHECK(bytes <= 128 || PLAIN_SANITIZED);
}

static void *note_and_tell_block(void *arg)
{
    *(usm__thread **)arg = usm__thread_self();
    CHECK_STR(usm_last_error(), "");
    CHECK_INT(usm_last_status(), USM_OK);
    usm__note(USM_E_BUSY, "of thread %p", arg);
    return NULL;
}

static void a_block_is_used_again_after_its_thread(void)
{
    usm__thread *first = NULL, *second = NULL;

    run_thread(note_and_tell_block, &first);
    run_thread(note_and_tell_block, &second); /* and finds no message in it */
    CHECK(first != NULL && first == second);
}

enum { MANY = 200 }; /* more blocks than a chunk has */

typedef struct crowd {
    pthread_barrier_t noted, looked;
    atomic_int        with_block, without;
} crowd;

static void *note_in_crowd(void *arg)
{
    crowd *c = arg;

    errno = EDOM;
    (void)usm__fail(USM_E_DEVICE_LOST, "gone");
    CHECK_INT(errno, EDOM);
    (void)pthread_barrier_wait(&c->noted); /* all have a block, or none left for them */
    CHECK_INT(usm_last_status(), USM_E_DEVICE_LOST);
    if (usm__self.block != NULL) {
        CHECK_STR(usm_last_error(), "gone");
        atomic_fetch_add(&c->with_block, 1);
    } else {
        CHECK_IN("its error message is lost", usm_last_error());
        atomic_fetch_add(&c->without, 1);
    }
    (void)pthread_barrier_wait(&c->looked);
    (void)usm__fail(USM_E_BUSY, "memory is back");
    CHECK_STR(usm_last_error(), "memory is back");
    CHECK_INT(usm_last_status(), USM_E_BUSY);
    return NULL;
}

static void a_thread_that_can_have_no_block_keeps_its_status(void)
{
    static pthread_t threads[MANY];
    crowd            c;

    usm__note(USM_E_BUSY, "this thread has its block");
    atomic_init(&c.with_block, 0);
    atomic_init(&c.without, 0);
    CHECK_INT(pthread_barrier_init(&c.noted, NULL, MANY + 1), 0);
    CHECK_INT(pthread_barrier_init(&c.looked, NULL, MANY + 1), 0);
    CHECK(usm__fault_arm("os.mmap", 1, true, USM_OK));
    for (int i = 0; i < MANY; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, note_in_crowd, &c), 0);
    (void)pthread_barrier_wait(&c.noted);
    usm__fault_disarm_all();
    (void)pthread_barrier_wait(&c.looked);
    for (int i = 0; i < MANY; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    CHECK(atomic_load(&c.with_block) > 0);
    CHECK(atomic_load(&c.without) > 0);
    (void)pthread_barrier_destroy(&c.noted);
    (void)pthread_barrier_destroy(&c.looked);
}

static pthread_key_t late_key;

static void fail_late(void *arg)
{
    (void)arg;
    CHECK(usm__self.block == NULL); /* it was given back: it may be another thread's by now */
    usm__note(USM_E_BUSY, "late");
    CHECK_STR(usm_last_error(), "late");
}

static void *fail_in_a_destructor(void *arg)
{
    CHECK_INT(pthread_setspecific(late_key, arg), 0);
    usm__note(USM_E_BUSY, "early");
    return NULL;
}

static void a_thread_may_fail_while_it_ends(void)
{
    usm__thread *block = NULL;

    CHECK_INT(pthread_key_create(&late_key, fail_late), 0); /* runs after ours: made later */
    run_thread(fail_in_a_destructor, &block);
    run_thread(note_and_tell_block, &block); /* the free list is whole */
    CHECK(block != NULL);
    CHECK_INT(pthread_key_delete(late_key), 0);
}

/* --- ranked mutexes ------------------------------------------------------- */

static usm__mutex queue_lock = USM__MUTEX_INIT(USM__RANK_QUEUE, "a queue");
static usm__mutex pool_lock  = USM__MUTEX_INIT(USM__RANK_POOL, "a pool");

static void mutexes_of_rising_rank_nest_and_are_given_back_in_any_order(void)
{
    CHECK(usm__mutex_none_held());
    usm__mutex_lock(&queue_lock);
    usm__mutex_lock(&pool_lock);
    usm__mutex_unlock(&queue_lock);
#ifndef NDEBUG
    CHECK(!usm__mutex_none_held());
#endif
    usm__mutex_unlock(&pool_lock);
    CHECK(usm__mutex_none_held());
    usm__mutex_lock(&queue_lock);
    usm__mutex_unlock(&queue_lock);
}

#ifndef NDEBUG /* ranks are checked in debug builds only */
static usm__mutex other_pool = USM__MUTEX_INIT(USM__RANK_POOL, "another pool");

static const char *error_text(const char *path)
{
    static char text[4096];

    return plain_read(path, text, sizeof(text));
}

static bool died_of(int status, int signal)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == signal;
}

static void lock_downwards(void)
{
    usm__mutex_lock(&pool_lock);
    usm__mutex_lock(&queue_lock);
}

static void lock_equals(void)
{
    usm__mutex_lock(&pool_lock);
    usm__mutex_lock(&other_pool);
}

static void lock_past_a_hole(void)
{
    usm__mutex_lock(&queue_lock);
    usm__mutex_lock(&pool_lock);
    usm__mutex_unlock(&queue_lock);
    usm__mutex_lock(&queue_lock);
}

static void unlock_what_is_free(void)
{
    usm__mutex_unlock(&pool_lock);
}

static void check_death(void (*fn)(void), const char *say, const char *also)
{
    const char *errors = plain_path("errors");

    CHECK(died_of(plain_child(fn, errors), SIGABRT));
    CHECK_IN(say, error_text(errors));
    CHECK_IN(also, error_text(errors));
}

static void a_lower_rank_aborts_with_both_names(void)
{
    check_death(lock_downwards, "taking lock \"a queue\"", "while holding \"a pool\"");
}

static void an_equal_rank_aborts_with_both_names(void)
{
    check_death(lock_equals, "taking lock \"another pool\"", "while holding \"a pool\"");
}

static void the_order_is_checked_after_an_older_lock_went(void)
{
    check_death(lock_past_a_hole, "taking lock \"a queue\"", "while holding \"a pool\"");
}

static void giving_back_a_lock_that_is_not_held_aborts(void)
{
    check_death(unlock_what_is_free, "giving back lock \"a pool\"", "nothing");
}
#endif

/* --- fault points --------------------------------------------------------- */

static bool hit(const char *name)
{
    return usm__fault_hit(name, NULL);
}

static void the_nth_call_fails_and_no_other(void)
{
    usm__fault_disarm_all();
    CHECK(!hit("a"));
    CHECK(usm__fault_arm("a", 3, false, USM_OK));
    CHECK(!hit("a"));
    CHECK(!hit("b"));
    CHECK(!hit("a"));
    CHECK(hit("a"));
    CHECK(!hit("a"));
    CHECK_INT(usm__fault_fired(), 1);
    CHECK_INT(usm__fault_counted(), 4);
    usm__fault_disarm_all();
}

static void onwards_means_all_calls_after_it_too(void)
{
    CHECK(usm__fault_arm("a", 2, true, USM_OK));
    CHECK(!hit("a"));
    CHECK(hit("a"));
    CHECK(hit("a"));
    CHECK_INT(usm__fault_fired(), 2);
    usm__fault_disarm_all();
    CHECK(!hit("a"));
}

static void n_zero_only_counts(void)
{
    CHECK(usm__fault_arm("*", 0, true, USM_OK));
    CHECK(!hit("a"));
    CHECK(!hit("b"));
    usm__fault_disarm_all();
    CHECK_INT(usm__fault_counted(), 2); /* still readable */
    CHECK_INT(usm__fault_fired(), 0);
}

static void a_star_stands_for_all_names_that_begin_so(void)
{
    CHECK(usm__fault_arm("os.*", 1, true, USM_OK));
    CHECK(hit("os.mmap"));
    CHECK(hit("os."));
    CHECK(!hit("heap.alloc"));
    CHECK(!hit("os"));
    usm__fault_disarm_all();
}

static void a_rule_gives_the_status_it_was_armed_with(void)
{
    usm_status status = USM_E_BUSY;

    CHECK(usm__fault_arm("copy", 1, false, USM_E_DEVICE_LOST));
    CHECK(usm__fault_arm("fill", 1, false, USM_OK));
    CHECK(usm__fault_hit("fill", &status));
    CHECK_INT(status, USM_E_BUSY);
    CHECK(usm__fault_hit("copy", &status));
    CHECK_INT(status, USM_E_DEVICE_LOST);
    usm__fault_disarm_all();
}

static void benign_calls_neither_fail_nor_count(void)
{
    CHECK(usm__fault_arm("a", 1, false, USM_OK));
    usm__fault_benign_begin();
    usm__fault_benign_begin();
    CHECK(!hit("a"));
    usm__fault_benign_end();
    CHECK(!hit("a"));
    usm__fault_benign_end();
    CHECK_INT(usm__fault_counted(), 0);
    CHECK(hit("a"));
    usm__fault_disarm_all();
}

static void there_is_room_for_16_rules_and_no_endless_name(void)
{
    char name[100];

    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    CHECK(!usm__fault_arm(name, 1, false, USM_OK));
    for (int i = 0; i < 16; i++)
        CHECK(usm__fault_arm("a", 100, false, USM_OK));
    CHECK(!usm__fault_arm("a", 1, false, USM_OK));
    usm__fault_disarm_all();
    CHECK(!hit("a"));
    CHECK(usm__fault_arm("a", 1, false, USM_OK));
    usm__fault_disarm_all();
}

/* --- the metadata arena --------------------------------------------------- */

typedef struct object {
    atomic_uint magic; /* kept */
    unsigned    generation;
    char        body[90];
} object;

static usm__meta_type objects = USM__META_TYPE(object, sizeof(unsigned), "test objects");
static usm__meta_type giants  = {
     USM__MUTEX_INIT(USM__RANK_META, "giants"), 100000, 8, 0, 0, 0, 0, 0, 0, 0, 0};

static bool is_zero(const void *p, size_t n)
{
    const char *c = p;

    while (n > 0 && c[n - 1] == 0)
        n--;
    return n == 0;
}

static void fresh_slots_are_zero_and_aligned(void)
{
    object *a = usm__meta_alloc(&objects), *b = usm__meta_alloc(&objects);
    char   *giant = usm__meta_alloc(&giants);

    CHECK(a != NULL && b != NULL && giant != NULL && a != b);
    CHECK_INT((uintptr_t)a % 64, 0);
    CHECK(is_zero(a, sizeof(*a)));
    CHECK(is_zero(giant, 100000));
    memset(giant, 1, 100000);
    CHECK_INT(objects.live, 2);
    usm__meta_free(&objects, a);
    usm__meta_free(&objects, b);
    usm__meta_free(&giants, giant);
    usm__meta_free(&objects, NULL);
    CHECK_INT(objects.live, 0);
}

static void a_freed_slot_rests_for_64_others_and_keeps_its_magic(void)
{
    object *first  = usm__meta_alloc(&objects), *o;
    int     others = 0;

    CHECK(first != NULL);
    atomic_store(&first->magic, 0xdead);
    memset(first->body, 'x', sizeof(first->body));
    usm__meta_free(&objects, first);
    CHECK_INT(atomic_load(&first->magic), 0xdead);
    do { /* one at a time: each free lets the oldest go one step */
        o = usm__meta_alloc(&objects);
        CHECK(o != NULL);
        if (o != first)
            usm__meta_free(&objects, o);
    } while (o != first && ++others < 10000);
    CHECK(others >= USM__META_QUARANTINE);
    CHECK(o == first); /* it does come back */
    CHECK_INT(atomic_load(&o->magic), 0xdead);
    CHECK_INT(o->generation, 0);
    CHECK(is_zero(o->body, sizeof(o->body)));
    usm__meta_free(&objects, o);
}

static void slots_are_used_again_so_that_memory_is_bounded(void)
{
    enum { ROUNDS = 20000 };
    char   *chunk;
    object *o = usm__meta_alloc(&objects);

    usm__meta_free(&objects, o);
    for (int i = 0; i < 2 * USM__META_QUARANTINE; i++)
        usm__meta_free(&objects, usm__meta_alloc(&objects));
    chunk = objects.chunk;
    for (int i = 0; i < ROUNDS; i++)
        usm__meta_free(&objects, usm__meta_alloc(&objects));
    CHECK(objects.chunk == chunk);
}

static void without_memory_the_rest_of_freed_slots_is_not_cut_short(void)
{
    static usm__meta_type scarce = USM__META_TYPE(object, 4, "scarce");
    static object        *taken[4096]; /* more than a chunk holds */
    int                   n = 1;

    taken[0] = usm__meta_alloc(&scarce);
    CHECK(usm__fault_arm("os.mmap", 1, true, USM_OK));
    while (n < 4096 && (taken[n] = usm__meta_alloc(&scarce)) != NULL)
        n++;
    CHECK(n > USM__META_QUARANTINE && n < 4096);
    for (int i = 0; i <= USM__META_QUARANTINE; i++) {
        CHECK(usm__meta_alloc(&scarce) == NULL);
        usm__meta_free(&scarce, taken[i]);
    }
    CHECK(usm__meta_alloc(&scarce) == taken[0]);
    CHECK(usm__meta_alloc(&scarce) == NULL);
    usm__fault_disarm_all();
    CHECK_INT(scarce.live, n - USM__META_QUARANTINE);
}

/* --- hash ----------------------------------------------------------------- */

static void the_hash_is_fnv1a_of_128_bits(void)
{
    usm__hash h = USM__HASH_INIT, parts = USM__HASH_INIT;

    usm__hash_add(&h, "hello", 5); /* published vector */
    CHECK(h.hi == 0xe3e1efd54283d94full && h.lo == 0x7081314b599d31b3ull);
    usm__hash_add(&parts, "hel", 3);
    usm__hash_add(&parts, "lo", 2);
    CHECK(parts.hi == h.hi && parts.lo == h.lo);
}

/* --- keys in hexadecimal digits ------------------------------------------- */

static void a_key_is_32_or_64_hexadecimal_digits(void)
{
    static const char text[] = "00fF1234567890aBcDeF0918273645a00123456789abcdefFEDCBA98765432xy";
    unsigned char     key[USM__KEY_MAX] = {0};
    const char        last[] = {'0', '9', 'a', 'f', 'A', 'F', '/', ':', '`', 'g', '@', 'G', '\0'};
    char              one[33];

    CHECK_INT(usm__hex_key(text, 32, key), 16);
    CHECK_INT(key[0], 0x00);
    CHECK_INT(key[1], 0xff);
    CHECK_INT(key[15], 0xa0);
    CHECK_INT(usm__hex_key(text, 64, key), 0); /* x and y */
    CHECK_INT(key[1], 0xff);                   /* untouched */
    CHECK_INT(usm__hex_key(text, 31, key), 0);
    CHECK_INT(usm__hex_key(text, 33, key), 0);
    CHECK_INT(usm__hex_key(text, 0, key), 0);
    memcpy(one, text, 32);
    for (size_t i = 0; i < sizeof last; i++) { /* the ends of each range of digits */
        one[31] = last[i];
        CHECK_INT(usm__hex_key(one, 32, key), i < 6 ? 16 : 0);
        CHECK_INT(usm__hex_is_key(one, 32), i < 6);
    }
    CHECK_INT(
        usm__hex_key("0123456789abcdef0123456789abcdef0123456789abcdef0123456789ABCDEF", 64, key),
        32);
    CHECK_INT(key[31], 0xef);
}

static void only_spaces_and_line_ends_may_follow_a_key(void)
{
    static const char digits[] = "0123456789abcdef0123456789abcdef";
    unsigned char     key[USM__KEY_MAX];
    char              text[64];

    for (int i = 0; i < 5; i++) {
        static const char *const after[] = {"\n", " \r\n", "   ", "\t", "\nx"};
        int                      n       = snprintf(text, sizeof text, "%s%s", digits, after[i]);

        CHECK_INT(usm__hex_key(text, (size_t)n, key), i < 3 ? 16 : 0);
        CHECK(!usm__hex_is_key(text, (size_t)n)); /* a setting has nothing behind its key */
    }
    CHECK_INT(usm__hex_key(" 0123456789abcdef0123456789abcdef", 33, key), 0);
}

/* --- many threads, and fork ----------------------------------------------- */

typedef struct load {
    atomic_bool stop;
    atomic_int  rounds;
} load;

/* All of base that takes locks or swaps pointers. */
static void use_everything(unsigned round)
{
    object     *o = usm__meta_alloc(&objects);
    const char *value;
    char        text[32];

    CHECK(o != NULL);
    CHECK(usm__setting_text("pool") != NULL);
    (void)snprintf(text, sizeof(text), "arena%u", round % 8);
    CHECK_INT(usm__settings_set("pool", text), USM_OK);
    CHECK_INT(usm__settings_get("pool", &value, NULL), USM_OK);
    CHECK(strncmp(value, "arena", 5) == 0);
    usm__note(USM_E_BUSY, "round %u", round);
    (void)snprintf(text, sizeof(text), "round %u", round);
    CHECK_STR(usm_last_error(), text);
    usm__warn("round %u", round);
    (void)hit("stress");
    usm__meta_free(&objects, o);
}

static void *work(void *arg)
{
    load *l = arg;

    for (unsigned i = 0; !atomic_load(&l->stop); i++) {
        use_everything(i);
        atomic_fetch_add(&l->rounds, 1);
    }
    return NULL;
}

static void *come_and_go(void *arg)
{
    usm__note(USM_E_BUSY, "came");
    CHECK_STR(usm_last_error(), "came");
    return arg;
}

static void log_to_null(void)
{
    CHECK_INT(usm__settings_set("log", "output:/dev/null"), USM_OK);
    CHECK(usm__fault_arm("stress", 5, true, USM_OK));
}

static void end_load(load *l, pthread_t *threads, int n)
{
    atomic_store(&l->stop, true);
    for (int i = 0; i < n; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    usm__fault_disarm_all();
    usm__settings_forget();
}

static void threads_use_all_of_base_at_once(void)
{
    load      l;
    pthread_t threads[3];

    atomic_init(&l.stop, false);
    atomic_init(&l.rounds, 0);
    log_to_null();
    for (int i = 0; i < 3; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, work, &l), 0);
    for (int i = 0; i < 200; i++) {
        run_thread(come_and_go, NULL);
        CHECK_INT(usm__settings_set("log", i % 2 ? "output:/dev/null" : "output:/dev/null;error"),
                  USM_OK);
    }
    while (atomic_load(&l.rounds) < 300)
        usm__os_sleep_ns(1000000);
    end_load(&l, threads, 3);
    CHECK_INT(objects.live, 0);
}

static void use_everything_in_child(void)
{
    for (unsigned i = 0; i < 100; i++)
        use_everything(i);
    CHECK(usm__mutex_none_held());
}

static void prepare(void)
{
    usm__base_fork(USM_FORK_PREPARE);
}

static void in_parent(void)
{
    usm__base_fork(USM_FORK_PARENT);
}

static void in_child(void)
{
    usm__base_fork(USM_FORK_CHILD);
}

static void handle_forks(void)
{
    static bool once;

    if (!once)
        CHECK_INT(pthread_atfork(prepare, in_parent, in_child), 0);
    once = true;
}

static void a_child_can_use_what_other_threads_were_using(void)
{
    load      l;
    pthread_t threads[2];

    atomic_init(&l.stop, false);
    atomic_init(&l.rounds, 0);
    handle_forks();
    log_to_null();
    for (int i = 0; i < 2; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, work, &l), 0);
    for (int i = 0; i < 50; i++)
        CHECK_INT(plain_child(use_everything_in_child, NULL), 0);
    end_load(&l, threads, 2);
}

/* Holds the lock nearly always, so that a fork that does not wait for it finds it held. */
static void *hold_a_lock(void *arg)
{
    load *l = arg;

    while (!atomic_load(&l->stop)) {
        usm__mutex_lock(&objects.lock);
        atomic_fetch_add(&l->rounds, 1);
        usm__os_sleep_ns(5000000);
        usm__mutex_unlock(&objects.lock);
        usm__os_sleep_ns(1000); /* or nobody else would ever get it */
    }
    return NULL;
}

static void a_fork_waits_for_the_locks_of_other_threads(void)
{
    load      l;
    pthread_t thread;

    atomic_init(&l.stop, false);
    atomic_init(&l.rounds, 0);
    handle_forks();
    log_to_null();
    usm__meta_free(&objects, usm__meta_alloc(&objects)); /* the type is known */
    CHECK_INT(pthread_create(&thread, NULL, hold_a_lock, &l), 0);
    while (atomic_load(&l.rounds) == 0)
        usm__os_sleep_ns(100000);
    for (int i = 0; i < 5; i++)
        CHECK_INT(plain_child(use_everything_in_child, NULL), 0);
    end_load(&l, &thread, 1);
}

static const plain_case cases[] = {
    CASE(every_status_has_its_name_and_a_meaning),
    CASE(an_unknown_number_is_an_unknown_status),
    CASE(a_thread_without_failure_has_no_story),
    CASE(a_failure_leaves_its_status_and_story),
    CASE(a_long_story_ends_after_a_whole_character),
    CASE(a_story_that_just_fits_is_whole),
    CASE(a_story_ends_without_a_newline),
    CASE(a_story_may_quote_the_one_before),
    CASE(noting_leaves_errno_alone),
    CASE(each_thread_has_a_story_of_its_own),
    CASE(a_story_is_put_aside_and_taken_up_again),
    CASE(having_had_no_failure_is_taken_up_again_too),
    CASE(thread_local_state_stays_under_128_bytes),
    CASE(a_block_is_used_again_after_its_thread),
    CASE(a_thread_that_can_have_no_block_keeps_its_status),
    CASE(a_thread_may_fail_while_it_ends),
    CASE(mutexes_of_rising_rank_nest_and_are_given_back_in_any_order),
#ifndef NDEBUG
    CASE(a_lower_rank_aborts_with_both_names),
    CASE(an_equal_rank_aborts_with_both_names),
    CASE(the_order_is_checked_after_an_older_lock_went),
    CASE(giving_back_a_lock_that_is_not_held_aborts),
#endif
    CASE(the_nth_call_fails_and_no_other),
    CASE(onwards_means_all_calls_after_it_too),
    CASE(n_zero_only_counts),
    CASE(a_star_stands_for_all_names_that_begin_so),
    CASE(a_rule_gives_the_status_it_was_armed_with),
    CASE(benign_calls_neither_fail_nor_count),
    CASE(there_is_room_for_16_rules_and_no_endless_name),
    CASE(fresh_slots_are_zero_and_aligned),
    CASE(a_freed_slot_rests_for_64_others_and_keeps_its_magic),
    CASE(slots_are_used_again_so_that_memory_is_bounded),
    CASE(without_memory_the_rest_of_freed_slots_is_not_cut_short),
    CASE(the_hash_is_fnv1a_of_128_bits),
    CASE(a_key_is_32_or_64_hexadecimal_digits),
    CASE(only_spaces_and_line_ends_may_follow_a_key),
    CASE(threads_use_all_of_base_at_once),
    CASE(a_child_can_use_what_other_threads_were_using),
    CASE(a_fork_waits_for_the_locks_of_other_threads),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
