/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Teams for tests of launches: of each runtime alone; where it is PoCL, also of PoCL and the host
 * together, listed by hand.  And descriptors of launches. */
#ifndef OFFLOAD_OVER_TEAMS_H
#define OFFLOAD_OVER_TEAMS_H

#include "plain.h"
#include "split.h"

enum { N = 5040 };

/* What kernel "fold" makes of many. */
typedef struct folded {
    uint32_t sum;
    int32_t  least, most;
    float    mean;
} folded;

static inline void must(usm_status st)
{
    if (st != USM_OK)
        printf("# %s: %s\n", usm_status_name(st), usm_last_error());
    CHECK_INT(st, USM_OK);
}

static inline usm_team *alone(void)
{
    usm_team *team = NULL;

    must(usm_team_create(NULL, &team));
    return team;
}

static inline bool is_pocl(void)
{
    const char *name = getenv("USM_TEST_RUNTIME");

    return name && strcmp(name, "pocl") == 0;
}

/* NULL: there is one device. */
static inline usm_team *together(void)
{
    usm_team_desc desc = USM_TEAM_DESC_INIT;
    usm_device   *list[2];
    usm_team     *team = NULL;
    size_t        n;

    if (!is_pocl())
        return NULL;
    must(usm_select_devices("opencl:*", &list[0], 1, &n));
    must(usm_select_devices("host:*", &list[1], 1, &n));
    desc.ndevices = 2;
    desc.devices  = list;
    must(usm_team_create(&desc, &team));
    CHECK_INT(usm_team_size(team), 2);
    return team;
}

typedef void team_case(usm_team *team);

static inline void over_teams(team_case *fn)
{
    usm_team *team = alone();

    fn(team);
    usm_team_destroy(team);
    team = together();
    if (team)
        fn(team);
    usm_team_destroy(team);
}

static inline usm_team_kernel *kernel_of(usm_team *team, const char *name)
{
    usm_team_kernel *k = NULL;

    must(split_create(team, name, &k));
    return k;
}

static inline usm_parallel_desc over(usm_team_kernel *kernel, size_t n, const usm_split_arg *args,
                                     size_t nargs)
{
    usm_parallel_desc d = USM_PARALLEL_DESC_INIT;

    d.kernel    = kernel;
    d.global[0] = n;
    d.args      = args;
    d.nargs     = nargs;
    return d;
}

/* Chunks of that many indices. */
static inline void fixed(usm_parallel_desc *d, const double *size)
{
    d->policy.name     = "fixed";
    d->policy.numbers  = size;
    d->policy.nnumbers = 1;
}

#endif
