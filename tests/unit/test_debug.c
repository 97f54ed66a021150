/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* USM_DEBUG=redzone,poison,leaks, as a program sees it: each case in a process of its own, for the
 * setting is read once, and what is reported goes to its log. */
#include "plain.h"

#include "base/fault.h"
#include "overrun_kernels.h" /* made of overrun.cl by usm_add_kernels() */

#include <usm/usm.h>

#define OK(call) CHECK_INT((call), USM_OK)

static char errors[16384]; /* what the last child logged */

/* Runs `fn` in a child, which must come back (or leave by exit(0)). */
static void in_child(void (*fn)(void))
{
    const char *path   = plain_path("errors");
    int         status = plain_child(fn, path);

    (void)plain_read(path, errors, sizeof errors);
    if (status != 0)
        printf("# the child: status %d\n%s\n", status, errors);
    CHECK_INT(status, 0);
}

static size_t count_in(const char *part, const char *whole)
{
    size_t n = 0;

    for (const char *at = strstr(whole, part); at; at = strstr(at + 1, part))
        n++;
    return n;
}

static bool is_offered(usm_kind kind)
{
    static const usm_aspect needed[] = {0, USM_ASPECT_USM_HOST_ALLOCATIONS,
                                        USM_ASPECT_USM_DEVICE_ALLOCATIONS,
                                        USM_ASPECT_USM_SHARED_ALLOCATIONS};

    return usm_device_has(usm_queue_get_device(usm_default_queue()), needed[kind]);
}

static void set(const char *checks)
{
    OK(usm_config_set("debug", checks));
    CHECK(usm_default_queue() != NULL);
}

/* --- kernels, which alone can write past a block of device memory ----------------------------- */

static void poke_range(const usm_range *r, void *const *args)
{
    (void)r;
    (*(unsigned char **)args[0])[*(const long *)args[1]] = *(const unsigned char *)args[2];
}

static void peek_range(const usm_range *r, void *const *args)
{
    (void)r;
    **(unsigned char **)args[2] = (*(unsigned char **)args[0])[*(const long *)args[1]];
}

static bool has_kernels(void)
{
    return usm_device_has(usm_queue_get_device(usm_default_queue()), USM_ASPECT_KERNELS);
}

static usm_kernel *kernel_named(const char *name)
{
    static const usm_arg_kind      poke_kinds[] = {USM_ARG_POINTER, USM_ARG_VALUE, USM_ARG_VALUE};
    static const usm_arg_kind      peek_kinds[] = {USM_ARG_POINTER, USM_ARG_VALUE, USM_ARG_POINTER};
    static const usm_native_kernel native[]     = {{"poke", poke_range, 3, poke_kinds},
                                                   {"peek", peek_range, 3, peek_kinds}};
    static const usm_image         images[]     = {{USM_IMAGE_NATIVE, native, sizeof native},
                                                   {USM_IMAGE_BUNDLE, overrun_kernels, 0}};
    static usm_program            *program;
    usm_image                      list[2] = {images[0], images[1]};
    usm_program_desc               desc    = USM_PROGRAM_DESC_INIT;
    usm_kernel                    *kernel  = NULL;

    list[1].size = overrun_kernels_size;
    desc.nimages = 2;
    desc.images  = list;
    if (!program)
        OK(usm_program_create(usm_default_context(), &desc, &program));
    OK(usm_kernel_create(program, name, &kernel));
    return kernel;
}

static void launch(const char *name, size_t nargs, const usm_arg *args)
{
    usm_launch l = USM_LAUNCH_INIT;

    l.kernel    = kernel_named(name);
    l.global[0] = 1;
    l.nargs     = nargs;
    l.args      = args;
    OK(usm_queue_submit(usm_default_queue(), &l, 0, NULL, NULL));
    OK(usm_queue_wait(usm_default_queue()));
    usm_kernel_destroy(l.kernel);
}

static void device_poke(void *p, long offset, unsigned char value)
{
    const usm_arg args[] = {USM_ARG_PTR(p), USM_ARG_VAL(offset), USM_ARG_VAL(value)};

    launch("poke", 3, args);
}

static unsigned char device_peek(void *p, long offset)
{
    unsigned char *result = usm_alloc_host(1), value;
    const usm_arg  args[] = {USM_ARG_PTR(p), USM_ARG_VAL(offset), USM_ARG_PTR(result)};

    CHECK(result != NULL);
    launch("peek", 3, args);
    value = *result;
    usm_free(result);
    return value;
}

/* --- red zones ------------------------------------------------------------------------------- */

static usm_kind kind_at_hand;

/* AddressSanitizer is not to see them: it would end the process first. */
#define UNSEEN __attribute__((noinline, no_sanitize("address")))

UNSEEN static void host_poke(unsigned char *p, long offset, unsigned char value)
{
    p[offset] = value;
}

UNSEEN static unsigned char host_peek(const unsigned char *p, long offset)
{
    return p[offset];
}

static void write_byte(unsigned char *p, long offset)
{
    if (kind_at_hand == USM_DEVICE)
        device_poke(p, offset, 0x41);
    else
        host_poke(p, offset, 0x41);
}

static void write_past(void)
{
    unsigned char *p;

    set("redzone");
    p = usm_alloc(1000, kind_at_hand);
    CHECK(p != NULL);
    write_byte(p, 999); /* the last that is its own */
    write_byte(p, 1000);
    write_byte(p, 1003);
    usm_free(p);
}

static void write_before(void)
{
    unsigned char *p;

    set("redzone");
    OK(usm_tag_push("solver"));
    p = usm_aligned_alloc(4096, 100, kind_at_hand);
    OK(usm_tag_pop());
    CHECK(p != NULL);
    write_byte(p, 0);
    write_byte(p, -1);
    usm_free(p);
}

static bool kind_works(usm_kind kind)
{
    kind_at_hand = kind;
    return is_offered(kind) && (kind != USM_DEVICE || has_kernels());
}

static void ask_kinds(void)
{
    int bits = 0;

    for (int kind = USM_HOST; kind <= USM_SHARED; kind++)
        bits |= kind_works((usm_kind)kind) << kind;
    (void)fprintf(stderr, "kinds %d", bits);
}

/* In a child, so that no driver is used before the fork. */
static bool works_here(usm_kind kind)
{
    const char *at;

    in_child(ask_kinds);
    kind_at_hand = kind;
    at           = strstr(errors, "kinds ");
    CHECK(at != NULL);
    return (atoi(at + 6) >> kind & 1) != 0;
}

static void need_kind(usm_kind kind)
{
    if (!works_here(kind))
        SKIP("the device has no such memory, or no kernels");
}

static void both_zones_are_watched(usm_kind kind, const char *name)
{
    char expected[128];

    need_kind(kind);
    in_child(write_past);
    CHECK_IN("error: USM_DEBUG: the block at 0x", errors);
    (void)snprintf(expected, sizeof expected, "(1000 bytes of %s memory of ", name);
    CHECK_IN(expected, errors);
    CHECK_IN("was written past its end: 2 bytes changed, from offset 1000 on: 41 fb fb 41", errors);
    CHECK_INT(count_in("USM_DEBUG", errors), 1);
    in_child(write_before);
    CHECK_IN("was written before its start: 1 byte changed, from offset -1 on: 41", errors);
    CHECK_IN(", tag \"solver\")", errors);
    CHECK_INT(count_in("USM_DEBUG", errors), 1);
}

static void a_write_past_a_host_block_is_reported_once(void)
{
    both_zones_are_watched(USM_HOST, "host");
}

static void a_write_past_a_shared_block_is_reported_once(void)
{
    both_zones_are_watched(USM_SHARED, "shared");
}

static void a_kernels_write_past_a_device_block_is_reported_once(void)
{
    both_zones_are_watched(USM_DEVICE, "device");
}

static void guarded_write_past(void)
{
    OK(usm_config_set("device_selector", "host:*"));
    OK(usm_config_set("host_guard_device", "1"));
    write_past();
}

static void nobody_touches_guarded_device_memory(void)
{
    kind_at_hand = USM_DEVICE;
    in_child(guarded_write_past);
    CHECK_IN("was written past its end: 2 bytes changed, from offset 1000 on: 41 fb fb 41", errors);
}

/* --- what stays as it was --------------------------------------------------------------------- */

static void look_at(unsigned char *p, size_t align, size_t size)
{
    void  *base = NULL;
    size_t room = 0;

    CHECK(p != NULL);
    CHECK_INT((uintptr_t)p % align, 0);
    CHECK_INT(usm_usable_size(p), size ? size : 1);
    OK(usm_get_address_range(p + (size ? size - 1 : 0), NULL, &base, &room));
    CHECK(base == p);
    CHECK_INT(room, size ? size : 1);
    CHECK(usm_get_pointer_type(p, NULL) != USM_UNKNOWN);
    CHECK(usm_get_pointer_type(p - 1, NULL) == USM_UNKNOWN);
    CHECK(usm_get_pointer_type(p + room, NULL) == USM_UNKNOWN);
}

static void sizes_and_alignments(void)
{
    static const size_t sizes[]  = {0, 1, 63, 64, 100, 4096, 70000, 3000000};
    static const size_t aligns[] = {1, 64, 256, 4096, 65536, 2097152};

    set("redzone,poison,leaks");
    for (int kind = USM_HOST; kind <= USM_SHARED; kind++)
        for (size_t i = 0; is_offered((usm_kind)kind) && i < sizeof sizes / sizeof *sizes; i++)
            for (size_t k = 0; k < sizeof aligns / sizeof *aligns; k++) {
                unsigned char *p = usm_aligned_alloc(aligns[k], sizes[i], (usm_kind)kind);

                look_at(p, aligns[k] < 64 ? 64 : aligns[k], sizes[i]);
                usm_free(p);
            }
}

static void sizes_and_alignments_are_those_asked_for(void)
{
    in_child(sizes_and_alignments);
    CHECK_STR(errors, "");
}

static void moves(void)
{
    unsigned char *p, *z;
    char           text[200];

    set("redzone,poison");
    if (!is_offered(USM_SHARED))
        return;
    p = usm_alloc_shared(100);
    memset(p, 7, 100);
    p = usm_realloc(p, 5000, USM_UNKNOWN);
    CHECK(p && p[0] == 7 && p[99] == 7);
    CHECK_INT(usm_copy(text, p, 101), USM_OK);
    CHECK_INT(usm_copy(p + 4990, text, 11), USM_E_SIZE);
    usm_free(p);
    z = usm_calloc(10, 10, USM_SHARED);
    CHECK(z && z[0] == 0 && z[99] == 0);
    usm_free(z);
}

static void blocks_move_and_copies_stop_at_their_ends(void)
{
    in_child(moves);
    CHECK_STR(errors, "");
}

static void wrong_frees(void)
{
    unsigned char *p;

    set("redzone");
    p = usm_alloc_host(1000);
    CHECK_INT(usm_free_ctx(p - 64, NULL), USM_E_INTERIOR_POINTER);
    CHECK_IN("before the block at", usm_last_error());
    CHECK_INT(usm_free_ctx(p + 1, NULL), USM_E_INTERIOR_POINTER);
    CHECK_INT(usm_free_ctx(p + 1000, NULL), USM_E_INTERIOR_POINTER);
    OK(usm_free_ctx(p, NULL));
    CHECK_INT(usm_free_ctx(p, NULL), USM_E_DOUBLE_FREE);
}

static void wrong_frees_are_named_as_without(void)
{
    in_child(wrong_frees);
    CHECK_STR(errors, "");
}

static void unwatched(void)
{
    unsigned char *p;

    set("redzone");
    usm_free(usm_alloc_host(10));
    for (int i = 0; i < 2; i++) {
        CHECK(usm__fault_arm("heap.alloc", 1, false, USM_OK));
        p = usm_alloc_host(1000);
        CHECK_INT(usm__fault_fired(), 1);
        usm__fault_disarm_all();
        CHECK(p != NULL);
        CHECK(usm_usable_size(p) >= 1000);
        OK(usm_free_ctx(p, NULL));
    }
}

static void without_host_memory_blocks_go_unwatched_which_is_said_once(void)
{
    in_child(unwatched);
    CHECK_IN("no host memory to watch a block", errors);
    CHECK_INT(count_in("usm:", errors), 1);
}

/* --- poison
 * --------------------------------------------------------------------------------------- */

static usm_pool *arena_of(usm_kind kind, bool zeroed)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;

    desc.name      = "arena";
    desc.zero_init = zeroed;
    OK(usm_pool_create(usm_default_context(), NULL, kind, &desc, &pool));
    return pool;
}

static unsigned char byte_at(unsigned char *p, long offset)
{
    return kind_at_hand == USM_DEVICE ? device_peek(p, offset) : host_peek(p, offset);
}

static void fresh_and_freed(void)
{
    usm_pool      *pool;
    unsigned char *p, *next;

    set("poison");
    pool = arena_of(kind_at_hand, false);
    p    = usm_pool_malloc(pool, 1000);
    next = usm_pool_malloc(pool, 1000); /* keeps the area, if p's free could give it back */
    CHECK(p && next);
    CHECK_INT(byte_at(p, 0), 0xa5);
    CHECK_INT(byte_at(p, 999), 0xa5);
    write_byte(p, 5);
    usm_pool_free(pool, p);
    CHECK_INT(byte_at(next, p - next), 0xdf);
    CHECK_INT(byte_at(next, p - next + 5), 0xdf);
    usm_pool_destroy(pool);
}

static void zeroed_stays_zeroed(void)
{
    usm_pool      *pool;
    unsigned char *p;

    set("poison,redzone");
    pool = arena_of(kind_at_hand, true);
    p    = usm_pool_malloc(pool, 100);
    CHECK(p != NULL);
    CHECK_INT(byte_at(p, 99), 0);
    usm_pool_destroy(pool);
}

static void memory_is_poisoned(usm_kind kind)
{
    need_kind(kind);
    in_child(fresh_and_freed);
    in_child(zeroed_stays_zeroed);
}

static void host_memory_is_poisoned_before_and_after(void)
{
    memory_is_poisoned(USM_HOST);
}

static void device_memory_is_poisoned_before_and_after(void)
{
    memory_is_poisoned(USM_DEVICE);
}

/* --- leaks
 * ---------------------------------------------------------------------------------------- */

static void leave_some(void)
{
    set("leaks");
    OK(usm_tag_push("mesh"));
    CHECK(usm_alloc_host(5000) && usm_alloc_host(5000));
    OK(usm_tag_pop());
    CHECK(usm_alloc_host(100));
    usm_free(usm_alloc_host(777));
    exit(0);
}

static void leave_none(void)
{
    set("leaks");
    usm_free(usm_alloc_host(777));
    exit(0);
}

static void a_process_that_ends_lists_what_it_left(void)
{
    in_child(leave_some);
    CHECK_IN("3 blocks (10100 bytes) were never freed:", errors);
    CHECK_IN("  2 blocks of 5000 bytes, host memory of ", errors);
    CHECK_IN(", tag \"mesh\", the first at 0x", errors);
    CHECK_IN("  1 block of 100 bytes, host memory of ", errors);
    CHECK(strstr(errors, "777 bytes") == NULL);
    CHECK(strstr(errors, "5000") < strstr(errors, " 100 bytes"));
    in_child(leave_none);
    CHECK_STR(errors, "");
}

static void end_with_blocks(void)
{
    usm_pool *pool;

    set("leaks");
    pool = arena_of(USM_HOST, false);
    CHECK(usm_pool_malloc(pool, 300));
    usm_pool_destroy(pool);
    CHECK(usm_alloc_host(400));
    usm_shutdown();
    exit(0); /* nothing is listed twice */
}

static void pools_and_contexts_that_end_list_what_is_out(void)
{
    in_child(end_with_blocks);
    CHECK_INT(count_in("still out", errors), 2);
    CHECK_INT(count_in("  1 block of 300 bytes", errors), 1);
    CHECK_INT(count_in("  1 block of 400 bytes", errors), 1);
    CHECK(strstr(errors, "never freed") == NULL);
}

static void reset_pool(void)
{
    usm_pool *pool;

    set("leaks");
    pool = arena_of(USM_HOST, false);
    CHECK(usm_pool_malloc(pool, 300));
    OK(usm_pool_reset(pool));
    usm_pool_destroy(pool);
    exit(0);
}

static void what_a_reset_took_is_no_leak(void)
{
    in_child(reset_pool);
    CHECK_STR(errors, "");
}

static void leave_it_to_a_child(void)
{
    int   status = -1;
    pid_t pid;
    void *p;

    set("leaks");
    p = usm_alloc_host(1234);
    CHECK(p != NULL);
    pid = fork();
    if (pid == 0)
        exit(0);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    usm_free(p);
    exit(0);
}

static void a_forked_child_does_not_list_its_parents_blocks(void)
{
    in_child(leave_it_to_a_child);
    CHECK(strstr(errors, "never freed") == NULL);
}

/* --- the setting
 * ------------------------------------------------------------------------------------ */

static void set_wrongly(void)
{
    CHECK_INT(usm_config_set("debug", "redzone,leeks"), USM_E_SETTING);
    CHECK_IN("redzone, poison, leaks", usm_last_error());
    CHECK(setenv("USM_DEBUG", "redzones", 1) == 0);
    usm_free(usm_alloc_host(1));
}

static void a_wrong_setting_is_warned_about_with_what_is_allowed(void)
{
    in_child(set_wrongly);
    CHECK_IN("USM_DEBUG=\"redzones\" is ignored; allowed: redzone, poison, leaks", errors);
    CHECK_INT(count_in("usm:", errors), 1);
}

/* --- the pools
 * ---------------------------------------------------------------------------------------- */

static void every_pool(void)
{
    static const char *const names[] = {"slab", "arena", "direct", "jemalloc"};

    set("redzone,poison,leaks");
    for (size_t i = 0; i < 4; i++) {
        usm_pool_desc  desc = USM_POOL_DESC_INIT;
        usm_pool      *pool = NULL;
        unsigned char *p;

        desc.name = names[i];
        if (usm_pool_create(usm_default_context(), NULL, USM_HOST, &desc, &pool) != USM_OK)
            continue; /* not every build has all */
        p = usm_pool_malloc(pool, 500);
        CHECK(p != NULL);
        CHECK_INT(usm_usable_size(p), 500);
        host_poke(p, 500, 1);
        usm_pool_free(pool, p);
        p = usm_pool_malloc(pool, 500);
        CHECK(p != NULL);
        usm_pool_free_sized(pool, p, 500);
        usm_pool_destroy(pool);
        (void)fprintf(stderr, "pool %s\n", names[i]);
    }
}

static void every_pool_has_red_zones(void)
{
    size_t pools;

    in_child(every_pool);
    pools = count_in("pool ", errors);
    CHECK(pools >= 2);
    CHECK_INT(count_in("from offset 500 on: 01", errors), pools);
}

static const plain_case cases[] = {
    CASE(a_write_past_a_host_block_is_reported_once),
    CASE(a_write_past_a_shared_block_is_reported_once),
    CASE(a_kernels_write_past_a_device_block_is_reported_once),
    CASE(nobody_touches_guarded_device_memory),
    CASE(sizes_and_alignments_are_those_asked_for),
    CASE(blocks_move_and_copies_stop_at_their_ends),
    CASE(wrong_frees_are_named_as_without),
    CASE(without_host_memory_blocks_go_unwatched_which_is_said_once),
    CASE(host_memory_is_poisoned_before_and_after),
    CASE(device_memory_is_poisoned_before_and_after),
    CASE(a_process_that_ends_lists_what_it_left),
    CASE(pools_and_contexts_that_end_list_what_is_out),
    CASE(what_a_reset_took_is_no_leak),
    CASE(a_forked_child_does_not_list_its_parents_blocks),
    CASE(a_wrong_setting_is_warned_about_with_what_is_allowed),
    CASE(every_pool_has_red_zones),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    (void)unsetenv("USM_DEBUG");
    return plain_main(argc, argv, cases);
}
