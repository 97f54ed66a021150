/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* zeKernel*: kernels, whose arguments, group size and offset are the state that a launch takes.
 * Not here: launches, launch.c.  A kernel handle is for one thread at a time, so it has no lock. */
#include "memory.h"
#include "module.h"
#include "tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUGGESTED_GROUP 256u /* work-items at most, where no size is required */
#define SUBGROUP        32u  /* work-items of the largest that the device has */

/* --- entries --------------------------------------------------------------------------- */

soft_entry *soft_entry_get(soft_entry *entry)
{
    atomic_fetch_add_explicit(&entry->refs, 1, memory_order_relaxed);
    return entry;
}

void soft_entry_put(soft_entry *entry)
{
    if (!entry || atomic_fetch_sub_explicit(&entry->refs, 1, memory_order_acq_rel) != 1)
        return;
    soft_cl_kernel_free(entry->cl);
    soft_code_put(entry->code);
    free(entry);
}

static ze_result_t entry_new(soft_code *code, const soft_function *function, soft_entry **out)
{
    void       *program = atomic_load(&code->program);
    soft_entry *entry;
    ze_result_t result = ZE_RESULT_SUCCESS;

    if (!function->native && !program)
        return ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED;
    entry = calloc(1, sizeof(*entry));
    if (!entry)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (!function->native)
        result = soft_cl_kernel_new(program, function->name, &entry->cl);
    if (result) {
        free(entry);
        return result;
    }
    atomic_init(&entry->refs, 1);
    entry->code     = soft_code_get(code);
    entry->function = function;
    *out            = entry;
    return ZE_RESULT_SUCCESS;
}

/* --- kernels --------------------------------------------------------------------------- */

static uint32_t required_items(const soft_function *function)
{
    uint64_t items = 1;

    for (int d = 0; d < 3 && items <= SOFT_MAX_GROUP; d++)
        items *= function->required[d];
    return items <= SOFT_MAX_GROUP ? (uint32_t)items : 0;
}

static void set_limits(soft_kernel *kernel)
{
    const soft_function *function = kernel->entry->function;
    soft_cl_kernel_info  info     = {0};
    uint32_t             required = required_items(function);

    if (kernel->entry->cl)
        soft_cl_kernel_ask(kernel->entry->cl, &info);
    kernel->max_group = SOFT_MAX_GROUP;
    if (required)
        kernel->max_group = required;
    else if (info.max_group && info.max_group < SOFT_MAX_GROUP)
        kernel->max_group = (uint32_t)info.max_group;
    for (int d = 0; d < 3; d++)
        kernel->group[d] = required ? function->required[d] : 1;
}

static char *attributes_of(const soft_function *function)
{
    soft_text text = {0};

    if (function->required[0])
        soft_text_add(&text, "reqd_work_group_size(%u,%u,%u)", function->required[0],
                      function->required[1], function->required[2]);
    if (function->hinted[0])
        soft_text_add(&text, "%swork_group_size_hint(%u,%u,%u)", text.length ? " " : "",
                      function->hinted[0], function->hinted[1], function->hinted[2]);
    if (function->subgroup)
        soft_text_add(&text, "%sintel_reqd_sub_group_size(%u)", text.length ? " " : "",
                      function->subgroup);
    return text.chars ? text.chars : strdup("");
}

static void kernel_free(soft_kernel *kernel)
{
    for (uint32_t i = 0; kernel->entry && i < kernel->entry->function->nargs; i++)
        free(kernel->slots[i].data);
    free(kernel->attributes);
    soft_entry_put(kernel->entry);
    exec_object_free(kernel);
}

static ze_result_t kernel_new(soft_module *module, const soft_function *function, soft_kernel **out)
{
    soft_kernel *kernel =
        exec_object_new(SOFT_KERNEL, sizeof(*kernel) + function->nargs * sizeof(*kernel->slots));
    ze_result_t result;

    if (!kernel)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    kernel->dev        = module->dev;
    kernel->attributes = attributes_of(function);
    result             = kernel->attributes ? entry_new(module->code, function, &kernel->entry)
                                            : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (result) {
        exec_object_retire(kernel);
        kernel_free(kernel);
        return result;
    }
    set_limits(kernel);
    *out = kernel;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeKernelCreate(ze_module_handle_t      hmodule,
                                                  const ze_kernel_desc_t *desc,
                                                  ze_kernel_handle_t     *out)
{
    soft_module         *module;
    soft_kernel         *kernel;
    const soft_function *function;
    ze_result_t          result;

    SOFT_CALL();
    EXEC_HANDLE(module, hmodule, SOFT_MODULE);
    if (soft_is_lost(module->dev))
        return ZE_RESULT_ERROR_DEVICE_LOST;
    if (!desc || !desc->pKernelName || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (desc->flags > 0x3)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    function = soft_code_find(module->code, desc->pKernelName);
    if (!function)
        return ZE_RESULT_ERROR_INVALID_KERNEL_NAME;
    result = kernel_new(module, function, &kernel);
    if (!result)
        *out = (ze_kernel_handle_t)(void *)kernel;
    return result;
}

static ze_result_t ZE_APICALL soft_zeKernelDestroy(ze_kernel_handle_t h)
{
    soft_kernel *kernel;

    soft_enter_free(__func__);
    EXEC_HANDLE(kernel, h, SOFT_KERNEL);
    exec_object_retire(kernel);
    kernel_free(kernel);
    return ZE_RESULT_SUCCESS;
}

/* --- arguments --------------------------------------------------------------------------- */

static ze_result_t check_size(const soft_arg *arg, size_t size)
{
    bool fits = true;

    switch (arg->kind) {
    case SOFT_ARG_POINTER:
        fits = size == sizeof(void *);
        break;
    case SOFT_ARG_LOCAL:
        fits = size > 0 && size <= SOFT_MAX_LOCAL;
        break;
    case SOFT_ARG_VALUE:
        fits = size > 0 && (arg->size == 0 || size == arg->size);
        break;
    case SOFT_ARG_OTHER:
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    }
    return fits ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE;
}

/* The slot's `room` bytes: the first n are the value's (zeros when there is none), the rest stays
 * what it was, zeros at first. */
static ze_result_t fill_slot(soft_slot *slot, size_t room, size_t n, const void *value)
{
    void *data = slot->data;

    if (!data || slot->size != room) {
        data = calloc(1, room);
        if (!data)
            return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        free(slot->data);
        slot->data = data;
    }
    if (value)
        memcpy(data, value, n);
    else
        memset(data, 0, n);
    return ZE_RESULT_SUCCESS;
}

/* The bytes of the slot.  A lenient driver takes a value of any size for a parameter, as Intel's
 * does: of what is larger the first bytes count, what is smaller leaves the others as they are. */
static size_t slot_room(const soft_arg *arg, size_t size)
{
    bool is_taken = arg->kind == SOFT_ARG_VALUE && arg->size && size && soft_is_lenient();

    return is_taken ? arg->size : size;
}

static ze_result_t ZE_APICALL soft_zeKernelSetArgumentValue(ze_kernel_handle_t h, uint32_t index,
                                                            size_t size, const void *value)
{
    soft_kernel    *kernel;
    const soft_arg *arg;
    size_t          room;
    ze_result_t     result;

    SOFT_CALL();
    EXEC_HANDLE(kernel, h, SOFT_KERNEL);
    if (index >= kernel->entry->function->nargs)
        return ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX;
    arg    = &kernel->entry->function->args[index];
    room   = slot_room(arg, size);
    result = check_size(arg, room);
    if (!result && arg->kind != SOFT_ARG_LOCAL)
        result = fill_slot(&kernel->slots[index], room, size < room ? size : room, value);
    if (result)
        return result;
    kernel->slots[index].size   = room;
    kernel->slots[index].is_set = true;
    return ZE_RESULT_SUCCESS;
}

/* --- group sizes ----------------------------------------------------------------------------- */

static ze_result_t ZE_APICALL soft_zeKernelSetGroupSize(ze_kernel_handle_t h, uint32_t x,
                                                        uint32_t y, uint32_t z)
{
    const uint32_t size[3] = {x, y, z};
    uint64_t       items   = 1;
    soft_kernel   *kernel;

    SOFT_CALL();
    EXEC_HANDLE(kernel, h, SOFT_KERNEL);
    for (int d = 0; d < 3; d++) {
        uint32_t required = kernel->entry->function->required[d];

        items *= size[d]; /* of factors below 2^10 so far and 2^32: no overflow */
        if (items == 0 || items > kernel->max_group || (required && size[d] != required))
            return ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION;
    }
    memcpy(kernel->group, size, sizeof(size));
    return ZE_RESULT_SUCCESS;
}

static uint32_t largest_divisor(uint32_t n, uint32_t at_most)
{
    uint32_t divisor = n < at_most ? n : at_most;

    while (n % divisor != 0)
        divisor--;
    return divisor;
}

static ze_result_t ZE_APICALL soft_zeKernelSuggestGroupSize(ze_kernel_handle_t h, uint32_t gx,
                                                            uint32_t gy, uint32_t gz, uint32_t *x,
                                                            uint32_t *y, uint32_t *z)
{
    soft_kernel    *kernel;
    const uint32_t *required;
    uint32_t        room;

    SOFT_CALL();
    EXEC_HANDLE(kernel, h, SOFT_KERNEL);
    if (!x || !y || !z)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (gx == 0 || gy == 0 || gz == 0)
        return ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION;
    required = kernel->entry->function->required;
    room     = kernel->max_group < SUGGESTED_GROUP ? kernel->max_group : SUGGESTED_GROUP;
    *x       = required[0] ? required[0] : largest_divisor(gx, room);
    *y       = required[0] ? required[1] : largest_divisor(gy, room / *x);
    *z       = required[0] ? required[2] : largest_divisor(gz, room / *x / *y);
    return ZE_RESULT_SUCCESS;
}

/* Groups run one after the other, as far as anyone may count on: only one can wait for all. */
static ze_result_t ZE_APICALL soft_zeKernelSuggestMaxCooperativeGroupCount(ze_kernel_handle_t h,
                                                                           uint32_t          *count)
{
    soft_kernel *kernel;

    SOFT_CALL();
    EXEC_HANDLE(kernel, h, SOFT_KERNEL);
    if (!count)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *count = 1;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeKernelSetGlobalOffsetExp(ze_kernel_handle_t h, uint32_t x,
                                                              uint32_t y, uint32_t z)
{
    soft_kernel *kernel;

    SOFT_CALL();
    EXEC_HANDLE(kernel, h, SOFT_KERNEL);
    kernel->offset[0] = x;
    kernel->offset[1] = y;
    kernel->offset[2] = z;
    return ZE_RESULT_SUCCESS;
}

/* --- flags and hints ------------------------------------------------------------------------- */

/* Kept and given back; all memory is one to a kernel that runs on this machine. */
static ze_result_t ZE_APICALL
soft_zeKernelSetIndirectAccess(ze_kernel_handle_t h, ze_kernel_indirect_access_flags_t flags)
{
    soft_kernel *kernel;

    SOFT_CALL();
    EXEC_HANDLE(kernel, h, SOFT_KERNEL);
    if (flags > 0x7)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    kernel->indirect = flags;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL
soft_zeKernelGetIndirectAccess(ze_kernel_handle_t h, ze_kernel_indirect_access_flags_t *flags)
{
    soft_kernel *kernel;

    SOFT_CALL();
    EXEC_HANDLE(kernel, h, SOFT_KERNEL);
    if (!flags)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *flags = kernel->indirect;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeKernelSetCacheConfig(ze_kernel_handle_t      h,
                                                          ze_cache_config_flags_t flags)
{
    soft_kernel *kernel;

    SOFT_CALL();
    EXEC_HANDLE(kernel, h, SOFT_KERNEL);
    (void)kernel;
    return flags > 0x3 ? ZE_RESULT_ERROR_INVALID_ENUMERATION : ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeKernelSchedulingHintExp(ze_kernel_handle_t             h,
                                                             ze_scheduling_hint_exp_desc_t *hint)
{
    soft_kernel *kernel;

    SOFT_CALL();
    EXEC_HANDLE(kernel, h, SOFT_KERNEL);
    (void)kernel;
    if (!hint)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    return hint->flags > 0x7 ? ZE_RESULT_ERROR_INVALID_ENUMERATION : ZE_RESULT_SUCCESS;
}

/* --- queries ---------------------------------------------------------------------------------- */

/* The text is written where *string points, and when it points nowhere it is lent. */
static ze_result_t ZE_APICALL soft_zeKernelGetSourceAttributes(ze_kernel_handle_t h, uint32_t *size,
                                                               char **string)
{
    soft_kernel *kernel;
    uint32_t     n;

    SOFT_CALL();
    EXEC_HANDLE(kernel, h, SOFT_KERNEL);
    if (!size)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    n = (uint32_t)strlen(kernel->attributes) + 1;
    if (string && !*string)
        *string = kernel->attributes;
    else if (string)
        memcpy(*string, kernel->attributes, *size < n ? *size : n);
    *size = n;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeKernelGetName(ze_kernel_handle_t h, size_t *size, char *name)
{
    soft_kernel *kernel;
    size_t       n;

    SOFT_CALL();
    EXEC_HANDLE(kernel, h, SOFT_KERNEL);
    if (!size)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    n = strlen(kernel->entry->function->name) + 1;
    if (name && *size < n)
        return ZE_RESULT_ERROR_INVALID_SIZE;
    if (name)
        memcpy(name, kernel->entry->function->name, n);
    *size = n;
    return ZE_RESULT_SUCCESS;
}

/* FNV-1a twice, from different starts: equal bytes give equal ids, no more is asked. */
static void put_id(uint8_t id[16], const void *bytes, size_t n)
{
    uint64_t hash[2] = {0xcbf29ce484222325u, 0x84222325cbf29ce4u};

    for (size_t i = 0; i < n; i++)
        for (int j = 0; j < 2; j++)
            hash[j] = (hash[j] ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
    memcpy(id, hash, sizeof(hash));
}

static void put_chained(const soft_kernel *kernel, const soft_cl_kernel_info *info, void *chain)
{
    ze_base_properties_t *next = chain;

    for (; next; next = next->pNext)
        if (next->stype == ZE_STRUCTURE_TYPE_KERNEL_PREFERRED_GROUP_SIZE_PROPERTIES)
            ((ze_kernel_preferred_group_size_properties_t *)(void *)next)->preferredMultiple =
                info->multiple ? (uint32_t)info->multiple : 1;
#if SOFT_HAS_API_1_12
        else if (next->stype == ZE_STRUCTURE_TYPE_KERNEL_MAX_GROUP_SIZE_EXT_PROPERTIES)
            ((ze_kernel_max_group_size_properties_ext_t *)(void *)next)->maxGroupSize =
                kernel->max_group;
#else
    (void)kernel;
#endif
}

static ze_result_t ZE_APICALL soft_zeKernelGetProperties(ze_kernel_handle_t      h,
                                                         ze_kernel_properties_t *p)
{
    soft_kernel         *kernel;
    const soft_function *function;
    const soft_unit     *unit;
    soft_cl_kernel_info  info = {0};

    SOFT_CALL();
    EXEC_HANDLE(kernel, h, SOFT_KERNEL);
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    function = kernel->entry->function;
    unit     = &kernel->entry->code->units[0];
    if (kernel->entry->cl)
        soft_cl_kernel_ask(kernel->entry->cl, &info);
    p->numKernelArgs        = function->nargs;
    p->requiredGroupSizeX   = function->required[0];
    p->requiredGroupSizeY   = function->required[1];
    p->requiredGroupSizeZ   = function->required[2];
    p->requiredNumSubGroups = 0;
    p->requiredSubgroupSize = function->subgroup;
    p->maxSubgroupSize      = function->subgroup ? function->subgroup : SUBGROUP;
    p->maxNumSubgroups      = (kernel->max_group + p->maxSubgroupSize - 1) / p->maxSubgroupSize;
    p->localMemSize         = (uint32_t)info.local_bytes;
    p->privateMemSize       = (uint32_t)info.private_bytes;
    p->spillMemSize         = 0;
    put_id(p->uuid.kid, function->name, strlen(function->name));
    put_id(p->uuid.mid, unit->data, unit->size);
    if (p->stype == ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES) /* else the chain may be anything */
        put_chained(kernel, &info, p->pNext);
    return ZE_RESULT_SUCCESS;
}

SOFT_TABLE(zeGetKernelProcAddrTable, ze_kernel_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnCreate, soft_zeKernelCreate);
    SOFT_FIELD(1, 0, pfnDestroy, soft_zeKernelDestroy);
    SOFT_FIELD(1, 0, pfnSetCacheConfig, soft_zeKernelSetCacheConfig);
    SOFT_FIELD(1, 0, pfnSetGroupSize, soft_zeKernelSetGroupSize);
    SOFT_FIELD(1, 0, pfnSuggestGroupSize, soft_zeKernelSuggestGroupSize);
    SOFT_FIELD(1, 0, pfnSuggestMaxCooperativeGroupCount,
               soft_zeKernelSuggestMaxCooperativeGroupCount);
    SOFT_FIELD(1, 0, pfnSetArgumentValue, soft_zeKernelSetArgumentValue);
    SOFT_FIELD(1, 0, pfnSetIndirectAccess, soft_zeKernelSetIndirectAccess);
    SOFT_FIELD(1, 0, pfnGetIndirectAccess, soft_zeKernelGetIndirectAccess);
    SOFT_FIELD(1, 0, pfnGetSourceAttributes, soft_zeKernelGetSourceAttributes);
    SOFT_FIELD(1, 0, pfnGetProperties, soft_zeKernelGetProperties);
    SOFT_FIELD(1, 0, pfnGetName, soft_zeKernelGetName);
    return ZE_RESULT_SUCCESS;
}

SOFT_TABLE(zeGetKernelExpProcAddrTable, ze_kernel_exp_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 1, pfnSetGlobalOffsetExp, soft_zeKernelSetGlobalOffsetExp);
    SOFT_FIELD(1, 2, pfnSchedulingHintExp, soft_zeKernelSchedulingHintExp);
    return ZE_RESULT_SUCCESS;
}
