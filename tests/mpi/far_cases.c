/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* far_cases CASE [SEED]: what libusm does in real MPI jobs, when all is well and when it is not;
 * every rank runs the case.  Rank 0 borrows and judges, the others lend, unless the case says
 * otherwise. The verdict is one line: "ok CASE: ...", "not ok CASE: ..." or "skip CASE: ...".
 *
 * Built once for each MPI, started by launch.sh as CMakeLists.txt says; by hand:
 *     tests/mpi/launch.sh --mpi openmpi --recovery --verdict 3 build/.../far_cases_openmpi killed
 */
#include "far_cases.h"

#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- when all is well ---------------------------------------------------------------- */

static void needs_far_bytes(void)
{
    NEED(tier_written("mpi") >= FAR_SIZE - FAR_LIMIT, "only %llu bytes went to the other ranks",
         (unsigned long long)tier_written("mpi"));
}

/* Until every block has two copies again; a lender has just been killed.  Without accesses: below
 * them a thread makes the copies. */
static void await_copies(void)
{
    usm_spill_stats stats = {.struct_size = sizeof stats};

    sleep_ms(LEASE_MS + LEASE_MS / 4);
    for (int i = 0; i < 200; i++) {
        NEED_STATUS(usm_spill_get_stats(NULL, &stats), USM_OK);
        if (stats.copies_missing == 0)
            return;
        sleep_ms(100);
    }
    job_fail("%llu blocks have not got their second copy back",
             (unsigned long long)stats.copies_missing);
}

/* Eight times the limit, twice written, three times read. */
static void work(void)
{
    usm_buffer *b = buffer_new(FAR_SIZE);

    buffer_write(b, 1);
    needs_far_bytes();
    (void)buffer_check(b, 1);
    (void)buffer_check(b, 1);
    buffer_write(b, 2);
    (void)buffer_check(b, 2);
    usm_buffer_destroy(b);
}

static void content(void)
{
    job_attach("1");
    job_serve();
    work();
    NEED(strcmp(getenv("USM_MPI_NEAR"), "0") != 0 || job_mapped() + job_near_bytes() == 0,
         "with USM_MPI_NEAR=0 lenders are mapped");
    job_end("8 times the limit, written twice and read three times over lenders");
}

static void copies(void)
{
    job_attach("2");
    job_serve();
    work();
    NEED(tier_written("mpi") >= 2 * (FAR_SIZE - FAR_LIMIT), "there are no two copies");
    job_end("the same with two copies of each block");
}

/* Everybody borrows and lends at the same time. */
static void all_to_all(void)
{
    job_begin(MPI_THREAD_MULTIPLE);
    job_borrows("1");
    job_lends();
    NEED_STATUS(USM_MPI_ATTACH(job.comm), USM_OK);
    work();
    MPI_Barrier(job.comm);
    job_serve();
    job_end("every rank worked on 8 times its limit and lent to the others");
}

static void detached(void)
{
    job_attach("1");
    if (job.rank == 0)
        work();
    MPI_Barrier(job.comm);
    usm_mpi_detach();
    usm_mpi_detach();
    MPI_Barrier(job.comm);
    job_serve();
    job_end("usm_mpi_detach() before MPI_Finalize(), twice");
}

/* Rank 0 attaches without a thread for libusm, and goes on; the others lend. */
static void attach_below_multiple(void)
{
    /* The level that it says is the one it gets: another rank's may be higher. */
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");

    rank = rank ? rank : getenv("PMI_RANK");
    if (!rank || strcmp(rank, "0") != 0) {
        job_attach("1");
        job_serve();
    }
    job_begin(MPI_THREAD_FUNNELED);
    job_borrows("1");
    NEED_STATUS(USM_MPI_ATTACH(job.comm), USM_OK);
}

static void below_multiple(void)
{
    attach_below_multiple();
    work();
    job_end("a rank at MPI_THREAD_FUNNELED borrowed 7 times its limit");
}

/* It computes for longer than the time of orphans, and says nothing meanwhile. */
static void below_multiple_silent(void)
{
    usm_buffer *b;

    attach_below_multiple();
    b = buffer_new(FAR_SIZE);
    buffer_write(b, 1);
    sleep_ms(ORPHAN_MS + LEASE_MS);
    (void)buffer_check(b, 1);
    usm_buffer_destroy(b);
    job_end("a rank at MPI_THREAD_FUNNELED was silent, and what it stored is there");
}

/* ---- shared memory on one host: USM_MPI_NEAR=1 ------------------------------------------ */

static void near_content(void)
{
    job_attach("1");
    job_serve();
    work();
    NEED(job_mapped() == job.size - 1, "%d of %d lenders are mapped", job_mapped(), job.size - 1);
    NEED(job_near_bytes() >= (double)(2 * (FAR_SIZE - FAR_LIMIT)),
         "only %.0f bytes went through shared memory", job_near_bytes());
    job_end("8 times the limit, all of it through shared memory");
}

/* At moments of the copies that nobody knows: in a pass of writes, then in one of reads. */
static void near_killed(void)
{
    usm_buffer *b;
    char        text[128];
    uint64_t    x = job.seed;

    job_attach("2");
    job_serve();
    b = buffer_new(FAR_SIZE);
    buffer_write(b, 0);
    NEED(job_mapped() == job.size - 1, "%d of %d lenders are mapped", job_mapped(), job.size - 1);
    for (int rank = 1; rank < job.size - 2; rank++) {
        x = (x + (uint64_t)rank) * UINT64_C(6364136223846793005) + 1442695040888963407u;
        job_signal_later(rank, SIGKILL, (unsigned)(x >> 33) % 30000);
        if (rank % 2 != 0)
            buffer_write(b, (uint64_t)rank);
        else
            (void)buffer_check(b, (uint64_t)rank - 1);
        if (rank % 2 == 0)
            buffer_write(b, (uint64_t)rank);
        (void)buffer_check(b, (uint64_t)rank);
        await_copies(); /* the next one only once what this one had is elsewhere */
        (void)buffer_check(b, (uint64_t)rank);
    }
    snprintf(text, sizeof text, "seed %d: %d lenders killed while their memory was copied",
             (int)job.seed, job.size - 3);
    job_end_hard(text);
}

static bool is_dead(int rank)
{
    char  name[64], text[256] = "";
    FILE *file;

    snprintf(name, sizeof name, "/proc/%d/stat", (int)job.pid[rank]);
    file = fopen(name, "re");
    if (file && !fgets(text, sizeof text, file))
        text[0] = '\0';
    if (file)
        (void)fclose(file);
    return !text[0] || strstr(text, ") Z ") || strstr(text, ") X ");
}

/* Rank 0 lends and judges.  Ranks 1 to 3 borrow: the first two die when they have mapped a lender
 * and in the middle of copies, the third is to notice nothing.  Rank 4 lends and dies when it is to
 * be mapped, rank 5 when it takes back what a dead one had. */
static void near_steps(void)
{
    static const char *const hooks[] = {
        NULL, "fault:die.borrow.mapped@1", "fault:die.borrow.copied@100",
        NULL, "fault:die.lend.near@1",     "fault:die.lend.cleared@1"};

    job_begin(MPI_THREAD_MULTIPLE);
    NEED(job.size == 6, "it needs 6 ranks");
    if (job.rank >= 1 && job.rank <= 3)
        job_borrows(job.rank == 3 ? "2" : "1");
    else
        job_lends();
    if (hooks[job.rank])
        job_set("USM_HOOKS", hooks[job.rank]);
    NEED_STATUS(USM_MPI_ATTACH(job.comm), USM_OK);
    if (job.rank >= 1 && job.rank <= 3) {
        work();
        NEED(job.rank == 3, "rank %d has not died at %s", job.rank, hooks[job.rank]);
        MPI_Send(NULL, 0, MPI_BYTE, 0, 1, job.comm);
    }
    job_serve();
    MPI_Recv(NULL, 0, MPI_BYTE, 3, 1, job.comm, MPI_STATUS_IGNORE);
    for (int i = 0; i < 2 * ORPHAN_MS / 100; i++) {
        if (job_held() == 0 && is_dead(1) && is_dead(2) && is_dead(4) && is_dead(5))
            job_end_hard("died when mapped, copying, to be mapped, taking back: 4 cases, nothing "
                         "lost, all was freed");
        sleep_ms(100);
    }
    job_fail("%.0f bytes are still kept; ranks 1, 2, 4, 5 are dead: %d %d %d %d", job_held(),
             is_dead(1), is_dead(2), is_dead(4), is_dead(5));
}

/* Another level without a thread of libusm's: its calls are MPI's of the thread that attached. */
static void serialized(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");

    rank = rank ? rank : getenv("PMI_RANK");
    if (!rank || strcmp(rank, "0") != 0) {
        job_attach("1");
        job_serve();
    }
    job_begin(MPI_THREAD_SERIALIZED);
    job_borrows("1");
    NEED_STATUS(USM_MPI_ATTACH(job.comm), USM_OK);
    work();
    job_end("a rank at MPI_THREAD_SERIALIZED borrowed 7 times its limit");
}

/* ---- attaching ----------------------------------------------------------------------- */

static void threads_too_low(void)
{
    job_begin(MPI_THREAD_FUNNELED);
    if (job.rank == 0)
        job_borrows("1");
    else
        job_lends();
    NEED_STATUS(USM_MPI_ATTACH(job.comm), USM_E_MPI_THREADS);
    job_serve();
    job_end("lending at MPI_THREAD_FUNNELED is refused on all ranks");
}

static void wrong_key(void)
{
    job_begin(MPI_THREAD_MULTIPLE);
    if (job.rank == 0)
        job_borrows("1");
    else
        job_lends();
    job_set("USM_JOB_KEY", job.rank == job.size - 1 ? "00112233445566778899aabbccddeeff"
                                                    : "ffeeddccbbaa99887766554433221100");
    NEED_STATUS(USM_MPI_ATTACH(job.comm), USM_E_KEY);
    MPI_Barrier(job.comm);
    job_serve();
    job_end("a rank with another key: nobody is attached");
}

static void same_key(void)
{
    const char *left;

    job_set("USM_JOB_KEY", "ffeeddccbbaa99887766554433221100");
    job_attach("1");
    left = getenv("USM_JOB_KEY");
    NEED(!left || !left[0], "the key is still in the environment");
    job_serve();
    work();
    job_end("members that prove the same key");
}

static void too_early_and_too_late(void)
{
    MPI_Comm comm = MPI_COMM_WORLD;

    NEED_STATUS(USM_MPI_ATTACH(comm), USM_E_MPI);
    job_attach("1");
    NEED_STATUS(USM_MPI_ATTACH(job.comm), USM_E_BUSY);
    MPI_Barrier(job.comm);
    MPI_Finalize();
    NEED_STATUS(USM_MPI_ATTACH(comm), USM_E_MPI);
    usm_mpi_detach();
    if (job.rank == 0)
        printf("ok %s: before MPI_Init(), a second time, after MPI_Finalize()\n", job.name);
    exit(0); /* NOLINT(concurrency-mt-unsafe): what runs at exit is part of the test */
}

static void nonsense(void)
{
    char other[64] = {0};

    job_begin(MPI_THREAD_MULTIPLE);
    job_borrows("1");
    NEED_STATUS(usm_mpi_attach(NULL, sizeof(MPI_Comm)), USM_E_INVALID);
    NEED_STATUS(usm_mpi_attach(other, 12), USM_E_MPI);
    MPI_Barrier(job.comm);
    job_serve();
    job_end("no communicator, and one that has no MPI's size");
}

/* MPI ends while there is a buffer whose content lies with others.  Once it is known that these have
 * gone, what is in memory is the only copy and stays, so that others cannot be loaded for want of
 * room. */
static void finalised_early(void)
{
    usm_buffer *b;
    usm_access  a;
    size_t      failed = 0;

    job_attach("1");
    if (job.rank != 0) {
        MPI_Barrier(job.comm);
        MPI_Finalize();
        exit(0); /* NOLINT(concurrency-mt-unsafe) */
    }
    b = buffer_new(FAR_SIZE);
    buffer_write(b, 1);
    MPI_Barrier(job.comm);
    MPI_Finalize();
    for (size_t at = 0; at < FAR_SIZE; at += FAR_CHUNK) {
        usm_status st = usm_access_begin(b, at, FAR_CHUNK, USM_READ, &a);

        if (st == USM_OK)
            usm_access_end(&a);
        else
            NEED(st == USM_E_IO || st == USM_E_SPILL_FULL, "an access after MPI_Finalize() is %s",
                 usm_status_name(st));
        failed += st != USM_OK;
    }
    NEED(failed >= (FAR_SIZE - 2 * FAR_LIMIT) / FAR_CHUNK, "%zu accesses failed", failed);
    usm_buffer_destroy(b);
    usm_shutdown();
    printf("ok %s: %zu of %zu accesses fail, named, and all ends\n", job.name, failed,
           FAR_SIZE / FAR_CHUNK);
    exit(0); /* NOLINT(concurrency-mt-unsafe) */
}

static bool has_thread(void)
{
    char           path[300], name[32];
    DIR           *tasks = opendir("/proc/self/task");
    struct dirent *d;
    bool           is_there = false;

    NEED(tasks != NULL, "no /proc/self/task");
    while ((d = readdir(tasks))) {
        FILE *f;

        snprintf(path, sizeof path, "/proc/self/task/%s/comm", d->d_name);
        f = fopen(path, "re");
        if (!f)
            continue;
        is_there |= fgets(name, sizeof name, f) && strcmp(name, "usm-mpi\n") == 0;
        fclose(f);
    }
    closedir(tasks);
    return is_there;
}

/* MPI_Finalize() calls it before the module's, which was set earlier.  A thread is listed for a
 * moment after its last word; one that still serves stays. */
static int on_finalize(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm;
    (void)key;
    (void)value;
    (void)extra;
    for (int i = 0; i < 1000 && has_thread(); i++)
        sleep_ms(10);
    NEED(!has_thread(), "rank %d: libusm's thread is there in MPI_Finalize()", job.rank);
    return MPI_SUCCESS;
}

#ifdef FAR_CASES_HAS_CPP
int finalize_in_cpp(void);
#else
static int finalize_in_cpp(void)
{
    return MPI_Finalize();
}
#endif

/* A program that includes <usm/mpi.h> need not detach: MPI_Finalize() does, in each of its files
 * and either language, before MPI's own begins; lenders serve rank 0 meanwhile. */
static void forgets(void)
{
    int         key = MPI_KEYVAL_INVALID;
    usm_buffer *b   = NULL;

    job_attach("1");
    NEED(has_thread(), "libusm has no thread");
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, &job);
    if (job.rank == 0) {
        b = buffer_new(FAR_SIZE);
        buffer_write(b, 1);
    }
    MPI_Barrier(job.comm);
    if (job.rank == 0) {
        (void)buffer_check(b, 1);
        usm_buffer_destroy(b);
    }
    if (job.rank % 2 == 0)
        MPI_Finalize();
    else
        NEED(finalize_in_cpp() == MPI_SUCCESS, "MPI_Finalize() in C++");
    if (job.rank == 0)
        printf("ok %s: MPI_Finalize() detaches first, and lenders serve until then\n", job.name);
    exit(0); /* NOLINT(concurrency-mt-unsafe) */
}

/* Another MPI's library comes into the process, say with a library of the program's. */
static void two_mpis(void)
{
    static const char *const libraries[] = {"libmpi.so.40", "libmpich.so.12"};
    const char              *other       = NULL;

    job_begin(MPI_THREAD_MULTIPLE);
    job_borrows("1");
    for (size_t i = 0; i < 2; i++)
        if (!dlopen(libraries[i], RTLD_NOW | RTLD_NOLOAD))
            other = libraries[i];
    if (!other || !dlopen(other, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND))
        job_skip("there is no second MPI here");
    NEED_STATUS(USM_MPI_ATTACH(job.comm), USM_E_MPI);
    MPI_Barrier(job.comm);
    job_serve();
    job_end("two MPIs in one process are refused");
}

/* The module that USM_MPI names is another MPI's. */
static void wrong_module(void)
{
    job_begin(MPI_THREAD_MULTIPLE);
    job_borrows("1");
    job_set("USM_MPI", sizeof(MPI_Comm) == sizeof(int) ? "openmpi" : "mpich");
    NEED_STATUS(USM_MPI_ATTACH(job.comm), USM_E_MPI);
    MPI_Barrier(job.comm);
    job_serve();
    job_end("a module for another MPI is refused");
}

/* libusm.so where it has no modules beside it: a folder with a link to it. */
static void missing_module(void)
{
    const char *folder = getenv("FAR_CASES_FOLDER");
    const char *tmp    = getenv("TMPDIR"); /* of launch.sh */
    char template[300], name[600];
    char   *arguments[] = {(char *)(uintptr_t) "far_cases", (char *)(uintptr_t)job.name, NULL};
    Dl_info info;

    if (!folder) {
        NEED(dladdr(dlsym(RTLD_DEFAULT, "usm_mpi_attach"), &info) != 0, "where is libusm.so?");
        snprintf(template, sizeof template, "%.250s/usm-far-XXXXXX", tmp ? tmp : "/tmp");
        NEED(mkdtemp(template) != NULL, "no folder %s", template);
        snprintf(name, sizeof name, "%s/%s", template, strrchr(info.dli_fname, '/') + 1);
        NEED(symlink(info.dli_fname, name) == 0, "no link in %s", template);
        job_set("LD_LIBRARY_PATH", template);
        job_set("USM_PLUGIN_PATH", template);
        job_set("FAR_CASES_FOLDER", name);
        execv("/proc/self/exe", arguments);
        job_fail("the program cannot be started again");
    }
    job_begin(MPI_THREAD_MULTIPLE);
    job_borrows("1");
    NEED_STATUS(USM_MPI_ATTACH(job.comm), USM_E_MPI);
    NEED(strstr(usm_last_error(), "libusm_transport_mpi") != NULL,
         "the story does not name the module: %s", usm_last_error());
    unlink(folder);
    snprintf(name, sizeof name, "%s", folder);
    *strrchr(name, '/') = '\0';
    rmdir(name);
    MPI_Barrier(job.comm);
    job_serve();
    job_end("without the module, with its name in the story");
}

/* ---- deaths -------------------------------------------------------------------------- */

static void killed(void)
{
    usm_buffer *b;
    char        text[128];
    double      longest;

    job_attach("2");
    job_serve();
    b = buffer_new(FAR_SIZE);
    buffer_write(b, 1);
    job_signal(1, SIGKILL);
    longest = buffer_check(b, 1);
    buffer_write(b, 2);
    (void)buffer_check(b, 2);
    snprintf(text, sizeof text,
             "a lender was killed, nothing was lost; the longest access: %.0f ms", longest);
    job_end_hard(text);
}

/* The second one dies when copies have been made anew. */
static void two_killed(void)
{
    usm_buffer *b;

    job_attach("2");
    job_serve();
    b = buffer_new(FAR_SIZE);
    buffer_write(b, 1);
    job_signal(1, SIGKILL);
    (void)buffer_check(b, 1);
    await_copies();
    job_signal(2, SIGKILL);
    (void)buffer_check(b, 1);
    job_end_hard("two lenders were killed one after the other, nothing was lost");
}

/* One lender after the other, each in the middle of a pass of writes or of reads, at a place that
 * the seed says.  What the pass before wrote has two copies at those that are left by then. */
static void killed_while_working(void)
{
    const size_t n = FAR_SIZE / FAR_CHUNK;
    usm_buffer  *b;
    char         text[128];

    job_attach("2");
    job_serve();
    b = buffer_new(FAR_SIZE);
    buffer_write(b, 0);
    for (int rank = 1; rank < job.size - 2; rank++) {
        uint64_t x     = (job.seed * 64 + (uint64_t)rank) * UINT64_C(0x9E3779B97F4A7C15);
        bool     reads = x >> 63 != 0;

        if (!reads)
            job_strike((size_t)(x >> 20) % n, rank, SIGKILL);
        buffer_write(b, (uint64_t)rank);
        if (reads)
            job_strike((size_t)(x >> 20) % n, rank, SIGKILL);
        (void)buffer_check(b, (uint64_t)rank);
        NEED(job.strike_at == SIZE_MAX, "nobody was killed");
        (void)buffer_check(b, (uint64_t)rank);
        await_copies(); /* the next one only once what this one had is elsewhere */
        (void)buffer_check(b, (uint64_t)rank);
    }
    snprintf(text, sizeof text, "seed %d: %d lenders killed while it wrote and read, nothing lost",
             (int)job.seed, job.size - 3);
    job_end_hard(text);
}

/* The launcher ends the job: launch.sh --killed looks whether it did. */
static void job_is_killed(void)
{
    usm_buffer *b;

    job_attach("2");
    job_serve();
    b = buffer_new(FAR_SIZE);
    buffer_write(b, 1);
    job_signal(1, SIGKILL);
    for (int i = 0; i < 10; i++)
        (void)buffer_check(b, 1);
    sleep_ms(10000);
    job_end_hard("it outlived its lender");
}

/* Shorter than a lease: slow, and then as before. */
static void stopped(void)
{
    usm_buffer *b;

    job_attach("1");
    job_serve();
    b = buffer_new(FAR_SIZE);
    buffer_write(b, 1);
    for (int i = 0; i < 3; i++) {
        job_signal(1, SIGSTOP);
        sleep_ms(LEASE_MS / 3);
        job_signal(1, SIGCONT);
        (void)buffer_check(b, 1 + (uint64_t)i);
        buffer_write(b, 2 + (uint64_t)i);
    }
    (void)buffer_check(b, 4);
    job_end("a lender stood still for a third of its lease, three times");
}

/* Longer than a lease: lost; what it still says afterwards is not believed. */
static void stopped_for_long(void)
{
    usm_buffer *b;

    job_attach("2");
    job_serve();
    b = buffer_new(FAR_SIZE);
    buffer_write(b, 1);
    job_signal(1, SIGSTOP);
    (void)buffer_check(b, 1);
    buffer_write(b, 2);
    sleep_ms(2 * LEASE_MS);
    job_signal(1, SIGCONT);
    (void)buffer_check(b, 2);
    buffer_write(b, 3);
    sleep_ms(LEASE_MS);
    (void)buffer_check(b, 3);
    job_end_hard("a lender stood still for longer than its lease, and came back with old content");
}

/* Longer than a lease, and shorter than orphans are kept: the others miss it, and it finds all of
 * its blocks.  It did not count the others' silence, for it did not listen. */
static void borrower_paused(void)
{
    usm_buffer *b;

    job_attach("1");
    job_serve();
    b = buffer_new(FAR_SIZE);
    buffer_write(b, 1);
    for (uint64_t turn = 1; turn < 3; turn++) {
        job_be_stopped(LEASE_MS + LEASE_MS / 2);
        (void)buffer_check(b, turn);
        buffer_write(b, turn + 1);
        (void)buffer_check(b, turn + 1);
    }
    usm_buffer_destroy(b);
    job_end("a borrower stood still for one and a half leases, twice, and found all of its blocks");
}

/* Node 1 is off the network: one copy of what it has lies elsewhere. */
static void cut(unsigned ms, const char *what)
{
    usm_buffer *b;

    job_attach("2");
    if (!getenv("LAUNCH_NET"))
        job_skip("it needs launch.sh --slots");
    job_serve();
    b = buffer_new(FAR_SIZE);
    buffer_write(b, 1);
    job_cut_link(1, ms);
    sleep_ms(50);
    (void)buffer_check(b, 1);
    buffer_write(b, 2);
    (void)buffer_check(b, 2);
    sleep_ms(ms);
    (void)buffer_check(b, 2);
    buffer_write(b, 3);
    (void)buffer_check(b, 3);
    job_end_hard(what);
}

/* The borrower is on one side, all lenders on the other, and all of them live: what they keep
 * cannot be read until the cable is mended; then all of it is there, for nobody has given up yet.
 */
static void cut_off(void)
{
    usm_buffer *b;
    size_t      failed = 0, tried = 0, n = FAR_SIZE / FAR_CHUNK;
    char        text[160];

    job.orphan_ms =
        4 * ORPHAN_MS; /* TCP tries again when it likes to, not when the cable is mended */
    job_attach("1");
    if (!getenv("LAUNCH_NET"))
        job_skip("it needs launch.sh --slots");
    job_serve();
    b = buffer_new(FAR_SIZE);
    buffer_write(b, 1);
    job_set_link(false);
    sleep_ms(LEASE_MS + LEASE_MS / 4);
    for (; tried < 20; tried++)
        failed += !buffer_try(b, tried * 11 % n, 1);
    job_set_link(true);
    for (size_t c = 0, i = 0; c < n && i < 300; c++)
        for (; i < 300 && !buffer_try(b, c, 1); i++) /* one lender after the other is back */
            sleep_ms(50);
    (void)buffer_check(b, 1);
    buffer_write(b, 2);
    (void)buffer_check(b, 2);
    snprintf(text, sizeof text,
             "a borrower was cut off from all for longer than a lease: %zu of %zu reads failed "
             "meanwhile, nothing was lost",
             failed, tried);
    job_end_hard(text);
}

static void link_cut(void)
{
    cut(2 * LEASE_MS, "a lender's link was cut for two leases, and restored");
}

static void link_cut_shortly(void)
{
    cut(LEASE_MS / 3, "a lender's link was cut for a third of a lease");
}

/* Rank 0 lends and judges; rank 1 borrows until it is sent `signal`. */
static void borrower_gets(int signal, const char *what)
{
    double held = 0;
    char   text[160];

    job_begin(MPI_THREAD_MULTIPLE);
    if (job.rank == 1)
        job_borrows("1");
    else
        job_lends();
    NEED_STATUS(USM_MPI_ATTACH(job.comm), USM_OK);
    if (job.rank == 1) {
        buffer_write(buffer_new(FAR_SIZE), 1);
        MPI_Barrier(job.comm);
        for (;;)
            sleep_ms(100); /* the job's time limit ends it at the latest */
    }
    MPI_Barrier(job.comm);
    held = job_held();
    NEED(job.rank != 0 || held >= (double)(FAR_SIZE - FAR_LIMIT) / (job.size - 1) / 2,
         "it keeps %.0f bytes", held);
    job_serve();
    job_signal(1, signal);
    sleep_ms(ORPHAN_MS);
    for (int i = 0; i < 20 && job_held() > 0; i++)
        sleep_ms(ORPHAN_MS / 20);
    NEED(job_held() == 0, "%.0f bytes are still kept", job_held());
    snprintf(text, sizeof text, "%s: %.0f MiB were freed", what, held / (1 << 20));
    job_end_hard(text);
}

static void borrower_killed(void)
{
    borrower_gets(SIGKILL, "a borrower was killed");
}

static void borrower_stopped(void)
{
    borrower_gets(SIGSTOP, "a borrower stood still for longer than the time of orphans");
}

/* ---- usm-memd ------------------------------------------------------------------------ */

/* In the same launch: 1 far_cases memd : 2 usm-memd --lend 512M.  Nothing is collective over
 * MPI_COMM_WORLD before usm_mpi_app_comm(): servers call nothing else. */
static void memd(void)
{
    int world = 0, given = 0;

    NEED(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &given) == MPI_SUCCESS, "no MPI");
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    job_borrows("2");
    NEED_STATUS(usm_mpi_app_comm(&job.comm, sizeof job.comm), USM_OK);
    MPI_Comm_size(job.comm, &job.size);
    MPI_Comm_rank(job.comm, &job.rank);
    NEED(job.size == 1 && world > 1, "%d of %d ranks are the program's", job.size, world);
    NEED_STATUS(USM_MPI_ATTACH(job.comm), USM_OK);
    work();
    MPI_Comm_free(&job.comm);
    job_end("a program of one rank borrowed from usm-memd in its own launch");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"content", content},
        {"copies", copies},
        {"all_to_all", all_to_all},
        {"detached", detached},
        {"below_multiple", below_multiple},
        {"below_multiple_silent", below_multiple_silent},
        {"serialized", serialized},
        {"near_content", near_content},
        {"near_killed", near_killed},
        {"near_steps", near_steps},
        {"threads_too_low", threads_too_low},
        {"wrong_key", wrong_key},
        {"same_key", same_key},
        {"too_early_and_too_late", too_early_and_too_late},
        {"nonsense", nonsense},
        {"finalised_early", finalised_early},
        {"forgets", forgets},
        {"two_mpis", two_mpis},
        {"wrong_module", wrong_module},
        {"missing_module", missing_module},
        {"killed", killed},
        {"two_killed", two_killed},
        {"killed_while_working", killed_while_working},
        {"job_is_killed", job_is_killed},
        {"stopped", stopped},
        {"stopped_for_long", stopped_for_long},
        {"link_cut", link_cut},
        {"link_cut_shortly", link_cut_shortly},
        {"cut_off", cut_off},
        {"borrower_killed", borrower_killed},
        {"borrower_stopped", borrower_stopped},
        {"borrower_paused", borrower_paused},
        {"memd", memd},
    };

    for (size_t i = 0; (argc == 2 || argc == 3) && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(argv[1], cases[i].name) == 0) {
            job.name = cases[i].name;
            job.seed = argc == 3 ? strtoull(argv[2], NULL, 10) : 1;
            cases[i].run();
        }
    fprintf(stderr, "usage: far_cases CASE [SEED]; the cases:\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        fprintf(stderr, "  %s\n", cases[i].name);
    return 2;
}
