/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* See sites.h.  A site is named by its function and by that function's caller, because many
 * programs allocate through a function of their own. */
#include "profile/sites.h"

#include "base/os.h"
#include "profile/symbols.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct named {
    uint32_t stack;
    char     name[USM__SITE_NAME];
} named;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

static void name_site(usm__symbols *s, const usm__profile_stack_info *stack, named *n)
{
    uint32_t site = usm__symbols_site(s, stack);
    char     text[150];

    n->stack = stack->id;
    if (site >= stack->depth) {
        (void)snprintf(n->name, sizeof(n->name), "(within libusm)");
        return;
    }
    (void)usm__symbols_name(s, stack->source, stack->frames[site], text, sizeof(text));
    (void)snprintf(n->name, sizeof(n->name), "%s", text);
    if (site + 1 >= stack->depth || strncmp(text, "main+", 5) == 0)
        return;
    (void)usm__symbols_name(s, stack->source, stack->frames[site + 1], text, sizeof(text));
    (void)snprintf(n->name + strlen(n->name), sizeof(n->name) - strlen(n->name), " < %s", text);
}

bool usm__profile_sites_find(const usm__profile *t, usm__profile_sites *sites)
{
    usm__symbols *s;
    named        *all;
    size_t        n = 0;
    bool          is_done;

    *sites = (usm__profile_sites){0};
    if (t->nstacks == 0)
        return true;
    s            = usm__symbols_open(t);
    all          = usm__heap_alloc(t->nstacks * sizeof(*all));
    sites->names = usm__heap_alloc(t->nstacks * sizeof(*sites->names));
    sites->of    = usm__heap_alloc((t->nstacks + 1) * sizeof(*sites->of));
    is_done      = s != NULL && all != NULL && sites->names != NULL && sites->of != NULL;
    for (size_t i = 0; is_done && i < t->nstacks; i++)
        name_site(s, &t->stacks[i], &all[i]);
    if (is_done)
        qsort(all, t->nstacks, sizeof(*all), by_name);
    for (size_t i = 0; is_done && i < t->nstacks; i++) {
        if (i == 0 || strcmp(all[i].name, all[i - 1].name) != 0)
            memcpy(sites->names[n++], all[i].name, sizeof(all[i].name));
        sites->of[all[i].stack] = (uint32_t)n - 1;
    }
    sites->n = n;
    usm__heap_free(all);
    usm__symbols_close(s);
    if (!is_done)
        usm__profile_sites_free(sites);
    return is_done;
}

void usm__profile_sites_free(usm__profile_sites *sites)
{
    usm__heap_free(sites->names);
    usm__heap_free(sites->of);
    *sites = (usm__profile_sites){0};
}

/* The inverse of the probability of being sampled. */
double usm__profile_weight(const usm__profile *t, const usm__profile_record *r)
{
    uint64_t mean = t->sources[r->source].header.stack_bytes;

    return mean > 1 ? -1 / expm1(-(double)(r->e.size ? r->e.size : 1) / (double)mean) : 1;
}
