/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks a requested launch and copies it.  Everything that can be known to be wrong is refused
 * before anything has started, with a message that names the argument.
 *
 * Chunks are cut at multiples of the local size and of every leaf.  They are kept so small that all
 * chunks in progress fit together in half of the memory limit of the buffers, and in a quarter of a
 * device's memory. */
#include "offload/offload.h"
#include "offload/ranks.h"

#include "base/hash.h"
#include "base/inline/plural.h"
#include "base/os.h"
#include "base/settings.h"
#include "buffer/buffer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define COPIES_ALIGN ((size_t)64)
#define GROUP        ((size_t)64)
#define GROUP_MOST   ((size_t)1024)
#define FLAGS        ((uint32_t)(USM_PARALLEL_SNAPSHOT | USM_PARALLEL_NO_RETRY | USM_PARALLEL_TUNE))

/* ---- arguments ------------------------------------------------------------------------------- */

static bool is_written(const usm_split_arg *a)
{
    return (a->mode & USM_WRITE) != 0;
}

static usm_status check_chunk(const usm__plan *p, size_t i, usm_split_arg *a)
{
    uint64_t need;

    if (a->mode != USM_READ && a->mode != USM_WRITE_NO_INIT && a->mode != USM_READ_WRITE)
        return usm__fail(USM_E_ARGUMENTS,
                         "argument %zu follows by chunks: its mode is USM_READ, USM_WRITE | "
                         "USM_NO_INIT or USM_READ_WRITE, not %d",
                         i, (int)a->mode);
    if (a->stride == 0 || __builtin_mul_overflow(p->total, a->stride, &need))
        return usm__fail(USM_E_ARGUMENTS,
                         "argument %zu follows by chunks: a stride of %zu bytes an index does not "
                         "go with %" PRIu64 " indices",
                         i, a->stride, p->total);
    if (a->size == 0)
        a->size = need;
    if (a->size < need)
        return usm__fail(USM_E_ARGUMENTS,
                         "argument %zu has %zu bytes; %" PRIu64 " indices of %zu need %" PRIu64, i,
                         a->size, p->total, a->stride, need);
    if ((a->before || a->after) && is_written(a))
        return usm__fail(USM_E_ARGUMENTS,
                         "argument %zu has a halo and is written: chunks would write each other's "
                         "indices; a halo is for USM_READ",
                         i);
    if (a->mode == USM_READ_WRITE && p->may_repeat && !(p->desc.flags & USM_PARALLEL_SNAPSHOT))
        return usm__fail(
            USM_E_NOT_SUPPORTED,
            "argument %zu is read and written: a chunk of it that fails cannot be done "
            "again; set USM_PARALLEL_SNAPSHOT, or USM_PARALLEL_NO_RETRY",
            i);
    return USM_OK;
}

static size_t size_of_element(usm_element e)
{
    switch (e) {
    case USM_ELEMENT_I32:
    case USM_ELEMENT_U32:
    case USM_ELEMENT_F32:
        return 4;
    case USM_ELEMENT_I64:
    case USM_ELEMENT_U64:
    case USM_ELEMENT_F64:
        return 8;
    case USM_ELEMENT_NONE:
        break;
    }
    return 0;
}

static usm_status check_merge(const usm__plan *p, size_t i, const usm_split_arg *a)
{
    size_t element = size_of_element(a->element);

    switch (a->merge) {
    case USM_MERGE_SUM:
    case USM_MERGE_MIN:
    case USM_MERGE_MAX:
        if (element == 0 || a->size % element != 0)
            return usm__fail(
                USM_E_ARGUMENTS,
                "argument %zu: %zu bytes are not a whole number of elements of kind %d; "
                "sum, min and max need one of USM_ELEMENT_*",
                i, a->size, (int)a->element);
        return USM_OK;
    case USM_MERGE_FIRST:
        if (a->size < sizeof(int64_t))
            return usm__fail(USM_E_ARGUMENTS,
                             "argument %zu: USM_MERGE_FIRST needs an int64 at its beginning, and "
                             "the argument has %zu bytes",
                             i, a->size);
        return USM_OK;
    case USM_MERGE_USER:
        if (!a->merge_fn)
            return usm__fail(USM_E_ARGUMENTS, "argument %zu: USM_MERGE_USER without merge_fn", i);
        return USM_OK;
    case USM_MERGE_NONE:
        if (p->state_arg == i)
            return USM_OK;
        return usm__fail(USM_E_ARGUMENTS,
                         "argument %zu is private and has no merge: its copies would be lost; "
                         "choose a usm_merge",
                         i);
    }
    return usm__fail(USM_E_ARGUMENTS, "argument %zu: there is no merge %d", i, (int)a->merge);
}

static usm_status check_private(usm__plan *p, size_t i, const usm_split_arg *a)
{
    usm_status st = check_merge(p, i, a);
    uint64_t   copies, bytes;

    if (st != USM_OK)
        return st;
    copies = usm__copies_of(a, p->total);
    if (__builtin_mul_overflow(copies, a->size, &bytes) || bytes > (uint64_t)1 << 46)
        return usm__fail(USM_E_ARGUMENTS,
                         "argument %zu: %" PRIu64 " copies of %zu bytes are too much", i, copies,
                         a->size);
    if (a->merge == USM_MERGE_FIRST) {
        if (p->found_arg != USM__NO_ARG)
            return usm__fail(USM_E_ARGUMENTS,
                             "arguments %zu and %zu both are USM_MERGE_FIRST; one of them can cut "
                             "the range",
                             p->found_arg, i);
        p->found_arg = i;
    }
    return USM_OK;
}

/* Checks where the argument's bytes are: in host memory or in a buffer. */
static usm_status check_place(const usm__plan *p, size_t i, const usm_split_arg *a)
{
    if (!p->has_bytes || a->size == 0)
        return USM_OK;
    if (!a->buffer && !a->host)
        return usm__fail(USM_E_ARGUMENTS,
                         "argument %zu has neither host memory nor a buffer for its %zu bytes", i,
                         a->size);
    if (a->buffer && a->host)
        return usm__fail(USM_E_ARGUMENTS, "argument %zu has both host memory and a buffer", i);
    if (!a->buffer)
        return USM_OK;
    if (usm__buffer_check(a->buffer) != USM_OK)
        return usm_last_status();
    if ((a->offset > usm_buffer_size(a->buffer) ||
         a->size > usm_buffer_size(a->buffer) - a->offset))
        return usm__fail(USM_E_ARGUMENTS, "argument %zu: bytes [%zu, %zu) of a buffer of %zu bytes",
                         i, a->offset, a->offset + a->size, usm_buffer_size(a->buffer));
    return USM_OK;
}

static usm_status check_arg(usm__plan *p, size_t i, usm_split_arg *a)
{
    usm_status st = USM_OK;

    switch (a->follow) {
    case USM_FOLLOW_VALUE:
        if (!a->host || a->size == 0 || a->buffer)
            return usm__fail(USM_E_ARGUMENTS,
                             "argument %zu is a value of %zu bytes at %p; use USM_SPLIT_VALUE over "
                             "an lvalue",
                             i, a->size, a->host);
        return USM_OK;
    case USM_FOLLOW_SCRATCH:
        if (a->size == 0)
            return usm__fail(USM_E_ARGUMENTS, "argument %zu: 0 bytes of local memory", i);
        return USM_OK;
    case USM_FOLLOW_WHOLE:
        if (a->mode != USM_READ)
            return usm__fail(USM_E_ARGUMENTS,
                             "argument %zu is whole and its mode is %d: every member reads all of "
                             "it, so that it can only be USM_READ; what is written follows by "
                             "chunks, or is private",
                             i, (int)a->mode);
        break;
    case USM_FOLLOW_CHUNK:
        st = check_chunk(p, i, a);
        break;
    case USM_FOLLOW_PRIVATE:
        if (a->size == 0)
            return usm__fail(USM_E_ARGUMENTS, "argument %zu is private and has 0 bytes", i);
        st = check_private(p, i, a);
        break;
    default:
        return usm__fail(USM_E_ARGUMENTS,
                         "argument %zu: it follows the split in no way that exists "
                         "(%d); use USM_FOLLOW_*",
                         i, (int)a->follow);
    }
    return st == USM_OK ? check_place(p, i, a) : st;
}

static usm_status check_state(const usm__plan *p)
{
    const usm_split_arg *a;

    if (p->state_arg == USM__NO_ARG)
        return USM_OK;
    if (p->state_arg >= p->desc.nargs)
        return usm__fail(USM_E_ARGUMENTS, "state_arg is %u, and there are %zu arguments",
                         p->desc.state_arg, p->desc.nargs);
    a = &p->desc.args[p->state_arg];
    if (a->follow != USM_FOLLOW_PRIVATE || a->leaf != 1 || a->merge != USM_MERGE_NONE ||
        a->size < sizeof(int32_t))
        return usm__fail(
            USM_E_ARGUMENTS,
            "argument %zu holds states: it is private, with a leaf of 1, no merge, and "
            "at least 4 bytes",
            p->state_arg);
    return USM_OK;
}

static bool shares_bytes(const usm_split_arg *a, const usm_split_arg *b)
{
    uintptr_t x = (uintptr_t)a->host + a->offset, y = (uintptr_t)b->host + b->offset;

    return a->size && b->size && b->follow >= USM_FOLLOW_WHOLE && a->buffer == b->buffer &&
           (a->buffer || (a->host && b->host)) && x < y + b->size && y < x + a->size;
}

/* Refuses arguments that share bytes with one written by chunks: another chunk, or the same chunk
 * when it is done again, might read what a chunk has written. */
static usm_status check_sharing(const usm__plan *p, size_t i)
{
    const usm_split_arg *args = p->desc.args;

    if (args[i].follow != USM_FOLLOW_CHUNK || !is_written(&args[i]))
        return USM_OK;
    for (size_t k = 0; k < p->desc.nargs; k++)
        if (k != i && shares_bytes(&args[i], &args[k]))
            return usm__fail(USM_E_ARGUMENTS,
                             "arguments %zu and %zu share bytes, and %zu is written by chunks: one "
                             "would find there what another has done; give it memory of its own, "
                             "or make them one argument, USM_READ_WRITE",
                             i < k ? i : k, i < k ? k : i, i);
    return USM_OK;
}

/* Copies the array of arguments, and the values. */
static usm_status copy_args(usm__plan *p, const usm_split_arg *from)
{
    size_t         n    = p->desc.nargs;
    usm_split_arg *args = usm__heap_alloc((n ? n : 1) * sizeof *args);
    usm_status     st   = USM_OK;

    if (!args)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for %zu arguments", n);
    if (n)
        memcpy(args, from, n * sizeof *args);
    p->desc.args = args;
    for (size_t i = 0; i < n; i++)
        if (args[i].follow == USM_FOLLOW_VALUE) {
            void *own = args[i].host && args[i].size ? usm__heap_alloc(args[i].size) : NULL;

            if (own)
                memcpy(own, args[i].host, args[i].size);
            else if (args[i].host && args[i].size)
                st = USM_E_NO_MEMORY;
            args[i].host = own;
        }
    if (st != USM_OK)
        return usm__fail(st, "no host memory for the values of %zu arguments", n);
    for (size_t i = 0; st == USM_OK && i < n; i++) {
        st = check_arg(p, i, &args[i]);
        if (args[i].buffer)
            p->may_wait = true;
    }
    for (size_t i = 0; st == USM_OK && i < n; i++)
        st = check_sharing(p, i);
    return st == USM_OK ? check_state(p) : st;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* Sizes of work-groups cannot be tried if the caller has chosen one, or relies on one. */
static usm_status check_tuning(const usm__plan *p)
{
    if (!(p->desc.flags & USM_PARALLEL_TUNE))
        return USM_OK;
    if (p->desc.local[0])
        return usm__fail(USM_E_INVALID,
                         "usm_parallel: USM_PARALLEL_TUNE looks for a local size, and local[0] is "
                         "%zu; leave local[] 0, or the flag out",
                         p->desc.local[0]);
    for (size_t i = 0; i < p->desc.nargs; i++)
        if (p->desc.args[i].follow == USM_FOLLOW_SCRATCH)
            return usm__fail(USM_E_INVALID,
                             "usm_parallel: argument %zu is local memory for work-groups of one "
                             "size, and USM_PARALLEL_TUNE tries several; set local[], and leave "
                             "the flag out",
                             i);
    return USM_OK;
}

/* The number that a field has which USM_PARALLEL_NTH() sets. */
static size_t nth(uint32_t field, size_t unset)
{
    return field ? field - USM_PARALLEL_NTH(0) : unset;
}

static usm_status check_range(usm__plan *p)
{
    usm_parallel_desc *d = &p->desc;

    if (d->dims < 1 || d->dims > 3)
        return usm__fail(USM_E_INVALID, "usm_parallel: dims is %u; 1 to 3 can be", d->dims);
    if (d->split_dim > d->dims)
        return usm__fail(USM_E_INVALID,
                         "usm_parallel: split_dim is %u of %u dims; set it by "
                         "USM_PARALLEL_NTH(), or to 0",
                         d->split_dim, d->dims);
    for (uint32_t i = d->dims; i < 3; i++) {
        d->offset[i] = 0;
        d->global[i] = 1;
        d->local[i]  = d->local[0] ? 1 : 0;
    }
    for (uint32_t i = 0; i < d->dims; i++) {
        if ((d->local[i] == 0) != (d->local[0] == 0))
            return usm__fail(USM_E_INVALID, "usm_parallel: local[%u] is %zu; set all or none", i,
                             d->local[i]);
        if (d->local[i] && d->global[i] % d->local[i] != 0)
            return usm__fail(USM_E_INVALID,
                             "usm_parallel: local[%u] %zu does not divide global[%u] %zu; round "
                             "global up and let the kernel skip the rest",
                             i, d->local[i], i, d->global[i]);
    }
    p->dim   = (uint32_t)nth(d->split_dim, d->dims - 1);
    p->total = d->global[p->dim];
    return USM_OK;
}

/* Whether chunks of a long row are cut at whole work-groups, of the size that usm__plan_local()
 * then chooses: only if the caller has chosen neither a local size nor the sizes of chunks. */
static bool goes_by_groups(const usm__plan *p, const usm_policy *policy)
{
    return !p->desc.local[0] && !policy->fn && !policy->nnumbers && p->dim == 0 &&
           p->total >= GROUP * 1024;
}

/* The size of work-groups with USM_PARALLEL_TUNE: a power of two, as large as leaves a thousand
 * chunks or, where the policy fixes the size of chunks, as large as divides it. */
static size_t find_groups(const usm__plan *p, const usm_policy *policy)
{
    bool   is_fixed = policy->nnumbers && usm__chunk_policy_find("fixed") == p->policy;
    double size     = is_fixed ? policy->numbers[0] : 0;
    size_t n        = 1;

    if (p->dim != 0 || size >= 0x1p53)
        return 1;
    while (n < GROUP_MOST && (size >= 1 ? (uint64_t)size % (2 * n) == 0 : p->total >= n * 2048))
        n *= 2;
    return n;
}

static uint64_t find_own_multiple(const usm__plan *p, const usm_policy *policy)
{
    if (p->desc.flags & USM_PARALLEL_TUNE)
        return find_groups(p, policy);
    if (goes_by_groups(p, policy))
        return GROUP;
    return p->desc.local[p->dim] ? p->desc.local[p->dim] : 1;
}

/* Chunks are cut at multiples of work-groups and leaves. */
static usm_status find_multiple(usm__plan *p, const usm_policy *policy)
{
    const usm_parallel_desc *d     = &p->desc;
    uint64_t                 group = d->local[p->dim] ? d->local[p->dim] : 1;

    p->multiple = d->multiple ? d->multiple : find_own_multiple(p, policy);
    if (p->multiple % group != 0)
        return usm__fail(USM_E_INVALID,
                         "usm_parallel: chunks of a multiple of %zu cut work-groups of %" PRIu64,
                         d->multiple, group);
    for (size_t i = 0; i < d->nargs; i++)
        if (d->args[i].follow == USM_FOLLOW_PRIVATE && d->args[i].leaf) {
            uint64_t leaf = d->args[i].leaf;

            if (__builtin_mul_overflow(p->multiple / usm__gcd(p->multiple, leaf), leaf,
                                       &p->multiple))
                return usm__fail(USM_E_INVALID,
                                 "usm_parallel: no chunk holds whole leaves of every argument");
        }
    if (d->max_chunk && d->max_chunk < d->min_chunk)
        return usm__fail(USM_E_INVALID, "usm_parallel: min_chunk %zu is above max_chunk %zu",
                         d->min_chunk, d->max_chunk);
    return USM_OK;
}

/* Computes the bytes that one index takes in buffers (host memory), and in a member's memory. */
static void bytes_of_index(const usm__plan *p, double *host, double *device)
{
    *host = *device = 0;
    for (size_t i = 0; i < p->desc.nargs; i++) {
        const usm_split_arg *a = &p->desc.args[i];

        if (a->follow == USM_FOLLOW_CHUNK) {
            *device += (double)a->stride;
            *host += a->buffer ? (double)a->stride : 0;
        } else if (a->follow == USM_FOLLOW_PRIVATE && a->leaf) {
            *device += (double)a->size / (double)a->leaf;
        }
    }
}

static void lower(uint64_t *most, double bytes, double of_index)
{
    double n = of_index > 0 ? bytes / of_index : 0;

    if (n > 0 && n < (double)*most)
        *most = n < 1 ? 1 : (uint64_t)n;
}

static void find_most(usm__plan *p, usm_team *team)
{
    usm_spill_stats stats = {.struct_size = sizeof stats};
    uint64_t        most  = p->desc.max_chunk ? p->desc.max_chunk : UINT64_MAX;
    double          slots = (double)team->depth * team->nmembers;
    double          host, device;

    bytes_of_index(p, &host, &device);
    for (size_t i = 0; i < p->desc.nargs; i++)
        if (p->desc.args[i].buffer &&
            usm_spill_get_stats(usm_buffer_get_context(p->desc.args[i].buffer), &stats) == USM_OK &&
            stats.limit)
            lower(&most, (double)stats.limit / (2 * slots), host);
    for (uint32_t i = 0; i < team->nmembers; i++) {
        usm_device_info info = USM_DEVICE_INFO_INIT;

        if (team->members[i].uses_host_memory ||
            usm_device_get_info(team->members[i].device, &info) != USM_OK)
            continue;
        lower(&most, (double)info.memory_size / (4 * team->depth), device);
        lower(&most, (double)info.max_alloc_size / 2, device);
    }
    if (most != UINT64_MAX) /* at least one multiple, and a multiple, so that nothing rounds it
                               up */
        p->max_chunk = most < p->multiple ? p->multiple : most - most % p->multiple;
}

/* ---- policies, names ------------------------------------------------------------------------- */

static usm_status copy_doubles(const double *list, size_t n, const char *what, const double **out)
{
    double *own;

    if (n == 0)
        return USM_OK;
    if (!list)
        return usm__fail(USM_E_INVALID, "usm_parallel: %zu %s, but the array is NULL", n, what);
    own = usm__heap_alloc(n * sizeof *own);
    if (!own)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a policy's %s", what);
    memcpy(own, list, n * sizeof *own);
    *out = own;
    return USM_OK;
}

static usm_status find_policy(usm__plan *p, const usm_team *team, const usm_policy *policy)
{
    const char *name = policy->name ? policy->name : usm__setting_text("policy");

    if (policy->nweights && !team->ranks && policy->nweights != team->nmembers)
        return usm__fail(USM_E_INVALID, "usm_parallel: %zu %s for a team of %u %s",
                         policy->nweights, usm__plural(policy->nweights, "weight", "weights"),
                         team->nmembers, usm__plural(team->nmembers, "member", "members"));
    p->policy = policy->fn ? policy->fn : usm__chunk_policy_find(name);
    if (!p->policy)
        return usm__fail(USM_E_INVALID, "usm_parallel: there is no policy \"%s\"; there are: %s",
                         name, usm__chunk_policy_names());
    return USM_OK;
}

/* Values are part of the shape: a launch with another value is another launch. */
static void find_shape(usm__plan *p)
{
    usm__hash                h = USM__HASH_INIT;
    const usm_parallel_desc *d = &p->desc;

    usm__hash_add(&h, d->kernel->name, strlen(d->kernel->name));
    usm__hash_number(&h, p->dim);
    usm__hash_number(&h, p->multiple);
    usm__hash_number(&h, d->state_arg);
    usm__hash_number(&h, d->flags & ~(uint32_t)USM_PARALLEL_TUNE);
    for (unsigned i = 0; i < 3; i++) {
        usm__hash_number(&h, d->offset[i]);
        usm__hash_number(&h, d->global[i]);
        usm__hash_number(&h, d->local[i]);
    }
    for (size_t i = 0; i < d->nargs; i++) {
        const usm_split_arg *a = &d->args[i];

        usm__hash_number(&h, a->follow);
        usm__hash_number(&h, a->mode);
        usm__hash_number(&h, a->size);
        usm__hash_number(&h, a->stride);
        usm__hash_number(&h, a->before);
        usm__hash_number(&h, a->after);
        usm__hash_number(&h, a->merge);
        usm__hash_number(&h, a->element);
        usm__hash_number(&h, a->leaf);
        if (a->follow == USM_FOLLOW_VALUE)
            usm__hash_add(&h, a->host, a->size);
    }
    (void)snprintf(p->shape, sizeof p->shape, "%016" PRIx64 "%016" PRIx64, h.hi, h.lo);
}

/* ---- the plan -------------------------------------------------------------------------------- */

static usm_status check_desc(usm_team *team, const usm_parallel_desc *desc)
{
    usm_status st =
        usm__struct_check("usm_parallel", "desc", desc, sizeof *desc, "USM_PARALLEL_DESC_INIT");

    if (st == USM_OK)
        st = usm__team_kernel_check(desc->kernel);
    if (st != USM_OK)
        return st;
    if (desc->kernel->team != team)
        return usm__fail(USM_E_INVALID, "kernel \"%s\" is another team's", desc->kernel->name);
    if (desc->flags & ~FLAGS)
        return usm__fail(USM_E_INVALID, "usm_parallel: unknown flags 0x%x", desc->flags);
    if (desc->nargs && !desc->args)
        return usm__fail(USM_E_ARGUMENTS, "usm_parallel: %zu %s, but args is NULL", desc->nargs,
                         usm__plural(desc->nargs, "argument", "arguments"));
    if (desc->nargs != desc->kernel->nargs)
        return usm__fail(USM_E_ARGUMENTS, "kernel \"%s\" takes %zu %s, not %zu", desc->kernel->name,
                         desc->kernel->nargs,
                         usm__plural(desc->kernel->nargs, "argument", "arguments"), desc->nargs);
    return USM_OK;
}

static usm_status copy_texts(usm__plan *p, const usm_parallel_desc *desc)
{
    const usm_policy *from = &desc->policy;
    usm_status st = copy_doubles(from->numbers, from->nnumbers, "numbers", &p->desc.policy.numbers);

    if (st == USM_OK)
        st = copy_doubles(from->weights, from->nweights, "weights", &p->desc.policy.weights);
    if (st != USM_OK || !desc->resume)
        return st;
    p->desc.resume = usm__heap_strdup(desc->resume);
    if (desc->resume_key)
        p->desc.resume_key = usm__heap_strdup(desc->resume_key);
    if (!p->desc.resume || (desc->resume_key && !p->desc.resume_key))
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a path");
    return USM_OK;
}

static usm_status fill(usm__plan *p, usm_team *team, const usm_parallel_desc *desc)
{
    usm_status st = check_range(p);

    if (st == USM_OK)
        st = copy_args(p, desc->args);
    if (st == USM_OK)
        st = check_tuning(p);
    if (st == USM_OK)
        st = find_policy(p, team, &desc->policy);
    if (st == USM_OK)
        st = copy_texts(p, desc);
    if (st == USM_OK)
        st = find_multiple(p, &desc->policy);
    if (st != USM_OK)
        return st;
    find_most(p, team);
    find_shape(p);
    return USM_OK;
}

usm_status usm__plan_make(usm_team *team, const usm_parallel_desc *desc, usm__plan **out)
{
    usm_status st = check_desc(team, desc);
    usm__plan *p;

    if (st != USM_OK)
        return st;
    p = usm__heap_alloc(sizeof *p);
    if (!p)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a launch");
    usm_ref_take(&desc->kernel->refs);
    /* The pointers of the caller's descriptor are replaced by the plan's own once their targets
     * have been copied. */
    p->desc                = *desc;
    p->desc.args           = NULL;
    p->desc.policy.numbers = p->desc.policy.weights = NULL;
    p->desc.policy.name                             = NULL;
    p->desc.resume = p->desc.resume_key = NULL;
    p->may_repeat                       = !(desc->flags & USM_PARALLEL_NO_RETRY);
    p->found_arg                        = USM__NO_ARG;
    p->state_arg                        = nth(desc->state_arg, USM__NO_ARG);
    p->has_bytes = !team->ranks || usm__ranks_is_home(team->ranks, desc->home);
    st           = fill(p, team, desc);
    if (st != USM_OK) {
        usm__plan_free(p);
        return st;
    }
    *out = p;
    return USM_OK;
}

static void free_const(const void *p)
{
    usm__heap_free((void *)(uintptr_t)p);
}

void usm__plan_free(usm__plan *p)
{
    if (!p)
        return;
    for (size_t i = 0; p->desc.args && i < p->desc.nargs; i++)
        if (p->desc.args[i].follow == USM_FOLLOW_VALUE)
            usm__heap_free(p->desc.args[i].host);
    free_const(p->desc.args);
    free_const(p->desc.policy.numbers);
    free_const(p->desc.policy.weights);
    free_const(p->desc.resume);
    free_const(p->desc.resume_key);
    usm__team_kernel_release(p->desc.kernel);
    usm__heap_free(p);
}

/* ---- needs of a chunk ---------------------------------------------------------------------- */

size_t usm__plan_copies(const usm__plan *plan, uint64_t count, size_t arg, size_t *offset)
{
    size_t at = 0, size = 0;

    for (size_t i = 0; i < plan->desc.nargs && i <= arg; i++) {
        const usm_split_arg *a = &plan->desc.args[i];

        if (a->follow != USM_FOLLOW_PRIVATE)
            continue;
        at   = (at + size + COPIES_ALIGN - 1) & ~(COPIES_ALIGN - 1);
        size = (size_t)usm__copies_of(a, count) * a->size;
    }
    *offset = at;
    if (arg < plan->desc.nargs)
        return size;
    *offset = at + size;
    return 0;
}

size_t usm__plan_copies_size(const usm__plan *plan, uint64_t count)
{
    size_t end;

    (void)usm__plan_copies(plan, count, plan->desc.nargs, &end);
    return end;
}

/* The largest divisor of n that is not above GROUP. */
static size_t divisor(uint64_t n)
{
    size_t d = GROUP;

    while (d > 1 && n % d != 0)
        d--;
    return d;
}

void usm__plan_local(const usm__plan *plan, uint64_t count, size_t local[3])
{
    memcpy(local, plan->desc.local, sizeof plan->desc.local);
    if (local[0] || plan->desc.global[0] == 0)
        return;
    local[0] = plan->dim == 0 ? (size_t)usm__gcd(count, GROUP) : divisor(plan->desc.global[0]);
    local[1] = local[2] = 1;
}

void usm__plan_window(const usm__plan *plan, size_t arg, const usm__chunk *chunk, size_t *offset,
                      size_t *size, size_t *skip)
{
    const usm_split_arg *a      = &plan->desc.args[arg];
    uint64_t             end    = chunk->first + chunk->count;
    uint64_t             before = chunk->first < a->before ? chunk->first : a->before;
    uint64_t             after  = plan->total - end < a->after ? plan->total - end : a->after;

    *offset = (size_t)(chunk->first - before) * a->stride;
    *size   = (size_t)(before + chunk->count + after) * a->stride;
    *skip   = (size_t)before * a->stride;
}
