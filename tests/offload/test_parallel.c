/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm_parallel(): whatever the split, the result is the serial one's, to the bit. */
#include "over_teams.h"

#include "base/fault.h"
#include "offload/offload.h"

#include <math.h>
#include <stdatomic.h>

static const unsigned counts[] = {1, 2, 3, 4, 7, 16, 61, 64, 255, 256};

#define COUNTS (sizeof counts / sizeof *counts)

static double part_of(size_t range, unsigned chunks)
{
    return (double)((range + chunks - 1) / chunks);
}

/* --- any split ------------------------------------------------------------------------------- */

static uint32_t whole[64];

typedef struct box {
    size_t   n[3], offset[3];
    uint32_t pitch[3], dims, split_dim;
} box;

static const box boxes[] = {
    {{N, 1, 1}, {0, 0, 0}, {1, 0, 0}, 1, 0},    {{1021, 1, 1}, {77, 0, 0}, {1, 0, 0}, 1, 1},
    {{37, 61, 1}, {0, 0, 0}, {1, 37, 0}, 2, 0}, {{61, 37, 1}, {5, 9, 0}, {37, 1, 0}, 2, 1},
    {{7, 11, 67}, {0, 0, 0}, {1, 7, 77}, 3, 3}, {{7, 67, 11}, {3, 2, 1}, {1, 77, 7}, 3, 2},
    {{257, 3, 1}, {0, 0, 0}, {3, 1, 0}, 2, 1},  {{1, 1, 1}, {4, 0, 0}, {1, 0, 0}, 1, 0}};

static uint32_t blended(const box *b, const uint32_t *in, size_t at)
{
    for (size_t z = 0; z < b->n[2]; z++)
        for (size_t y = 0; y < b->n[1]; y++)
            for (size_t x = 0; x < b->n[0]; x++)
                if (x * b->pitch[0] + y * b->pitch[1] + z * b->pitch[2] == at)
                    return in[at] * 3u + whole[((x + b->offset[0]) * 7 + (y + b->offset[1]) * 13 +
                                                (z + b->offset[2]) * 29) %
                                               64];
    return 0;
}

static void blend_box(usm_team *team, const box *b)
{
    usm_team_kernel *k   = kernel_of(team, "blend");
    uint32_t         dim = b->split_dim ? b->split_dim - 1 : b->dims - 1;
    size_t           n   = b->n[0] * b->n[1] * b->n[2];
    uint32_t        *in = malloc(n * 4), *out = malloc(n * 4), *wanted = malloc(n * 4);
    usm_split_arg    args[] = {
           USM_SPLIT_WHOLE(whole, sizeof whole),  USM_SPLIT_IN(in, b->pitch[dim] * 4),
           USM_SPLIT_OUT(out, b->pitch[dim] * 4), USM_SPLIT_VALUE(b->pitch[0]),
           USM_SPLIT_VALUE(b->pitch[1]),          USM_SPLIT_VALUE(b->pitch[2])};
    usm_parallel_desc d = over(k, 0, args, 6);

    d.dims      = b->dims;
    d.split_dim = b->split_dim;
    memcpy(d.global, b->n, sizeof d.global);
    memcpy(d.offset, b->offset, sizeof d.offset);
    for (size_t i = 0; i < n; i++)
        in[i] = (uint32_t)i * 40503u;
    for (size_t i = 0; i < n; i++)
        wanted[i] = blended(b, in, i);
    for (size_t i = 0; i < COUNTS; i++) {
        double             size  = part_of(b->n[dim], counts[i]);
        usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;

        memset(out, 0xee, n * 4);
        fixed(&d, &size);
        must(usm_parallel(team, &d, &stats));
        CHECK(memcmp(out, wanted, n * 4) == 0);
        CHECK_INT(stats.chunks, (b->n[dim] + (size_t)size - 1) / (size_t)size);
        CHECK_INT(stats.rescheduled, 0);
    }
    free(in);
    free(out);
    free(wanted);
    usm_team_kernel_destroy(k);
}

static void blend_all(usm_team *team)
{
    for (uint32_t i = 0; i < 64; i++)
        whole[i] = i * 2654435761u;
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++)
        blend_box(team, &boxes[i]);
}

static void any_split_gives_the_serial_result(void)
{
    over_teams(blend_all);
}

static void policies_all(usm_team *team)
{
    static const char *const names[] = {NULL, "adaptive", "static", "fixed", "guided", "fastest"};
    usm_team_kernel         *k       = kernel_of(team, "twice");
    uint32_t                 data[N];
    usm_split_arg            args[] = {USM_SPLIT_IN(data, 4)};
    usm_parallel_desc        d      = over(k, N, args, 1);
    usm_parallel_stats       stats  = USM_PARALLEL_STATS_INIT;

    args[0].mode = USM_READ_WRITE;
    d.flags      = USM_PARALLEL_SNAPSHOT;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        d.policy.name = names[i];
        for (uint32_t j = 0; j < N; j++)
            data[j] = j;
        must(usm_parallel(team, &d, &stats));
        for (uint32_t j = 0; j < N; j++)
            if (data[j] != 2 * j + 1)
                printf("# %s, %u members: index %u, %llu chunks, %llu rescheduled\n",
                       names[i] ? names[i] : "unset", usm_team_size(team), j,
                       (unsigned long long)stats.chunks, (unsigned long long)stats.rescheduled);
        for (uint32_t j = 0; j < N; j++)
            CHECK_INT(data[j], 2 * j + 1);
    }
    usm_team_kernel_destroy(k);
}

static void every_policy_does_each_index_once(void)
{
    over_teams(policies_all);
}

static void local_sizes_all(usm_team *team)
{
    usm_team_kernel   *k = kernel_of(team, "twice");
    uint32_t           data[N];
    usm_split_arg      args[] = {USM_SPLIT_IN(data, 4)};
    usm_parallel_desc  d      = over(k, N, args, 1);
    usm_parallel_stats stats  = USM_PARALLEL_STATS_INIT;
    double             size   = 100;

    args[0].mode = USM_READ_WRITE;
    d.flags      = USM_PARALLEL_NO_RETRY;
    d.local[0]   = 16;
    d.multiple   = 48;
    fixed(&d, &size);
    memset(data, 0, sizeof data);
    must(usm_parallel(team, &d, &stats));
    CHECK_INT(stats.chunks, N / 144);
    for (uint32_t j = 0; j < N; j++)
        CHECK_INT(data[j], 1);
    usm_team_kernel_destroy(k);
}

static void chunks_are_multiples(void)
{
    over_teams(local_sizes_all);
}

/* --- halos ----------------------------------------------------------------------------------- */

static void smooth_all(usm_team *team)
{
    usm_team_kernel  *k = kernel_of(team, "smooth");
    uint64_t          n = N;
    static uint32_t   in[N], out[N];
    usm_split_arg     args[] = {USM_SPLIT_IN(in, 4), USM_SPLIT_OUT(out, 4), USM_SPLIT_VALUE(n)};
    usm_parallel_desc d      = over(k, N, args, 3);

    args[0].before = args[0].after = 1;
    for (uint32_t i = 0; i < N; i++)
        in[i] = i * i;
    for (size_t c = 0; c < COUNTS; c++) {
        double size = part_of(N, counts[c]);

        fixed(&d, &size);
        memset(out, 0, sizeof out);
        must(usm_parallel(team, &d, NULL));
        for (uint32_t i = 0; i < N; i++)
            CHECK_INT(out[i], (i ? in[i - 1] : 0) + 2 * in[i] + 5 * (i + 1 < N ? in[i + 1] : 0));
    }
    usm_team_kernel_destroy(k);
}

static void halos_reach_into_neighbours(void)
{
    over_teams(smooth_all);
}

/* --- merges ---------------------------------------------------------------------------------- */

static folded fold(usm_team *team, usm_team_kernel *k, int32_t *in, size_t n, size_t leaf,
                   double size)
{
    folded            f      = {7, 1000, -1000, 0.25f};
    uint32_t          width  = (uint32_t)(leaf ? leaf : n);
    usm_split_arg     args[] = {USM_SPLIT_IN(in, 4),
                                USM_SPLIT_SUM(&f.sum, 4, USM_ELEMENT_U32, leaf),
                                USM_SPLIT_SUM(&f.least, 4, USM_ELEMENT_I32, leaf),
                                USM_SPLIT_SUM(&f.most, 4, USM_ELEMENT_I32, leaf),
                                USM_SPLIT_SUM(&f.mean, 4, USM_ELEMENT_F32, 1),
                                USM_SPLIT_VALUE(width)};
    usm_parallel_desc d      = over(k, n, args, 6);

    args[2].merge = USM_MERGE_MIN;
    args[3].merge = USM_MERGE_MAX;
    fixed(&d, &size);
    must(usm_parallel(team, &d, NULL));
    return f;
}

static void merge_all(usm_team *team)
{
    usm_team_kernel *k = kernel_of(team, "fold");
    static int32_t   in[N];
    folded           f, first = {0};
    uint32_t         sum = 7;

    for (int32_t i = 0; i < N; i++) {
        in[i] = (i * 7919) % 10007 - 5000;
        sum += (uint32_t)in[i];
    }
    for (size_t leaf = 0; leaf <= 16; leaf += 8)
        for (size_t c = 0; c < COUNTS; c++) {
            f = fold(team, k, in, N - 3, leaf, part_of(N, counts[c]));
            CHECK_INT(f.sum, sum - (uint32_t)in[N - 1] - (uint32_t)in[N - 2] - (uint32_t)in[N - 3]);
            CHECK_INT(f.least, -5000);
            CHECK_INT(f.most, 5006);
            if (leaf == 0 && c == 0)
                first = f;
            CHECK(memcmp(&f.mean, &first.mean, sizeof f.mean) == 0); /* to the bit */
        }
    f = fold(team, k, in, N - 3, SIZE_MAX, 10); /* one leaf has all: so there is one chunk */
    CHECK_INT(f.sum, first.sum);
    CHECK_INT(f.least, -5000);
    CHECK_INT(f.most, 5006);
    usm_team_kernel_destroy(k);
}

/* What a private copy begins with changes no value, the least and the greatest there are included.
 */
static void copies_begin_with_what_changes_nothing(void)
{
    static const struct {
        usm_element element;
        size_t      size;
        union {
            int32_t  i32;
            uint32_t u32;
            int64_t  i64;
            uint64_t u64;
            float    f32;
            double   f64;
        } least, greatest;
    } of[] = {{USM_ELEMENT_I32, 4, {.i32 = INT32_MIN}, {.i32 = INT32_MAX}},
              {USM_ELEMENT_U32, 4, {.u32 = 0}, {.u32 = UINT32_MAX}},
              {USM_ELEMENT_I64, 8, {.i64 = INT64_MIN}, {.i64 = INT64_MAX}},
              {USM_ELEMENT_U64, 8, {.u64 = 0}, {.u64 = UINT64_MAX}},
              {USM_ELEMENT_F32, 4, {.f32 = -INFINITY}, {.f32 = INFINITY}},
              {USM_ELEMENT_F64, 8, {.f64 = -INFINITY}, {.f64 = INFINITY}}};
    static const unsigned char zero[16];
    unsigned char              copy[16];

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        usm_split_arg arg = {.size = 2 * of[i].size, .element = of[i].element};

        for (size_t at = 0; at < arg.size; at += of[i].size) {
            arg.merge = USM_MERGE_MAX;
            usm__merge_begin(&arg, zero, copy);
            CHECK(memcmp(copy + at, &of[i].least, of[i].size) == 0);
            arg.merge = USM_MERGE_MIN;
            usm__merge_begin(&arg, zero, copy);
            CHECK(memcmp(copy + at, &of[i].greatest, of[i].size) == 0);
            arg.merge = USM_MERGE_SUM;
            usm__merge_begin(&arg, zero, copy);
            CHECK(memcmp(copy + at, zero, of[i].size) == 0);
        }
    }
}

static void merges_do_not_depend_on_the_split(void)
{
    over_teams(merge_all);
}

static void find_all(usm_team *team)
{
    usm_team_kernel   *k = kernel_of(team, "find");
    static uint32_t    in[N];
    int64_t            found[2];
    uint32_t           key    = 1;
    usm_split_arg      args[] = {USM_SPLIT_IN(in, 4), USM_SPLIT_FIRST(found, sizeof found),
                                 USM_SPLIT_VALUE(key)};
    usm_parallel_desc  d      = over(k, N, args, 3);
    usm_parallel_stats stats  = USM_PARALLEL_STATS_INIT;
    double             size   = 10;

    args[1].leaf = 1;
    memset(in, 0, sizeof in);
    in[777] = in[778] = 1;
    for (uint32_t i = 800; i < N;
         i++) /* whichever chunk behind it ends first calls off those that follow */
        in[i] = 1;
    fixed(&d, &size);
    found[0] = 99;
    must(usm_parallel(team, &d, &stats));
    CHECK_INT(found[0], 777);
    CHECK_INT(found[1], 2);
    CHECK(stats.chunks < N / 10); /* the rest was called off */
    key      = 2;
    found[0] = 99;
    must(usm_parallel(team, &d, &stats));
    CHECK_INT(found[0], -1);
    CHECK_INT(stats.chunks, N / 10);
    usm_team_kernel_destroy(k);
}

static void the_first_that_is_found_calls_off_the_rest(void)
{
    over_teams(find_all);
}

static void append(void *into, const void *from, size_t size, void *user)
{
    int64_t       *a = into;
    const int64_t *b = from;

    CHECK_INT(size, 16);
    CHECK(b[0] >= 0 && b[0] > a[0]); /* in index order */
    a[0] = b[0];
    a[1] += b[1];
    (*(unsigned *)user)++;
}

static void user_all(usm_team *team)
{
    usm_team_kernel  *k = kernel_of(team, "find");
    static uint32_t   in[N];
    int64_t           found[2] = {-1, 0};
    uint32_t          key      = 3;
    unsigned          calls    = 0;
    usm_split_arg     args[]   = {USM_SPLIT_IN(in, 4), USM_SPLIT_FIRST(found, sizeof found),
                                  USM_SPLIT_VALUE(key)};
    usm_parallel_desc d        = over(k, 1000, args, 3);

    for (size_t i = 0; i < N; i++)
        in[i] = 3;
    args[1].leaf       = 1;
    args[1].merge      = USM_MERGE_USER;
    args[1].merge_fn   = append;
    args[1].merge_user = &calls;
    must(usm_parallel(team, &d, NULL));
    CHECK_INT(found[0], 999);
    CHECK_INT(found[1], 6000);
    CHECK_INT(calls, 1000);
    usm_team_kernel_destroy(k);
}

static void the_users_merge_is_called_in_order(void)
{
    over_teams(user_all);
}

/* --- one at a time --------------------------------------------------------------------------- */

static void a_team_may_have_one_chunk_under_way(void)
{
    usm_team_desc    desc = USM_TEAM_DESC_INIT;
    static uint32_t  data[N];
    usm_split_arg    args[] = {USM_SPLIT_IN(data, 4)};
    usm_device      *device;
    usm_team        *team = NULL;
    usm_team_kernel *k;
    size_t           n;

    must(usm_get_devices(&device, 1, &n));
    desc.ndevices = 1;
    desc.devices  = &device;
    desc.depth    = 1;
    must(usm_team_create(&desc, &team));
    k            = kernel_of(team, "twice");
    args[0].mode = USM_READ_WRITE;
    for (uint32_t i = 0; i < N; i++)
        data[i] = i;
    for (int i = 0; i < 2; i++) {
        usm_parallel_desc d = over(k, N, args, 1);

        d.flags = USM_PARALLEL_SNAPSHOT;
        must(usm_parallel(team, &d, NULL));
    }
    for (uint32_t i = 0; i < N; i++)
        CHECK_INT(data[i], 4 * i + 3);
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
}

/* --- short chunks ---------------------------------------------------------------------------- */

/* Chunks are short by the clock, and on a machine that is busy with other work none is.  While a
 * time is set here the clock goes a thousandth of its pace from there on. */
static _Atomic uint64_t slow_since_ns;

uint64_t __real_usm__os_now_ns(void);
uint64_t __wrap_usm__os_now_ns(void);

uint64_t __wrap_usm__os_now_ns(void)
{
    uint64_t now = __real_usm__os_now_ns(), since = atomic_load(&slow_since_ns);

    return since > 0 && now > since ? since + (now - since) / 1000 : now;
}

/* Each is a chunk for all who count, but ends are told of several at a time. */
static void short_all(usm_team *team)
{
    usm_team_kernel   *k = kernel_of(team, "twice");
    static uint32_t    data[N];
    usm_split_arg      args[] = {USM_SPLIT_IN(data, 4)};
    usm_parallel_desc  d      = over(k, N, args, 1);
    usm_parallel_stats stats  = USM_PARALLEL_STATS_INIT;
    double             size   = 2;

    args[0].mode = USM_READ_WRITE;
    d.flags      = USM_PARALLEL_SNAPSHOT;
    fixed(&d, &size);
    for (uint32_t i = 0; i < N; i++)
        data[i] = i;
    must(usm_parallel(team, &d, NULL)); /* kernels are compiled */
    CHECK(usm__fault_arm("event_notify", 0, false, USM_OK));
    atomic_store(&slow_since_ns, __real_usm__os_now_ns());
    must(usm_parallel(team, &d, &stats));
    atomic_store(&slow_since_ns, 0);
    CHECK_INT(stats.chunks, N / 2);
    CHECK(usm__fault_counted() > 0);
    CHECK(usm__fault_counted() < N / 2 * 3 / 4);
    usm__fault_disarm_all();
    for (uint32_t i = 0; i < N; i++)
        CHECK_INT(data[i], 4 * i + 3);
    usm_team_kernel_destroy(k);
}

static void short_chunks_travel_together(void)
{
    over_teams(short_all);
}

/* How many copies the backend is told to make by a launch of chunks that read and write `kib` KiB
 * each. */
static uint64_t copies_by_device(usm_team_kernel *k, usm_team *team, unsigned chunks, size_t kib)
{
    size_t             count  = kib * 256;
    double             size   = (double)count;
    uint32_t          *data   = malloc(chunks * count * sizeof *data);
    usm_split_arg      args[] = {USM_SPLIT_IN(data, sizeof *data)};
    usm_parallel_desc  d      = over(k, chunks * count, args, 1);
    usm_parallel_stats stats  = USM_PARALLEL_STATS_INIT;

    args[0].mode = USM_READ_WRITE;
    d.flags      = USM_PARALLEL_SNAPSHOT;
    fixed(&d, &size);
    for (size_t i = 0; i < chunks * count; i++)
        data[i] = (uint32_t)i;
    CHECK(usm__fault_arm("copy", 0, false, USM_OK));
    must(usm_parallel(team, &d, &stats));
    usm__fault_disarm_all();
    CHECK_INT(stats.chunks, chunks);
    CHECK_INT(stats.bytes_in, chunks * count * sizeof *data);
    CHECK_INT(stats.bytes_out, chunks * count * sizeof *data);
    for (size_t i = 0; i < chunks * count; i++)
        CHECK_INT(data[i], (uint32_t)(2 * i + 1));
    free(data);
    return usm__fault_counted();
}

/* PoCL's memory is the host's: only large pieces are copied by commands. */
static void small_pieces_of_a_processor_need_no_commands(void)
{
    usm_team        *team = is_pocl() ? alone() : NULL;
    usm_team_kernel *k;

    if (!team)
        return;
    k = kernel_of(team, "twice");
    (void)copies_by_device(k, team, 1, 1); /* with the context's own probe */
    CHECK_INT(copies_by_device(k, team, 1, 1), 0);
    CHECK_INT(copies_by_device(k, team, 7, 64), 0);
    CHECK_INT(copies_by_device(k, team, 7, 65), 14);
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
}

/* --- iterative kernels ----------------------------------------------------------------------- */

static void steps_all(usm_team *team)
{
    usm_team_kernel  *k = kernel_of(team, "steps");
    static uint32_t   out[N];
    int32_t           state[2] = {USM_RUN_AGAIN, 0};
    usm_split_arg     args[]   = {USM_SPLIT_OUT(out, 4),
                                  {.follow = USM_FOLLOW_PRIVATE,
                                   .mode   = USM_READ_WRITE,
                                   .host   = state,
                                   .size   = sizeof state,
                                   .leaf   = 1}};
    usm_parallel_desc d        = over(k, N, args, 2);
    double            size     = 111;

    args[0].mode = USM_READ_WRITE; /* what a round leaves is there for the next */
    d.flags      = USM_PARALLEL_SNAPSHOT;
    d.state_arg  = USM_PARALLEL_NTH(1);
    fixed(&d, &size);
    memset(out, 0, sizeof out);
    must(usm_parallel(team, &d, NULL));
    for (uint32_t i = 0; i < N; i++)
        CHECK_INT(out[i], i % 5 + 1);
    CHECK_INT(state[0], USM_RUN_AGAIN);
    usm_team_kernel_destroy(k);
}

static void iterative_kernels_are_launched_until_they_are_done(void)
{
    over_teams(steps_all);
}

/* --- buffers --------------------------------------------------------------------------------- */

static void buffers_all(usm_team *team)
{
    enum { MIB = 1 << 20, COUNT = 48 * MIB / 4 };
    usm_team_kernel *k      = kernel_of(team, "twice");
    usm_buffer      *buf    = usm_buffer_new(NULL, (size_t)COUNT * 4);
    usm_split_arg    args[] = {
           {.follow = USM_FOLLOW_CHUNK, .mode = USM_READ_WRITE, .buffer = buf, .stride = 4}};
    usm_parallel_desc d = over(k, COUNT, args, 1);
    usm_access        acc;

    CHECK(buf != NULL);
    d.flags = USM_PARALLEL_SNAPSHOT;
    for (size_t at = 0; at < COUNT; at += MIB / 4) {
        must(usm_access_begin(buf, at * 4, MIB, USM_WRITE_NO_INIT, &acc));
        for (size_t i = 0; i < MIB / 4; i++)
            ((uint32_t *)acc.ptr)[i] = (uint32_t)(at + i);
        usm_access_end(&acc);
    }
    must(usm_parallel(team, &d, NULL));
    for (size_t at = 0; at < COUNT; at += MIB / 4) {
        must(usm_access_begin(buf, at * 4, MIB, USM_READ, &acc));
        for (size_t i = 0; i < MIB / 4; i++)
            CHECK(((uint32_t *)acc.ptr)[i] == 2 * (uint32_t)(at + i) + 1);
        usm_access_end(&acc);
    }
    usm_buffer_destroy(buf);
    usm_team_kernel_destroy(k);
}

/* The limit is of main(). */
static void buffers_that_outgrow_memory_are_split(void)
{
    over_teams(buffers_all);
}

/* Before it is released, too: else this case ends with its time. */
static void read_by_all(usm_team *team)
{
    usm_team_kernel  *k = kernel_of(team, "blend");
    static uint32_t   in[N], out[N];
    uint32_t          pitch = 1, nought = 0, seven = 7;
    usm_buffer       *buf    = usm_buffer_new(NULL, sizeof whole);
    usm_split_arg     args[] = {USM_SPLIT_WHOLE(NULL, sizeof whole),
                                USM_SPLIT_IN(in, 4),
                                USM_SPLIT_OUT(out, 4),
                                USM_SPLIT_VALUE(pitch),
                                USM_SPLIT_VALUE(nought),
                                USM_SPLIT_VALUE(nought)};
    usm_accessor      all    = {buf, 0, sizeof whole, USM_WRITE_NO_INIT};
    usm_parallel_desc d      = over(k, N, args, 6);
    usm_parallel_run *run    = NULL;

    CHECK(buf != NULL);
    args[0].buffer = buf;
    must(usm_buffer_fill(usm_default_queue(), &all, &seven, 4, 0, NULL, NULL));
    must(usm_parallel_start(team, &d, &run));
    must(usm_parallel_wait(run, NULL));
    must(usm_buffer_fill(usm_default_queue(), &all, &nought, 4, 0, NULL, NULL));
    must(usm_queue_wait(usm_default_queue()));
    usm_parallel_release(run);
    for (size_t i = 0; i < N; i++)
        CHECK_INT(out[i], 7);
    usm_buffer_destroy(buf);
    usm_team_kernel_destroy(k);
}

static void what_all_members_read_may_be_written_when_it_is_over(void)
{
    over_teams(read_by_all);
}

static const plain_case cases[] = {CASE(any_split_gives_the_serial_result),
                                   CASE(every_policy_does_each_index_once),
                                   CASE(chunks_are_multiples),
                                   CASE(halos_reach_into_neighbours),
                                   CASE(copies_begin_with_what_changes_nothing),
                                   CASE(merges_do_not_depend_on_the_split),
                                   CASE(the_first_that_is_found_calls_off_the_rest),
                                   CASE(the_users_merge_is_called_in_order),
                                   CASE(a_team_may_have_one_chunk_under_way),
                                   CASE(short_chunks_travel_together),
                                   CASE(small_pieces_of_a_processor_need_no_commands),
                                   CASE(iterative_kernels_are_launched_until_they_are_done),
                                   CASE(buffers_that_outgrow_memory_are_split),
                                   CASE(what_all_members_read_may_be_written_when_it_is_over),
                                   {NULL, NULL}};

int main(int argc, char **argv)
{
    const char *name = getenv("USM_TEST_RUNTIME");

    /* Of the host alone the buffer outgrows it; what devices are given there counts as well. */
    (void)setenv("USM_MEMORY_LIMIT", name && strcmp(name, "host") == 0 ? "host:16M" : "host:96M",
                 1);
    return plain_main(argc, argv, cases);
}
