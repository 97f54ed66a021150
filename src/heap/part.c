/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The heap as a part of the library (base/part.h). */
#include "heap/part.h"

#include "base/mutex.h"
#include "base/settings.h"
#include "heap/area.h"
#include "heap/magazine.h"
#include "heap/pool.h"
#include "heap/pool_setting.h"
#include "heap/slab.h"

static void start(void)
{
    /* Fails only without memory: then a child of fork() may find the lock of descriptors taken. */
    (void)usm_slab_watch_forks();
    usm__setting_set_check("pool", usm__pool_setting_check);
    usm__setting_set_translate("pool", usm__pool_setting_translate);
    usm__setting_set_check("memory_limit", usm__quota_check);
    usm__magazine_start();
}

static usm_status context_made(usm_context *ctx)
{
    for (size_t i = 0; i < ctx->ndevices; i++)
        usm__quota_start(ctx->devices[i].dev);
    return USM_OK;
}

const usm_part usm__heap_part = {.name           = "heap",
                                 .start          = start,
                                 .shutdown       = usm__pools_clear_defaults,
                                 .thread_ended   = usm__magazine_thread_ended,
                                 .fork           = {{USM__RANK_MAGAZINE, usm__magazine_fork},
                                                    {USM__RANK_POOL, usm__pools_fork},
                                                    {USM__RANK_POOL, usm__pools_give_fork},
                                                    {USM__RANK_MAP, usm__map_fork}},
                                 .context_made   = context_made,
                                 .context_unused = usm__pools_end};
