/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Launches over the ranks of a job: ranks_cases.h. */
#include "ranks_here.h"

#include "base/fault.h"
#include "offload/meter.h"

#include <usm/graph.h>

#include <signal.h>
#include <time.h>

struct rank_here here;

typedef struct found {
    int64_t  number;
    uint64_t more[3];
} found;

void must(usm_status st, usm_status want)
{
    if (st != want)
        printf("# %s: %s\n", usm_status_name(st), usm_last_error());
    CHECK_INT(st, want);
}

/* ---- kernels ---------------------------------------------------------------------------- */

static void live(const usm_range *r)
{
    size_t          n  = r->end[0] - r->begin[0];
    uint64_t        ns = (uint64_t)here.ns * n;
    struct timespec t  = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    (void)atomic_fetch_add(&here.indices, n);
    if (here.die_at && r->end[0] > here.die_at)
        (void)raise(SIGKILL);
    if (here.stop_at && r->end[0] > here.stop_at && !atomic_exchange(&here.has_stopped, true))
        (void)raise(SIGSTOP);
    if (ns > 0)
        (void)nanosleep(&t, NULL);
}

uint64_t value_at(size_t i, const uint32_t *table)
{
    return (uint64_t)i * 2654435761u ^ table[i % TABLE];
}

static void fill(const usm_range *r, void *const *args)
{
    const uint32_t *table = *(const uint32_t *const *)args[0];
    uint64_t       *out   = *(uint64_t **)args[1];

    live(r);
    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        out[i - r->offset[0]] = value_at(i, table);
}

/* in has one index before and one after, but at the ends of the range. */
static void blur(const usm_range *r, void *const *args)
{
    const uint64_t *in  = *(const uint64_t *const *)args[0];
    uint64_t       *out = *(uint64_t **)args[1];
    size_t          all = *(const size_t *)args[2];

    live(r);
    for (size_t i = r->begin[0]; i < r->end[0]; i++) {
        size_t k = i - r->offset[0];

        out[k] = in[k];
        if (i > 0)
            out[k] += *(&in[k] - 1);
        if (i + 1 < all)
            out[k] += in[k + 1];
    }
}

static void sum(const usm_range *r, void *const *args)
{
    double *copies = *(double **)args[0];
    size_t  leaf   = *(const size_t *)args[1];

    live(r);
    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        copies[(i - r->offset[0]) / leaf] += 1.0 / (double)(i + 1);
}

static void find(const usm_range *r, void *const *args)
{
    found *copies = *(found **)args[0];
    size_t want = *(const size_t *)args[1], leaf = *(const size_t *)args[2];

    live(r);
    for (size_t i = r->begin[0]; i < r->end[0]; i++) {
        found *c = &copies[(i - r->offset[0]) / leaf];

        if (i >= want && i % 7 == want % 7 && c->number < 0) {
            c->number  = (int64_t)i;
            c->more[2] = i * 3;
        }
    }
}

/* An index has ROUNDS rounds before it knows. */
static void seek(const usm_range *r, void *const *args)
{
    found   *copies = *(found **)args[0];
    int32_t *state  = *(int32_t **)args[1];
    size_t   want = *(const size_t *)args[2], leaf = *(const size_t *)args[3];

    live(r);
    for (size_t i = r->begin[0]; i < r->end[0]; i++) {
        size_t at = i - r->offset[0];

        if (state[2 * at] != USM_RUN_AGAIN || ++state[2 * at + 1] < ROUNDS)
            continue;
        state[2 * at] = 0;
        if (i == want)
            copies[at / leaf].number = (int64_t)i;
    }
}

static void update(const usm_range *r, void *const *args)
{
    uint64_t *x = *(uint64_t **)args[0];

    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        x[i - r->offset[0]] = 3 * x[i - r->offset[0]] + i;
    live(r);
}

/* Leaves are of one work-group, which one thread has. */
static const usm_native_kernel native[] = {
    {"fill", fill, 2, NULL}, {"blur", blur, 3, NULL},     {"sum", sum, 2, NULL},
    {"find", find, 3, NULL}, {"update", update, 1, NULL}, {"seek", seek, 4, NULL},
};

usm_team_kernel *kernel_of_team(const char *name)
{
    const usm_image  images[] = {{USM_IMAGE_NATIVE, native, sizeof native}};
    usm_program_desc program  = USM_PROGRAM_DESC_INIT;
    usm_team_kernel *k;

    program.nimages = 1;
    program.images  = images;
    must(usm_team_kernel_create(here.team, &program, name, &k), USM_OK);
    return k;
}

usm_team_kernel *begin(const char *name)
{
    usm_team_desc desc = USM_TEAM_DESC_INIT;

    here.die_at = here.stop_at = here.ns = 0;
    atomic_store(&here.indices, 0);
    desc.selector = "host:*";
    desc.ranks    = true;
    desc.energy   = here.has_energy;
    must(usm_team_create(&desc, &here.team), USM_OK);
    return kernel_of_team(name);
}

void end(usm_team_kernel *k)
{
    usm_team_kernel_destroy(k);
    usm_team_destroy(here.team);
}

usm_parallel_desc launch_of(usm_team_kernel *k, size_t total, const usm_split_arg *args,
                            size_t nargs)
{
    usm_parallel_desc d = USM_PARALLEL_DESC_INIT;

    d.kernel    = k;
    d.global[0] = total;
    d.args      = args;
    d.nargs     = nargs;
    d.max_chunk = total / 32;
    return d;
}

uint32_t *make_table(void)
{
    uint32_t *table = malloc(TABLE * sizeof *table);

    for (uint32_t i = 0; i < TABLE; i++)
        table[i] = i * 40503u;
    return table;
}

/* ---- filling ---------------------------------------------------------------------------- */

usm_status fill_once(usm_team_kernel *k, uint32_t home, uint32_t rank, size_t total,
                     usm_parallel_stats *stats)
{
    uint32_t           *table  = make_table();
    uint64_t           *out    = rank == home ? calloc(total, sizeof *out) : NULL;
    const usm_split_arg args[] = {
        USM_SPLIT_WHOLE(rank == home ? table : NULL, TABLE * sizeof *table),
        USM_SPLIT_OUT(out, sizeof *out)};
    usm_parallel_desc d = launch_of(k, total, args, 2);
    usm_status        st;

    d.home = home;
    st     = usm_parallel(here.team, &d, stats);
    for (size_t i = 0; st == USM_OK && out && i < total; i++)
        if (out[i] != value_at(i, table))
            plain_fail(__FILE__, __LINE__, "an index has another value");
    free(out);
    free(table);
    return st;
}

void rank_fills(uint32_t rank, uint32_t count)
{
    usm_team_kernel   *k     = begin("fill");
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;

    here.ns = 500;
    must(fill_once(k, 0, rank, TOTAL, &stats), USM_OK);
    CHECK(stats.chunks >= 32);
    CHECK_INT(stats.rescheduled, 0);
    CHECK((stats.sent > 0) == (rank == 0 && count > 1));
    CHECK(atomic_load(&here.indices) > 0); /* everybody had a part */
    end(k);
}

void rank_fills_for_another_home(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k = begin("fill");

    for (uint32_t home = 0; home < count; home++)
        must(fill_once(k, home, rank, TOTAL + home, NULL), USM_OK);
    end(k);
}

void rank_launches_often(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k = begin("fill");

    for (uint32_t i = 0; i < 100; i++)
        must(fill_once(k, i % count, rank, 1 + i * 7, NULL), USM_OK);
    end(k);
}

void rank_names_members(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k    = begin("fill");
    usm_team_member  m    = {.struct_size = sizeof m};
    uint32_t         seen = 0;
    usm_graph       *graph;

    CHECK(usm_team_size(here.team) >= count);
    for (uint32_t i = 0; i < usm_team_size(here.team); i++) {
        char start[16];

        m.joules = 1;
        must(usm_team_get_member(here.team, i, &m), USM_OK);
        CHECK(m.joules == 0); /* unknown */
        (void)snprintf(start, sizeof start, "%u/", m.rank);
        CHECK(strncmp(m.name, start, strlen(start)) == 0);
        CHECK((m.device != NULL) == (m.rank == rank));
        CHECK(m.rank == seen || m.rank == seen + 1);
        seen = m.rank;
    }
    CHECK_INT(seen, count - 1);
    CHECK_INT(usm_team_get_member(here.team, usm_team_size(here.team), &m), USM_E_INVALID);
    CHECK_INT(usm_graph_create(here.team, &graph), USM_E_NOT_SUPPORTED);
    CHECK_IN("of one process", usm_last_error());
    end(k);
}

/* 64 MiB, of which the master sees nothing but addresses. */
void rank_moves_much(uint32_t rank, uint32_t count)
{
    usm_team_kernel   *k     = begin("fill");
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;

    (void)count;
    must(fill_once(k, 1, rank, (size_t)8 << 20, &stats), USM_OK);
    CHECK(stats.sent < 1024 * (stats.chunks + 4));
    if (rank == 0)
        printf("# %llu bytes from the master for %llu chunks\n", (unsigned long long)stats.sent,
               (unsigned long long)stats.chunks);
    end(k);
}

void rank_1_is_slow(uint32_t rank, uint32_t count)
{
    usm_team_kernel   *k     = begin("fill");
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;

    (void)count;
    here.ns = rank == 1 ? 50000 : 1000;
    must(fill_once(k, 0, rank, TOTAL, &stats), USM_OK);
    if (rank == 1)
        CHECK(atomic_load(&here.indices) < TOTAL / 2);
    end(k);
}

/* ---- other arguments -------------------------------------------------------------------- */

void rank_has_neighbours(uint32_t rank, uint32_t count)
{
    usm_team_kernel  *k     = begin("blur");
    bool              is_me = rank == count - 1;
    uint64_t         *in = calloc(TOTAL, sizeof *in), *out = calloc(TOTAL, sizeof *out);
    size_t            all    = TOTAL;
    usm_split_arg     args[] = {USM_SPLIT_IN(is_me ? in : NULL, sizeof *in),
                                USM_SPLIT_OUT(is_me ? out : NULL, sizeof *out), USM_SPLIT_VALUE(all)};
    usm_parallel_desc d      = launch_of(k, TOTAL, args, 3);

    args[0].before = args[0].after = 1;
    d.home                         = count - 1;
    for (size_t i = 0; i < TOTAL; i++)
        in[i] = i * i;
    must(usm_parallel(here.team, &d, NULL), USM_OK);
    for (size_t i = 0; is_me && i < TOTAL; i++)
        CHECK(out[i] == in[i] + (i ? in[i - 1] : 0) + (i + 1 < TOTAL ? in[i + 1] : 0));
    free(in);
    free(out);
    end(k);
}

void sum_once(usm_team_kernel *k, uint32_t rank, uint32_t home, double *result)
{
    size_t              leaf   = 100;
    double              own    = 1;
    const usm_split_arg args[] = {
        USM_SPLIT_SUM(rank == home ? &own : NULL, sizeof own, USM_ELEMENT_F64, leaf),
        USM_SPLIT_VALUE(leaf)};
    usm_parallel_desc d = launch_of(k, TOTAL, args, 2);

    d.home     = home;
    d.local[0] = leaf;
    must(usm_parallel(here.team, &d, NULL), USM_OK);
    *result = own;
}

void rank_sums(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k     = begin("sum");
    double           first = 0, again = 0, serial = 1;

    sum_once(k, rank, 0, &first);
    here.ns = rank * 2000;
    sum_once(k, rank, 0, &again);
    for (size_t i = 0; i < TOTAL; i++)
        serial += 1.0 / (double)(i + 1);
    if (rank == 0) {
        CHECK(first == again); /* to the bit */
        CHECK(first > serial - 1e-9 && first < serial + 1e-9);
    }
    sum_once(k, rank, count - 1, &again);
    if (rank == count - 1)
        CHECK(again > serial - 1e-9 && again < serial + 1e-9);
    end(k);
}

void find_once(usm_team_kernel *k, uint32_t rank, uint32_t home, size_t want)
{
    size_t            leaf   = 50;
    found             own    = {0, {0}};
    usm_split_arg     args[] = {USM_SPLIT_FIRST(&own, sizeof own), USM_SPLIT_VALUE(want),
                                USM_SPLIT_VALUE(leaf)};
    usm_parallel_desc d      = launch_of(k, TOTAL, args, 3);

    args[0].leaf = leaf;
    d.local[0]   = leaf;
    d.home       = home;
    if (rank != home)
        args[0].host = NULL;
    must(usm_parallel(here.team, &d, NULL), USM_OK);
    if (rank != home)
        return;
    CHECK_INT(own.number, want < TOTAL ? (int64_t)want : NOTHING);
    if (want < TOTAL)
        CHECK_INT(own.more[2], want * 3);
}

void rank_finds_the_first(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k = begin("find");

    here.ns = 2000;
    for (size_t want = TOTAL / 10; want < TOTAL + TOTAL; want += TOTAL * 2 / 5)
        find_once(k, rank, count - 1, want);
    end(k);
}

void seek_once(usm_team_kernel *k, uint32_t rank, uint32_t home, size_t want)
{
    size_t            leaf     = 50;
    int32_t           state[2] = {USM_RUN_AGAIN, 0};
    found             own      = {0, {0}};
    usm_split_arg     args[]   = {USM_SPLIT_FIRST(rank == home ? &own : NULL, sizeof own),
                                  {.follow = USM_FOLLOW_PRIVATE,
                                   .mode   = USM_READ_WRITE,
                                   .host   = rank == home ? state : NULL,
                                   .size   = sizeof state,
                                   .leaf   = 1},
                                  USM_SPLIT_VALUE(want),
                                  USM_SPLIT_VALUE(leaf)};
    usm_parallel_desc d        = launch_of(k, TOTAL, args, 4);

    args[0].leaf = d.local[0] = leaf;
    d.home                    = home;
    d.state_arg               = USM_PARALLEL_NTH(1);
    must(usm_parallel(here.team, &d, NULL), USM_OK);
    CHECK(rank != home || own.number == (int64_t)want);
}

void rank_leaves_rounds_when_it_is_found(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k = begin("seek");

    here.ns = 200;
    for (uint32_t home = 0; home < count; home++)
        seek_once(k, rank, home, TOTAL / 10 + home);
    end(k);
}

usm_status update_once(usm_team_kernel *k, uint32_t rank, uint32_t home, uint32_t flags)
{
    uint64_t         *x      = calloc(TOTAL, sizeof *x);
    usm_split_arg     args[] = {{.follow = USM_FOLLOW_CHUNK,
                                 .mode   = USM_READ_WRITE,
                                 .host   = rank == home ? x : NULL,
                                 .stride = sizeof *x}};
    usm_parallel_desc d      = launch_of(k, TOTAL, args, 1);
    usm_status        st;

    d.flags = flags;
    d.home  = home;
    for (size_t i = 0; i < TOTAL; i++)
        x[i] = i * 11;
    st = usm_parallel(here.team, &d, NULL);
    for (size_t i = 0; st == USM_OK && rank == home && i < TOTAL; i++)
        CHECK(x[i] == 3 * (i * 11) + i);
    free(x);
    return st;
}

void rank_updates_in_place(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k = begin("update");

    must(update_once(k, rank, 0, USM_PARALLEL_SNAPSHOT), USM_OK);
    must(update_once(k, rank, count - 1, USM_PARALLEL_NO_RETRY), USM_OK);
    must(update_once(k, rank, 0, 0), USM_E_NOT_SUPPORTED);
    end(k);
}

/* ---- what goes wrong by the program ----------------------------------------------------- */

void *cancel_soon(void *run)
{
    const struct timespec t = {0, 100000000};

    (void)nanosleep(&t, NULL);
    usm_parallel_cancel(run);
    return NULL;
}

void rank_1_cancels(uint32_t rank, uint32_t count)
{
    usm_team_kernel    *k      = begin("fill");
    uint32_t           *table  = make_table();
    uint64_t           *out    = calloc(TOTAL, sizeof *out);
    const usm_split_arg args[] = {USM_SPLIT_WHOLE(table, TABLE * sizeof *table),
                                  USM_SPLIT_OUT(out, sizeof *out)};
    usm_parallel_desc   d      = launch_of(k, TOTAL, args, 2);
    usm_parallel_run   *run;
    pthread_t           thread;

    (void)count;
    here.ns = 200000;
    must(usm_parallel_start(here.team, &d, &run), USM_OK);
    if (rank == 1)
        CHECK(pthread_create(&thread, NULL, cancel_soon, run) == 0);
    must(usm_parallel_wait(run, NULL), USM_E_CANCELLED);
    if (rank == 1)
        CHECK(pthread_join(thread, NULL) == 0);
    usm_parallel_release(run);
    here.ns = 0;
    must(fill_once(k, 0, rank, TOTAL, NULL), USM_OK); /* the next one goes */
    free(out);
    free(table);
    end(k);
}

static bool notify(const usm_progress *p, void *user)
{
    double *last = user;

    CHECK(p->fraction >= *last && p->fraction <= 1);
    *last = p->fraction;
    return p->fraction < 0.2;
}

void rank_1_says_stop_in_progress(uint32_t rank, uint32_t count)
{
    usm_team_kernel    *k      = begin("fill");
    uint32_t           *table  = make_table();
    uint64_t           *out    = calloc(TOTAL, sizeof *out);
    const usm_split_arg args[] = {USM_SPLIT_WHOLE(table, TABLE * sizeof *table),
                                  USM_SPLIT_OUT(out, sizeof *out)};
    usm_parallel_desc   d      = launch_of(k, TOTAL, args, 2);
    double              last   = 0;

    (void)count;
    here.ns         = 50000;
    d.progress      = rank == 1 ? notify : NULL;
    d.progress_user = &last;
    d.progress_ms   = 20;
    must(usm_parallel(here.team, &d, NULL), USM_E_CANCELLED);
    CHECK(rank != 1 || last >= 0.2);
    free(out);
    free(table);
    end(k);
}

void rank_1_launches_something_else(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k = begin("fill");

    (void)count;
    must(fill_once(k, 0, rank, rank == 1 ? TOTAL / 2 : TOTAL, NULL), USM_E_INVALID);
    CHECK_IN("rank 1", usm_last_error());
    must(fill_once(k, rank == 1 ? 1 : 0, rank, TOTAL, NULL), USM_E_INVALID);
    CHECK_IN("home", usm_last_error());
    must(fill_once(k, 0, rank, TOTAL, NULL), USM_OK);
    end(k);
}

void rank_1_is_refused(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k      = begin("fill");
    uint32_t        *table  = make_table();
    uint64_t        *out    = calloc(TOTAL, sizeof *out);
    usm_split_arg    args[] = {USM_SPLIT_WHOLE(table, TABLE * sizeof *table),
                               USM_SPLIT_OUT(out, sizeof *out)};

    for (uint32_t bad = 0; bad < 2 && bad < count; bad++) {
        usm_parallel_desc d = launch_of(k, TOTAL, args, 2);

        if (rank == bad)
            d.dims = 7;
        must(usm_parallel(here.team, &d, NULL), USM_E_INVALID);
        CHECK_IN("dims", usm_last_error());
    }
    must(fill_once(k, 0, rank, TOTAL, NULL), USM_OK);
    free(out);
    free(table);
    end(k);
}

/* What came for launches that rank 0 did not begin is not kept: the last one would miss its own. */
void rank_0_is_refused_often(uint32_t rank, uint32_t count)
{
    const struct timespec t      = {0, 400000};
    usm_team_kernel      *k      = begin("fill");
    uint32_t             *table  = make_table();
    uint64_t             *out    = calloc(TOTAL, sizeof *out);
    const usm_split_arg   args[] = {USM_SPLIT_WHOLE(table, TABLE * sizeof *table),
                                    USM_SPLIT_OUT(out, sizeof *out)};
    usm_parallel_desc     d      = launch_of(k, TOTAL, args, 2);

    (void)count;
    d.dims = rank == 0 ? 7 : 1;
    for (uint32_t i = 0; i < 5000; i++) {
        if (rank == 0) /* the others come first */
            (void)nanosleep(&t, NULL);
        must(usm_parallel(here.team, &d, NULL), USM_E_INVALID);
        if (i % 200 == 199) /* they meet: who is slower keeps what comes meanwhile, not all of it */
            must(fill_once(k, 0, rank, TABLE, NULL), USM_OK);
    }
    free(out);
    free(table);
    end(k);
}

/* The master, home, or another cannot keep a message, or send one: all learn of it. */
void rank_has_no_memory(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k = begin("fill");

    here.ns = 100;
    for (uint64_t n = 1; n < 30ull * count; n++) {
        usm_status st;

        if (rank == n % count)
            CHECK(usm__fault_arm("heap.alloc", 1 + n / count, false, USM_OK));
        st = fill_once(k, 1, rank, TABLE, NULL);
        usm__fault_disarm_all();
        if (st != USM_OK)
            must(st, USM_E_NO_MEMORY);
    }
    must(fill_once(k, 1, rank, TABLE, NULL), USM_OK);
    end(k);
}

void rank_names_a_home_that_is_none(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k = begin("fill");

    must(fill_once(k, count, rank, TOTAL, NULL), USM_E_INVALID);
    CHECK_IN("home", usm_last_error());
    end(k);
}

/* Each counts what its own members use. */
void rank_counts_its_energy(uint32_t rank, uint32_t count)
{
    usm_team_member  m = {.struct_size = sizeof m};
    usm_team_kernel *k;

    (void)count;
    (void)setenv("USM_WATTS", "*=50", 1);
    here.has_energy = true;
    k               = begin("fill");
    usm__meter_set_folder(here.team->meter, "none");
    here.ns = 1000;
    must(fill_once(k, 0, rank, TABLE, NULL), USM_OK);
    for (uint32_t i = 0; i < usm_team_size(here.team); i++) {
        must(usm_team_get_member(here.team, i, &m), USM_OK);
        CHECK((m.joules > 0) == (m.rank == rank));
    }
    end(k);
}
