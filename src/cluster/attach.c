/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Attaching to a job and leaving it: usm_mpi_attach(), usm_mpi_detach(), usm_mpi_finish(),
 * usm_mpi_app_comm(), usm_job_join(), usm_job_leave(), and the transport "mpi" of USM_SPILL, which
 * is the module that was attached. choose.c chooses the module; messages.c sends through it.
 *
 * A process attaches once.  The registry keeps the table "mpi" after its first successful use, so
 * the table stays the module's even after the process has left: from then on open_tier() refuses to
 * open. */
#include "cluster/attach.h"

#include "base/fork.h"
#include "base/inline/clock.h"
#include "base/job.h"
#include "base/log.h"
#include "base/os.h"
#include "base/settings.h"
#include "base/text.h"
#include "cluster/internal.h"
#include "device/init.h"
#include "device/registry.h"

#include <stdio.h>
#include <string.h>

usm__job_state usm__job = {.lock    = USM__MUTEX_INIT(USM__RANK_JOB, "job"),
                           .changed = PTHREAD_COND_INITIALIZER};

static void make_condition(void)
{
    (void)usm_cond_init_monotonic(&usm__job.changed);
}

/* ---- the phase ----------------------------------------------------------------------------- */

usm_status usm__job_check(void)
{
    switch (usm__job.phase) {
    case USM__JOB_ATTACHED:
        return USM_OK;
    case USM__JOB_LEAVING:
    case USM__JOB_LEFT:
        return usm__fail(USM_E_MPI, "the process has left its job: usm_job_leave(), "
                                    "usm_mpi_detach() or MPI_Finalize() was called");
    case USM__JOB_ENDED:
        return usm__fail(USM_E_MPI, "the process has left its job: MPI_Finalize() was called");
    case USM__JOB_FORKED:
        return usm__fail(USM_E_MPI,
                         "the process is a fork of a member of the job, and not a member itself");
    case USM__JOB_ALONE:
    case USM__JOB_ATTACHING:
        break;
    }
    return usm__fail(USM_E_MPI, "the process is in no job: call usm_mpi_attach() after "
                                "MPI_Init_thread(), or usm_job_join()");
}

bool usm__job_is_attached(void)
{
    bool is_attached;

    usm__mutex_lock(&usm__job.lock);
    is_attached = usm__job.phase == USM__JOB_ATTACHED;
    usm__mutex_unlock(&usm__job.lock);
    return is_attached;
}

usm_status usm__job_ranks(uint32_t *self, uint32_t *count)
{
    usm_status st;

    usm__mutex_lock(&usm__job.lock);
    st = usm__job_check();
    if (st == USM_OK) {
        *self  = usm__job.table.self;
        *count = usm__job.table.nranks;
    }
    usm__mutex_unlock(&usm__job.lock);
    return st;
}

usm_status usm__job_enter(const usm_transport_ops **ops, void **job)
{
    usm_status st;

    usm__mutex_lock(&usm__job.lock);
    st = usm__job_check();
    if (st == USM_OK) {
        usm__job.inside++;
        *ops = usm__job.ops;
        *job = usm__job.job;
    }
    usm__mutex_unlock(&usm__job.lock);
    return st;
}

void usm__job_leave(void)
{
    usm__mutex_lock(&usm__job.lock);
    if (--usm__job.inside == 0 && usm__job.phase != USM__JOB_ATTACHED)
        usm__messages_wake();
    usm__mutex_unlock(&usm__job.lock);
}

/* ---- the tier ------------------------------------------------------------------------------- */

static usm_status open_tier(const usm_transport_params *params, void **store)
{
    const usm_transport_ops *ops;
    void                    *job;
    usm_status               st = usm__job_enter(&ops, &job);

    if (st != USM_OK)
        return st;
    st = ops->open(params, store);
    usm__job_leave();
    return st;
}

/* Called with the registry's lock held. */
const usm_transport_ops *usm__job_tier(const usm_host_api *api)
{
    const usm_transport_ops *ops = NULL;

    (void)api;
    usm__mutex_lock(&usm__job.lock);
    if (usm__job_check() == USM_OK)
        ops = usm__job.ops;
    if (ops) {
        usm__job.mpi_tier      = *ops;
        usm__job.mpi_tier.name = "mpi";
        usm__job.mpi_tier.open = open_tier;
        usm__job.mpi_tier.caps &=
            ~(uint32_t)USM_TRANSPORT_CAP_JOB; /* as "mpi" it only stores blocks */
        usm__job.mpi_tier.attach       = NULL;
        usm__job.mpi_tier.detach       = NULL;
        usm__job.mpi_tier.app_comm     = NULL;
        usm__job.mpi_tier.serve        = NULL;
        usm__job.mpi_tier.members      = NULL;
        usm__job.mpi_tier.member       = NULL;
        usm__job.mpi_tier.send         = NULL;
        usm__job.mpi_tier.job_describe = NULL;
    }
    usm__mutex_unlock(&usm__job.lock);
    return ops ? &usm__job.mpi_tier : NULL;
}

/* ---- members --------------------------------------------------------------------------------- */

static void free_table(usm__job_table *t)
{
    usm__heap_free(t->rank_of);
    usm__heap_free(t->member_of);
    usm__heap_free(t->state);
    usm__heap_free(t->is_new);
    memset(t, 0, sizeof *t);
}

static bool make_table(usm__job_table *t, uint32_t n)
{
    memset(t, 0, sizeof *t);
    t->nmembers  = n;
    t->rank_of   = usm__heap_alloc(n * sizeof *t->rank_of);
    t->member_of = usm__heap_alloc(n * sizeof *t->member_of);
    t->state     = usm__heap_alloc(n * sizeof *t->state);
    t->is_new    = usm__heap_alloc(n * sizeof *t->is_new);
    if (t->rank_of && t->member_of && t->state && t->is_new)
        return true;
    free_table(t);
    return false;
}

/* Numbers the ranks: the members that are not servers, in their order. */
static usm_status number_ranks(const usm_transport_ops *ops, void *job, usm__job_table *t,
                               uint32_t self)
{
    for (uint32_t i = 0; i < t->nmembers; i++) {
        usm_job_member m;
        usm_status     st = ops->member(job, i, &m);

        if (st != USM_OK)
            return st;
        t->rank_of[i] = USM__JOB_NO_RANK;
        if (m.is_server)
            continue;
        if (i == self)
            t->self = t->nranks;
        t->rank_of[i]           = t->nranks;
        t->member_of[t->nranks] = i;
        t->state[t->nranks++]   = (uint8_t)m.state;
    }
    if (self < t->nmembers && t->rank_of[self] != USM__JOB_NO_RANK)
        return USM_OK;
    return usm__fail(USM_E_INTERNAL,
                     "transport %s says that member %u, this process, is not a rank", ops->name,
                     self);
}

/* States may have changed while the table was made.  Asking for them once it is in use misses
 * none. */
static void read_states(const usm_transport_ops *ops, void *job)
{
    for (uint32_t i = 0; i < usm__job.table.nmembers; i++) {
        usm_job_member m;

        if (ops->member(job, i, &m) == USM_OK)
            usm__messages_member(NULL, &m);
    }
}

static usm_status take_members(const usm_transport_ops *ops, void *job)
{
    usm__job_table t;
    uint32_t       self = 0, count = 0;
    usm_status     st = ops->members(job, &self, &count);

    if (st != USM_OK)
        return st;
    if (!make_table(&t, count))
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the job's %u members", count);
    st = number_ranks(ops, job, &t, self);
    if (st != USM_OK) {
        free_table(&t);
        return st;
    }
    usm__mutex_lock(&usm__job.lock);
    usm__job.table       = t;
    usm__job.self_member = self;
    usm__mutex_unlock(&usm__job.lock);
    return usm__agree_start();
}

/* ---- attaching ----------------------------------------------------------------------------- */

static void set_phase(usm__job_phase phase)
{
    usm__mutex_lock(&usm__job.lock);
    usm__job.phase = phase;
    usm__messages_wake();
    usm__mutex_unlock(&usm__job.lock);
}

static usm_status begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    usm_status            st   = USM_OK;

    (void)pthread_once(&once, make_condition);
    usm__mutex_lock(&usm__job.lock);
    if (usm__job.phase == USM__JOB_ALONE)
        usm__job.phase = USM__JOB_ATTACHING;
    else if (usm__job.phase == USM__JOB_ATTACHED || usm__job.phase == USM__JOB_ATTACHING)
        st = usm__fail(USM_E_BUSY,
                       "the process is attached already; usm_mpi_attach() or usm_job_join() is "
                       "called once");
    else
        st = usm__job_check();
    usm__mutex_unlock(&usm__job.lock);
    return st;
}

static bool is_mpi(const char *module)
{
    return strncmp(module, "mpi", 3) == 0 && (module[3] == 0 || module[3] == '_');
}

static const usm_transport_ops *load(const char *module)
{
    const usm_transport_ops *ops = usm__registry_transport(module);
    usm__message             message;

    if (ops && (ops->caps & USM_TRANSPORT_CAP_JOB))
        return ops;
    if (ops)
        (void)usm__fail(is_mpi(module) ? USM_E_MPI : USM_E_NOT_SUPPORTED,
                        "transport %s does not support jobs", module);
    if (ops || !is_mpi(module))
        return NULL;
    usm__message_save(&message);
    (void)usm__fail(message.status == USM_E_NO_MEMORY ? USM_E_NO_MEMORY : USM_E_MPI, "%.900s",
                    message.text);
    return NULL;
}

static uint32_t milliseconds(const char *key)
{
    uint64_t ms = usm__setting_size(key);

    return ms > UINT32_MAX ? UINT32_MAX : ms > 0 ? (uint32_t)ms : 1;
}

usm_status usm__cluster_params(usm_job_params *params)
{
    const char *domain = usm__setting_text("spill_domain");

    *params = (usm_job_params){.struct_size = sizeof *params,
                               .lend        = usm__setting_size("spill_lend"),
                               .domain      = *domain ? domain : usm__launcher_host(),
                               .lease_ms    = milliseconds("job_lease"),
                               .orphan_ms   = milliseconds("job_orphan")};
    return usm__job_key(&params->key, &params->key_size);
}

usm_status usm__cluster_load(const char *which, const usm_transport_ops **ops)
{
    char module[32];

    (void)snprintf(module, sizeof module, "mpi_%s", which);
    *ops = load(module);
    return *ops ? USM_OK : usm_last_status();
}

/* asked: comm, comm_size or config, as the caller gave them. */
static usm_status enter(const usm_transport_ops *ops, const usm_job_params *asked)
{
    usm_job_params params;
    void          *job = NULL;
    usm_status     st  = usm__cluster_params(&params);

    if (st == USM_OK)
        st = usm__messages_start();
    if (st != USM_OK)
        return st;
    params.comm           = asked->comm;
    params.comm_size      = asked->comm_size;
    params.config         = asked->config;
    params.message        = usm__messages_came;
    params.member_changed = usm__messages_member;
    st                    = ops->attach(&params, &job);
    if (st != USM_OK)
        goto err_messages;
    st = take_members(ops, job);
    if (st != USM_OK)
        goto err_job;
    usm__mutex_lock(&usm__job.lock);
    usm__job.ops = ops;
    usm__job.job = job;
    usm__mutex_unlock(&usm__job.lock);
    set_phase(USM__JOB_ATTACHED);
    read_states(ops, job);
    return USM_OK;

err_job:
    ops->detach(job, false);
err_messages:
    usm__messages_stop();
    usm__agree_stop();
    free_table(&usm__job.table);
    return st;
}

/* Whether blocks of this process may be stored in another process, or the other way round. */
static bool uses_memory_of_others(void)
{
    usm__span rest = usm__span_of(usm__setting_text("spill")), tier;

    while (usm__span_next(&rest, ';', &tier))
        if (usm__span_is(tier, "mpi") || (tier.len > 4 && memcmp(tier.at, "mpi:", 4) == 0))
            return true;
    return usm__setting_size("spill_lend") > 0;
}

/* Logs in one sentence which deaths the launch survives, and what would let it survive more.  It is
 * a warning if the launch survives none and there is something to lose.  Rank 0 logs it. */
static void notify_survival(const usm_transport_ops *ops, void *job)
{
    static const char none[]      = "this launch survives no death";
    char              lines[4096] = "", *what, *more;
    bool              is_bad;

    ops->job_describe(job, lines, sizeof lines);
    what = strstr(lines, "this launch survives");
    more = strstr(lines, "to survive more: ");
    if (!what || !usm__launcher_speaks())
        return;
    is_bad                    = strncmp(what, none, sizeof none - 1) == 0;
    what[strcspn(what, "\n")] = 0;
    if (more)
        more[strcspn(more, "\n")] = 0;
    usm__log(is_bad && uses_memory_of_others() ? USM_LOG_WARN : USM_LOG_INFO, "%s%s%s", what,
             more ? "; " : "", more ? more : "");
}

static usm_status attach(const char *module, const usm_job_params *asked)
{
    const usm_transport_ops *ops;
    usm_status               st = begin();

    if (st != USM_OK)
        return st;
    ops = load(module);
    st  = ops ? enter(ops, asked) : usm_last_status();
    if (st != USM_OK) {
        set_phase(USM__JOB_ALONE);
        return st;
    }
    usm__job_learn(is_mpi(module) ? "mpi" : ops->name, 2 * milliseconds("job_lease"));
    usm__info("attached as rank %u of %u, through %s", usm__job.table.self, usm__job.table.nranks,
              module);
    notify_survival(ops, usm__job.job);
    return USM_OK;
}

usm_status usm__job_attach(const char *module, const void *comm, size_t size)
{
    return attach(module, &(usm_job_params){.comm = comm, .comm_size = size});
}

usm_status usm_job_join(const char *where)
{
    usm_status st = usm__up();
    size_t     n  = where ? strcspn(where, ":") : 0;
    char       name[32];

    if (st != USM_OK)
        return st;
    if (n == 0 || n >= sizeof name || !where[n])
        return usm__fail(USM_E_INVALID,
                         "usm_job_join: \"%.64s\" does not begin with a transport's name, as in "
                         "socket:/run/user/1000/job,rank=0,size=4",
                         where ? where : "(null)");
    (void)snprintf(name, sizeof name, "%.*s", (int)n, where);
    if (is_mpi(name))
        return usm__fail(USM_E_INVALID, "usm_job_join: a job of MPI is joined by usm_mpi_attach()");
    return attach(name, &(usm_job_params){.config = where + n + 1});
}

usm_status usm_mpi_attach(const void *comm, size_t size)
{
    char       module[32];
    usm_status st = usm__up();

    if (st != USM_OK)
        return st;
    if (!comm || size == 0)
        return usm__fail(USM_E_INVALID, "usm_mpi_attach: %s; USM_MPI_ATTACH(comm) fills in both",
                         comm ? "the communicator's size is 0" : "comm is NULL");
    st = usm__job_choose(size, module, sizeof module);
    return st == USM_OK ? usm__job_attach(module, comm, size) : st;
}

usm_status usm_mpi_app_comm(void *comm, size_t size)
{
    const usm_transport_ops *ops;
    char                     module[32];
    usm_status               st = usm__up();

    if (st != USM_OK)
        return st;
    if (!comm || size == 0)
        return usm__fail(USM_E_INVALID, "usm_mpi_app_comm: comm is NULL, or its size is 0");
    if (usm__job_is_attached())
        return usm__fail(USM_E_BUSY, "usm_mpi_app_comm() comes before usm_mpi_attach()");
    st = usm__job_choose(size, module, sizeof module);
    if (st != USM_OK)
        return st;
    ops = load(module);
    return ops ? ops->app_comm(comm, size) : usm_last_status();
}

/* ---- leaving ------------------------------------------------------------------------------- */

/* Whether there is a job to leave. */
static bool begin_to_leave(void)
{
    bool is_in;

    usm__mutex_lock(&usm__job.lock);
    is_in =
        usm__job.phase == USM__JOB_ATTACHED || (usm__job.phase == USM__JOB_ENDED && usm__job.job);
    if (is_in)
        usm__job.phase = USM__JOB_LEAVING;
    usm__messages_wake();
    while (is_in && usm__job.inside > 0)
        (void)usm__mutex_wait(&usm__job.lock, &usm__job.changed, NULL);
    usm__mutex_unlock(&usm__job.lock);
    return is_in;
}

static void leave(bool is_final)
{
    if (!begin_to_leave())
        return;
    usm__job.ops->detach(usm__job.job, is_final);
    usm__messages_stop();
    usm__agree_stop();
    usm__mutex_lock(&usm__job.lock);
    usm__job.job = NULL;
    free_table(&usm__job.table);
    usm__job.phase = USM__JOB_LEFT;
    usm__mutex_unlock(&usm__job.lock);
}

void usm_job_leave(void)
{
    leave(false);
}

void usm_mpi_detach(void)
{
    leave(false);
}

void usm_mpi_finish(void)
{
    leave(true);
}

/* ---- fork() -------------------------------------------------------------------------------- */

static void fork_job(usm_fork_phase phase)
{
    usm__mutex_fork(&usm__job.lock, phase);
    if (phase == USM_FORK_CHILD) {
        make_condition();
        if (usm__job.phase != USM__JOB_ALONE)
            usm__job.phase = USM__JOB_FORKED;
        usm__job.job    = NULL; /* the parent's */
        usm__job.inside = 0;
        usm__messages_fork_child();
        usm__agree_fork_child();
    }
}

const usm_part usm__cluster_part = {.name = "cluster", .fork = {{USM__RANK_JOB, fork_job}}};
