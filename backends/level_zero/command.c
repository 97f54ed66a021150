/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One command, appended to a command list.  Not here: the choice of the list, wait lists, events
 * (stream.c), arguments of kernels (kernel.c).  Called by stream.c.
 *
 * Most commands are one append call that takes a wait list and a signal event.  Some need several
 * calls, or one that takes neither: these are enclosed by two barriers.  Hints that a driver
 * refuses become just barriers. */
#include "queue.h"

#include "program.h"

static ze_result_t appended(lz_target *t, ze_result_t code)
{
    if (!code)
        t->has_appended = true;
    return code;
}

/* --- several appends as one command ------------------------------------------------ */

static ze_result_t begin_many(lz_target *t)
{
    if (!t->nwaits)
        return ZE_RESULT_SUCCESS;
    return appended(t, lz.zeCommandListAppendBarrier(t->list, NULL, t->nwaits, t->waits));
}

/* Without a wait list a barrier stands for all commands before it. */
static ze_result_t end_many(lz_target *t)
{
    if (!t->signal)
        return ZE_RESULT_SUCCESS;
    return lz_barrier_append(t);
}

ze_result_t lz_barrier_append(lz_target *t)
{
    return appended(t, lz.zeCommandListAppendBarrier(t->list, t->signal, 0, NULL));
}

/* --- copies --------------------------------------------------------------------------- */

static ze_result_t copy_bytes(lz_target *t, void *dst, const void *src, size_t n)
{
    return appended(
        t, lz.zeCommandListAppendMemoryCopy(t->list, dst, src, n, t->signal, t->nwaits, t->waits));
}

static ze_result_t copy_region(lz_target *t, const driver_rect *r)
{
    ze_copy_region_t region = {
        .width  = (uint32_t)r->width,
        .height = (uint32_t)r->height,
        .depth  = 1,
    };

    return appended(t, lz.zeCommandListAppendMemoryCopyRegion(
                           t->list, r->dst, &region, (uint32_t)r->dst_pitch, 0, r->src, &region,
                           (uint32_t)r->src_pitch, 0, t->signal, t->nwaits, t->waits));
}

/* For what exceeds the 32 bits of a region: copies `nrows` rows at once, or each row separately. */
static ze_result_t copy_parts(lz_target *t, const driver_rect *all, size_t nrows)
{
    lz_target   to   = {.list = t->list, .dev = t->dev};
    driver_rect part = *all;
    ze_result_t code = begin_many(t);

    for (size_t y = 0; y < all->height && !code; y += nrows) {
        part.dst    = (char *)all->dst + y * all->dst_pitch;
        part.src    = (const char *)all->src + y * all->src_pitch;
        part.height = all->height - y < nrows ? all->height - y : nrows;
        code =
            nrows == 1 ? copy_bytes(&to, part.dst, part.src, part.width) : copy_region(&to, &part);
    }
    t->has_appended |= to.has_appended;
    return code ? code : end_many(t);
}

static ze_result_t copy_2d(lz_target *t, const driver_rect *r)
{
    if (r->height == 1 || (r->dst_pitch == r->width && r->src_pitch == r->width))
        return copy_bytes(t, r->dst, r->src, r->width * r->height);
    if (r->dst_pitch > UINT32_MAX || r->src_pitch > UINT32_MAX)
        return copy_parts(t, r, 1);
    if (r->height > UINT32_MAX)
        return copy_parts(t, r, UINT32_MAX);
    return copy_region(t, r);
}

static ze_result_t fill(lz_target *t, const driver_command *cmd)
{
    return appended(
        t, lz.zeCommandListAppendMemoryFill(t->list, cmd->as.fill.dst, cmd->as.fill.pattern,
                                            cmd->as.fill.pattern_size, cmd->as.fill.size, t->signal,
                                            t->nwaits, t->waits));
}

/* --- hints ------------------------------------------------------------------------------ */

/* A refused hint is not a failure of the command; lack of memory or a lost device is. */
static ze_result_t hinted(lz_target *t, ze_result_t code)
{
    usm_status status = code ? native_to_status(code) : USM_OK;

    if (status == USM_E_NO_MEMORY || status == USM_E_DEVICE_LOST)
        return code;
    t->has_appended |= !code;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t prefetch(lz_target *t, const driver_command *cmd)
{
    ze_result_t code = begin_many(t);

    if (!code)
        code = hinted(
            t, lz.zeCommandListAppendMemoryPrefetch(t->list, cmd->as.range.p, cmd->as.range.n));
    return code ? code : end_many(t);
}

/* Later than API 1.4. */
#define SET_HOST_PREFERRED   8
#define CLEAR_HOST_PREFERRED 9
#define NONE                 (-1)

static ze_result_t advise(lz_target *t, const driver_command *cmd)
{
    static const int advices[][3] = {
        [USM_ADVICE_DEFAULT]               = {ZE_MEMORY_ADVICE_CLEAR_READ_MOSTLY,
                                              ZE_MEMORY_ADVICE_CLEAR_PREFERRED_LOCATION, CLEAR_HOST_PREFERRED},
        [USM_ADVICE_READ_MOSTLY]           = {ZE_MEMORY_ADVICE_SET_READ_MOSTLY, NONE, NONE},
        [USM_ADVICE_PREFER_DEVICE]         = {ZE_MEMORY_ADVICE_SET_PREFERRED_LOCATION, NONE, NONE},
        [USM_ADVICE_PREFER_HOST]           = {SET_HOST_PREFERRED, NONE, NONE},
        [USM_ADVICE_NOT_READ_MOSTLY]       = {ZE_MEMORY_ADVICE_CLEAR_READ_MOSTLY, NONE, NONE},
        [USM_ADVICE_NO_PREFERRED_LOCATION] = {ZE_MEMORY_ADVICE_CLEAR_PREFERRED_LOCATION,
                                              CLEAR_HOST_PREFERRED, NONE},
    };
    size_t      which = (size_t)cmd->as.range.advice;
    ze_result_t code  = begin_many(t);

    for (int i = 0; i < 3 && !code && which < sizeof(advices) / sizeof(advices[0]); i++)
        if (advices[which][i] != NONE)
            code = hinted(t, lz.zeCommandListAppendMemAdvise(
                                 t->list, t->dev->native, cmd->as.range.p, cmd->as.range.n,
                                 (ze_memory_advice_t)advices[which][i]));
    return code ? code : end_many(t);
}

/* --- the rest ---------------------------------------------------------------------------- */

/* In an ordered stream a marker that waits for nothing and signals nothing needs no append. */
static ze_result_t marker(lz_target *t)
{
    if (!t->signal && !t->nwaits)
        return ZE_RESULT_SUCCESS;
    return appended(t, lz.zeCommandListAppendBarrier(t->list, t->signal, t->nwaits, t->waits));
}

static ze_result_t launch(lz_target *t, const driver_command *cmd)
{
    const lz_instance     *instance = cmd->as.launch.instance;
    const uint32_t        *n        = cmd->as.launch.groups;
    const ze_group_count_t groups   = {n[0], n[1], n[2]};

    return appended(t, lz.zeCommandListAppendLaunchKernel(t->list, instance->native, &groups,
                                                          t->signal, t->nwaits, t->waits));
}

ze_result_t lz_command_append(lz_target *t, const driver_command *cmd)
{
    switch (cmd->type) {
    case DRIVER_COPY:
        return copy_bytes(t, cmd->as.rect.dst, cmd->as.rect.src, cmd->as.rect.width);
    case DRIVER_COPY_2D:
        return copy_2d(t, &cmd->as.rect);
    case DRIVER_FILL:
        return fill(t, cmd);
    case DRIVER_PREFETCH:
        return prefetch(t, cmd);
    case DRIVER_ADVISE:
        return advise(t, cmd);
    case DRIVER_MARKER:
    case DRIVER_BARRIER:
        return marker(t);
    case DRIVER_LAUNCH:
        return launch(t, cmd);
    }
    return ZE_RESULT_ERROR_INVALID_ENUMERATION;
}
