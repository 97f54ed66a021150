/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How the energy between two readings of counters is divided.
 *
 * The counters are of whole packages: they do not tell who drew.  So the time between two readings
 * is split.  While no processor of the team was busy, the energy is idle.  The rest is divided among
 * the processors in proportion to their busy times, and among the launches on each in the same way.
 * The sum over members and idle is what the counters have advanced by, at any time.
 *
 *     reading      1 begins     2 begins   1 ends       2 ends   reading
 *        |---idle-----|============|==========|============|--idle--|
 *                     |-- 1: a ns -----------|
 *                                  |-- 2: b ns ------------|
 *
 * A launch may last for many readings.  Until its end it is not known what account it belongs to,
 * so its joules wait at the member ("open"). */
#include "offload/joules.h"

#include "base/assert.h"
#include "base/os.h"
#include "base/status.h"

usm_status usm__joules_init(usm__joules *j, uint32_t nmembers)
{
    *j         = (usm__joules){.nmembers = nmembers};
    j->members = usm__heap_alloc(nmembers * sizeof *j->members);
    return j->members ? USM_OK : usm__fail(USM_E_NO_MEMORY, "no host memory to count energy");
}

void usm__joules_fini(usm__joules *j)
{
    usm__heap_free(j->members);
    usm__heap_free(j->accounts);
}

usm_status usm__joules_add_accounts(usm__joules *j, size_t n, size_t *first)
{
    *first = j->naccounts;
    for (size_t i = 0; i < n; i++) {
        if (!usm__heap_room(&j->accounts, j->naccounts, &j->cap, sizeof *j->accounts)) {
            j->naccounts = *first;
            return usm__fail(USM_E_NO_MEMORY, "no host memory to count energy");
        }
        j->accounts[j->naccounts++] = (usm__joules_account){0};
    }
    return USM_OK;
}

/* Adds the time since the last event to all that are busy. */
static void advance(usm__joules *j, uint64_t now_ns)
{
    uint64_t ns         = now_ns > j->at_ns ? now_ns - j->at_ns : 0;
    bool     is_covered = false;

    j->at_ns += ns;
    for (uint32_t i = 0; i < j->nmembers; i++) {
        usm__joules_member *m = &j->members[i];

        if (m->under_way == 0)
            continue;
        if (m->source == USM__JOULES_COUNTED) {
            m->busy_ns += ns;
            m->open_ns += ns;
            is_covered = true;
        } else if (m->source == USM__JOULES_STATED) {
            m->joules += m->watts * (double)ns / 1e9;
            m->open += m->watts * (double)ns / 1e9;
        }
    }
    if (is_covered)
        j->covered_ns += ns;
}

void usm__joules_begin(usm__joules *j, uint32_t member, uint64_t now_ns)
{
    advance(j, now_ns);
    j->members[member].under_way++;
}

void usm__joules_end(usm__joules *j, uint32_t member, size_t account, uint64_t now_ns)
{
    usm__joules_member  *m = &j->members[member];
    usm__joules_account *a = &j->accounts[account];

    usm_assert(m->under_way > 0);
    advance(j, now_ns);
    a->ns += m->open_ns;
    a->joules += m->open;
    m->open_ns = 0;
    m->open    = 0;
    m->under_way--;
}

static void forget_times(usm__joules *j)
{
    for (uint32_t i = 0; i < j->nmembers; i++)
        j->members[i].busy_ns = j->members[i].open_ns = 0;
    for (size_t i = 0; i < j->naccounts; i++)
        j->accounts[i].ns = 0;
    j->covered_ns = 0;
}

static void divide(usm__joules *j, double joules, uint64_t interval_ns)
{
    double   share = interval_ns > 0 ? (double)j->covered_ns / (double)interval_ns : 0;
    double   used  = joules * (share < 1 ? share : 1);
    double   a_ns;
    uint64_t busy_ns = 0;

    for (uint32_t i = 0; i < j->nmembers; i++)
        busy_ns += j->members[i].busy_ns;
    if (busy_ns == 0)
        used = 0;
    j->idle += joules - used;
    a_ns = busy_ns > 0 ? used / (double)busy_ns : 0;
    for (uint32_t i = 0; i < j->nmembers; i++) {
        j->members[i].joules += a_ns * (double)j->members[i].busy_ns;
        j->members[i].open += a_ns * (double)j->members[i].open_ns;
    }
    for (size_t i = 0; i < j->naccounts; i++)
        j->accounts[i].joules += a_ns * (double)j->accounts[i].ns;
}

void usm__joules_start(usm__joules *j, const usm__powercap *counters)
{
    advance(j, counters->at_ns);
    forget_times(j);
    j->last = *counters;
}

void usm__joules_read(usm__joules *j, const usm__powercap *counters)
{
    double joules = -1;

    advance(j, counters->at_ns);
    if (j->last.n > 0 && counters->n > 0)
        joules = usm__powercap_joules(&j->last, counters);
    if (joules >= 0)
        divide(j, joules, counters->at_ns - j->last.at_ns);
    else
        j->is_partial = true;
    forget_times(j);
    j->last = *counters;
}
