/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the core promises to the author of a backend when it takes the table in: half a group is
 * refused by name, and what is not offered answers so. */
#include "device/backend.h"

#include <plain.h>

#define ALL_CAPS                                                                                   \
    (USM_CAP_QUEUES | USM_CAP_NOTIFY | USM_CAP_KERNELS | USM_CAP_PARTITION | USM_CAP_NATIVE |      \
     USM_CAP_MEMINFO | USM_CAP_PEER | USM_CAP_IPC | USM_CAP_VMEM | USM_CAP_TASKS | USM_CAP_GROUPS)

/* All that follows in the table is functions. */
#define FIRST_SLOT offsetof(usm_backend_ops, devices)
#define SLOTS      ((sizeof(usm_backend_ops) - FIRST_SLOT) / sizeof(void (*)(void)))
#define REQUIRED   5u

static void anything(void)
{
}

static void set_slot(usm_backend_ops *ops, size_t i, void (*fn)(void))
{
    memcpy((char *)ops + FIRST_SLOT + i * sizeof fn, &fn, sizeof fn);
}

static bool has_slot(const usm_backend_ops *ops, size_t i)
{
    void (*fn)(void);

    memcpy(&fn, (const char *)ops + FIRST_SLOT + i * sizeof fn, sizeof fn);
    return fn != NULL;
}

static usm_backend_ops full(void)
{
    usm_backend_ops ops;

    memset(&ops, 0, sizeof ops);
    ops.abi         = USM_MODULE_ABI;
    ops.struct_size = sizeof ops;
    ops.name        = "full";
    ops.caps        = ALL_CAPS;
    for (size_t i = 0; i < SLOTS; i++)
        set_slot(&ops, i, anything);
    return ops;
}

static void every_slot_of_a_promised_group_is_looked_at(void)
{
    usm__backend    be;
    usm_backend_ops ops = full();

    CHECK_INT(usm__backend_init(&be, &ops), USM_OK);
    CHECK_INT(be.ops.caps, ALL_CAPS);
    CHECK_INT(
        memcmp((char *)&be.ops + FIRST_SLOT, (char *)&ops + FIRST_SLOT, sizeof ops - FIRST_SLOT),
        0);
    for (size_t i = 0; i < SLOTS; i++) {
        ops = full();
        set_slot(&ops, i, NULL);
        CHECK_INT(usm__backend_init(&be, &ops), USM_E_INVALID);
        CHECK_IN("lacks ", usm_last_error());
    }
}

static void half_a_group_is_refused_by_name(void)
{
    usm__backend    be;
    usm_backend_ops ops = full();

    ops.ipc_close = NULL;
    CHECK_INT(usm__backend_init(&be, &ops), USM_E_INVALID);
    CHECK_STR(usm_last_error(), "backend full promises the group ipc but lacks ipc_close");
    ops            = full();
    ops.vmem_unmap = NULL;
    CHECK_INT(usm__backend_init(&be, &ops), USM_E_INVALID);
    CHECK_STR(usm_last_error(), "backend full promises the group vmem but lacks vmem_unmap");
}

static void what_is_not_offered_answers_so(void)
{
    usm__backend    be;
    usm_backend_ops ops    = full();
    usm_backend_ipc handle = {.fd = -1};
    size_t          g      = 7;
    void           *p      = NULL;

    for (size_t i = REQUIRED; i < SLOTS; i++)
        set_slot(&ops, i, NULL);
    ops.caps = 0;
    CHECK_INT(usm__backend_init(&be, &ops), USM_OK);
    for (size_t i = 0; i < SLOTS; i++)
        CHECK(has_slot(&be.ops, i));
    CHECK_INT(usm__be_kernel_groups(&be, NULL, NULL), USM_E_NOT_SUPPORTED);
    CHECK_INT(usm__be_ipc_alloc(&be, NULL, NULL, USM_HOST, true, 1, 1, &p), USM_E_NOT_SUPPORTED);
    CHECK_INT(usm__be_ipc_get(&be, NULL, NULL, &handle), USM_E_NOT_SUPPORTED);
    CHECK_INT(usm__be_ipc_put(&be, NULL, &handle), USM_E_NOT_SUPPORTED);
    CHECK_INT(usm__be_ipc_open(&be, NULL, NULL, &handle, &p), USM_E_NOT_SUPPORTED);
    CHECK_INT(usm__be_ipc_close(&be, NULL, NULL), USM_E_NOT_SUPPORTED);
    CHECK_INT(usm__be_vmem_granularity(&be, NULL, NULL, USM_DEVICE, 1, &g), USM_E_NOT_SUPPORTED);
    CHECK_INT(usm__be_vmem_reserve(&be, NULL, USM_DEVICE, 1, &p), USM_E_NOT_SUPPORTED);
    CHECK_INT(usm__be_vmem_release(&be, NULL, NULL, 1), USM_E_NOT_SUPPORTED);
    CHECK_INT(usm__be_phys_create(&be, NULL, NULL, USM_DEVICE, 1, &p), USM_E_NOT_SUPPORTED);
    CHECK_INT(usm__be_phys_destroy(&be, NULL, NULL), USM_E_NOT_SUPPORTED);
    CHECK_INT(usm__be_vmem_map(&be, NULL, NULL, 1, NULL, 0), USM_E_NOT_SUPPORTED);
    CHECK_INT(usm__be_vmem_unmap(&be, NULL, NULL, 1), USM_E_NOT_SUPPORTED);
    CHECK_IN("does not offer this", usm_last_error());
    CHECK(p == NULL && g == 7 && handle.fd == -1);
}

static const plain_case cases[] = {
    CASE(every_slot_of_a_promised_group_is_looked_at),
    CASE(half_a_group_is_refused_by_name),
    CASE(what_is_not_offered_answers_so),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
