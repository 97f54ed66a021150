/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* When a team's energy counters are read, and who shares them: meter.h.
 *
 * The counters are of the processors' packages.  Members that are processors of this host share
 * them: the host backend, and processors of drivers.  Other members have joules only if USM_WATTS
 * tells their watts. */
#include "offload/meter.h"

#include "base/mutex.h"
#include "base/os.h"
#include "base/status.h"
#include "base/trace_work.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A reading opens three files for each package, and looks for the zones that are not there.  With
 * two packages, of ordinary files that stand for the counters, it takes 30 us (the least of 2000,
 * load 12).  So it is taken only when a launch ends, and this long after the last one. */
#define INTERVAL_NS 50000000u

struct usm__meter {
    const usm_team *team;
    usm__mutex      lock;
    /* guarded by lock */
    usm__joules joules;
    unsigned    nruns;
    unsigned    packages; /* 0: their counters could not be read when the runs began */
    double      idle_put; /* joules that the trace has been told */
    int         error;
    char        folder[256];
};

usm_status usm__meter_create(const usm_team *team, usm__meter **out)
{
    usm__meter *m = usm__heap_alloc(sizeof *m);
    usm_status  st;

    if (!m)
        return usm__fail(USM_E_NO_MEMORY, "no host memory to count energy");
    m->team = team;
    (void)snprintf(m->folder, sizeof m->folder, "%s", USM__POWERCAP);
    usm__mutex_init(&m->lock, USM__RANK_WATTS, "energy of a team");
    st = usm__joules_init(&m->joules, team->nmembers);
    for (uint32_t i = 0; i < team->nmembers && st == USM_OK; i++)
        st = usm__watts_stated(team->members[i].name, &m->joules.members[i].watts);
    if (st != USM_OK) {
        usm__meter_destroy(m);
        return st;
    }
    *out = m;
    return USM_OK;
}

void usm__meter_destroy(usm__meter *m)
{
    if (!m)
        return;
    usm__joules_fini(&m->joules);
    usm__mutex_fini(&m->lock);
    usm__heap_free(m);
}

void usm__meter_set_folder(usm__meter *m, const char *folder)
{
    usm__mutex_lock(&m->lock);
    (void)snprintf(m->folder, sizeof m->folder, "%s", folder);
    usm__mutex_unlock(&m->lock);
}

/* All packages or none: with one of them missing, the sum would say too little. */
static void read_counters(usm__meter *m, usm__powercap *counters)
{
    bool any = usm__powercap_read(m->folder, usm__os_now_ns(), counters);

    m->error = counters->error ? counters->error : any ? 0 : ENOENT;
    if (counters->error)
        counters->n = 0;
}

/* Measured energy comes before what USM_WATTS says. */
static void find_sources(usm__meter *m)
{
    for (uint32_t i = 0; i < m->team->nmembers; i++) {
        usm__joules_member *one  = &m->joules.members[i];
        usm_device_info     info = USM_DEVICE_INFO_INIT;

        one->source = one->watts > 0 ? USM__JOULES_STATED : USM__JOULES_UNKNOWN;
        if (m->packages > 0 && usm_device_get_info(m->team->members[i].device, &info) == USM_OK &&
            info.type == USM_DEVICE_TYPE_CPU)
            one->source = USM__JOULES_COUNTED;
    }
}

/* ---- runs ------------------------------------------------------------------------------------ */

usm_status usm__meter_open(usm__meter *m, uint32_t nnodes, usm__meter_run *run)
{
    usm__powercap counters;
    usm_status    st;

    if (!m)
        return USM_OK;
    usm__mutex_lock(&m->lock);
    st = usm__joules_add_accounts(&m->joules, (size_t)nnodes * m->team->nmembers, &run->first);
    if (st == USM_OK && m->nruns++ == 0) {
        read_counters(m, &counters);
        m->packages = counters.n;
        find_sources(m);
        usm__joules_start(&m->joules, &counters);
    }
    run->is_open = st == USM_OK;
    usm__mutex_unlock(&m->lock);
    return st;
}

void usm__meter_begin(usm__meter *m, uint32_t member)
{
    if (!m)
        return;
    usm__mutex_lock(&m->lock);
    usm__joules_begin(&m->joules, member, usm__os_now_ns());
    usm__mutex_unlock(&m->lock);
}

static void read_now(usm__meter *m)
{
    usm__powercap counters;

    if (m->packages == 0)
        return;
    read_counters(m, &counters);
    usm__joules_read(&m->joules, &counters);
}

static size_t account_of(const usm__meter *m, const usm__meter_run *run, uint32_t node,
                         uint32_t member)
{
    return run->first + (size_t)node * m->team->nmembers + member;
}

void usm__meter_end(usm__meter *m, const usm__meter_run *run, uint32_t node, uint32_t member,
                    uint64_t end_ns)
{
    if (!m)
        return;
    usm__mutex_lock(&m->lock);
    usm__joules_end(&m->joules, member, account_of(m, run, node, member), end_ns);
    if (usm__os_now_ns() >= m->joules.last.at_ns + INTERVAL_NS)
        read_now(m);
    usm__mutex_unlock(&m->lock);
}

void usm__meter_settle(usm__meter *m, const usm__meter_run *run)
{
    if (!m || !run->is_open)
        return;
    usm__mutex_lock(&m->lock);
    read_now(m);
    usm__mutex_unlock(&m->lock);
}

static void put(const usm__meter *m, uint32_t member, uint32_t kernel, double joules)
{
    usm__joules_source source = m->joules.members[member].source;

    usm__trace_work(&(usm__trace_work_event){
        .kind   = source == USM__JOULES_COUNTED ? USM__WORK_ENERGY : USM__WORK_ENERGY_STATED,
        .member = m->team->members[member].trace,
        .kernel = kernel,
        .n      = (uint64_t)(joules * 1e6)});
}

double usm__meter_node(usm__meter *m, const usm__meter_run *run, uint32_t node, uint32_t kernel)
{
    double sum = 0;

    if (!m || !run->is_open)
        return 0;
    usm__mutex_lock(&m->lock);
    for (uint32_t i = 0; i < m->team->nmembers; i++) {
        double joules = m->joules.accounts[account_of(m, run, node, i)].joules;

        sum += joules;
        if (joules > 0)
            put(m, i, kernel, joules);
    }
    usm__mutex_unlock(&m->lock);
    return sum;
}

/* Accounts of runs that overlapped are dropped when the last of them ends. */
void usm__meter_close(usm__meter *m, usm__meter_run *run)
{
    if (!m || !run->is_open)
        return;
    usm__mutex_lock(&m->lock);
    if (m->joules.idle > m->idle_put)
        usm__trace_work(&(usm__trace_work_event){
            .kind = USM__WORK_ENERGY, .n = (uint64_t)((m->joules.idle - m->idle_put) * 1e6)});
    m->idle_put = m->joules.idle;
    if (--m->nruns == 0)
        m->joules.naccounts = 0;
    usm__mutex_unlock(&m->lock);
    run->is_open = false;
}

void usm__meter_finish(usm__meter *m, usm__meter_run *run, uint32_t kernel)
{
    usm__meter_settle(m, run);
    (void)usm__meter_node(m, run, 0, kernel);
    usm__meter_close(m, run);
}

/* ---- what it has found out ------------------------------------------------------------------- */

void usm__meter_get(usm__meter *m, usm__meter_state *state)
{
    usm__mutex_lock(&m->lock);
    *state = (usm__meter_state){.packages   = m->packages,
                                .error      = m->error,
                                .idle       = m->joules.idle,
                                .is_partial = m->joules.is_partial};
    usm__mutex_unlock(&m->lock);
}

double usm__meter_member(usm__meter *m, uint32_t member, usm__joules_source *source)
{
    double joules;

    *source = USM__JOULES_UNKNOWN;
    if (!m)
        return 0;
    usm__mutex_lock(&m->lock);
    *source = m->joules.members[member].source;
    joules  = m->joules.members[member].joules;
    usm__mutex_unlock(&m->lock);
    return joules;
}
