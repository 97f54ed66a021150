/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Describes for people the MPI that a job runs on: its version, thread level, what carries its
 * messages, which deaths this launch survives, and the launcher that would survive more.
 *
 * The measurements per MPI are in docs/cluster.md.  Launchers tell their processes about it only in
 * the environment: OMPI_MCA_orte_enable_recovery, OMPI_MCA_mpi_ft_enable, Slurm's variables. */
#include "internal.h"

#include "base/inline/plural.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>

/* snprintf() at the end of the text. */
#define ADD(...)                                                                                   \
    do {                                                                                           \
        const size_t used_ = strlen(text);                                                         \
        (void)snprintf(text + used_, cap - used_, __VA_ARGS__);                                    \
    } while (0)

static const char *level_name(int level)
{
    if (level >= MPI_THREAD_MULTIPLE)
        return "MPI_THREAD_MULTIPLE";
    if (level >= MPI_THREAD_SERIALIZED)
        return "MPI_THREAD_SERIALIZED";
    return level >= MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SINGLE";
}

/* "Open MPI v4.1.4", "MPICH Version: 4.0.2 (ch4:ucx)". */
static void add_version(char *text, size_t cap)
{
    char        version[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int         n                                           = 0;
    const char *device;

    (void)MPI_Get_library_version(version, &n);
    device = strstr(version, "MPICH Device:");
    for (char *p = version; *p; p++)
        if (*p == '\t')
            *p = ' ';
    ADD("%.*s", (int)strcspn(version, ",\n"), version);
    if (device) {
        device += strlen("MPICH Device:");
        device += strspn(device, " ");
        ADD(" (%.*s)", (int)strcspn(device, "\n"), device);
    }
}

typedef struct list_of {
    char  *text;
    size_t cap;
} list_of;

/* Open MPI's components are libraries, such as mca_btl_tcp.so; it has unloaded those that it does
 * not use.  (Its tools interface would load them all again, and those of some networks wait for
 * hardware for seconds.) */
static int add_component(struct dl_phdr_info *info, size_t size, void *arg)
{
    static const char *const kinds[] = {"mca_pml_", "mca_btl_", "mca_mtl_"};
    const list_of           *list    = arg;
    char                    *text    = list->text;
    const size_t             cap     = list->cap;
    const char              *name    = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;

    (void)size;
    for (size_t i = 0; name && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strncmp(name + 1, kinds[i], strlen(kinds[i])) == 0)
            ADD(" %.*s", (int)strcspn(name + 5, "."), name + 5);
    return 0;
}

static void add_components(char *text, size_t cap)
{
    char    names[256] = "";
    list_of list       = {names, sizeof(names)};

    (void)dl_iterate_phdr(add_component, &list);
    if (names[0])
        ADD("components:%s\n", names);
}

/* ---- which deaths it survives -------------------------------------------------------------- */

static bool is_set(const char *name)
{
    const char *value = getenv(name); /* NOLINT(concurrency-mt-unsafe) */

    return value && *value && strcmp(value, "0") != 0 && strcmp(value, "false") != 0;
}

static bool is_there(const char *name)
{
    return getenv(name) != NULL; /* NOLINT(concurrency-mt-unsafe) */
}

typedef struct launch {
    bool        survives;
    const char *what; /* a sentence */
    const char *more; /* the launcher that survives more; NULL: this one does */
} launch;

static launch look_at_open_mpi(int major)
{
    if (major >= 5 && is_set("OMPI_MCA_mpi_ft_enable"))
        return (launch){true, "the death of a process is reported at once, and the others go on",
                        NULL};
    if (major >= 5)
        return (launch){false, "mpirun ends the whole job when a process dies",
                        "mpirun --with-ft ulfm"};
    if (is_set("OMPI_MCA_orte_enable_recovery"))
        return (launch){true, "the others go on when a process dies, which is noticed by its lease",
                        NULL};
    return (launch){false, "mpirun ends the whole job when a process dies",
                    "mpirun --enable-recovery"};
}

static launch look_at_mpich(void)
{
    /* The first step is "0"; hydra sets MPI_LOCALRANKID, Slurm does not. */
    if (is_there("SLURM_STEP_ID") && !is_there("MPI_LOCALRANKID"))
        return (launch){true,
                        "under srun --kill-on-bad-exit=0 the others go on when a process dies, "
                        "which is noticed by its lease",
                        NULL};
    return (launch){false,
                    "mpiexec ends the whole job when a process dies, with any option; a copy in a "
                    "file (USM_SPILL=\"mpi;file:/var/tmp\") does not help the job itself",
                    "srun --mpi=pmi2 --kill-on-bad-exit=0"};
}

static launch look_at_launch(void)
{
    char        version[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int         n                                           = 0;
    const char *v;

    (void)MPI_Get_library_version(version, &n);
    v = strstr(version, "Open MPI v");
    return v ? look_at_open_mpi((int)strtol(v + strlen("Open MPI v"), NULL, 10)) : look_at_mpich();
}

static void add_figures(mpi_job *job, char *text, size_t cap)
{
    const uint32_t sent = usm_load_relaxed(&job->bell->sent);
    far_stats      s;

    far_get_stats(job->node, &s);
    ADD("kept %llu bytes for %llu borrowers, %llu served; fetched %llu, stored %llu; %llu "
        "timeouts, %llu late, %llu stale, %llu refused, %llu bytes quarantined\n",
        (unsigned long long)s.kept, (unsigned long long)s.borrowers, (unsigned long long)s.served,
        (unsigned long long)s.fetched, (unsigned long long)s.stored, (unsigned long long)s.timeouts,
        (unsigned long long)s.late, (unsigned long long)s.stale, (unsigned long long)s.refused,
        (unsigned long long)s.quarantined);
    ADD("of that through shared memory: fetched %llu, stored %llu\n",
        (unsigned long long)s.near_fetched, (unsigned long long)s.near_stored);
    ADD("%u of %u other %s wake its thread when they send, for %u %s so far; it looked %llu times "
        "woken, %llu times by itself\n",
        mpi_bells_ringers(job->bells), job->count - 1,
        usm__plural(job->count - 1, "member", "members"), sent,
        usm__plural(sent, "message", "messages"), (unsigned long long)usm_load_relaxed(&job->rung),
        (unsigned long long)usm_load_relaxed(&job->timed));
}

void mpi_job_describe(void *job_, char *text, size_t cap)
{
    mpi_job     *job = job_;
    const launch l   = look_at_launch();

    if (cap == 0)
        return;
    text[0] = '\0';
    add_version(text, cap);
    ADD("\n%s%s\n", level_name(job->level),
        mpi_has_thread(job) ? "" : ": borrows only, and transfers go on inside libusm's calls");
    add_components(text, cap);
    ADD("this launch %s: %s\n", l.survives ? "survives the death of a lender" : "survives no death",
        l.what);
    if (l.more)
        ADD("to survive more: %s ...\n", l.more);
    add_figures(job, text, cap);
}
