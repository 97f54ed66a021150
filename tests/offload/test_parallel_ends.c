/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm_parallel(): launches that fail, are called off, are killed, or are refused. */
#include "over_teams.h"

#include "base/fault.h"

#include <signal.h>

/* --- failures -------------------------------------------------------------------------------- */

static uint32_t twice_data[N];

static usm_status twice_by(double size, usm_team *team, usm_team_kernel *k,
                           usm_parallel_stats *stats)
{
    usm_split_arg     args[] = {USM_SPLIT_IN(twice_data, 4)};
    usm_parallel_desc d      = over(k, N, args, 1);

    args[0].mode = USM_READ_WRITE;
    d.flags      = USM_PARALLEL_SNAPSHOT;
    fixed(&d, &size);
    for (uint32_t i = 0; i < N; i++)
        twice_data[i] = i;
    return usm_parallel(team, &d, stats);
}

static usm_status twice_once(usm_team *team, usm_team_kernel *k, usm_parallel_stats *stats)
{
    return twice_by(50, team, k, stats);
}

/* The n-th call at `point`, of either device. */
static void one_goes(const char *point, uint64_t n, usm_status why, usm_member_state state)
{
    usm_team          *team  = together();
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    usm_team_member    m     = {.struct_size = sizeof m};
    unsigned           gone  = 0;
    usm_team_kernel   *k;

    if (!team)
        return; /* one device, nobody to do its work */
    k = kernel_of(team, "twice");
    CHECK(usm__fault_arm(point, n, false, why));
    must(twice_once(team, k, &stats));
    CHECK_INT(usm__fault_fired(), 1);
    usm__fault_disarm_all();
    for (uint32_t i = 0; i < N; i++)
        CHECK_INT(twice_data[i], 2 * i + 1);
    CHECK(stats.rescheduled >= 1);
    for (uint32_t i = 0; i < 2; i++) {
        must(usm_team_get_member(team, i, &m));
        gone += m.state == state;
    }
    CHECK_INT(gone, 1);
    must(twice_once(team, k, &stats)); /* by the other alone */
    CHECK_INT(stats.rescheduled, 0);
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
}

static void a_device_whose_kernel_fails_is_set_aside(void)
{
    one_goes("launch", 5, USM_E_DEVICE, USM_MEMBER_ASIDE);
}

static void a_device_that_is_lost_is_replaced(void)
{
    one_goes("launch", 5, USM_E_DEVICE_LOST, USM_MEMBER_LOST);
    one_goes("event_query", 5, USM_E_DEVICE_LOST, USM_MEMBER_LOST); /* its kernel began           */
}

/* Its neighbours in the queue ended well, and count. */
static void one_of_many_short_chunks_that_fails_is_done_by_another(void)
{
    usm_team          *team  = together();
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    usm_team_kernel   *k;

    if (!team)
        return;
    k = kernel_of(team, "twice");
    must(twice_by(1, team, k, &stats));
    CHECK(usm__fault_arm("event_query", 3, false, USM_E_DEVICE));
    must(twice_by(1, team, k, &stats));
    CHECK_INT(usm__fault_fired(), 1);
    usm__fault_disarm_all();
    for (uint32_t i = 0; i < N; i++)
        CHECK_INT(twice_data[i], 2 * i + 1);
    CHECK_INT(stats.chunks, N);
    CHECK(stats.rescheduled >= 1);
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
}

static void when_nobody_is_left_the_failure_is_the_launchs(void)
{
    usm_team        *team = alone();
    usm_team_kernel *k    = kernel_of(team, "twice");

    CHECK(usm__fault_arm("launch", 3, true, USM_E_DEVICE)); /* on all */
    CHECK_INT(twice_once(team, k, NULL), USM_E_DEVICE);
    usm__fault_disarm_all();
    CHECK_INT(twice_once(team, k, NULL), USM_E_NO_DEVICE);
    CHECK_IN("set aside", usm_last_error());
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
}

/* --- progress, the end before the end -------------------------------------------------------- */

typedef struct watched {
    double   fraction;
    unsigned calls, most; /* most: then it is called off; 0: never                               */
} watched;

static bool watch(const usm_progress *p, void *user)
{
    watched *w   = user;
    double   sum = 0;

    CHECK(p->fraction >= w->fraction && p->fraction <= 1);
    for (uint32_t i = 0; i < p->nmembers; i++)
        sum += p->shares[i];
    CHECK(sum == 0 || (sum > 0.999 && sum < 1.001));
    w->fraction = p->fraction;
    return ++w->calls != w->most;
}

static void progress_all(usm_team *team)
{
    usm_team_kernel  *k = kernel_of(team, "twice");
    watched           w = {0};
    static uint32_t   data[N];
    usm_split_arg     args[] = {USM_SPLIT_OUT(data, 4)};
    usm_parallel_desc d      = over(k, N, args, 1);
    double            size   = 5;

    d.progress      = watch;
    d.progress_user = &w;
    d.progress_ms   = 1;
    fixed(&d, &size);
    must(usm_parallel(team, &d, NULL));
    CHECK(w.calls >= 1);
    CHECK(w.fraction == 1);
    w = (watched){.most = 1};
    CHECK_INT(usm_parallel(team, &d, NULL), USM_E_CANCELLED);
    CHECK_IN("progress", usm_last_error());
    CHECK_INT(w.calls, 1);
    usm_team_kernel_destroy(k);
}

static void progress_rises_and_may_call_it_off(void)
{
    over_teams(progress_all);
}

static void cancel_all(usm_team *team)
{
    usm_team_kernel *k = kernel_of(team, "twice");
    enum { MANY = 1 << 20 }; /* so many that the call comes before their end                  */
    static uint32_t    data[MANY];
    usm_split_arg      args[] = {USM_SPLIT_OUT(data, 4)};
    usm_parallel_desc  d      = over(k, MANY, args, 1);
    usm_parallel_stats stats  = USM_PARALLEL_STATS_INIT;
    usm_parallel_run  *run;
    usm_event         *ev;
    double             size = 1;

    fixed(&d, &size);
    must(usm_parallel_start(team, &d, &run));
    must(usm_parallel_get_event(run, &ev));
    usm_parallel_cancel(run);
    CHECK_INT(usm_parallel_wait(run, &stats), USM_E_CANCELLED);
    CHECK_INT(usm_event_wait(ev), USM_E_CANCELLED);
    CHECK(stats.chunks < MANY);
    usm_event_release(ev);
    usm_parallel_release(run);
    size = MANY / 16;
    must(usm_parallel_start(team, &d, &run));
    usm_parallel_release(run); /* waits */
    d.global[0] = 0;
    must(usm_parallel(team, &d, &stats));
    CHECK_INT(stats.chunks, 0);
    usm_team_kernel_destroy(k);
}

static void a_launch_can_be_called_off(void)
{
    over_teams(cancel_all);
}

/* --- resuming -------------------------------------------------------------------------------- */

static const char *resume_path;

static bool die_half_way(const usm_progress *p, void *user)
{
    (void)user;
    if (p->fraction > 0.5)
        (void)kill(getpid(), SIGKILL);
    return true;
}

static usm_status resume_once(usm_team *team, usm_progress_fn fn, usm_parallel_stats *stats,
                              folded *f)
{
    usm_team_kernel  *k = kernel_of(team, "fold");
    static int32_t    in[N];
    uint32_t          leaf   = 8;
    usm_split_arg     args[] = {USM_SPLIT_IN(in, 4),
                                USM_SPLIT_SUM(&f->sum, 4, USM_ELEMENT_U32, leaf),
                                USM_SPLIT_SUM(&f->least, 4, USM_ELEMENT_I32, leaf),
                                USM_SPLIT_SUM(&f->most, 4, USM_ELEMENT_I32, leaf),
                                USM_SPLIT_SUM(&f->mean, 4, USM_ELEMENT_F32, 1),
                                USM_SPLIT_VALUE(leaf)};
    usm_parallel_desc d      = over(k, N, args, 6);
    double            size   = 8;
    usm_status        st;

    *f            = (folded){7, 1000, -1000, 0.25f};
    args[2].merge = USM_MERGE_MIN;
    args[3].merge = USM_MERGE_MAX;
    for (int32_t i = 0; i < N; i++)
        in[i] = (i * 7919) % 10007 - 5000;
    fixed(&d, &size);
    d.resume      = resume_path;
    d.resume_ms   = 1;
    d.progress    = fn;
    d.progress_ms = 1;
    st            = usm_parallel(team, &d, stats);
    usm_team_kernel_destroy(k);
    return st;
}

/* A process of its own: `test_parallel --die FILE`. */
static int die(const char *path)
{
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    usm_team          *team  = alone();
    folded             f;

    resume_path = path;
    (void)resume_once(team, die_half_way, &stats, &f);
    return 0;
}

static void a_killed_launch_goes_on_where_it_was(void)
{
    char               self[512] = {0};
    usm_parallel_stats stats     = USM_PARALLEL_STATS_INIT;
    folded             wanted, f;
    usm_team          *team = alone();
    int                status;
    pid_t              pid;

    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    resume_path = NULL;
    must(resume_once(team, NULL, &stats, &wanted));
    resume_path = plain_path("resume");
    pid         = fork();
    if (pid == 0) {
        (void)execl(self, self, "--die", resume_path, (char *)NULL);
        _exit(1);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    must(resume_once(team, NULL, &stats, &f));
    CHECK(stats.resumed > 0);
    CHECK_INT(stats.resumed + stats.chunks, N / 8);
    CHECK(memcmp(&f, &wanted, sizeof f) == 0);
    CHECK(access(resume_path, F_OK) != 0);
    usm_team_destroy(team);
}

static void files_of_other_launches_are_refused(void)
{
    usm_team          *team  = alone();
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    folded             f;

    resume_path = plain_path("other");
    plain_write(resume_path, "USMRUN1\n0123456789012345678901234567890112345678 and more");
    CHECK_INT(resume_once(team, NULL, &stats, &f), USM_E_INVALID);
    CHECK_IN("the file of a launch by another version of libusm", usm_last_error());
    CHECK_IN(resume_path, usm_last_error());
    usm_team_destroy(team);
}

/* --- bad input ------------------------------------------------------------------------------- */

static struct bad {
    usm_team         *team;
    usm_team_kernel  *kernel;
    uint32_t          in[16], out[16];
    uint64_t          n;
    usm_split_arg     args[3];
    usm_parallel_desc d;
} bad;

static void good_again(void)
{
    usm_split_arg args[] = {USM_SPLIT_IN(bad.in, 4), USM_SPLIT_OUT(bad.out, 4),
                            USM_SPLIT_VALUE(bad.n)};

    bad.n = 16;
    memcpy(bad.args, args, sizeof args);
    bad.args[0].before = bad.args[0].after = 1;
    bad.d                                  = over(bad.kernel, 16, bad.args, 3);
}

static void refused(usm_status wanted, const char *words, int line)
{
    usm_status st = usm_parallel(bad.team, &bad.d, NULL);

    if (st != wanted)
        printf("# line %d: %s\n", line, usm_last_error());
    CHECK_INT(st, wanted);
    CHECK_IN(words, usm_last_error());
    good_again();
}

#define REFUSED(change, status, words)                                                             \
    do {                                                                                           \
        change;                                                                                    \
        refused((status), (words), __LINE__);                                                      \
    } while (0)

static void bad_arguments(void)
{
    REFUSED(bad.d.nargs = 2, USM_E_ARGUMENTS, "takes 3 arguments, not 2");
    REFUSED(bad.d.args = NULL, USM_E_ARGUMENTS, "args is NULL");
    REFUSED(bad.args[0].host = NULL, USM_E_ARGUMENTS, "argument 0 has neither");
    REFUSED(bad.args[0].follow = (usm_follow)9, USM_E_ARGUMENTS, "USM_FOLLOW_*");
    REFUSED(bad.args[0].stride = 0, USM_E_ARGUMENTS, "stride of 0");
    REFUSED(bad.args[0].size = 63, USM_E_ARGUMENTS, "need 64");
    REFUSED(bad.args[1].before = 1, USM_E_ARGUMENTS, "halo");
    REFUSED(bad.args[1].mode = USM_WRITE, USM_E_ARGUMENTS, "NO_INIT");
    REFUSED(bad.args[1].mode = USM_READ_WRITE, USM_E_NOT_SUPPORTED, "USM_PARALLEL_SNAPSHOT");
    REFUSED(bad.args[1].host = bad.args[0].host, USM_E_ARGUMENTS, "arguments 0 and 1 share bytes");
    REFUSED((bad.args[1].host = bad.in + 15, bad.args[0].before = bad.args[0].after = 0),
            USM_E_ARGUMENTS, "and 1 is written");
    REFUSED(bad.args[2].size = 0, USM_E_ARGUMENTS, "USM_SPLIT_VALUE");
    REFUSED(bad.args[1].follow = USM_FOLLOW_WHOLE, USM_E_ARGUMENTS, "can only be USM_READ");
    REFUSED(bad.args[1].follow = USM_FOLLOW_PRIVATE, USM_E_ARGUMENTS, "0 bytes");
    REFUSED((bad.args[1].follow = USM_FOLLOW_PRIVATE, bad.args[1].size = 4), USM_E_ARGUMENTS,
            "no merge");
    REFUSED((bad.args[1].follow = USM_FOLLOW_PRIVATE, bad.args[1].size = 4,
             bad.args[1].merge = USM_MERGE_SUM),
            USM_E_ARGUMENTS, "USM_ELEMENT_");
    REFUSED((bad.args[1].follow = USM_FOLLOW_PRIVATE, bad.args[1].size = 4,
             bad.args[1].merge = USM_MERGE_USER),
            USM_E_ARGUMENTS, "merge_fn");
    REFUSED((bad.args[1].follow = USM_FOLLOW_PRIVATE, bad.args[1].size = 4,
             bad.args[1].merge = USM_MERGE_FIRST),
            USM_E_ARGUMENTS, "int64");
    REFUSED(bad.d.state_arg = 4, USM_E_ARGUMENTS, "state_arg is 4");
    REFUSED(bad.d.state_arg = 1, USM_E_ARGUMENTS, "leaf of 1");
}

static void bad_ranges(void)
{
    double minus = -1;

    REFUSED(bad.d.struct_size = 8, USM_E_ABI, "USM_PARALLEL_DESC_INIT");
    REFUSED(bad.d.kernel = NULL, USM_E_INVALID_HANDLE, "team kernel is NULL");
    REFUSED(bad.d.dims = 0, USM_E_INVALID, "dims is 0");
    REFUSED(bad.d.dims = 4, USM_E_INVALID, "dims is 4");
    REFUSED(bad.d.split_dim = 2, USM_E_INVALID, "split_dim is 2");
    REFUSED(bad.d.local[0] = 5, USM_E_INVALID, "does not divide");
    REFUSED((bad.d.local[0] = 4, bad.d.multiple = 6), USM_E_INVALID, "cut work-groups");
    REFUSED((bad.d.min_chunk = 4, bad.d.max_chunk = 3), USM_E_INVALID, "min_chunk 4");
    REFUSED(bad.d.policy.name = "quickly", USM_E_INVALID, "there are: adaptive");
    REFUSED(bad.d.policy.nnumbers = 1, USM_E_INVALID, "array is NULL");
    REFUSED((bad.d.policy.nweights = 9, bad.d.policy.weights = &minus), USM_E_INVALID, "9 weights");
    REFUSED(bad.d.flags = 1u << 20, USM_E_INVALID, "flags");
    REFUSED((bad.d.flags = USM_PARALLEL_TUNE, bad.d.local[0] = 4), USM_E_INVALID,
            "leave local[] 0");
    REFUSED((bad.d.flags = USM_PARALLEL_TUNE, bad.args[2].follow = USM_FOLLOW_SCRATCH),
            USM_E_INVALID, "argument 2 is local memory");
    REFUSED(bad.d.resume = "/nowhere/at/all/x", USM_E_IO, "/nowhere");
}

static void bad_objects(void)
{
    usm_team_desc    desc = USM_TEAM_DESC_INIT;
    usm_team        *team;
    usm_team_kernel *k;
    usm_team_member  m = {.struct_size = sizeof m};

    CHECK_INT(usm_parallel(NULL, &bad.d, NULL), USM_E_INVALID_HANDLE);
    CHECK_IN("team is NULL", usm_last_error());
    CHECK_INT(usm_parallel(bad.team, NULL, NULL), USM_E_INVALID);
    CHECK_INT(usm_parallel_wait(NULL, NULL), USM_E_INVALID_HANDLE);
    CHECK_INT(usm_team_get_member(bad.team, 77, &m), USM_E_INVALID);
    CHECK_IN("no member 77", usm_last_error());
    desc.selector = "opencl:gpu;nonsense:*";
    CHECK(usm_team_create(&desc, &team) != USM_OK);
    desc          = (usm_team_desc)USM_TEAM_DESC_INIT;
    desc.ndevices = 1;
    CHECK_INT(usm_team_create(&desc, &team), USM_E_INVALID);
    CHECK_INT(split_create(bad.team, "nowhere", &k), USM_E_NO_KERNEL);
    CHECK_IN("blend", usm_last_error());
    usm_team_destroy(NULL);
    usm_team_kernel_destroy(NULL);
    usm_parallel_release(NULL);
    usm_parallel_cancel(NULL);
}

static void bad_input_is_named(void)
{
    bad.team   = alone();
    bad.kernel = kernel_of(bad.team, "smooth");
    good_again();
    must(usm_parallel(bad.team, &bad.d, NULL));
    bad_arguments();
    bad_ranges();
    bad_objects();
    usm_team_kernel_destroy(bad.kernel);
    usm_team_destroy(bad.team);
}

/* --- teams ----------------------------------------------------------------------------------- */

static void teams_describe_themselves(void)
{
    usm_team        *team = alone();
    usm_team_kernel *k    = kernel_of(team, "twice");
    char             text[2048];
    size_t           size;

    must(twice_once(team, k, NULL));
    must(usm_team_describe(team, USM_TEXT, text, sizeof text, &size));
    CHECK_INT(size, strlen(text));
    CHECK_IN("well", text);
    must(usm_team_describe(team, USM_JSON, text, sizeof text, NULL));
    CHECK_IN("\"state\":\"well\"", text);
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
} /* --- fork ------------------------------------------------------------------------------------
   */

static struct forked {
    usm_team         *team;
    usm_team_kernel  *kernel;
    usm_graph        *graph;
    usm_parallel_run *run;
    void             *memory;
} forked;

static void nothing_of_the_parents_team_works(void)
{
    usm_parallel_run *run    = NULL;
    usm_team_member   m      = {.struct_size = sizeof m};
    usm_split_arg     args[] = {USM_SPLIT_OUT(twice_data, 4)};
    usm_parallel_desc d      = over(forked.kernel, N, args, 1);
    usm_team_kernel  *k;

    CHECK_INT(usm_parallel(forked.team, &d, NULL), USM_E_FORKED);
    CHECK_IN("make one in the child", usm_last_error());
    CHECK_INT(usm_parallel_start(forked.team, &d, &run), USM_E_FORKED);
    CHECK_INT(usm_team_get_member(forked.team, 0, &m), USM_E_FORKED);
    CHECK_INT(split_create(forked.team, "fold", &k), USM_E_FORKED);
    CHECK_INT(usm_graph_run(forked.graph, NULL, NULL), USM_E_FORKED);
    CHECK_INT(usm_parallel_wait(forked.run, NULL), USM_E_FORKED);
    usm_parallel_cancel(forked.run);
    usm_parallel_release(forked.run);
    usm_graph_destroy(forked.graph);
    usm_team_kernel_destroy(forked.kernel);
    usm_team_destroy(forked.team);
}

static void memory_works_and_a_team_of_ones_own(void)
{
    usm_team        *team;
    usm_team_kernel *k;

    memset(forked.memory, 1, 4096);
    usm_free(forked.memory);
    if (PLAIN_SANITIZED) /* its threads cannot be started again after a fork of many */
        return;
    team = alone();
    k    = kernel_of(team, "twice");
    must(twice_once(team, k, NULL));
    for (uint32_t i = 0; i < N; i++)
        CHECK_INT(twice_data[i], 2 * i + 1);
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
}

static void in_the_child(void)
{
    const char *name = getenv("USM_TEST_RUNTIME");

    nothing_of_the_parents_team_works();
    if (name && strcmp(name, "host") == 0) /* drivers do not survive it */
        memory_works_and_a_team_of_ones_own();
}

static void a_fork_leaves_the_parents_launch_alone(void)
{
    static uint32_t   data[N];
    usm_split_arg     args[] = {USM_SPLIT_OUT(data, 4)};
    double            size   = 1;
    usm_parallel_desc d;

    forked.team   = alone();
    forked.kernel = kernel_of(forked.team, "twice");
    forked.memory = usm_malloc(4096, usm_default_queue(), USM_HOST);
    CHECK(forked.memory != NULL);
    must(usm_graph_create(forked.team, &forked.graph));
    args[0].mode = USM_READ_WRITE;
    d            = over(forked.kernel, N, args, 1);
    d.flags      = USM_PARALLEL_SNAPSHOT;
    fixed(&d, &size);
    must(usm_parallel_start(forked.team, &d, &forked.run));
    CHECK_INT(plain_child(in_the_child, NULL), 0);
    must(usm_parallel_wait(forked.run, NULL));
    for (uint32_t i = 0; i < N; i++)
        CHECK_INT(data[i], 1);
    usm_parallel_release(forked.run);
    must(twice_once(forked.team, forked.kernel, NULL));
    usm_free(forked.memory);
    usm_graph_destroy(forked.graph);
    usm_team_kernel_destroy(forked.kernel);
    usm_team_destroy(forked.team);
    usm_shutdown();
}

static const plain_case cases[] = {CASE(a_device_whose_kernel_fails_is_set_aside),
                                   CASE(a_device_that_is_lost_is_replaced),
                                   CASE(one_of_many_short_chunks_that_fails_is_done_by_another),
                                   CASE(when_nobody_is_left_the_failure_is_the_launchs),
                                   CASE(progress_rises_and_may_call_it_off),
                                   CASE(a_launch_can_be_called_off),
                                   CASE(a_killed_launch_goes_on_where_it_was),
                                   CASE(files_of_other_launches_are_refused),
                                   CASE(bad_input_is_named),
                                   CASE(teams_describe_themselves),
                                   CASE(a_fork_leaves_the_parents_launch_alone),
                                   {NULL, NULL}};

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--die") == 0)
        return die(argv[2]);
    return plain_main(argc, argv, cases);
}
