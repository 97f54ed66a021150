/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The variables of launchers: rank and size in the job and on the node.  Read once, at the first
 * query.  Called by the log, names of traces, the default device, limits, src/cluster.
 *
 * Launchers nest: mpiexec inside a Slurm step or a Flux job leaves both sets of variables, and the
 * outer set is outdated.  So Open MPI's own variables come first, then those of Hydra (MPICH, Intel
 * MPI) for the node.  Those of PALS, Flux and Slurm count only if they do not contradict PMI.  A
 * script run by sbatch has Slurm's variables too, but it is not a task.
 *
 * Plain PMI does not give the ranks of the node: they are 0 of 1 then, until MPI gives more. */
#include "base/job.h"

#include "base/inline/atomic.h"
#include "base/text.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAMES 3

typedef struct launcher {
    const char *source;
    const char *is_there; /* a variable that must also be set; or NULL */
    const char *rank[NAMES], *size[NAMES], *local_rank[NAMES], *local_size[NAMES];
    bool        may_be_stale; /* may be an outer launcher's: PMI decides */
} launcher;

static const launcher launchers[] = {
    {.source     = "openmpi",
     .rank       = {"OMPI_COMM_WORLD_RANK"},
     .size       = {"OMPI_COMM_WORLD_SIZE"},
     .local_rank = {"OMPI_COMM_WORLD_LOCAL_RANK"},
     .local_size = {"OMPI_COMM_WORLD_LOCAL_SIZE"}},
    {.source     = "pmi",
     .is_there   = "MPI_LOCALRANKID",
     .rank       = {"PMI_RANK"},
     .size       = {"PMI_SIZE"},
     .local_rank = {"MPI_LOCALRANKID"},
     .local_size = {"MPI_LOCALNRANKS"}},
    {.source       = "pals",
     .rank         = {"PALS_RANKID"},
     .size         = {"PALS_SIZE", "PMI_SIZE"},
     .local_rank   = {"PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"},
     .local_size   = {"PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"},
     .may_be_stale = true},
    {.source       = "flux",
     .rank         = {"FLUX_TASK_RANK"},
     .size         = {"FLUX_JOB_SIZE"},
     .local_rank   = {"FLUX_TASK_LOCAL_ID"},
     .may_be_stale = true},
    {.source       = "slurm",
     .rank         = {"SLURM_PROCID"},
     .size         = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
     .local_rank   = {"SLURM_LOCALID"},
     .may_be_stale = true},
    {.source     = "pmi",
     .rank       = {"PMI_RANK", "PMIX_RANK"},
     .size       = {"PMI_SIZE"},
     .local_rank = {"PMI_LOCAL_RANK"},
     .local_size = {"PMI_LOCAL_SIZE"}}};

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Atomic, each member but the last: MPI only refines the earlier values. */
static struct {
    _Atomic(uint32_t)     rank, size, local_rank, local_size;
    _Atomic(bool)         is_job, is_local_known;
    _Atomic(const char *) source;
    char                  host[64]; /* fixed after host_once */
} now;

static const char *variable(const char *name)
{
    const char *text = name ? getenv(name) : NULL; /* NOLINT(concurrency-mt-unsafe): at the start */

    return text && *text ? text : NULL;
}

static bool number(const char *name, uint32_t *value)
{
    const char *text = variable(name);
    uint64_t    n;

    if (!text || !usm__span_number(usm__span_of(text), &n) || n > INT32_MAX)
        return false;
    *value = (uint32_t)n;
    return true;
}

static bool first_number(const char *const *names, uint32_t *value)
{
    for (size_t i = 0; i < NAMES; i++)
        if (number(names[i], value))
            return true;
    return false;
}

static bool is_contradicted(const usm__launcher_place *p)
{
    uint32_t rank, size;

    return (number("PMI_RANK", &rank) && rank != p->rank) ||
           (number("PMI_SIZE", &size) && p->size > 1 && size != p->size) ||
           (number("PMI_SIZE", &size) && size > 1 && p->size != size);
}

/* The script of sbatch runs once, with the variables of its first task. */
static bool is_batch_script(void)
{
    const char *environment = variable("ENVIRONMENT");

    return environment && strcmp(environment, "BATCH") == 0 && !variable("SLURM_STEP_ID") &&
           !variable("SLURM_STEPID");
}

/* Reads "4(x2),3" for the node with this index. */
static bool slurm_local_size(uint32_t *value)
{
    const char *text = variable("SLURM_STEP_TASKS_PER_NODE");
    usm__span   rest, item;
    uint32_t    node = 0;

    if (!text)
        text = variable("SLURM_TASKS_PER_NODE");
    if (!text || !number("SLURM_NODEID", &node))
        return false;
    rest = usm__span_of(text);
    while (usm__span_next(&rest, ',', &item)) {
        usm__span count;
        uint64_t  tasks = 0, times = 1;

        if (!usm__span_next(&item, '(', &count) || !usm__span_number(count, &tasks))
            return false;
        if (item.len > 2 && item.at[0] == 'x') /* "x2)" */
            (void)usm__span_number((usm__span){item.at + 1, item.len - 2}, &times);
        if (node < times) {
            *value = (uint32_t)tasks;
            return tasks <= INT32_MAX;
        }
        node -= (uint32_t)times;
    }
    return false;
}

static bool find_local_size(const launcher *l, const usm__launcher_place *p, uint32_t *value)
{
    uint32_t nodes = 0;

    if (first_number(l->local_size, value))
        return true;
    if (strcmp(l->source, "slurm") == 0)
        return slurm_local_size(value);
    if (strcmp(l->source, "flux") != 0 || !number("FLUX_JOB_NNODES", &nodes) || nodes == 0)
        return false;
    *value = (p->size + nodes - 1) / nodes; /* Flux distributes tasks evenly */
    return true;
}

static bool read_one(const launcher *l, usm__launcher_place *p)
{
    *p = (usm__launcher_place){.size = 1, .local_size = 1, .source = l->source};
    if ((l->is_there && !variable(l->is_there)) || !first_number(l->rank, &p->rank))
        return false;
    (void)first_number(l->size, &p->size);
    if (p->size <= p->rank)
        p->size = p->rank + 1;
    if (l->may_be_stale && is_contradicted(p))
        return false;
    if (strcmp(l->source, "slurm") == 0 && is_batch_script())
        return false;
    if (first_number(l->local_rank, &p->local_rank) && find_local_size(l, p, &p->local_size))
        p->is_local_known = true;
    if (p->local_size <= p->local_rank)
        p->local_size = p->local_rank + 1;
    p->is_job = true;
    return true;
}

usm__launcher_place usm__launcher_place_read(void)
{
    usm__launcher_place p;

    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++)
        if (read_one(&launchers[i], &p))
            return p;
    return (usm__launcher_place){.size = 1, .local_size = 1, .source = "none"};
}

static void keep(const usm__launcher_place *p)
{
    usm_store_relaxed(&now.rank, p->rank);
    usm_store_relaxed(&now.size, p->size);
    usm_store_relaxed(&now.local_rank, p->local_rank);
    usm_store_relaxed(&now.local_size, p->local_size);
    usm_store_relaxed(&now.is_job, p->is_job);
    usm_store_relaxed(&now.is_local_known, p->is_local_known);
    usm_store_release(&now.source, p->source);
}

static void start(void)
{
    usm__launcher_place p = usm__launcher_place_read();

    keep(&p);
}

void usm__launcher_place_set(const usm__launcher_place *place)
{
    (void)pthread_once(&once, start);
    keep(place);
}

usm__launcher_place usm__launcher_place_get(void)
{
    (void)pthread_once(&once, start);
    return (usm__launcher_place){
        usm_load_relaxed(&now.rank),       usm_load_relaxed(&now.size),
        usm_load_relaxed(&now.local_rank), usm_load_relaxed(&now.local_size),
        usm_load_relaxed(&now.is_job),     usm_load_relaxed(&now.is_local_known),
        usm_load_acquire(&now.source)};
}

/* ---- the node ---------------------------------------------------------------------------- */

static pthread_once_t host_once = PTHREAD_ONCE_INIT;

static void find_host(void)
{
    if (gethostname(now.host, sizeof(now.host)) != 0 || now.host[0] == '\0')
        memcpy(now.host, "unknown", sizeof("unknown"));
    now.host[sizeof(now.host) - 1] = '\0';
    for (char *c = now.host; *c != '\0'; c++)
        if (*c == '/')
            *c = '_'; /* it becomes part of a file name */
}

const char *usm__launcher_host(void)
{
    (void)pthread_once(&host_once, find_host);
    return now.host;
}

/* ---- which processes report --------------------------------------------------------------- */

bool usm__launcher_speaks(void)
{
    return usm__launcher_place_get().rank == 0;
}

bool usm__launcher_speaks_for_node(void)
{
    return usm__launcher_place_get().local_rank == 0;
}
