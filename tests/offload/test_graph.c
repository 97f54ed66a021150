/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Graphs (usm/graph.h): what is refused, with which words; unrolling, results, progress, the folder
 * to go on from, a device that fails.  Random graphs: graph_model.c; who takes what:
 * test_graph_choose.c. */
#include "plain.h"

#include "graph_kernels.h"
#include "offload/offload.h"

#include <dirent.h>
#include <sys/stat.h>

static usm_team *team;
static kernels   all;

static void must(usm_status st)
{
    if (st != USM_OK)
        printf("# %s: %s\n", usm_status_name(st), usm_last_error());
    CHECK_INT(st, USM_OK);
}

/* Refused, with words of the story. */
static void refused(usm_status st, usm_status want, const char *words)
{
    if (st != want)
        printf("# %s\n", usm_last_error());
    CHECK_INT(st, want);
    CHECK_IN(words, usm_last_error());
}

static void open_team(void)
{
    must(usm_team_create(NULL, &team));
    must(kernels_create(team, &all));
}

static void close_team(void)
{
    kernels_destroy(&all);
    usm_team_destroy(team);
}

static const uint8_t bytes[40] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};

static usm_node_desc input_desc(const char *name)
{
    usm_node_desc d = USM_NODE_DESC_INIT;

    d.kind = USM_NODE_INPUT;
    d.name = name;
    d.data = bytes;
    d.size = sizeof bytes;
    return d;
}

static usm_node_desc desc(const char *name, usm_node_kind kind, size_t out_size)
{
    usm_node_desc d = USM_NODE_DESC_INIT;

    d.kind      = kind;
    d.name      = name;
    d.out_size  = out_size;
    d.kernel    = all.k[kind == USM_NODE_PARTITION ? KERNEL_PARTITION
                        : kind == USM_NODE_MERGE   ? KERNEL_MERGE
                                                   : KERNEL_PROCESS];
    d.dims      = 1;
    d.global[0] = 8;
    return d;
}

static uint32_t add(usm_graph *g, usm_node_desc d)
{
    uint32_t n = 0;

    must(usm_graph_add(g, &d, &n));
    return n;
}

/* ---- mistakes ------------------------------------------------------------------------------- */

static void a_wrong_node_is_refused(void)
{
    usm_graph    *g;
    usm_node_desc d = input_desc("a");
    uint32_t      n = 77;

    open_team();
    must(usm_graph_create(team, &g));
    (void)add(g, d);
    refused(usm_graph_add(g, &d, &n), USM_E_INVALID, "two nodes with the name 'a'");
    d = input_desc("");
    refused(usm_graph_add(g, &d, &n), USM_E_INVALID, "needs a name");
    d      = input_desc("b");
    d.size = 0;
    refused(usm_graph_add(g, &d, &n), USM_E_INVALID, "at least one byte");
    d      = input_desc("b");
    d.kind = (usm_node_kind)9;
    refused(usm_graph_add(g, &d, &n), USM_E_INVALID, "9 is not a kind");
    d        = desc("b", USM_NODE_PROCESS, 4);
    d.kernel = NULL;
    refused(usm_graph_add(g, &d, &n), USM_E_INVALID, "'b' needs a kernel");
    d = desc("b", USM_NODE_PROCESS, 0);
    refused(usm_graph_add(g, &d, &n), USM_E_SIZE, "out_size is 0");
    d       = desc("b", USM_NODE_PROCESS, 4);
    d.parts = 3;
    refused(usm_graph_add(g, &d, &n), USM_E_INVALID, "parts and per_device are a partitioner's");
    d        = desc("b", USM_NODE_MERGE, 4);
    d.kernel = all.k[KERNEL_PROCESS];
    refused(usm_graph_add(g, &d, &n), USM_E_ARGUMENTS, "has 4 arguments; a merge node's has 5");
    d          = desc("b", USM_NODE_PROCESS, 4);
    d.local[0] = 3;
    refused(usm_graph_add(g, &d, &n), USM_E_INVALID, "must be a multiple");
    d      = desc("b", USM_NODE_PROCESS, 4);
    d.work = -1;
    refused(usm_graph_add(g, &d, &n), USM_E_INVALID, "work is -1");
    d             = desc("b", USM_NODE_PROCESS, 4);
    d.struct_size = 3;
    refused(usm_graph_add(g, &d, &n), USM_E_ABI, "struct_size of 3");
    CHECK_INT(n, 77);
    usm_graph_destroy(g);
    refused(usm_graph_run(g, NULL, NULL), USM_E_INVALID_HANDLE, "graph");
    close_team();
}

static void a_wrong_edge_is_refused_and_a_cycle_named_whole(void)
{
    usm_graph *g;
    uint32_t   in, a, b, c;

    open_team();
    must(usm_graph_create(team, &g));
    in = add(g, input_desc("in"));
    a  = add(g, desc("a", USM_NODE_PROCESS, 4));
    b  = add(g, desc("b", USM_NODE_PROCESS, 4));
    c  = add(g, desc("c", USM_NODE_PROCESS, 4));
    must(usm_graph_connect(g, in, a));
    must(usm_graph_connect(g, a, b));
    must(usm_graph_connect(g, b, c));
    refused(usm_graph_connect(g, a, b), USM_E_INVALID, "two edges from 'a' to 'b'");
    refused(usm_graph_connect(g, a, in), USM_E_INVALID, "'in' is an input");
    refused(usm_graph_connect(g, a, 9), USM_E_INVALID, "no node 9");
    refused(usm_graph_connect(g, b, b), USM_E_INVALID, "b -> b");
    refused(usm_graph_connect(g, c, a), USM_E_INVALID, "makes a cycle: a -> b -> c -> a");
    must(usm_graph_run(g, NULL, NULL)); /* what was refused left nothing behind */
    usm_graph_destroy(g);
    close_team();
}

static void a_wrong_whole_is_refused_when_it_runs(void)
{
    usm_graph *g;
    uint32_t   in, merge, part, second, each, late;

    open_team();
    must(usm_graph_create(team, &g));
    refused(usm_graph_run(g, NULL, NULL), USM_E_INVALID, "has no nodes");
    in    = add(g, input_desc("in"));
    merge = add(g, desc("merge", USM_NODE_MERGE, 4));
    refused(usm_graph_run(g, NULL, NULL), USM_E_INVALID, "nobody gives input to node 'merge'");
    must(usm_graph_connect(g, in, merge));
    refused(usm_graph_run(g, NULL, NULL), USM_E_INVALID, "no partitioner is before it");
    part = add(g, desc("part", USM_NODE_PARTITION, 5));
    must(usm_graph_connect(g, in, part));
    must(usm_graph_connect(g, part, merge));
    refused(usm_graph_run(g, NULL, NULL), USM_E_SIZE, "blocks of one size");
    each = add(g, desc("each", USM_NODE_EXPANDABLE, 5));
    must(usm_graph_connect(g, in, each));
    refused(usm_graph_run(g, NULL, NULL), USM_E_INVALID, "nothing to unroll it by");
    second = add(g, desc("second", USM_NODE_PARTITION, 5));
    must(usm_graph_connect(g, in, second));
    must(usm_graph_connect(g, part, each));
    must(usm_graph_connect(g, second, each));
    refused(usm_graph_run(g, NULL, NULL), USM_E_INVALID, "two partitioners, 'part' and 'second'");
    late = add(g, desc("late", USM_NODE_PROCESS, 5));
    refused(usm_graph_get_output(g, late, &(const void *){NULL}, &(size_t){0}), USM_E_NOT_READY,
            "run the graph first");
    usm_graph_destroy(g);
    close_team();
}

/* ---- results -------------------------------------------------------------------------------- */

enum { PARTS = 7, PART = 24, EACH = 16, OUT = 20 };

/* in -> cut -> each -> all */
static usm_graph *make(uint32_t *last)
{
    usm_graph    *g;
    usm_node_desc d = desc("cut", USM_NODE_PARTITION, PART);
    uint32_t      in, cut, each;

    must(usm_graph_create(team, &g));
    in      = add(g, input_desc("in"));
    d.parts = PARTS;
    cut     = add(g, d);
    each    = add(g, desc("each", USM_NODE_EXPANDABLE, EACH));
    *last   = add(g, desc("all", USM_NODE_MERGE, OUT));
    must(usm_graph_connect(g, in, cut));
    must(usm_graph_connect(g, cut, each));
    must(usm_graph_connect(g, each, *last));
    return g;
}

static void expect(usm_graph *g, uint32_t last)
{
    uint8_t     parts[PARTS * PART], each[PARTS * EACH], out[OUT];
    const void *data;
    size_t      size;

    serial_partition(bytes, sizeof bytes, PARTS, parts, PART);
    for (size_t i = 0; i < PARTS; i++)
        serial_process(parts + i * PART, PART, each + i * EACH, EACH);
    serial_merge(each, sizeof each, PARTS, out, OUT);
    must(usm_graph_get_output(g, last, &data, &size));
    CHECK_INT(size, OUT);
    CHECK(memcmp(data, out, OUT) == 0);
}

static void a_graph_gives_the_serial_result_each_time_it_runs(void)
{
    usm_graph_run_desc d     = USM_GRAPH_RUN_DESC_INIT;
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    usm_graph         *g;
    uint32_t           last;

    open_team();
    g = make(&last);
    must(usm_graph_run(g, NULL, &stats));
    CHECK_INT(stats.chunks, PARTS + 2);
    CHECK_INT(stats.rescheduled, 0);
    expect(g, last);
    d.no_prefetch = true;
    must(usm_graph_run(g, &d, NULL));
    expect(g, last);
    refused(usm_graph_get_output(g, 1, &(const void *){NULL}, &(size_t){0}), USM_E_INVALID,
            "other nodes read");
    usm_graph_destroy(g);
    close_team();
}

static void each_policy_runs_it_and_others_are_named(void)
{
    static const char *const names[] = {"adaptive", "fastest", "static"};
    usm_graph_run_desc       d       = USM_GRAPH_RUN_DESC_INIT;
    usm_graph               *g;
    uint32_t                 last;

    open_team();
    g = make(&last);
    for (size_t i = 0; i < 3; i++) {
        d.policy.name = names[i];
        must(usm_graph_run(g, &d, NULL));
        expect(g, last);
    }
    d.policy.name = "quickest";
    refused(usm_graph_run(g, &d, NULL), USM_E_INVALID, "adaptive, fastest, static, energy");
    d.policy.name = "energy";
    refused(usm_graph_run(g, &d, NULL), USM_E_INVALID, "needs a cap");
    usm_graph_destroy(g);
    close_team();
}

/* All devices there are, by hand. */
static size_t open_all_devices(void)
{
    usm_device   *devices[16];
    size_t        n = 0;
    usm_team_desc d = USM_TEAM_DESC_INIT;

    must(usm_select_devices("*:*;host:*", devices, 16, &n));
    d.ndevices = n < 16 ? n : 16;
    d.devices  = devices;
    must(usm_team_create(&d, &team));
    must(kernels_create(team, &all));
    return d.ndevices;
}

static uint64_t launches_of_the_host(void)
{
    for (uint32_t i = 0; i < usm_team_size(team); i++) {
        usm_team_member m = {.struct_size = sizeof m};

        must(usm_team_get_member(team, i, &m));
        if (strcmp(m.name, "host:0") == 0)
            return m.chunks;
    }
    return UINT64_MAX;
}

/* The host draws 50 W, the others 30 W. */
static void keep_caps(void)
{
    usm_graph_run_desc d = USM_GRAPH_RUN_DESC_INIT;
    double             cap;
    usm_graph         *g;
    uint32_t           last;
    size_t             n;

    (void)setenv("USM_WATTS", "host=50,*=30", 1);
    n                 = open_all_devices();
    g                 = make(&last);
    d.policy.name     = "energy";
    d.policy.numbers  = &cap;
    d.policy.nnumbers = 1;
    cap               = 20;
    refused(usm_graph_run(g, &d, NULL), USM_E_INVALID, "the least draws");
    cap = 40;
    if (n == 1) {
        refused(usm_graph_run(g, &d, NULL), USM_E_INVALID, "the least draws 50 W");
    } else {
        must(usm_graph_run(g, &d, NULL));
        expect(g, last);
        CHECK_INT(launches_of_the_host(), 0);
    }
    for (cap = 60; cap < 100; cap += 30) { /* one at a time; all that two are */
        must(usm_graph_run(g, &d, NULL));
        expect(g, last);
    }
    usm_graph_destroy(g);
    close_team();
}

static void know_no_watts(void)
{
    usm_graph_run_desc d   = USM_GRAPH_RUN_DESC_INIT;
    const double       cap = 1000;
    usm_graph         *g;
    uint32_t           last;

    (void)setenv("USM_WATTS", "nothing=50", 1);
    must(usm_team_create(NULL, &team));
    must(kernels_create(team, &all));
    g                 = make(&last);
    d.policy.name     = "energy";
    d.policy.numbers  = &cap;
    d.policy.nnumbers = 1;
    if (usm_graph_run(g, &d, NULL) != USM_OK) /* where the host's are measured it is fine */
        refused(usm_last_status(), USM_E_INVALID, "USM_WATTS");
    usm_graph_destroy(g);
    close_team();
}

static void energy_keeps_its_cap_or_says_why_it_cannot(void)
{
    CHECK_INT(plain_child(keep_caps, NULL), 0);
    CHECK_INT(plain_child(know_no_watts, NULL), 0);
}

static void the_dot_text_shows_each_launch(void)
{
    usm_graph *g;
    uint32_t   last;
    char       text[8192], few[10];
    size_t     size = 0, same = 0;

    open_team();
    g = make(&last);
    must(usm_graph_describe_dot(g, text, sizeof text, &size));
    CHECK_INT(size, strlen(text));
    CHECK_IN("\"cut\" -> \"each.6\"", text);
    CHECK_IN("\"each.0\" -> \"all\"", text);
    CHECK(!strstr(text, "each.7"));
    CHECK(!strstr(text, "xlabel"));
    must(usm_graph_describe_dot(g, few, sizeof few, &same));
    CHECK_INT(size, same);
    CHECK_STR(few, "digraph u");
    must(usm_graph_run(g, NULL, NULL));
    must(usm_graph_describe_dot(g, text, sizeof text, NULL));
    CHECK_IN("xlabel", text);
    usm_graph_destroy(g);
    close_team();
}

/* ---- progress and resuming ------------------------------------------------------------------ */

typedef struct watcher {
    double   fraction;
    unsigned calls;
    double   stop_at; /* the part that is done when it calls the run off; 0: it does not */
} watcher;

static bool watch(const usm_progress *p, void *user)
{
    watcher *w = user;

    CHECK(p->fraction >= w->fraction && p->fraction <= 1);
    CHECK(p->nmembers == usm_team_size(team));
    w->fraction = p->fraction;
    w->calls++;
    return w->stop_at == 0 || w->fraction < w->stop_at;
}

/* A graph long enough to be called off: a chain of parts. */
static usm_graph *make_long(uint32_t *last)
{
    usm_graph    *g;
    usm_node_desc d = desc("cut", USM_NODE_PARTITION, 64);
    uint32_t      in, node;

    must(usm_graph_create(team, &g));
    in      = add(g, input_desc("in"));
    d.parts = 50;
    node    = add(g, d);
    must(usm_graph_connect(g, in, node));
    for (int i = 0; i < 20; i++) {
        char     name[16];
        uint32_t next;

        (void)snprintf(name, sizeof name, "step %d", i);
        next = add(g, desc(name, USM_NODE_EXPANDABLE, 64));
        must(usm_graph_connect(g, node, next));
        node = next;
    }
    *last = add(g, desc("all", USM_NODE_MERGE, OUT));
    must(usm_graph_connect(g, node, *last));
    return g;
}

static void progress_never_falls_and_ends_at_one(void)
{
    usm_graph_run_desc d = USM_GRAPH_RUN_DESC_INIT;
    watcher            w = {0};
    usm_graph         *g;
    uint32_t           last;

    open_team();
    g               = make_long(&last);
    d.progress      = watch;
    d.progress_user = &w;
    d.progress_ms   = 1;
    must(usm_graph_run(g, &d, NULL));
    CHECK(w.calls >= 1 && w.fraction == 1);
    usm_graph_destroy(g);
    close_team();
}

static void copy_output(usm_graph *g, uint32_t node, uint8_t *out)
{
    const void *data;
    size_t      size;

    must(usm_graph_get_output(g, node, &data, &size));
    CHECK_INT(size, OUT);
    memcpy(out, data, OUT);
}

/* Spoils one byte at the end of a kept block. */
static void damage(const char *folder)
{
    char           path[1024];
    DIR           *dir = opendir(folder);
    struct dirent *e;

    CHECK(dir != NULL);
    while ((e = readdir(dir)) != NULL) {
        int fd;

        if (strchr(e->d_name, '.') == NULL || e->d_name[0] == '.' || e->d_name[0] == '1')
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        fd = open(path, O_RDWR);
        CHECK(fd >= 0);
        CHECK(pwrite(fd, "\xee", 1, 64) == 1);
        (void)close(fd);
    }
    (void)closedir(dir);
}

/* As kills leave it: files aside; a part that this run does not have. */
static void litter(const char *folder)
{
    static const char *const names[] = {"graph.Ab12xY", "0.0.aaaaaa", "12.345.ZZ9999", "0.4000"};
    char                     path[1024];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        plain_write(path, "half of a block");
    }
}

static void a_run_called_off_goes_on_from_its_folder(void)
{
    usm_graph_run_desc d      = USM_GRAPH_RUN_DESC_INIT;
    usm_parallel_stats stats  = USM_PARALLEL_STATS_INIT;
    const char        *folder = plain_path("kept");
    watcher            w      = {.stop_at = 0.05}; /* some parts are kept by then */
    uint8_t            want[OUT], got[OUT];
    usm_graph         *g;
    uint32_t           last;

    open_team();
    g = make_long(&last);
    must(usm_graph_run(g, NULL, NULL));
    copy_output(g, last, want);
    d.resume        = folder;
    d.progress      = watch;
    d.progress_user = &w;
    d.progress_ms   = 1;
    refused(usm_graph_run(g, &d, &stats), USM_E_CANCELLED, "cancelled");
    CHECK(stats.chunks < 1002);
    refused(usm_graph_get_output(g, last, &(const void *){NULL}, &(size_t){0}), USM_E_NOT_READY,
            "");
    damage(folder);
    litter(folder);
    d.progress   = NULL;
    d.resume_key = "other kernels";
    refused(usm_graph_run(g, &d, NULL), USM_E_INVALID, "another graph");
    d.resume_key = NULL;
    must(usm_graph_run(g, &d, &stats));
    CHECK(stats.resumed > 0);
    CHECK(stats.resumed + stats.chunks >= 1002);
    copy_output(g, last, got);
    CHECK(memcmp(want, got, OUT) == 0);
    CHECK(access(folder, F_OK) != 0);
    usm_graph_destroy(g);
    close_team();
}

static void what_is_not_the_graphs_stays_in_the_folder(void)
{
    static const char *const names[] = {"notes", "0.0.toolong7", "0.0.new", ".0.aaaaaa",
                                        "graph.txt"};
    usm_graph_run_desc       d       = USM_GRAPH_RUN_DESC_INIT;
    const char              *folder  = plain_path("shared");
    char                     path[1024];
    usm_graph               *g;
    uint32_t                 last;

    open_team();
    g = make(&last);
    CHECK_INT(mkdir(folder, 0700), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        plain_write(path, "mine");
    }
    d.resume = folder;
    must(usm_graph_run(g, &d, NULL));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        CHECK_INT(unlink(path), 0);
    }
    CHECK_INT(rmdir(folder), 0); /* nothing else is there */
    usm_graph_destroy(g);
    close_team();
}

static void blocks_of_another_version_are_named_as_such(void)
{
    usm_graph_run_desc d      = USM_GRAPH_RUN_DESC_INIT;
    const char        *folder = plain_path("older");
    char               path[1024];
    usm_graph         *g;
    uint32_t           last;

    open_team();
    g = make(&last);
    CHECK_INT(mkdir(folder, 0700), 0);
    (void)snprintf(path, sizeof path, "%s/graph", folder);
    plain_write(path, "usmgraph\1 and the rest of 56 bytes, as libusm 0.1.0 wrote");
    d.resume = folder;
    refused(usm_graph_run(g, &d, NULL), USM_E_INVALID, "another version of libusm");
    CHECK_INT(unlink(path), 0);
    CHECK_INT(rmdir(folder), 0);
    usm_graph_destroy(g);
    close_team();
}

/* ---- a device that fails -------------------------------------------------------------------- */

/* The first launch of the process fails, once. */
static void fail_first(void)
{
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    usm_graph         *g;
    uint32_t           last;
    size_t             n;

    (void)setenv("USM_HOOKS", "fault:launch@1=USM_E_DEVICE", 1);
    n = open_all_devices();
    g = make(&last);
    if (n == 1) {
        refused(usm_graph_run(g, NULL, &stats), USM_E_DEVICE, "node 'cut' fails on every device");
    } else {
        usm_team_member m     = {.struct_size = sizeof m};
        unsigned        aside = 0;

        must(usm_graph_run(g, NULL, &stats));
        expect(g, last);
        CHECK_INT(stats.rescheduled, 1);
        for (uint32_t i = 0; i < usm_team_size(team); i++) {
            must(usm_team_get_member(team, i, &m));
            aside += m.state == USM_MEMBER_ASIDE;
            CHECK((m.state == USM_MEMBER_ASIDE) == (strstr(team->members[i].why, "'cut'") != NULL));
        }
        CHECK_INT(aside, 1);
    }
    usm_graph_destroy(g);
    close_team();
}

/* No device has memory for the first node: each is tried once, and stays well. */
static void lack_memory(void)
{
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    usm_team_member    m     = {.struct_size = sizeof m};
    usm_graph         *g;
    uint32_t           last;

    (void)setenv("USM_HOOKS", "fault:launch@1+=USM_E_NO_MEMORY", 1);
    (void)open_all_devices();
    g = make(&last);
    refused(usm_graph_run(g, NULL, &stats), USM_E_NO_MEMORY, "node 'cut' fails on every device");
    for (uint32_t i = 0; i < usm_team_size(team); i++) {
        must(usm_team_get_member(team, i, &m));
        CHECK(m.state != USM_MEMBER_ASIDE);
        CHECK(team->members[i].why[0] != '\0'); /* why others were tried */
    }
    usm_graph_destroy(g);
    close_team();
}

/* Whether "each" is unrolled into so many. */
static void expect_parts(usm_graph *g, size_t parts)
{
    char text[8192], name[32];

    must(usm_graph_describe_dot(g, text, sizeof text, NULL));
    (void)snprintf(name, sizeof name, "\"each.%zu\" [", parts - 1);
    CHECK_IN(name, text);
    (void)snprintf(name, sizeof name, "\"each.%zu\" [", parts);
    CHECK(!strstr(text, name));
}

/* in -> cut -> each -> all, the parts left open; the first launch of the process fails, once. */
static void leave_parts_open(void)
{
    usm_node_desc d;
    uint32_t      in, cut, each, last;
    usm_graph    *g;
    size_t        n;

    (void)setenv("USM_HOOKS", "fault:launch@1=USM_E_DEVICE", 1);
    n = open_all_devices();
    must(usm_graph_create(team, &g));
    in           = add(g, input_desc("in"));
    d            = desc("cut", USM_NODE_PARTITION, PART);
    d.per_device = 3;
    cut          = add(g, d);
    each         = add(g, desc("each", USM_NODE_EXPANDABLE, EACH));
    last         = add(g, desc("all", USM_NODE_MERGE, OUT));
    must(usm_graph_connect(g, in, cut));
    must(usm_graph_connect(g, cut, each));
    must(usm_graph_connect(g, each, last));
    expect_parts(g, 3 * n);
    if (n > 1) {
        must(usm_graph_run(g, NULL, NULL)); /* "cut" was reached with all devices well */
        expect_parts(g, 3 * n);
        must(usm_graph_run(g, NULL, NULL));
        expect_parts(g, 3 * (n - 1));
    }
    usm_graph_destroy(g);
    close_team();
}

static void parts_left_open_follow_the_devices_that_are_well(void)
{
    CHECK_INT(plain_child(leave_parts_open, NULL), 0);
}

static void a_node_that_has_memory_nowhere_fails(void)
{
    CHECK_INT(plain_child(lack_memory, plain_path("errors")), 0);
}

static void a_device_that_fails_is_set_aside_and_another_goes_on(void)
{
    CHECK_INT(plain_child(fail_first, plain_path("errors")), 0);
}

/* ---- calls ---------------------------------------------------------------------------------- */

typedef struct calls {
    unsigned   made;
    usm_status answer;
} calls;

/* Adds 1 to each byte, and puts the number of its bytes behind them. */
static usm_status increase(const void *in, size_t in_size, void *out, size_t out_size, void *user)
{
    calls         *c    = user;
    const uint8_t *from = in;
    uint8_t       *to   = out;

    c->made++;
    CHECK_INT(out_size, in_size + 1);
    for (size_t i = 0; i < in_size; i++)
        to[i] = (uint8_t)(from[i] + 1);
    to[in_size] = (uint8_t)in_size;
    return c->answer == USM_OK ? USM_OK : usm_home_fail(c->answer, "it was asked to fail");
}

static usm_node_desc call_desc(const char *name, size_t out_size, calls *c)
{
    usm_node_desc d = USM_NODE_DESC_INIT;

    d.kind = USM_NODE_CALL, d.name = name, d.out_size = out_size;
    d.call = increase, d.call_user = c;
    return d;
}

/* in -> each (2 blocks' worth through a process) -> call -> process; call reads both. */
static void a_call_reads_and_writes_blocks_like_a_kernel(void)
{
    usm_graph     *g;
    calls          c = {0, USM_OK};
    uint32_t       in, first, call, last, n = 77;
    const uint8_t *got;
    uint8_t        one[8], joined[64], want[16];
    size_t         size, in_size;
    usm_node_desc  d;

    open_team();
    must(usm_graph_create(team, &g));
    d       = input_desc("in");
    in_size = d.size;
    CHECK(in_size + 8 + 1 <= sizeof joined);
    in    = add(g, d);
    first = add(g, desc("first", USM_NODE_PROCESS, 8));
    call  = add(g, call_desc("call", in_size + 8 + 1, &c));
    last  = add(g, desc("last", USM_NODE_PROCESS, 16));
    must(usm_graph_connect(g, in, first));
    must(usm_graph_connect(g, in, call));
    must(usm_graph_connect(g, first, call));
    must(usm_graph_connect(g, call, last));
    must(usm_graph_run(g, NULL, NULL));
    must(usm_graph_get_output(g, last, (const void **)&got, &size));
    serial_process(d.data, (uint32_t)in_size, one, 8);
    memcpy(joined, d.data, in_size);
    memcpy(joined + in_size, one, 8);
    for (size_t i = 0; i < in_size + 8; i++)
        joined[i]++;
    joined[in_size + 8] = (uint8_t)(in_size + 8);
    serial_process(joined, (uint32_t)(in_size + 9), want, 16);
    CHECK_INT(size, 16);
    CHECK(memcmp(got, want, 16) == 0);
    CHECK_INT(c.made, 1);
    c.answer = USM_E_IO;
    refused(usm_graph_run(g, NULL, NULL), USM_E_IO, "node 'call': it was asked to fail");
    d      = call_desc("none", 1, &c);
    d.call = NULL;
    refused(usm_graph_add(g, &d, &n), USM_E_INVALID, "node 'none' is a call: it has a function");
    usm_graph_destroy(g);
    close_team();
}

static const plain_case cases[] = {
    CASE(a_device_that_fails_is_set_aside_and_another_goes_on), /* before anything has started */
    CASE(a_node_that_has_memory_nowhere_fails),
    CASE(parts_left_open_follow_the_devices_that_are_well),
    CASE(energy_keeps_its_cap_or_says_why_it_cannot),
    CASE(a_wrong_node_is_refused),
    CASE(a_wrong_edge_is_refused_and_a_cycle_named_whole),
    CASE(a_wrong_whole_is_refused_when_it_runs),
    CASE(a_call_reads_and_writes_blocks_like_a_kernel),
    CASE(a_graph_gives_the_serial_result_each_time_it_runs),
    CASE(each_policy_runs_it_and_others_are_named),
    CASE(the_dot_text_shows_each_launch),
    CASE(progress_never_falls_and_ends_at_one),
    CASE(a_run_called_off_goes_on_from_its_folder),
    CASE(what_is_not_the_graphs_stays_in_the_folder),
    CASE(blocks_of_another_version_are_named_as_such),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
