/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Two drivers in one process that give out the same addresses: Intel's OpenCL and Level Zero
 * drivers do so when they run without a GPU.  Blocks of libusm are unique all the same
 * (src/heap/area.c sets an area aside that overlaps another context's), so that a pointer alone
 * tells its context. */
#include "plain.h"

#include <level_zero/ze_api.h>

#include <dlfcn.h>
#include <stdint.h>
#include <usm/usm.h>

enum { DEVICES = 16, PAIRS = 24, SIZE = 1 << 20 };

typedef struct side {
    usm_context *ctx;
    usm_device  *dev;
    void        *blocks[PAIRS];
} side;

static side one, two; /* over OpenCL, over Level Zero */

static void side_open(side *s, const char *backend)
{
    usm_device      *list[DEVICES] = {NULL};
    usm_context_desc desc          = USM_CONTEXT_DESC_INIT;
    size_t           n             = 0;

    CHECK_INT(usm_get_devices(list, DEVICES, &n), USM_OK);
    for (size_t i = 0; i < n && i < DEVICES && !s->dev; i++) {
        usm_device_info info = USM_DEVICE_INFO_INIT;

        CHECK_INT(usm_device_get_info(list[i], &info), USM_OK);
        if (!strcmp(info.backend, backend))
            s->dev = list[i];
    }
    CHECK(s->dev != NULL);
    desc.ndevices = 1;
    desc.devices  = &s->dev;
    CHECK_INT(usm_context_create(&desc, &s->ctx), USM_OK);
}

static void open_both(void)
{
    if (!one.ctx)
        side_open(&one, "opencl");
    if (!two.ctx)
        side_open(&two, "level_zero");
}

static void *allocate(const side *s)
{
    void *p = usm_malloc_ctx(SIZE, s->dev, s->ctx, USM_DEVICE);

    /* A driver that has nothing else to offer is named; nothing else may go wrong. */
    if (!p)
        CHECK_INT(usm_last_status(), USM_E_ADDRESS_TAKEN);
    return p;
}

static bool overlap(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return a && b && x < y + SIZE && y < x + SIZE;
}

static void belongs_to(const side *s, const void *p)
{
    usm_device *dev = NULL;

    if (!p)
        return;
    CHECK_INT(usm_get_pointer_type(p, s->ctx), USM_DEVICE);
    CHECK_INT(usm_get_pointer_type(p, s == &one ? two.ctx : one.ctx), USM_UNKNOWN);
    CHECK_INT(usm_get_pointer_device(p, NULL, &dev), USM_OK);
    CHECK(dev == s->dev);
}

/* What the drivers do when nobody stands between: the reason for this test. */
static void the_drivers_give_out_one_address_twice(void)
{
    __typeof__(&zeMemAllocDevice) ze_alloc;
    __typeof__(&zeMemFree)        ze_free;
    ze_device_mem_alloc_desc_t    desc   = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_device_handle_t            dev    = NULL;
    uint32_t                      one_of = 1;
    ze_driver_handle_t            driver = NULL;
    __typeof__(&zeDriverGet)      driver_get;
    __typeof__(&zeDeviceGet)      device_get;
    void                         *lib, *ctx = NULL, *p, *raw[PAIRS] = {NULL};
    int                           same = 0;

    open_both();
    p   = allocate(&one);
    lib = dlopen("libze_loader.so.1", RTLD_NOW | RTLD_NOLOAD);
    CHECK(p && lib);
    *(void **)&ze_alloc   = dlsym(lib, "zeMemAllocDevice");
    *(void **)&ze_free    = dlsym(lib, "zeMemFree");
    *(void **)&driver_get = dlsym(lib, "zeDriverGet");
    *(void **)&device_get = dlsym(lib, "zeDeviceGet");
    CHECK(ze_alloc && ze_free && driver_get && device_get);
    CHECK_INT(usm_context_get_native(two.ctx, "level_zero", &ctx), USM_OK);
    CHECK_INT(driver_get(&one_of, &driver), 0);
    CHECK_INT(device_get(driver, &one_of, &dev), 0);
    for (int i = 0; i < PAIRS; i++) {
        CHECK_INT(ze_alloc(ctx, &desc, SIZE, 0, dev, &raw[i]), 0);
        same += overlap(raw[i], p);
    }
    for (int i = 0; i < PAIRS; i++)
        CHECK_INT(ze_free(ctx, raw[i]), 0);
    usm_free(p);
    dlclose(lib);
    if (!same)
        SKIP("these drivers do not share addresses: nothing to be shown");
}

static void blocks_of_two_drivers_never_overlap(void)
{
    int nblocks = 0;

    open_both();
    for (int i = 0; i < PAIRS; i++) {
        one.blocks[i] = allocate(&one);
        two.blocks[i] = allocate(&two);
        nblocks += !!one.blocks[i] + !!two.blocks[i];
    }
    CHECK(nblocks > PAIRS);
    for (int i = 0; i < PAIRS; i++) {
        belongs_to(&one, one.blocks[i]);
        belongs_to(&two, two.blocks[i]);
        for (int j = 0; j < PAIRS; j++)
            CHECK(!overlap(one.blocks[i], two.blocks[j]));
    }
    for (int i = 0; i < PAIRS; i++) {
        if (one.blocks[i])
            CHECK_INT(usm_free_ctx(one.blocks[i], one.ctx), USM_OK);
        if (two.blocks[i])
            CHECK_INT(usm_free_ctx(two.blocks[i], two.ctx), USM_OK);
    }
}

static const plain_case cases[] = {CASE(the_drivers_give_out_one_address_twice),
                                   CASE(blocks_of_two_drivers_never_overlap),
                                   {NULL, NULL}};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
