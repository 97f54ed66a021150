/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Programs as a part of the library (base/part.h): the cache of each context. */
#include "program/part.h"

#include "base/status.h"
#include "program/program.h"

static usm_status context_made(usm_context *ctx)
{
    ctx->programs = usm__program_cache_create();
    return ctx->programs ? USM_OK : usm__fail(USM_E_NO_MEMORY, "no host memory for a context");
}

/* Before the driver's context ends, which events may keep alive. */
static void context_unused(usm_context *ctx)
{
    usm__program_cache_clear(ctx->programs);
}

static void context_freed(usm_context *ctx)
{
    if (ctx->programs)
        usm__program_cache_destroy(ctx->programs);
}

const usm_part usm__program_part = {.name           = "program",
                                    .context_made   = context_made,
                                    .context_unused = context_unused,
                                    .context_freed  = context_freed};
