/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sums the energy records of a trace by member and kernel: energy.h. */
#include "profile/energy.h"

#include "profile/work.h"

#include "base/os.h"

#include <stdlib.h>
#include <string.h>

static int by_member(const void *a, const void *b)
{
    const usm__profile_energy_row *x = a, *y = b;

    if (x->member != y->member)
        return x->member < y->member ? -1 : 1;
    return (x->microjoules < y->microjoules) - (x->microjoules > y->microjoules);
}

/* A kernel has a number for each team that it was made for: those of one name are one. */
static bool is_same_kernel(const usm__profile *t, uint32_t a, uint32_t b)
{
    return a == b ||
           strcmp(usm__profile_work_kernel_name(t, a), usm__profile_work_kernel_name(t, b)) == 0;
}

static usm__profile_energy_row *row_of(const usm__profile *t, usm__profile_energy *e,
                                       const usm__profile_energy_record *r)
{
    for (size_t i = 0; i < e->n; i++)
        if (e->rows[i].member == r->member && e->rows[i].is_stated == r->is_stated &&
            is_same_kernel(t, e->rows[i].kernel, r->kernel))
            return &e->rows[i];
    e->rows[e->n] = (usm__profile_energy_row){
        .member = r->member, .kernel = r->kernel, .source = r->source, .is_stated = r->is_stated};
    return &e->rows[e->n++];
}

bool usm__profile_energy_count(const usm__profile *t, usm__profile_energy *e)
{
    *e      = (usm__profile_energy){.n = 0};
    e->rows = usm__heap_alloc((t->nenergies + 1) * sizeof(*e->rows));
    if (e->rows == NULL)
        return false;
    for (size_t i = 0; i < t->nenergies; i++) {
        const usm__profile_energy_record *r = &t->energies[i];

        if (r->member == 0 && r->kernel == 0) {
            e->idle += r->microjoules;
            continue;
        }
        row_of(t, e, r)->microjoules += r->microjoules;
        e->all += r->microjoules;
    }
    qsort(e->rows, e->n, sizeof(*e->rows), by_member);
    return true;
}

void usm__profile_energy_free(usm__profile_energy *e)
{
    usm__heap_free(e->rows);
}
