/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A program and its kernel for each member of a team.
 *
 * Processors are one set of cores, whichever backend offers them.  Of the processors that a team
 * found by itself, only one takes part: the host backend's if the program has native code, else the
 * first that OpenCL offers.  Sub-devices are sets of cores of their own. */
#include "offload/tune.h"

#include "base/meta.h"
#include "base/os.h"
#include "base/trace_work.h"
#include "device/context.h"
#include "program/program.h"

#include <stdio.h>
#include <string.h>

static usm__meta_type kernel_type =
    USM__META_TYPE(struct usm_team_kernel, sizeof(usm__magic_word), "team kernels");

usm_status usm__team_kernel_check(usm_team_kernel *k)
{
    return usm__handle_check(k, USM__MAGIC_TEAM_KERNEL);
}

static void discard(usm_team_kernel *k)
{
    for (uint32_t i = 0; k->kernels && k->programs && i < k->nmembers; i++) {
        usm_kernel_destroy(k->kernels[i]);
        usm_program_destroy(k->programs[i]);
    }
    usm__tunes_destroy(k->tunes);
    usm__heap_free(k->kernels);
    usm__heap_free(k->programs);
    usm__meta_free(&kernel_type, k);
}

void usm__team_kernel_release(usm_team_kernel *k)
{
    if (usm_ref_drop(&k->refs))
        discard(k);
}

void usm_team_kernel_destroy(usm_team_kernel *k)
{
    if (k && usm__team_kernel_check(k) == USM_OK && usm__handle_kill(k, USM__MAGIC_TEAM_KERNEL))
        usm__team_kernel_release(k);
}

/* USM_E_NO_IMAGE: the member takes no part. */
static usm_status build(usm_team_kernel *k, uint32_t i, const usm_program_desc *program)
{
    usm_status st = usm_program_create(k->team->members[i].context, program, &k->programs[i]);

    if (st == USM_OK)
        st = usm_kernel_create(k->programs[i], k->name, &k->kernels[i]);
    return st;
}

static bool is_processor(const usm__member *m)
{
    usm_device_info info = USM_DEVICE_INFO_INIT;

    return usm_device_get_info(m->device, &info) == USM_OK && info.type == USM_DEVICE_TYPE_CPU &&
           !usm_device_parent(m->device);
}

static void leave_out(usm_team_kernel *k, uint32_t i)
{
    usm_kernel_destroy(k->kernels[i]);
    usm_program_destroy(k->programs[i]);
    k->kernels[i]  = NULL;
    k->programs[i] = NULL;
}

/* Keeps one member for the processor's cores. */
static void keep_one(usm_team_kernel *k)
{
    uint32_t best = UINT32_MAX;

    for (uint32_t i = 0; i < k->nmembers; i++)
        if (k->kernels[i] && is_processor(&k->team->members[i]) &&
            (best == UINT32_MAX || k->team->members[i].is_native))
            best = i;
    for (uint32_t i = 0; i < k->nmembers; i++)
        if (i != best && k->kernels[i] && is_processor(&k->team->members[i]))
            leave_out(k, i);
}

static usm_status build_all(usm_team_kernel *k, const usm_program_desc *program)
{
    uint32_t   built = 0;
    usm_status st    = USM_OK;

    for (uint32_t i = 0; i < k->nmembers; i++) {
        usm_status one = build(k, i, program);

        if (one != USM_OK && one != USM_E_NO_IMAGE)
            return one;
        if (one == USM_OK)
            built++;
        else
            st = one;
    }
    if (built == 0)
        return st; /* with the error message of the last member */
    if (!k->team->by_hand)
        keep_one(k);
    for (uint32_t i = 0; i < k->nmembers; i++)
        if (k->kernels[i])
            k->nargs = k->kernels[i]->nargs;
    usm__images_hash(k, program);
    return USM_OK;
}

usm_status usm_team_kernel_create(usm_team *team, const usm_program_desc *program, const char *name,
                                  usm_team_kernel **out)
{
    usm_team_kernel *k;
    usm_status       st = usm__team_check(team);

    if (st != USM_OK)
        return st;
    if (!program || !name || !out)
        return usm__fail(USM_E_INVALID, "usm_team_kernel_create: %s is NULL",
                         !program ? "program"
                         : !name  ? "name"
                                  : "kernel");
    k = usm__meta_alloc(&kernel_type);
    if (!k)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a team's kernel");
    k->team     = team;
    k->programs = usm__heap_alloc(team->nmembers * sizeof(usm_program *));
    k->kernels  = usm__heap_alloc(team->nmembers * sizeof(usm_kernel *));
    if (k->programs && k->kernels) {
        k->nmembers = team->nmembers;
        (void)snprintf(k->name, sizeof k->name, "%s", name);
        k->trace = usm__trace_kernel(k->name);
        st       = build_all(k, program);
    } else {
        st = usm__fail(USM_E_NO_MEMORY, "no host memory for a team's kernel");
    }
    if (st != USM_OK) {
        usm__quietly(discard(k));
        return st;
    }
    usm_store_relaxed(&k->refs, 1u);
    usm_store_release(&k->magic, (uint32_t)USM__MAGIC_TEAM_KERNEL);
    *out = k;
    return USM_OK;
}
