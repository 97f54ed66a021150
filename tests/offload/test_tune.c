/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* USM_PARALLEL_TUNE: sizes of work-groups are tried on chunks, the best is kept, in the process and
 * in the cache; results are the same whatever the size.  Processors are included where a case says
 * so: else they are left alone. */
#include "over_teams.h"

#include "base/fault.h"
#include "offload/run.h"
#include "offload/tune.h"
#include "program/disk_cache.h"

#include <math.h>

enum { MANY = 1 << 18 }; /* enough that chunks are multiples of 256 */

static uint32_t whole[64], in[MANY], out[MANY], expected[MANY];
static uint32_t px = 1, none = 0;

static void fill(void)
{
    for (size_t i = 0; i < 64; i++)
        whole[i] = (uint32_t)i * 2654435761u;
    for (size_t i = 0; i < MANY; i++) {
        in[i]       = (uint32_t)i * 40503u;
        expected[i] = in[i] * 3u + whole[i * 7 % 64];
    }
}

static usm_parallel_desc tuned(usm_team_kernel *kernel, size_t n)
{
    static const usm_split_arg args[] = {USM_SPLIT_WHOLE(whole, sizeof whole),
                                         USM_SPLIT_IN(in, 4),
                                         USM_SPLIT_OUT(out, 4),
                                         USM_SPLIT_VALUE(px),
                                         USM_SPLIT_VALUE(none),
                                         USM_SPLIT_VALUE(none)};
    usm_parallel_desc          d      = over(kernel, n, args, 6);

    d.flags = USM_PARALLEL_TUNE;
    return d;
}

static usm_parallel_stats launch(usm_team *team, usm_parallel_desc *d)
{
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;

    memset(out, 0, sizeof out);
    must(usm_parallel(team, d, &stats));
    CHECK_INT(memcmp(out, expected, d->global[0] * sizeof *out), 0);
    return stats;
}

/* A team of the first device alone, where there are several. */
static usm_team *single(void)
{
    usm_team_desc desc = USM_TEAM_DESC_INIT;
    usm_device   *device;
    usm_team     *team = NULL;
    size_t        n;

    must(usm_get_devices(&device, 1, &n));
    desc.ndevices = 1;
    desc.devices  = &device;
    must(usm_team_create(&desc, &team));
    return team;
}

static bool is_host(void)
{
    const char *name = getenv("USM_TEST_RUNTIME");

    return !name || strcmp(name, "host") == 0;
}

/* An empty cache, and processors count. */
static char folder[512];

static void begin(void)
{
    static int n;
    char       name[32];

    (void)snprintf(name, sizeof name, "tune%d", n++);
    (void)snprintf(folder, sizeof folder, "%s", plain_path(name));
    must(usm_config_set("cache_dir", folder));
    usm__tune_include_processors(true);
    fill();
}

/* What is known of the member that can be tuned. */
static usm__tune *known(usm_team_kernel *k)
{
    usm__tune *t = k->tunes;

    while (t && t->nsizes == 0)
        t = t->next;
    CHECK(t != NULL);
    return t;
}

static void check_settled(const usm__tune *t)
{
    int chosen = usm_load_acquire(&t->chosen);

    CHECK(chosen >= 0 && !t->sizes[chosen].is_refused);
    for (unsigned i = 0; i < t->nsizes; i++) {
        CHECK_INT(t->sizes[i].given, USM__TUNE_TRIES);
        CHECK_INT(t->sizes[i].n, USM__TUNE_TRIES);
        CHECK(t->sizes[i].median > 0);
        CHECK(t->sizes[i].median * 1.03 >= t->sizes[chosen].median);
    }
}

/* ---- launches
 * ----------------------------------------------------------------------------------------- */

static void try_all(usm_team *team)
{
    usm_team_kernel   *k = kernel_of(team, "blend");
    usm_parallel_desc  d = tuned(k, MANY);
    usm_parallel_stats first, second;
    usm__tune         *t;

    begin();
    first = launch(team, &d);
    for (int i = 0; i < 8 && usm__tune_explores(known(k)); i++)
        (void)launch(team, &d); /* the host may have taken the most */
    t = known(k);
    check_settled(t);
    CHECK(t->nsizes >= 3 && !t->is_from_cache);
    CHECK(first.chunks > t->nsizes);
    second = launch(team, &d);
    for (int i = 0; i < 50 && second.chunks >= first.chunks; i++)
        second = launch(team, &d); /* a member that was slow for a while gets many small ones */
    CHECK(second.chunks < first.chunks);
    CHECK(known(k) == t);
    d.global[0] = MANY - 77; /* whose last chunk is of no size */
    (void)launch(team, &d);
    usm_team_kernel_destroy(k);
}

static void sizes_are_tried_on_chunks_and_results_stay(void)
{
    over_teams(try_all);
}

/* A kernel of its own, as another team's; returns the size that it has after a launch. */
static size_t begin_with(usm_team *team, bool is_there)
{
    usm_team_kernel  *k = kernel_of(team, "blend");
    usm_parallel_desc d = tuned(k, MANY);
    usm__tune        *t;
    size_t            items;

    (void)launch(team, &d);
    t = known(k);
    CHECK_INT(t->is_from_cache, is_there);
    CHECK(!usm__tune_explores(t));
    items = t->sizes[usm_load_acquire(&t->chosen)].items;
    usm_team_kernel_destroy(k);
    return items;
}

/* Fills the cache; returns the size that was found best. */
static size_t find_best(usm_team *team, usm__hash *key)
{
    usm_team_kernel  *k = kernel_of(team, "blend");
    usm_parallel_desc d = tuned(k, MANY);
    size_t            items;

    (void)launch(team, &d);
    check_settled(known(k));
    items = known(k)->sizes[known(k)->chosen].items;
    *key  = known(k)->key;
    usm_team_kernel_destroy(k);
    return items;
}

static void another_team_begins_with_what_was_found(void)
{
    usm_team *team;
    usm__hash key;
    size_t    items;

    begin();
    team  = single();
    items = find_best(team, &key);
    usm_team_destroy(team);
    team = single();
    CHECK_INT(begin_with(team, true), items);
    must(usm_config_set("cache_dir", "off"));
    (void)begin_with(team, false);
    usm_team_destroy(team);
}

/* The program again, in a process of its own, with the folder of the first. */
static void another_process_does(void)
{
    const char *given = getenv("TUNE_FOLDER");
    usm_team   *team;
    usm__hash   key;
    char        items[32];
    int         status = -1;
    pid_t       child;

    begin();
    team = single();
    if (given) {
        must(usm_config_set("cache_dir", given));
        CHECK_INT(begin_with(team, true), strtoull(getenv("TUNE_ITEMS"), NULL, 10));
    } else {
        (void)snprintf(items, sizeof items, "%zu", find_best(team, &key));
        child = fork();
        if (child == 0) {
            (void)setenv("TUNE_FOLDER", folder, 1);
            (void)setenv("TUNE_ITEMS", items, 1);
            execl("/proc/self/exe", "test_tune", "another_process_does", (char *)NULL);
            _exit(99);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK_INT(status, 0);
    }
    usm_team_destroy(team);
}

/* ---- files
 * -------------------------------------------------------------------------------------------- */

static void change_file(const usm__hash *key, long at, long cut)
{
    char  path[600];
    FILE *f;
    int   c;

    (void)snprintf(path, sizeof path, "%s/%016llx%016llx.bin", folder, (unsigned long long)key->hi,
                   (unsigned long long)key->lo);
    if (cut >= 0)
        CHECK_INT(truncate(path, cut), 0);
    if (at < 0)
        return;
    f = fopen(path, "r+");
    CHECK(f && fseek(f, at, SEEK_SET) == 0);
    c = fgetc(f);
    CHECK(c != EOF && fseek(f, at, SEEK_SET) == 0 && fputc(c ^ 1, f) != EOF);
    CHECK_INT(fclose(f), 0);
}

/* Whole files with right sums, but of something else: made of the good one. */
static void replace_file(const usm__hash *key, size_t at, const void *bytes, size_t n, size_t size)
{
    size_t had  = 0;
    char  *data = usm__disk_cache_read(key, &had);

    CHECK(data && had >= at + n);
    memcpy(data + at, bytes, n);
    usm__disk_cache_write(key, data, size ? size : had);
    free(data);
}

/* In its payload: 8 bytes of magic, the number of sizes, for each its items and its time. */
static void damage(const usm__hash *key, int how)
{
    const double no_number = NAN, minus = -1, zero = 0;
    uint64_t     other = 3;

    switch (how) {
    case 0:
        change_file(key, 48 + 20, -1);
        break;
    case 1:
        change_file(key, -1, 60);
        break;
    case 2:
        change_file(key, -1, 0);
        break;
    case 3:
        replace_file(key, 0, "USMWG9", 6, 0);
        break;
    case 4:
        replace_file(key, 8, &other, 8, 0);
        break;
    case 5:
        replace_file(key, 32, &other, 8, 0);
        break;
    case 6:
        replace_file(key, 24, &zero, 8, 0); /* the usual size was not measured                   */
        break;
    case 7:
        replace_file(key, 40, &minus, 8, 0);
        break;
    case 8:
        replace_file(key, 40, &no_number, 8, 0);
        break;
    default:
        replace_file(key, 0, "USMWG1", 6, 32);
    }
}

static void damaged_files_are_ignored_and_replaced(void)
{
    usm_team *team;
    usm__hash key;

    begin();
    team = single();
    (void)find_best(team, &key);
    for (int how = 0; how < 10; how++) {
        size_t items;

        damage(&key, how);
        items = begin_with(team, false);
        CHECK_INT(begin_with(team, true), items);
    }
    usm_team_destroy(team);
}

/* ---- what goes wrong
 * ------------------------------------------------------------------------------------- */

/* The first chunk is not measured, the second is a trial of the usual size. */
static void a_size_that_is_refused_is_not_chosen(void)
{
    usm_team         *team;
    usm_team_kernel  *k;
    usm_parallel_desc d;
    usm__tune        *t;

    begin();
    team = single();
    k    = kernel_of(team, "blend");
    d    = tuned(k, MANY);
    CHECK(usm__fault_arm("launch", 4, false, USM_E_INVALID));
    (void)launch(team, &d);
    usm__fault_disarm_all();
    t = known(k);
    CHECK(!usm__tune_explores(t));
    CHECK(t->sizes[2].is_refused && t->sizes[2].n == 0 && t->chosen != 2);
    CHECK_INT(usm_team_size(team), 1);
    (void)launch(team, &d);
    usm_team_kernel_destroy(k);
    k = kernel_of(team, "blend");
    d = tuned(k, MANY);
    (void)launch(team, &d);
    CHECK(known(k)->is_from_cache && known(k)->sizes[2].is_refused);
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
}

/* How many of the team's lanes ever had a chunk. */
static unsigned count_lanes(const usm_team *team)
{
    unsigned n = 0;

    for (const usm__lane *s = team->members[0].spare; s; s = s->next)
        n += s->chunk.count > 0;
    return n;
}

static bool stop_at_a_tenth(const usm_progress *progress, void *user)
{
    (void)user;
    return progress->fraction < 0.1;
}

static void a_launch_that_is_called_off_leaves_the_rest_to_the_next(void)
{
    usm_team         *team;
    usm_team_kernel  *k;
    usm_parallel_desc d;
    usm__tune        *t;

    begin();
    team          = single();
    k             = kernel_of(team, "blend");
    d             = tuned(k, MANY);
    d.progress    = stop_at_a_tenth;
    d.progress_ms = 1;
    CHECK_INT(usm_parallel(team, &d, NULL), USM_E_CANCELLED);
    t = known(k);
    CHECK(!usm__tune_explores(t) || count_lanes(team) == 1);
    for (unsigned i = 0; i < t->nsizes; i++)
        CHECK_INT(t->sizes[i].given, t->sizes[i].n);
    d.progress = NULL;
    for (int i = 0; i < 3 && usm__tune_explores(t); i++)
        (void)launch(team, &d);
    CHECK(known(k) == t);
    check_settled(t);
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
}

/* ---- which sizes, and which is best
 * ---------------------------------------------------------------------- */

/* One group along x, what x leaves along y. */
static void sizes_divide_chunks(void)
{
    usm_team         *team;
    usm_team_kernel  *k;
    usm_parallel_desc d;
    usm__plan        *plan;
    usm__tune        *t;

    begin();
    team        = single();
    k           = kernel_of(team, "blend");
    d           = tuned(k, 24);
    d.dims      = 2;
    d.global[1] = 512;
    d.multiple  = 64;
    must(usm__plan_make(team, &d, &plan));
    t = usm__tune_find(k, 0, plan);
    CHECK(t && t->nsizes > 2);
    for (unsigned i = 0; i < t->nsizes; i++) {
        size_t local[3] = {9, 9, 9}, items = t->sizes[i].items;
        bool   is_trial;

        usm_store_release(&t->chosen, (int)i);
        CHECK_INT(usm__tune_choose(t, plan, 64, local, &is_trial), i);
        CHECK(!is_trial);
        if (items == USM__TUNE_DRIVER) {
            CHECK(local[0] == 0 && local[1] == 0 && local[2] == 0);
            continue;
        }
        CHECK(24 % local[0] == 0 && 64 % local[1] == 0 && local[2] == 1);
        if (items != USM__TUNE_USUAL)
            CHECK(items <= 512 && local[0] * local[1] == items && local[0] == 8);
        else
            CHECK(local[0] == 24 && local[1] == 1);
        if (local[1] > 1) { /* of a last chunk that it does not divide: the usual one */
            CHECK_INT(usm__tune_choose(t, plan, 7, local, &is_trial), 0);
            CHECK(local[0] == 24 && local[1] == 1);
        }
    }
    usm__plan_free(plan);
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
}

/* Times that are made up: what comes first is slow, as if it were compiled. */
static double pretend(usm__tune *t, const usm__plan *plan, const unsigned *ns, unsigned *order)
{
    size_t   local[3];
    bool     is_trial;
    unsigned seen[USM__TUNE_SIZES] = {0}, n = 0;

    CHECK_INT(usm__tune_choose(t, plan, 1024, local, &is_trial), 0);
    CHECK(!is_trial);
    while (usm__tune_explores(t)) {
        unsigned size = usm__tune_choose(t, plan, 1024, local, &is_trial);

        CHECK(is_trial && n < USM__TUNE_SIZES * USM__TUNE_TRIES);
        order[n++] = size;
        usm__tune_ended(t, size, 1024, 1024u * ns[size] * (seen[size]++ ? 1 : 1000));
    }
    CHECK_INT(n, t->nsizes * USM__TUNE_TRIES);
    return t->sizes[usm_load_acquire(&t->chosen)].median;
}

static void the_median_counts_and_the_usual_size_stays_unless_one_is_better(void)
{
    unsigned          ns[USM__TUNE_SIZES], order[USM__TUNE_SIZES * USM__TUNE_TRIES];
    usm_team         *team;
    usm_team_kernel  *k;
    usm_parallel_desc d;
    usm__plan        *plan;
    usm__tune        *t;

    begin();
    must(usm_config_set("cache_dir", "off"));
    team = single();
    for (unsigned better = 0; better < 3; better++) {
        k = kernel_of(team, "blend");
        d = tuned(k, MANY);
        must(usm__plan_make(team, &d, &plan));
        CHECK_INT(plan->multiple, 256);
        t = usm__tune_find(k, 0, plan);
        CHECK(t && t->nsizes > 3);
        for (unsigned i = 0; i < USM__TUNE_SIZES; i++)
            ns[i] = i == better ? 90 : i == 3 ? 99 : 100; /* one of a hundred is noise           */
        if (better == 0)
            ns[0] = 100;
        CHECK(pretend(t, plan, ns, order) == ns[better]);
        CHECK_INT(t->chosen, better);
        for (unsigned i = 0; i < t->nsizes; i++) /* up, down, up */
            CHECK(order[i] == i && order[2 * t->nsizes - 1 - i] == i &&
                  order[2 * t->nsizes + i] == i);
        usm__plan_free(plan);
        usm_team_kernel_destroy(k);
    }
    usm_team_destroy(team);
}

static void a_clock_that_stands_still_ends_the_trials(void)
{
    usm_team         *team;
    usm_team_kernel  *k;
    usm_parallel_desc d;
    usm__plan        *plan;
    usm__tune        *t;
    size_t            local[3];
    bool              is_trial;
    int               n = 0;

    begin();
    team = single();
    k    = kernel_of(team, "blend");
    d    = tuned(k, MANY);
    must(usm__plan_make(team, &d, &plan));
    t = usm__tune_find(k, 0, plan);
    CHECK(t != NULL);
    for (; usm__tune_explores(t); n++) {
        unsigned size = usm__tune_choose(t, plan, 1024, local, &is_trial);

        CHECK(n < 1000);
        if (is_trial)
            usm__tune_ended(t, size, 1024, 0);
    }
    CHECK(n > 32 && t->chosen == 0);
    usm__plan_free(plan);
    usm_team_kernel_destroy(k);
    k = kernel_of(team, "blend"); /* and nothing was kept of it */
    d = tuned(k, MANY);
    must(usm__plan_make(team, &d, &plan));
    CHECK(usm__tune_explores(usm__tune_find(k, 0, plan)));
    usm__plan_free(plan);
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
}

/* ---- where nothing is tuned
 * ------------------------------------------------------------------------------ */

static void read_log(const char *path, char *text, size_t size)
{
    FILE  *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;

    text[n] = '\0';
    if (f)
        (void)fclose(f);
}

static void the_log_says_what_was_found_and_why_nothing_is_tuned(void)
{
    usm_team         *team;
    usm_team_kernel  *k;
    usm_parallel_desc d;
    char              path[512], value[600], text[4096];

    begin();
    usm__tune_include_processors(false);
    (void)snprintf(path, sizeof path, "%s", plain_path("log"));
    (void)snprintf(value, sizeof value, "level:info;output:%s", path);
    must(usm_config_set("log", value));
    team = single();
    k    = kernel_of(team, "blend");
    d    = tuned(k, MANY);
    (void)launch(team, &d);
    (void)launch(team, &d);
    must(usm_config_set("log", NULL));
    read_log(path, text, sizeof text);
    if (is_host())
        CHECK_IN("native code", text);
    else if (k->tunes->nsizes == 0)
        CHECK_IN("it is a CPU, whose work-groups are not tuned", text);
    else
        CHECK_IN("as measured: ", text);
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
}

static void nothing_is_tuned_without_the_flag(void)
{
    usm_team         *team;
    usm_team_kernel  *k;
    usm_parallel_desc d;

    begin();
    team    = single();
    k       = kernel_of(team, "blend");
    d       = tuned(k, MANY);
    d.flags = 0;
    (void)launch(team, &d);
    CHECK(k->tunes == NULL);
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
}

/* The first with too few chunks. */
static void one_lane_tries_and_then_all_work(void)
{
    usm_team         *team;
    usm_team_kernel  *k;
    usm_parallel_desc d;

    begin();
    team        = single();
    k           = kernel_of(team, "blend");
    d           = tuned(k, MANY);
    d.min_chunk = MANY / 8;
    (void)launch(team, &d);
    CHECK(usm__tune_explores(known(k)) && count_lanes(team) == 1);
    d.min_chunk = 0;
    (void)launch(team, &d);
    check_settled(known(k));
    CHECK_INT(count_lanes(team), 2);
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
}

static const plain_case cases[] = {
    CASE(sizes_are_tried_on_chunks_and_results_stay),
    CASE(another_team_begins_with_what_was_found),
    CASE(another_process_does),
    CASE(damaged_files_are_ignored_and_replaced),
    CASE(a_size_that_is_refused_is_not_chosen),
    CASE(a_launch_that_is_called_off_leaves_the_rest_to_the_next),
    CASE(one_lane_tries_and_then_all_work),
    CASE(sizes_divide_chunks),
    CASE(the_median_counts_and_the_usual_size_stays_unless_one_is_better),
    CASE(a_clock_that_stands_still_ends_the_trials),
    CASE(the_log_says_what_was_found_and_why_nothing_is_tuned),
    CASE(nothing_is_tuned_without_the_flag),
    {NULL, NULL},
};
/* Native code has no work-groups. */
static const plain_case host_cases[] = {
    CASE(the_log_says_what_was_found_and_why_nothing_is_tuned),
    CASE(nothing_is_tuned_without_the_flag),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, is_host() ? host_cases : cases);
}
