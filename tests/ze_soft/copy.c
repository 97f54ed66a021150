/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Copies, fills and hints about memory, appended to lists.  Called by the loader through the table
 * of list.c; their runs by engine.c.
 *
 * Addresses are looked up when the command runs, as a device does: before that they are only
 * numbers. A copy moves its bytes as memmove does. */
#include "exec.h"

#include <string.h>

#define LAST_ADVICE 9u /* ZE_MEMORY_ADVICE_CLEAR_SYSTEM_MEMORY_PREFERRED_LOCATION, of API 1.4 */

/* --- copies -------------------------------------------------------------------------------- */

static size_t extent(const exec_side *side, const exec_cmd *cmd)
{
    return (cmd->as.region.depth - 1) * side->slice + (cmd->as.region.height - 1) * side->pitch +
           cmd->as.region.width;
}

static void move_rows(unsigned char *dst, const unsigned char *src, const exec_cmd *cmd)
{
    const exec_side *d = &cmd->as.region.dst, *s = &cmd->as.region.src;

    for (size_t z = 0; z < cmd->as.region.depth; z++)
        for (size_t y = 0; y < cmd->as.region.height; y++)
            memmove(dst + z * d->slice + y * d->pitch, src + z * s->slice + y * s->pitch,
                    cmd->as.region.width);
}

static bool run_copy(exec_engine *e, exec_cmd *cmd)
{
    const exec_side *dst = &cmd->as.region.dst, *src = &cmd->as.region.src;
    const uint64_t   start = soft_now_ns();
    const size_t     width = cmd->as.region.width;

    (void)e;
    if (!width)
        return true;
    move_rows(exec_view(cmd, dst->p, extent(dst, cmd)), exec_view(cmd, src->p, extent(src, cmd)),
              cmd);
    exec_throttle(start, width * cmd->as.region.height * cmd->as.region.depth);
    return true;
}

static bool touch(const unsigned char *p, size_t n, const unsigned char *base, size_t size)
{
    return p < base + size && base < p + n;
}

static bool copy_uses(const exec_cmd *cmd, const unsigned char *base, size_t size)
{
    const exec_side *dst = &cmd->as.region.dst, *src = &cmd->as.region.src;

    return touch(dst->p, extent(dst, cmd), base, size) ||
           touch(src->p, extent(src, cmd), base, size);
}

static const exec_kind copy_kind = {
    .name = "zeCommandListAppendMemoryCopy", .run = run_copy, .uses = copy_uses};
static const exec_kind region_kind = {
    .name = "zeCommandListAppendMemoryCopyRegion", .run = run_copy, .uses = copy_uses};
static const exec_kind foreign_kind = {
    .name = "zeCommandListAppendMemoryCopyFromContext", .run = run_copy, .uses = copy_uses};

/* const of the program, but a side is either. */
static unsigned char *address(const void *p)
{
    return (unsigned char *)(uintptr_t)p;
}

static ze_result_t append_copy(const exec_kind *kind, ze_command_list_handle_t h, void *dst,
                               const void *src, size_t size, const exec_events *events)
{
    exec_list  *list;
    exec_cmd   *cmd;
    ze_result_t res = exec_list_open(h, &list);

    if (res != ZE_RESULT_SUCCESS)
        return res;
    if (!dst || !src)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    res = exec_cmd_new(kind, events, 0, &cmd, NULL);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    cmd->as.region.dst.p  = dst;
    cmd->as.region.src.p  = address(src);
    cmd->as.region.width  = size;
    cmd->as.region.height = 1;
    cmd->as.region.depth  = 1;
    return exec_list_append(list, cmd);
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendMemoryCopy(
    ze_command_list_handle_t h, void *dst, const void *src, size_t size, ze_event_handle_t signal,
    uint32_t nwaits, ze_event_handle_t *waits)
{
    const exec_events events = {.signal = signal, .nwaits = nwaits, .waits = waits};

    SOFT_CALL();
    return append_copy(&copy_kind, h, dst, src, size, &events);
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendMemoryCopyFromContext(
    ze_command_list_handle_t h, void *dst, ze_context_handle_t from, const void *src, size_t size,
    ze_event_handle_t signal, uint32_t nwaits, ze_event_handle_t *waits)
{
    const exec_events events = {.signal = signal, .nwaits = nwaits, .waits = waits};

    SOFT_CALL();
    if (!soft_context_of(from))
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    return append_copy(&foreign_kind, h, dst, src, size, &events);
}

/* --- regions -------------------------------------------------------------------------------- */

/* A height or depth of 0 is a copy of fewer dimensions; without depth the slice pitch does not
 * count. A pitch of 0 means that rows (slices) follow one another. */
static exec_side side_of(const void *p, const ze_copy_region_t *r, uint32_t pitch, uint32_t slice)
{
    exec_side side;

    side.pitch = pitch ? pitch : r->width;
    side.slice = slice ? slice : side.pitch * (r->height ? r->height : 1);
    side.p     = address(p) + (size_t)r->originY * side.pitch + r->originX;
    if (r->depth)
        side.p += r->originZ * side.slice;
    return side;
}

static bool meet(uint32_t a, uint32_t b, uint32_t n)
{
    return (a < b ? b - a : a - b) < (n ? n : 1);
}

/* Boxes of one array; sides with other pitches, or of other arrays, are the program's business. */
static bool overlap(const void *dst, const ze_copy_region_t *to, const exec_side *d,
                    const void *src, const ze_copy_region_t *from, const exec_side *s)
{
    return dst == src && to->width && d->pitch == s->pitch &&
           (d->slice == s->slice || !to->depth) && meet(to->originX, from->originX, to->width) &&
           meet(to->originY, from->originY, to->height) &&
           (!to->depth || meet(to->originZ, from->originZ, to->depth));
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendMemoryCopyRegion(
    ze_command_list_handle_t h, void *dst, const ze_copy_region_t *to, uint32_t dst_pitch,
    uint32_t dst_slice, const void *src, const ze_copy_region_t *from, uint32_t src_pitch,
    uint32_t src_slice, ze_event_handle_t signal, uint32_t nwaits, ze_event_handle_t *waits)
{
    const exec_events events = {.signal = signal, .nwaits = nwaits, .waits = waits};
    exec_side         d, s;
    exec_list        *list;
    exec_cmd         *cmd;
    ze_result_t       res;

    SOFT_CALL();
    res = exec_list_open(h, &list);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    if (!dst || !to || !src || !from)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (to->width != from->width || to->height != from->height || to->depth != from->depth)
        return ZE_RESULT_ERROR_INVALID_SIZE;
    d = side_of(dst, to, dst_pitch, dst_slice);
    s = side_of(src, from, src_pitch, src_slice);
    if (overlap(dst, to, &d, src, from, &s))
        return ZE_RESULT_ERROR_OVERLAPPING_REGIONS;
    res = exec_cmd_new(&region_kind, &events, 0, &cmd, NULL);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    cmd->as.region.dst    = d;
    cmd->as.region.src    = s;
    cmd->as.region.width  = to->width;
    cmd->as.region.height = to->height ? to->height : 1;
    cmd->as.region.depth  = to->depth ? to->depth : 1;
    return exec_list_append(list, cmd);
}

/* --- fills ------------------------------------------------------------------------------------ */

static bool run_fill(exec_engine *e, exec_cmd *cmd)
{
    const size_t   size = cmd->as.fill.size, step = cmd->as.fill.pattern_size;
    const uint64_t start = soft_now_ns();
    unsigned char *to;
    size_t         done;

    (void)e;
    if (!size)
        return true;
    to = exec_view(cmd, cmd->as.fill.dst, size);
    /* What is filled already is the pattern of the next, twice as large, piece. */
    done = step < size ? step : size;
    memcpy(to, cmd->as.fill.pattern, done);
    while (done < size) {
        const size_t n = done < size - done ? done : size - done;

        memcpy(to + done, to, n);
        done += n;
    }
    exec_throttle(start, size);
    return true;
}

static bool fill_uses(const exec_cmd *cmd, const unsigned char *base, size_t size)
{
    return touch(cmd->as.fill.dst, cmd->as.fill.size, base, size);
}

static const exec_kind fill_kind = {
    .name = "zeCommandListAppendMemoryFill", .run = run_fill, .uses = fill_uses};

static ze_result_t check_pattern(const exec_list *list, size_t n)
{
    ze_command_queue_group_properties_t group;
    ze_result_t                         res = exec_check_group(list->dev, list->ordinal, 0, &group);

    if (res != ZE_RESULT_SUCCESS)
        return res;
    if (!n || (n & (n - 1)) || n > group.maxMemoryFillPatternSize)
        return ZE_RESULT_ERROR_INVALID_SIZE;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendMemoryFill(
    ze_command_list_handle_t h, void *dst, const void *pattern, size_t pattern_size, size_t size,
    ze_event_handle_t signal, uint32_t nwaits, ze_event_handle_t *waits)
{
    const exec_events events = {.signal = signal, .nwaits = nwaits, .waits = waits};
    exec_list        *list;
    exec_cmd         *cmd;
    void             *tail;
    ze_result_t       res;

    SOFT_CALL();
    res = exec_list_open(h, &list);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    if (!dst || !pattern)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    res = check_pattern(list, pattern_size);
    if (res == ZE_RESULT_SUCCESS)
        res = exec_cmd_new(&fill_kind, &events, pattern_size, &cmd, &tail);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    memcpy(tail, pattern, pattern_size);
    cmd->as.fill.dst          = dst;
    cmd->as.fill.size         = size;
    cmd->as.fill.pattern      = tail;
    cmd->as.fill.pattern_size = pattern_size;
    return exec_list_append(list, cmd);
}

/* --- hints ------------------------------------------------------------------------------------ */

static const exec_kind prefetch_kind = {.name = "zeCommandListAppendMemoryPrefetch"};
static const exec_kind advise_kind   = {.name = "zeCommandListAppendMemAdvise"};

/* A command like others, though all memory is the host's and there is nothing to be done. */
static ze_result_t append_hint(const exec_kind *kind, exec_list *list)
{
    const exec_events none = {0};
    exec_cmd         *cmd;
    ze_result_t       res = exec_cmd_new(kind, &none, 0, &cmd, NULL);

    return res == ZE_RESULT_SUCCESS ? exec_list_append(list, cmd) : res;
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendMemoryPrefetch(ze_command_list_handle_t h,
                                                                     const void *p, size_t size)
{
    exec_list  *list;
    ze_result_t res;

    (void)size;
    SOFT_CALL();
    res = exec_list_open(h, &list);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    return p ? append_hint(&prefetch_kind, list) : ZE_RESULT_ERROR_INVALID_NULL_POINTER;
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendMemAdvise(ze_command_list_handle_t h,
                                                                ze_device_handle_t       hdev,
                                                                const void *p, size_t size,
                                                                ze_memory_advice_t advice)
{
    exec_list  *list;
    ze_result_t res;

    (void)size;
    SOFT_CALL();
    res = exec_list_open(h, &list);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    if (!hdev)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!soft_device_of(hdev))
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if ((uint32_t)advice > LAST_ADVICE)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    soft_advise(p);
    return append_hint(&advise_kind, list);
}

void exec_copy_fields(ze_api_version_t version, ze_command_list_dditable_t *table)
{
    SOFT_FIELD(1, 0, pfnAppendMemoryCopy, soft_zeCommandListAppendMemoryCopy);
    SOFT_FIELD(1, 0, pfnAppendMemoryFill, soft_zeCommandListAppendMemoryFill);
    SOFT_FIELD(1, 0, pfnAppendMemoryCopyRegion, soft_zeCommandListAppendMemoryCopyRegion);
    SOFT_FIELD(1, 0, pfnAppendMemoryCopyFromContext, soft_zeCommandListAppendMemoryCopyFromContext);
    SOFT_FIELD(1, 0, pfnAppendMemoryPrefetch, soft_zeCommandListAppendMemoryPrefetch);
    SOFT_FIELD(1, 0, pfnAppendMemAdvise, soft_zeCommandListAppendMemAdvise);
}
