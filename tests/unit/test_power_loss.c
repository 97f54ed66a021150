/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Commits on a machine that loses power (power_loss.h): after every call, in many states of the
 * disk each, the home is opened again, and holds the state before or after each round of a commit,
 * whole, and never less than what was acknowledged.  The same while the journal is replayed.
 *
 * POWER_LOSS_SEEDS: states for each call; the default takes seconds. */
#include "power_loss.h"

#include "spill/journal_format.h"

#include <limits.h>

#define COMMITS_MAX 6
#define BLOCKS_MAX  16
#define STATES_MAX  40

typedef struct scenario {
    const char *name;
    uint64_t    lead;
    size_t      size;
    size_t      round; /* bytes; 0: a commit is one                                           */
    bool        refuses_nameless;
    uint64_t    commits[COMMITS_MAX][BLOCKS_MAX]; /* blocks; UINT64_MAX ends                     */
    size_t      ncommits;
    const char *fault; /* a call that fails in the first commit, the n-th time                  */
    uint64_t    fault_at;
} scenario;

#define END UINT64_MAX

/* Every state that rounds lead through, and from which on each was acknowledged. */
static struct {
    int    versions[STATES_MAX][BLOCKS_MAX];
    size_t n;
    size_t acked[COMMITS_MAX]; /* states[acked[i]] is that after commit i                       */
    int    acked_at[COMMITS_MAX]; /* ... from this operation on                                 */
} expected;

static struct {
    long cases, replays, nested;
} count;

static unsigned seeds(void)
{
    const char *text = getenv("POWER_LOSS_SEEDS");

    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : 24;
}

static size_t length_of(const uint64_t *blocks)
{
    size_t n = 0;

    while (blocks[n] != END)
        n++;
    return n;
}

static void expect_commit(const scenario *s, size_t commit)
{
    const uint64_t *blocks = s->commits[commit];
    size_t          n = length_of(blocks), round = s->round / BLOCK;

    for (size_t i = 0; i < n; i++) {
        bool begins = round != 0 ? i % round == 0 : i == 0;

        if (begins) {
            CHECK(expected.n < STATES_MAX);
            memcpy(expected.versions[expected.n], expected.versions[expected.n - 1],
                   sizeof(expected.versions[0]));
            expected.n++;
        }
        expected.versions[expected.n - 1][blocks[i]] = (int)commit + 1;
    }
    expected.acked[commit] = expected.n - 1;
}

/* The commits, recorded. */
static void run(const scenario *s, test_file *f)
{
    usm__journal       *j;
    usm__journal_params params = {.offset = s->lead, .block_size = BLOCK, .round = s->round};

    make_file(f, s->name, s->lead, s->size);
    memset(&expected, 0, sizeof(expected));
    expected.n  = 1;
    params.path = f->path;
    params.size = f->size;
    params.home = open(f->path, O_RDWR | O_CLOEXEC);
    power_record(f);
    power.refuses_nameless = s->refuses_nameless;
    CHECK_INT(usm__journal_open(&params, &j), USM_OK);
    for (size_t i = 0; i < s->ncommits; i++) {
        test_commit             c     = {s->commits[i], i + 1, 0, SIZE_MAX, {0}};
        const usm__dirty_blocks dirty = {length_of(s->commits[i]), commit_get, commit_put, &c};

        expect_commit(s, i);
        if (s->fault != NULL && i == 0)
            CHECK(usm__fault_arm(s->fault, s->fault_at, false, USM_OK));
        expected.acked_at[i] = usm__journal_commit(j, &dirty) == USM_OK ? power.nops : INT_MAX;
        CHECK(expected.acked_at[i] == power.nops || (s->fault != NULL && i == 0));
        usm__fault_disarm_all();
    }
    power_stop();
    usm__journal_close(j);
    CHECK(close(params.home) == 0);
}

/* The first state that is late enough after `ops` calls. */
static size_t acknowledged(const scenario *s, int ops)
{
    size_t least = 0;

    for (size_t i = 0; i < s->ncommits; i++)
        if (ops >= expected.acked_at[i])
            least = expected.acked[i];
    return least;
}

static bool is_expected(const test_file *f, int most, size_t least)
{
    int versions[BLOCKS_MAX];

    if (!read_versions(f, most, versions))
        return false;
    for (size_t state = least; state < expected.n; state++)
        if (memcmp(versions, expected.versions[state], blocks_of(f) * sizeof(int)) == 0)
            return true;
    return false;
}

static void open_and_close(const scenario *s, const test_file *f, usm_access_mode mode)
{
    usm__home *home;
    usm_status status = open_home(f, mode, &home);

    if (status != USM_OK)
        printf("# %s: %s\n", s->name, usm_last_error());
    CHECK_INT(status, USM_OK);
    usm__home_close(home);
}

static bool is_to_be_replayed(const test_file *f)
{
    usm__journal_header header = {.state = 0};
    char                path[600];
    int                 fd;

    (void)snprintf(path, sizeof(path), "%s%s", f->path, USM__JOURNAL_SUFFIX);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    CHECK(pread(fd, &header, sizeof(header), 0) == sizeof(header) && close(fd) == 0);
    return header.state != USM__JOURNAL_DONE;
}

static void check_state(const scenario *s, const test_file *f, int end, unsigned seed)
{
    bool had_journal = journal_is_there(f);

    /* Between commits others may write into the file: no journal may come back then. */
    for (size_t i = 0; i < s->ncommits; i++)
        CHECK(end != expected.acked_at[i] || !is_to_be_replayed(f));
    open_and_close(s, f, seed % 2 ? USM_READ : USM_READ_WRITE);
    if (!is_expected(f, (int)s->ncommits, acknowledged(s, end)))
        printf("# %s: torn or lost after call %d of %d, seed %u\n", s->name, end, power.nops, seed);
    CHECK(is_expected(f, (int)s->ncommits, acknowledged(s, end)));
    CHECK(!journal_is_there(f));
    count.cases++;
    count.replays += had_journal;
}

/* The recording of one machine is put aside while another is looked at. */
static void check_replay(const scenario *s, const test_file *f, int end, unsigned seed)
{
    static __typeof__(power) kept;
    size_t                   least = acknowledged(s, end);

    kept = power;
    memset(&power, 0, sizeof(power));
    power_record(f);
    open_and_close(s, f, USM_READ_WRITE);
    power_stop();
    for (int at = 0; at <= power.nops; at++) {
        power_fail(at, seed + (unsigned)at);
        open_and_close(s, f, USM_READ_WRITE);
        CHECK(is_expected(f, (int)s->ncommits, least));
        CHECK(!journal_is_there(f));
        count.nested++;
    }
    power_forget();
    power = kept;
}

static void every_call(const scenario *s)
{
    test_file f;

    run(s, &f);
    for (int end = 0; end <= power.nops; end++) {
        for (unsigned seed = 0; seed < seeds(); seed++) {
            power_fail(end, seed);
            if (seed % 4 == 3 && journal_is_there(&f)) {
                check_replay(s, &f, end, seed);
                power_fail(end, seed);
            }
            check_state(s, &f, end, seed);
        }
    }
    power_forget();
}

static const scenario plain_scenario = {.name     = "one.raw",
                                        .size     = 6 * BLOCK,
                                        .commits  = {{1, 2, 5, END}, {0, 2, END}, {5, END}},
                                        .ncommits = 3};

static void one_commit_after_the_other_is_all_or_nothing(void)
{
    every_call(&plain_scenario);
}

static void where_files_need_names_too(void)
{
    scenario s = plain_scenario;

    s.name             = "named.raw";
    s.refuses_nameless = true;
    every_call(&s);
}

static void at_odd_places_and_with_a_short_last_block(void)
{
    every_call(&(scenario){.name     = "odd.raw",
                           .lead     = 1234,
                           .size     = 4 * BLOCK + 777,
                           .commits  = {{4, 0, END}, {1, 2, 3, 4, END}},
                           .ncommits = 2});
}

static void rounds_of_a_large_commit_come_whole_and_in_order(void)
{
    every_call(&(scenario){.name     = "rounds.raw",
                           .size     = 9 * BLOCK,
                           .round    = 2 * BLOCK,
                           .commits  = {{0, 1, 2, 3, 4, 5, 6, END}, {8, 7, 0, END}},
                           .ncommits = 2});
}

/* A call fails, a second commit goes well, and then the power goes: what a failed sync was for
 * counts as lost for good. */
static void after_a_failure_too(void)
{
    static const struct {
        const char *call;
        uint64_t    most;
    } faults[] = {
        {"os.pwrite", 8}, {"os.fsync", 2}, {"os.fsync_dir", 2}, {"os.unlink", 1}, {"os.link", 1}};
    scenario s = plain_scenario;

    s.name = "failing.raw";
    memcpy(s.commits[1], (const uint64_t[]){0, 1, 2, 5, END}, 5 * sizeof(uint64_t));
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        for (s.fault_at = 1; s.fault_at <= faults[i].most; s.fault_at++) {
            s.fault = faults[i].call;
            every_call(&s);
        }
}

/* --- killed, opened again, and then the power goes ------------------------------------- */

/* As if killed before the n-th call: that one and all later ones fail.  *is_over: there is none. */
static void run_until(const test_file *f, uint64_t n, bool *is_over)
{
    static const uint64_t list[] = {0, 2, 3};
    usm__home            *home;
    int                   versions[BLOCKS_MAX] = {0};
    usm_status            status;

    memset(&expected, 0, sizeof(expected));
    expected.n = 2;
    for (size_t i = 0; i < 3; i++)
        expected.versions[1][list[i]] = 1;
    power_record(f);
    CHECK_INT(open_home(f, USM_READ_WRITE, &home), USM_OK);
    CHECK(usm__fault_arm("os.*", n, true, USM_OK));
    power.is_killed = true;
    status          = commit_blocks(home, list, 3, 1);
    power.is_killed = false;
    *is_over        = usm__fault_fired() == 0;
    usm__fault_disarm_all();
    usm__home_close(home);
    if (status == USM_OK)
        expected.acked_at[0] = power.nops;
    CHECK_INT(open_home(f, USM_READ_WRITE, &home), USM_OK);
    usm__home_close(home);
    power_stop();
    /* What the opening showed stays. */
    CHECK(read_versions(f, 1, versions));
    expected.acked[0] = versions[0] == 1 ? 1 : 0;
    if (status != USM_OK)
        expected.acked_at[0] = power.nops;
}

static void a_replayed_commit_stays(void)
{
    scenario  s       = {.name = "replayed.raw", .ncommits = 1};
    bool      is_over = false;
    test_file f;

    for (uint64_t n = 1; !is_over; n++) {
        make_file(&f, s.name, 0, 4 * BLOCK);
        run_until(&f, n, &is_over);
        for (int end = 0; end <= power.nops; end++)
            for (unsigned seed = 0; seed < seeds(); seed++) {
                power_fail(end, seed);
                open_and_close(&s, &f, USM_READ_WRITE);
                CHECK(is_expected(&f, 1, acknowledged(&s, end)));
                count.cases++;
            }
        power_forget();
        CHECK(n < 100);
    }
}

/* --- a home that is made ------------------------------------------------------------------ */

/* All blocks are zeros, or those of the commit are new. */
static bool is_fresh_or_new(const test_file *f, bool is_acknowledged)
{
    static char zeros[BLOCK], want[BLOCK];
    power_image image = power_read(f->path);
    bool        good  = image.size == 4 * BLOCK, is_new;

    fill_block(want, BLOCK, 1, 1);
    is_new = good && memcmp(image.data + BLOCK, want, BLOCK) == 0;
    for (uint64_t b = 0; good && b < 4; b++) {
        fill_block(want, BLOCK, b, 1);
        good = memcmp(image.data + b * BLOCK, is_new && b != 3 ? want : zeros, BLOCK) == 0;
    }
    free(image.data);
    return good && (is_new || !is_acknowledged);
}

static void a_home_that_is_made_is_there_once_it_was_committed(void)
{
    static const uint64_t list[] = {0, 1, 2};
    scenario              s      = {.name = "made.raw"};
    test_file             f      = {.size = 4 * BLOCK};
    usm__home            *home;
    int                   acked_at;

    (void)snprintf(f.path, sizeof(f.path), "%s", plain_path(s.name));
    power_record(&f);
    CHECK_INT(open_home(&f, USM_READ_WRITE_NO_INIT, &home), USM_OK);
    CHECK_INT(commit_blocks(home, list, 3, 1), USM_OK);
    acked_at = power.nops;
    usm__home_close(home);
    power_stop();
    for (int end = 0; end <= power.nops; end++)
        for (unsigned seed = 0; seed < seeds(); seed++) {
            power_fail(end, seed);
            open_and_close(&s, &f, USM_READ_WRITE_NO_INIT);
            CHECK(is_fresh_or_new(&f, end >= acked_at));
            count.cases++;
        }
    power_forget();
}

/* The test sees what it is there for: a commit that writes in place without a journal is caught. */
static void the_machine_tears_what_is_written_in_place(void)
{
    static char block[BLOCK];
    test_file   f;
    int         fd, torn = 0, versions[BLOCKS_MAX];

    make_file(&f, "planted.raw", 0, 4 * BLOCK);
    fd = open(f.path, O_RDWR | O_CLOEXEC);
    power_record(&f);
    for (uint64_t b = 0; b < 4; b++) {
        fill_block(block, BLOCK, b, 1);
        CHECK_INT(usm__os_pwrite(fd, block, BLOCK, b * BLOCK), 0);
    }
    CHECK_INT(usm__os_fsync(fd), 0);
    power_stop();
    for (int end = 0; end <= power.nops; end++)
        for (unsigned seed = 0; seed < 24; seed++) {
            power_fail(end, seed);
            torn += !read_versions(&f, 1, versions);
        }
    CHECK(torn > 20);
    power_fail(power.nops, 3); /* what was synced is there */
    CHECK(read_versions(&f, 1, versions) && versions[3] == 1);
    power_forget();
    CHECK(close(fd) == 0);
}

static bool is_fine(const scenario *s, const test_file *f, int end)
{
    usm__home *home;

    for (size_t i = 0; i < s->ncommits; i++)
        if (end == expected.acked_at[i] && is_to_be_replayed(f))
            return false;
    if (open_home(f, USM_READ_WRITE, &home) != USM_OK)
        return false;
    usm__home_close(home);
    return is_expected(f, (int)s->ncommits, acknowledged(s, end));
}

static bool is_caught(const scenario *s, const test_file *f)
{
    for (int end = 0; end <= power.nops; end++)
        for (unsigned seed = 0; seed < 24; seed++) {
            power_fail(end, seed);
            if (!is_fine(s, f, end))
                return true;
        }
    return false;
}

/* Were any one of the syncs not made, the test would see it. */
static void every_sync_is_needed(void)
{
    scenario  s = plain_scenario;
    test_file f;
    int       syncs = 0;

    s.name = "needed.raw";
    run(&s, &f);
    CHECK(!is_caught(&s, &f));
    for (int i = 0; i < power.nops; i++) {
        power_kind kind = power.ops[i].kind;

        if (kind != POWER_SYNC && kind != POWER_SYNC_DIR)
            continue;
        power.ops[i].kind = POWER_NOTHING;
        CHECK(is_caught(&s, &f));
        power.ops[i].kind = kind;
        syncs++;
    }
    CHECK_INT(syncs, 12); /* four of each commit */
    power_forget();
}

static void so_many_cases(void)
{
    printf(
        "# power loss: %ld cases, of which %ld with a journal, and %ld during its replay: nothing "
        "lost\n",
        count.cases, count.replays, count.nested);
    CHECK(count.replays > 0 && count.nested > 0 && count.cases > count.replays);
}

int main(int argc, char **argv)
{
    static const plain_case cases[] = {
        CASE(the_machine_tears_what_is_written_in_place),
        CASE(one_commit_after_the_other_is_all_or_nothing),
        CASE(where_files_need_names_too),
        CASE(at_odd_places_and_with_a_short_last_block),
        CASE(rounds_of_a_large_commit_come_whole_and_in_order),
        CASE(after_a_failure_too),
        CASE(a_replayed_commit_stays),
        CASE(a_home_that_is_made_is_there_once_it_was_committed),
        CASE(every_sync_is_needed),
        CASE(so_many_cases),
        {NULL, NULL},
    };

    small_transport_use();
    return plain_main(argc, argv, cases);
}
