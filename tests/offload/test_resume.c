/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Launches of iterative kernels.  They are killed in the middle, and go on: no round that a file
 * has is done again, and whatever was done to the files, the answer is that of one process.  Rounds
 * that nobody wants any more are not done. */
#include "over_teams.h"

#include "resume_kernels.h" /* made by usm_add_kernels() */

#include "base/fault.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>

enum { COUNT = 384, CHUNK = 32, ROUNDS = 200, LEAF = 8, HEAD = 72, FILE_HEAD = 96, RECORD = 32 };

typedef struct walked {
    uint32_t out[COUNT][ROUNDS], acc[COUNT], sum;
} walked;

/* --- the kernel ------------------------------------------------------------------------------ */

static void walk(const usm_range *range, void *const *args)
{
    const struct timespec t   = {0, 30000};
    uint32_t             *out = SPLIT_POINTER(uint32_t, 0), *acc = SPLIT_POINTER(uint32_t, 1),
             *sum = SPLIT_POINTER(uint32_t, 2), *process = SPLIT_POINTER(uint32_t, 4);
    int32_t *state = SPLIT_POINTER(int32_t, 3);

    if (range->begin[0] == range->offset[0])
        (void)nanosleep(&t, NULL);
    for (size_t g = range->begin[0]; g < range->end[0]; g++) {
        size_t   i = g - range->offset[0];
        uint32_t r;

        if (state[2 * i] != USM_RUN_AGAIN)
            continue;
        r                   = (uint32_t)state[2 * i + 1]++;
        out[i * ROUNDS + r] = ((uint32_t)g * 31u + r) * 4u + process[0];
        acc[i]              = acc[i] * 3u + r;
        (void)__atomic_fetch_add(&sum[i / LEAF], (uint32_t)g + r, __ATOMIC_RELAXED);
        if (r + 1 + g % 3 >= ROUNDS)
            state[2 * i] = 0;
    }
}

static usm_team_kernel *make_kernel(usm_team *team)
{
    static const usm_native_kernel natives[] = {{"walk", walk, 7, NULL}};
    usm_image        images[] = {{USM_IMAGE_BUNDLE, resume_kernels, resume_kernels_size},
                                 {USM_IMAGE_NATIVE, natives, sizeof natives}};
    usm_program_desc desc     = USM_PROGRAM_DESC_INIT;
    usm_team_kernel *k        = NULL;

    desc.images  = images;
    desc.nimages = 2;
    must(usm_team_kernel_create(team, &desc, "walk", &k));
    return k;
}

/* --- files ----------------------------------------------------------------------------------- */

static off_t size_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? st.st_size : 0;
}

typedef struct bytes {
    unsigned char *at;
    size_t         size;
} bytes;

static bytes read_bytes(const char *path)
{
    bytes b = {NULL, (size_t)size_of(path)};
    FILE *f = fopen(path, "rb");

    CHECK(f != NULL);
    b.at = malloc(b.size + 1);
    CHECK_INT(fread(b.at, 1, b.size, f), b.size);
    (void)fclose(f);
    return b;
}

static void write_bytes(const char *path, const unsigned char *at, size_t size)
{
    FILE *f = fopen(path, "wb");

    CHECK(f != NULL);
    CHECK_INT(fwrite(at, 1, size, f), size);
    CHECK_INT(fclose(f), 0);
}

static uint64_t number_at(const unsigned char *at)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < 8; i++)
        n |= (uint64_t)at[i] << 8 * i;
    return n;
}

/* --- one launch ------------------------------------------------------------------------------ */

static struct {
    const char *path;
    char        states[600];
    double      least; /* the share that is done before it ends early                          */
    bool        is_shared; /* over two devices */
} plan;

static bool has_ended(const bytes *file, uint64_t first)
{
    for (size_t at = FILE_HEAD; at < file->size; at += RECORD + number_at(file->at + at + 16))
        if (number_at(file->at + at) == first)
            return true;
    return false;
}

/* The files have a chunk that has ended, and one in the middle.  Nobody writes them meanwhile: the
 * same thread would. */
static bool is_in_the_middle(const usm_progress *p)
{
    bytes  file, states;
    bool   any = false;
    size_t at  = HEAD;

    if (p->fraction < plan.least || size_of(plan.states) == 0)
        return false;
    file   = read_bytes(plan.path);
    states = read_bytes(plan.states);
    for (; at < states.size; at += RECORD + number_at(states.at + at + 16))
        any = any || !has_ended(&file, number_at(states.at + at));
    any = any && file.size > FILE_HEAD;
    free(file.at);
    free(states.at);
    return any;
}

static bool die_in_the_middle(const usm_progress *p, void *user)
{
    (void)user;
    if (is_in_the_middle(p))
        (void)kill(getpid(), SIGKILL);
    return true;
}

static bool leave_in_the_middle(const usm_progress *p, void *user)
{
    (void)user;
    return !is_in_the_middle(p);
}

static usm_status go(uint32_t process, usm_progress_fn fn, walked *w, usm_parallel_stats *stats)
{
    int32_t           state[2] = {USM_RUN_AGAIN, 0};
    uint32_t          rounds = ROUNDS, leaf = LEAF;
    usm_team         *team   = plan.is_shared ? together() : alone();
    usm_team_kernel  *k      = make_kernel(team);
    usm_split_arg     args[] = {USM_SPLIT_OUT(w->out, sizeof w->out[0]),
                                USM_SPLIT_OUT(w->acc, 4),
                                USM_SPLIT_SUM(&w->sum, 4, USM_ELEMENT_U32, LEAF),
                                {.follow = USM_FOLLOW_PRIVATE,
                                 .mode   = USM_READ_WRITE,
                                 .host   = state,
                                 .size   = sizeof state,
                                 .leaf   = 1},
                                USM_SPLIT_WHOLE(&process, 4),
                                USM_SPLIT_VALUE(rounds),
                                USM_SPLIT_VALUE(leaf)};
    usm_parallel_desc d      = over(k, COUNT, args, 7);
    double            size   = CHUNK;
    usm_status        st;

    memset(w, 0, sizeof *w);
    w->sum        = 5;
    args[1].mode  = USM_READ_WRITE;
    d.flags       = USM_PARALLEL_SNAPSHOT;
    d.state_arg   = USM_PARALLEL_NTH(3);
    d.resume      = plan.path;
    d.resume_key  = "whoever computes"; /* `process` may be another */
    d.resume_ms   = 1;
    d.progress    = fn;
    d.progress_ms = 1;
    fixed(&d, &size);
    st = usm_parallel(team, &d, stats);
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
    return st;
}

static uint32_t rounds_of(uint32_t g)
{
    return ROUNDS - g % 3;
}

static void check_all(const walked *w)
{
    uint32_t sum = 5;

    for (uint32_t g = 0; g < COUNT; g++) {
        uint32_t acc = 0;

        for (uint32_t r = 0; r < rounds_of(g); r++) {
            CHECK_INT(w->out[g][r] / 4, g * 31 + r);
            CHECK(w->out[g][r] % 4 > 0);
            acc = acc * 3 + r;
            sum += g + r;
        }
        CHECK(w->acc[g] == acc);
    }
    CHECK(w->sum == sum);
}

/* How many rounds of each index the file has. */
static uint64_t read_rounds(const bytes *file, uint32_t rounds[COUNT])
{
    uint64_t n = number_at(file->at + 56), all = 0;
    size_t   pos = HEAD;

    memset(rounds, 0, COUNT * sizeof *rounds);
    CHECK(memcmp(file->at, "USMSTA2\n", 8) == 0);
    CHECK_INT(number_at(file->at + 40), COUNT);
    for (; n > 0; n--) {
        uint64_t first = number_at(file->at + pos), count = number_at(file->at + pos + 8);
        size_t   size   = (size_t)number_at(file->at + pos + 16);
        size_t   copies = count * (ROUNDS + 1) * 4;
        size_t   states = copies + (count / LEAF * 4 + 63) / 64 * 64;

        pos += RECORD;
        CHECK_INT(size, states + count * 8);
        for (uint64_t i = 0; i < count; i++) {
            int32_t s[2];

            memcpy(s, file->at + pos + states + i * 8, sizeof s);
            CHECK(s[1] > 0);
            rounds[first + i] = (uint32_t)s[1];
            all += (uint32_t)s[1];
        }
        pos += size;
    }
    CHECK_INT(pos, file->size);
    return all;
}

/* --- cases ----------------------------------------------------------------------------------- */

static void name_files(const char *path)
{
    plan.path = path;
    (void)snprintf(plan.states, sizeof plan.states, "%s.states", path);
}

/* A process of its own: `test_resume --die FILE PROCESS PERCENT`. */
static int die(char **argv)
{
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    static walked      w;

    name_files(argv[2]);
    plan.least = atof(argv[4]) / 100;
    (void)go((uint32_t)atoi(argv[3]), die_in_the_middle, &w, &stats);
    return 0;
}

static int run_to_death(const char *self, const char *process, const char *percent)
{
    int   status;
    pid_t pid;

    (void)fflush(NULL);
    pid = fork();
    if (pid == 0) {
        (void)execl(self, self, "--die", plan.path, process, percent, (char *)NULL);
        _exit(1);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

/* On a busy machine the progress function may not be called while a chunk is in the middle; then
 * the process comes through, its files are gone, and another one begins. */
static void have_killed(const char *process, const char *percent)
{
    char self[512] = {0};
    int  status    = 0;

    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    for (int i = 0; i < 20 && status == 0; i++)
        status = run_to_death(self, process, percent);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void check_gone(void)
{
    CHECK(access(plan.path, F_OK) != 0);
    CHECK(access(plan.states, F_OK) != 0);
}

static void no_round_that_was_kept_is_done_again(void)
{
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    static uint32_t    rounds[COUNT];
    static walked      w;
    uint64_t           all;
    bytes              file;

    name_files(plain_path("resume"));
    have_killed("1", "20");
    file = read_bytes(plan.states);
    all  = read_rounds(&file, rounds);
    CHECK(all > 0);
    must(go(2, NULL, &w, &stats));
    check_all(&w);
    for (uint32_t g = 0; g < COUNT; g++)
        for (uint32_t r = 0; r < rounds[g]; r++)
            CHECK_INT(w.out[g][r] % 4, 1);
    CHECK(stats.resumed > 0);
    CHECK(stats.continued > 0);
    CHECK_INT(stats.resumed + stats.chunks, COUNT / CHUNK);
    printf("# %llu rounds were kept of %llu chunks\n", (unsigned long long)all,
           (unsigned long long)stats.continued);
    check_gone();
    free(file.at);
}

static void it_may_be_killed_more_than_once(void)
{
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    static uint32_t    before[COUNT], rounds[COUNT];
    static walked      w;
    bytes              file;

    name_files(plain_path("twice"));
    have_killed("1", "10");
    file = read_bytes(plan.states);
    CHECK(read_rounds(&file, before) > 0);
    free(file.at);
    have_killed("2", "50");
    file = read_bytes(plan.states);
    CHECK(read_rounds(&file, rounds) > 0);
    free(file.at);
    must(go(3, NULL, &w, &stats));
    check_all(&w);
    CHECK(stats.continued > 0);
    for (uint32_t g = 0; g < COUNT; g++)
        for (uint32_t r = 0; r < ROUNDS; r++)
            CHECK((r >= before[g] || w.out[g][r] % 4 == 1) &&
                  (r >= rounds[g] || w.out[g][r] % 4 < 3));
    check_gone();
}

static void a_launch_that_was_called_off_goes_on(void)
{
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    static uint32_t    rounds[COUNT];
    static walked      w;
    bytes              file;

    name_files(plain_path("left"));
    plan.least = 0.3;
    CHECK_INT(go(1, leave_in_the_middle, &w, &stats), USM_E_CANCELLED);
    file = read_bytes(plan.states);
    CHECK(read_rounds(&file, rounds) > 0);
    free(file.at);
    must(go(2, NULL, &w, &stats));
    check_all(&w);
    CHECK(stats.continued > 0);
    for (uint32_t g = 0; g < COUNT; g++)
        for (uint32_t r = 0; r < rounds[g]; r++)
            CHECK_INT(w.out[g][r] % 4, 1);
    check_gone();
}

/* The launch goes on from files to which something was done; returns stats.continued. */
static uint64_t go_on_with(const bytes *file, size_t file_size, const bytes *states,
                           size_t states_size)
{
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    static walked      w;

    (void)unlink(plan.path);
    if (file_size > 0)
        write_bytes(plan.path, file->at, file_size);
    write_bytes(plan.states, states->at, states_size);
    must(go(2, NULL, &w, &stats));
    check_all(&w);
    check_gone();
    return stats.continued;
}

static void damaged_files_change_no_answer(void)
{
    /* in a payload, its record, the head */
    static const size_t places[] = {HEAD + RECORD + 100, HEAD + 9, 50, 20};
    bytes               file, states;
    uint64_t            whole;

    name_files(plain_path("damaged"));
    have_killed("1", "30");
    file   = read_bytes(plan.path);
    states = read_bytes(plan.states);
    whole  = go_on_with(&file, file.size, &states, states.size);
    CHECK(whole > 0);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        states.at[places[i]] ^= 0x10;
        CHECK(go_on_with(&file, file.size, &states, states.size) < whole);
        states.at[places[i]] ^= 0x10;
    }
    CHECK(go_on_with(&file, file.size, &states, states.size / 2) < whole);
    CHECK_INT(go_on_with(&file, file.size, &states, HEAD - 1), 0);
    CHECK_INT(go_on_with(&file, file.size, &states, 0), 0);
    (void)go_on_with(&file, file.size - 7, &states, states.size);
    file.at[FILE_HEAD - 9] ^= 4; /* the number by which the files know each other */
    CHECK_INT(go_on_with(&file, file.size, &states, states.size), 0);
    file.at[FILE_HEAD - 9] ^= 4;
    for (size_t i = 1; i <= 16; i++) { /* wherever it is: in the records, in what they hold */
        file.at[i * (file.size - 1) / 16] ^= 1;
        (void)go_on_with(&file, file.size, &states, states.size);
        file.at[i * (file.size - 1) / 16] ^= 1;
    }
    free(file.at);
    free(states.at);
}

static void states_of_another_launch_are_not_looked_at(void)
{
    bytes file, states;

    name_files(plain_path("stale"));
    have_killed("1", "30");
    file   = read_bytes(plan.path);
    states = read_bytes(plan.states);
    CHECK_INT(go_on_with(&file, 0, &states, states.size), 0); /* who began anew by hand */
    free(file.at);
    free(states.at);
}

/* What a kill leaves while the file of unfinished chunks is written, and what only looks like it.
 * */
static void what_a_killed_process_left_is_removed(void)
{
    static const char *const endings[] = {".Ab12xY", ".Ab12xYz", "x.Ab12x"};
    static walked            w;
    char                     path[700];

    name_files(plain_path("left"));
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        (void)snprintf(path, sizeof path, "%s%s", plan.states, endings[i]);
        plain_write(path, "half of a state");
    }
    must(go(1, NULL, &w, NULL));
    check_gone();
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        (void)snprintf(path, sizeof path, "%s%s", plan.states, endings[i]);
        CHECK_INT(unlink(path), i == 0 ? -1 : 0);
    }
}

static void files_of_another_version_are_named_as_such(void)
{
    static walked w;
    char          text[64];

    name_files(plain_path("version"));
    plain_write(plan.path, "USMRUN1\nand the rest of it");
    CHECK_INT(go(1, NULL, &w, NULL), USM_E_INVALID);
    CHECK_IN("another version of libusm", usm_last_error());
    CHECK(strncmp(plain_read(plan.path, text, sizeof text), "USMRUN1", 7) == 0);
    CHECK_INT(unlink(plan.path), 0);
    plain_write(plan.states, "USMSTA1\nand the rest of it"); /* only a loss of time */
    must(go(1, NULL, &w, NULL));
    check_gone();
}

static void what_is_no_file_of_ours_is_left_alone(void)
{
    static walked w;
    char          text[64];

    name_files(plain_path("foreign"));
    plain_write(plan.states, "a letter");
    CHECK_INT(go(1, NULL, &w, NULL), USM_E_INVALID);
    CHECK_IN(plan.states, usm_last_error());
    CHECK(strcmp(plain_read(plan.states, text, sizeof text), "a letter") == 0);
    name_files(plain_path("short"));
    plain_write(plan.path, "a letter");
    CHECK_INT(go(1, NULL, &w, NULL), USM_E_INVALID);
    CHECK_IN(plan.path, usm_last_error());
    CHECK(strcmp(plain_read(plan.path, text, sizeof text), "a letter") == 0);
}

static void without_a_file_it_goes_on(void)
{
    static const char *const points[] = {"os.rename", "os.write"};
    static walked            w;

    name_files(plain_path("full"));
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        CHECK(usm__fault_arm(points[i], 3, true, USM_OK));
        must(go(1, NULL, &w, NULL));
        CHECK(usm__fault_fired() > 0);
        usm__fault_disarm_all();
        check_all(&w);
        check_gone();
    }
}

static void another_device_goes_on_with_what_one_has_done(void)
{
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    static walked      w;

    if (!is_pocl())
        return; /* one device */
    name_files(plain_path("shared"));
    plan.is_shared = true;
    CHECK(usm__fault_arm("launch", 401, false, USM_E_DEVICE));
    must(go(1, NULL, &w, &stats));
    CHECK_INT(usm__fault_fired(), 1);
    usm__fault_disarm_all();
    plan.is_shared = false;
    check_all(&w);
    CHECK(stats.rescheduled >= 1);
    printf("# %llu chunks went on\n", (unsigned long long)stats.continued);
    check_gone();
}

/* --- rounds that nobody wants ---------------------------------------------------------------- */

enum { SOUGHT = 64, MANY = 2000 };
static atomic_uint sought[SOUGHT]; /* rounds */

/* Index 0 is found in its third round; all others take MANY. */
static void seek(const usm_range *range, void *const *args)
{
    const struct timespec t     = {0, 1000000};
    int64_t              *found = SPLIT_POINTER(int64_t, 0);
    int32_t              *state = SPLIT_POINTER(int32_t, 1);

    (void)nanosleep(&t, NULL);
    for (size_t g = range->begin[0]; g < range->end[0]; g++) {
        size_t   i = g - range->offset[0];
        unsigned n = atomic_fetch_add(&sought[g], 1) + 1;

        if (n < (g == 0 ? 3u : MANY))
            continue;
        state[i] = 0;
        if (g == 0)
            found[0] = 0;
    }
}

static void rounds_above_what_is_found_are_left(void)
{
    static const usm_native_kernel natives[] = {{"seek", seek, 2, NULL}};
    usm_image                      images[]  = {{USM_IMAGE_NATIVE, natives, sizeof natives}};
    usm_program_desc               program   = USM_PROGRAM_DESC_INIT;
    int64_t                        found     = 7;
    int32_t                        state     = USM_RUN_AGAIN;
    double                         size      = 1;
    usm_split_arg                  args[]    = {USM_SPLIT_FIRST(&found, sizeof found),
                                                {.follow = USM_FOLLOW_PRIVATE,
                                                 .mode   = USM_READ_WRITE,
                                                 .host   = &state,
                                                 .size   = sizeof state,
                                                 .leaf   = 1}};
    usm_team                      *team      = NULL;
    usm_team_desc                  host      = USM_TEAM_DESC_INIT;
    usm_team_kernel               *k         = NULL;
    usm_parallel_desc              d;

    program.images  = images;
    program.nimages = 1;
    host.selector   = "host:*";
    must(usm_team_create(&host, &team));
    must(usm_team_kernel_create(team, &program, "seek", &k));
    d           = over(k, SOUGHT, args, 2);
    d.state_arg = USM_PARALLEL_NTH(1);
    fixed(&d, &size);
    must(usm_parallel(team, &d, NULL));
    CHECK_INT(found, 0);
    for (size_t g = 1; g < SOUGHT; g++)
        CHECK(atomic_load(&sought[g]) < MANY);
    usm_team_kernel_destroy(k);
    usm_team_destroy(team);
}

static const plain_case cases[] = {CASE(no_round_that_was_kept_is_done_again),
                                   CASE(it_may_be_killed_more_than_once),
                                   CASE(a_launch_that_was_called_off_goes_on),
                                   CASE(damaged_files_change_no_answer),
                                   CASE(states_of_another_launch_are_not_looked_at),
                                   CASE(what_a_killed_process_left_is_removed),
                                   CASE(files_of_another_version_are_named_as_such),
                                   CASE(what_is_no_file_of_ours_is_left_alone),
                                   CASE(without_a_file_it_goes_on),
                                   CASE(another_device_goes_on_with_what_one_has_done),
                                   CASE(rounds_above_what_is_found_are_left),
                                   {NULL, NULL}};

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "--die") == 0)
        return die(argv);
    return plain_main(argc, argv, cases);
}
