/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Whose a file to resume from is.  A launch that failed half way leaves one; the next goes on from
 * it only where program and inputs are the same, and says what differs otherwise.  A damaged head
 * is told from another launch's. */
#include "over_teams.h"

#include "base/fault.h"

#include <sys/mman.h>

enum { CHUNK = 84, FAILS_AT = 31, HEAD = 96 };

/* --- one launch ------------------------------------------------------------------------------ */

static struct {
    const char *path, *key, *options;
    bool        is_over_buffer, is_other_code;
    uint32_t    in[N], out[N];
} way;

static void begin(const char *name)
{
    memset(&way, 0, sizeof way);
    way.path = plain_path(name);
    for (uint32_t i = 0; i < N; i++)
        way.in[i] = i * 2654435761u;
}

/* Not the same code, nor the same results, under the same name. */
static void smooth_otherwise(const usm_range *range, void *const *args)
{
    (void)args;
    (void)range;
}

static usm_status create(usm_team *team, usm_team_kernel **k)
{
    static const usm_native_kernel natives[] = {{"smooth", split_smooth, 3, NULL}},
                                   others[]  = {{"smooth", smooth_otherwise, 3, NULL}};
    usm_image        images[] = {{USM_IMAGE_BUNDLE, split_kernels, split_kernels_size},
                                 {USM_IMAGE_NATIVE, natives, sizeof natives}};
    usm_program_desc desc     = USM_PROGRAM_DESC_INIT;

    if (way.is_other_code)
        images[1].data = others;
    desc.images  = images;
    desc.nimages = 2;
    desc.options = way.options;
    return usm_team_kernel_create(team, &desc, "smooth", k);
}

static usm_buffer *buffer_of_inputs(void)
{
    usm_buffer *b = usm_buffer_new(NULL, sizeof way.in);
    usm_access  access;

    CHECK(b != NULL);
    must(usm_access_begin(b, 0, sizeof way.in, USM_WRITE_NO_INIT, &access));
    memcpy(access.ptr, way.in, sizeof way.in);
    usm_access_end(&access);
    return b;
}

static usm_status go(uint64_t *resumed)
{
    usm_team          *team   = alone();
    usm_team_kernel   *k      = NULL;
    usm_buffer        *buffer = way.is_over_buffer ? buffer_of_inputs() : NULL;
    usm_parallel_stats stats  = USM_PARALLEL_STATS_INIT;
    uint64_t           n      = N;
    double             size   = CHUNK;
    usm_split_arg args[] = {USM_SPLIT_IN(way.in, 4), USM_SPLIT_OUT(way.out, 4), USM_SPLIT_VALUE(n)};
    usm_parallel_desc d;
    usm_status        st;

    must(create(team, &k));
    args[0].before = args[0].after = 1;
    if (buffer) {
        args[0].host   = NULL;
        args[0].buffer = buffer;
    }
    memset(way.out, 0, sizeof way.out);
    d            = over(k, N, args, 3);
    d.flags      = USM_PARALLEL_NO_RETRY;
    d.resume     = way.path;
    d.resume_key = way.key;
    fixed(&d, &size);
    st = usm_parallel(team, &d, &stats);
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
    usm_buffer_destroy(buffer);
    *resumed = stats.resumed;
    return st;
}

static void fail_half_way(void)
{
    uint64_t resumed;

    CHECK(usm__fault_arm("launch", FAILS_AT, false, USM_E_DEVICE));
    CHECK_INT(go(&resumed), USM_E_DEVICE);
    usm__fault_disarm_all();
    CHECK(access(way.path, F_OK) == 0);
}

static void check_goes_on(bool has_records)
{
    uint64_t resumed = 0;

    must(go(&resumed));
    CHECK((resumed > 0) == has_records);
    for (uint32_t i = 0; i < N; i++)
        CHECK(way.out[i] ==
              (i > 0 ? way.in[i - 1] : 0) + 2 * way.in[i] + 5 * (i + 1 < N ? way.in[i + 1] : 0));
    CHECK(access(way.path, F_OK) != 0);
}

/* Refused, and the file is still there for whoever can use it. */
static void check_refused(const char *why)
{
    uint64_t resumed = 0;

    CHECK_INT(go(&resumed), USM_E_INVALID);
    CHECK_IN(why, usm_last_error());
    CHECK_IN(way.path, usm_last_error());
}

/* --- program and inputs ----------------------------------------------------------------------- */

static void results_of_two_inputs_are_not_mixed(void)
{
    begin("inputs");
    for (int i = 0; i < 2; i++) {
        way.is_over_buffer = i == 1;
        fail_half_way();
        way.in[N - 1] ^= 1; /* of a chunk that was not reached */
        check_refused("(inputs, native code or resume_key differ)");
        way.in[N - 1] ^= 1;
        check_goes_on(true);
    }
}

static void a_buffer_and_memory_with_the_same_bytes_are_the_same_input(void)
{
    begin("either");
    fail_half_way();
    way.is_over_buffer = true;
    check_goes_on(true);
}

static void results_of_two_programs_are_not_mixed(void)
{
    begin("program");
    fail_half_way();
    way.options = "-DOTHER=1";
    check_refused("(the program's images or options differ)");
    way.options = NULL;
    check_goes_on(true);
}

static void results_of_two_native_functions_of_one_name_are_not_mixed(void)
{
    begin("code");
    fail_half_way();
    way.is_other_code = true;
    check_refused("(inputs, native code or resume_key differ)");
    way.is_other_code = false;
    check_goes_on(true);
}

static void a_key_speaks_for_the_inputs(void)
{
    begin("key");
    way.key = "inputs of Monday";
    fail_half_way();
    way.key = "inputs of Tuesday";
    check_refused("(inputs, native code or resume_key differ)");
    way.key = NULL;
    check_refused("(inputs, native code or resume_key differ)");
    way.key = "inputs of Monday";
    check_goes_on(true);
}

/* --- what needs a key ------------------------------------------------------------------------- */

static usm_status twice(const char *key)
{
    usm_team         *team   = alone();
    usm_team_kernel  *k      = kernel_of(team, "twice");
    usm_split_arg     args[] = {USM_SPLIT_OUT(way.in, 4)};
    usm_parallel_desc d      = over(k, N, args, 1);
    usm_status        st;

    args[0].mode = USM_READ_WRITE;
    d.flags      = USM_PARALLEL_SNAPSHOT;
    d.resume     = way.path;
    d.resume_key = key;
    st           = usm_parallel(team, &d, NULL);
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
    return st;
}

static void chunks_that_are_read_and_written_need_a_key(void)
{
    begin("written");
    CHECK_INT(twice(NULL), USM_E_INVALID);
    CHECK_IN("argument 0 are read and written", usm_last_error());
    CHECK_IN("resume_key", usm_last_error());
    CHECK(access(way.path, F_OK) != 0);
    must(twice("of now"));
    CHECK_INT(way.in[1], 2654435761u * 2 + 1);
}

/* Nothing of them is read. */
static void large_inputs_need_a_key(void)
{
    const size_t     size   = ((size_t)256 << 20) + 4;
    void            *memory = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    usm_team        *team   = alone();
    usm_team_kernel *k      = NULL;
    uint64_t         n      = size / 4;
    usm_split_arg args[] = {USM_SPLIT_IN(memory, 4), USM_SPLIT_OUT(way.out, 4), USM_SPLIT_VALUE(n)};
    usm_parallel_desc d;

    begin("large");
    CHECK(memory != MAP_FAILED);
    must(create(team, &k));
    d        = over(k, size / 4, args, 3);
    d.resume = way.path;
    CHECK_INT(usm_parallel(team, &d, NULL), USM_E_INVALID);
    CHECK_IN("more than 256 MiB", usm_last_error());
    CHECK(access(way.path, F_OK) != 0);
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
    (void)munmap(memory, size);
}

/* --- the head --------------------------------------------------------------------------------- */

static void flip(size_t byte, int bit)
{
    int           fd = open(way.path, O_RDWR | O_CLOEXEC);
    unsigned char c;

    CHECK(fd >= 0);
    CHECK_INT(pread(fd, &c, 1, (off_t)byte), 1);
    c ^= (unsigned char)(1u << bit);
    CHECK_INT(pwrite(fd, &c, 1, (off_t)byte), 1);
    (void)close(fd);
}

static void a_damaged_head_is_named_as_damaged(void)
{
    static char log[512], setting[600], text[32768];

    begin("head");
    (void)snprintf(log, sizeof log, "%s", plain_path("log"));
    (void)snprintf(setting, sizeof setting, "level:warning;output:%s", log);
    must(usm_config_set("log", setting));
    for (size_t i = 0; i < HEAD; i += 11) {
        fail_half_way();
        flip(i, (int)(i % 8));
        check_goes_on(false);
        CHECK_IN("is damaged in its first 96 bytes", plain_read(log, text, sizeof text));
        CHECK_INT(truncate(log, 0), 0);
    }
    must(usm_config_set("log", NULL));
}

static void a_head_that_was_cut_short_is_begun_anew(void)
{
    begin("short");
    for (off_t size = 0; size < HEAD; size += 19) {
        fail_half_way();
        CHECK_INT(truncate(way.path, size), 0);
        check_goes_on(false);
    }
}

static const plain_case cases[] = {CASE(results_of_two_inputs_are_not_mixed),
                                   CASE(a_buffer_and_memory_with_the_same_bytes_are_the_same_input),
                                   CASE(results_of_two_programs_are_not_mixed),
                                   CASE(results_of_two_native_functions_of_one_name_are_not_mixed),
                                   CASE(a_key_speaks_for_the_inputs),
                                   CASE(chunks_that_are_read_and_written_need_a_key),
                                   CASE(large_inputs_need_a_key),
                                   CASE(a_damaged_head_is_named_as_damaged),
                                   CASE(a_head_that_was_cut_short_is_begun_anew),
                                   {NULL, NULL}};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
