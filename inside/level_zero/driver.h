/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pools of libusm inside Level Zero programs that do not know libusm: what the files share.
 *
 *     program -> loader -> driver.c -> pool.c, ../pools.c --usm_pool--> slab
 *                             |                                          |
 *                             +--> residency.c   driver <--usm_area_source-+
 *
 * Sizes are bytes.  Any thread may call.  No lock is held while libusm or the driver is called, but
 * that of ../areas.c while residency changes. */
#ifndef USM_INSIDE_LEVEL_ZERO_DRIVER_H
#define USM_INSIDE_LEVEL_ZERO_DRIVER_H

#include <level_zero/ze_api.h>
#include <level_zero/ze_ddi.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <usm/types.h>

/* The real driver's functions, of the tables that driver.c changes; fixed once the loader has asked
 * for them. */
typedef struct inside_real {
    ze_mem_dditable_t     mem;
    ze_context_dditable_t context;
    ze_device_dditable_t  device;
    ze_driver_dditable_t  driver;
} inside_real;

extern inside_real inside_real_driver;

/* What the program asks for. */
typedef struct inside_request {
    ze_context_handle_t ctx;
    ze_device_handle_t  dev; /* NULL: none of its own */
    usm_kind            kind;
    size_t              size, align;
} inside_request;

/* ---- pool.c ---------------------------------------------------------------------------------- */

/* A block, by *p.  false: the driver is to be asked, unless *is_refused: a limit
 * (USM_MEMORY_LIMIT) is reached. */
bool inside_alloc(const inside_request *request, void **p, bool *is_refused);
/* false: p is the driver's.  *is_block: p is the start of a live block. */
bool inside_owns(const void *p, bool *is_block);
/* pre: p is the start of a live block. */
void inside_free(void *p);
/* No more blocks: the driver serves all that is asked for from now on. */
void inside_stand_aside(void);

/* ---- residency.c ----------------------------------------------------------------------------- */

/* Makes the area around p resident on dev, or evicts it once nobody wants it there any more.
 * false: p is the driver's. */
bool inside_area_make_resident(ze_context_handle_t ctx, ze_device_handle_t dev, const void *p,
                               ze_result_t *result);
bool inside_area_evict(ze_context_handle_t ctx, ze_device_handle_t dev, const void *p,
                       ze_result_t *result);
/* Of an area that the driver has back: its data. */
void inside_residency_end(void *data);

#endif
