/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs of templates: usm_template_run().
 *
 * Reductions, scans and searches go over leaves: one index of a launch is USM_TEMPLATE_LEAF elements.
 * An input whose length is not a multiple of that has a launch of its own for the rest, as a launch
 * reads whole indices only.
 *
 *     elements  |  leaf 0  |  leaf 1  | ... | rest |
 *     reduction      r0         r1       ...    rn      again over these, until one is left
 *     scan      carry[0]   carry[1]   ...               a scan over r0, r1, ...; then each leaf begins
 *                                                       with what is before it
 *
 * So what is joined with what depends on the number of elements alone. */
#include "offload/ranks.h"
#include "offload/template.h"

#include "base/inline/plural.h"
#include "base/os.h"

#include <inttypes.h>
#include <string.h>

#define LEAF ((uint64_t)USM_TEMPLATE_LEAF)

static const uint32_t nothing; /* the input or the parameter that there is not */

/* ---- arguments ------------------------------------------------------------------------------- */

usm_split_arg usm__template_rows(usm__template_data data, size_t stride, bool is_output,
                                 size_t halo)
{
    return (usm_split_arg){.follow = USM_FOLLOW_CHUNK,
                           .mode   = is_output ? USM_WRITE_NO_INIT : USM_READ,
                           .host   = data.host,
                           .buffer = data.buffer,
                           .offset = data.offset,
                           .stride = stride,
                           .before = halo,
                           .after  = halo};
}

usm_split_arg usm__template_value(const void *value, size_t size)
{
    return (usm_split_arg){
        .follow = USM_FOLLOW_VALUE, .host = (void *)(uintptr_t)value, .size = size};
}

usm_split_arg usm__template_param(const usm__template_run *run)
{
    if (run->t->param_size == 0)
        return usm__template_value(&nothing, sizeof nothing);
    return usm__template_value(run->param, run->t->param_size);
}

/* Elements, or the word that kernels without input read again and again. */
static usm_split_arg input(usm__template_data data, size_t stride)
{
    if (stride)
        return usm__template_rows(data, stride, false, 0);
    return (usm_split_arg)USM_SPLIT_WHOLE(&nothing, sizeof nothing);
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Starts a launch over [offset, offset + rows) rows of `width` items; width 0: of one dimension. */
static usm_status start(const usm__template_run *run, usm_team_kernel *kernel, uint64_t offset,
                        const uint64_t size[2], const usm_split_arg *args, size_t nargs,
                        usm_parallel_run **launch)
{
    usm_parallel_desc d     = USM_PARALLEL_DESC_INIT;
    double            grain = run->desc->grain ? (double)run->desc->grain : 1;
    uint32_t          dim   = size[1] ? 1 : 0;

    d.kernel        = kernel;
    d.dims          = dim + 1;
    d.global[0]     = size[1];
    d.global[dim]   = size[0];
    d.offset[dim]   = offset;
    d.args          = args;
    d.nargs         = nargs;
    d.policy        = run->desc->policy;
    d.progress      = run->desc->progress;
    d.progress_user = run->desc->progress_user;
    d.home          = run->desc->home;
    if (run->t->kind == USM_TEMPLATE_MASTER_WORKER)
        d.policy = (usm_policy){.name = "fixed", .numbers = &grain, .nnumbers = 1};
    return usm_parallel_start(run->t->team, &d, launch);
}

usm_status usm__template_finish(usm__template_run *run, usm_parallel_run *launch)
{
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    usm_status         st    = usm_parallel_wait(launch, &stats);

    run->result.launches++;
    run->result.chunks += stats.chunks;
    run->result.rescheduled += stats.rescheduled;
    if (st == USM_OK && launch->launch)
        run->merged = usm__ranks_merged(launch->launch);
    usm__quietly(usm_parallel_release(launch));
    return st;
}

usm_status usm__template_launch(usm__template_run *run, usm_team_kernel *kernel, uint64_t offset,
                                uint64_t rows, uint64_t width, const usm_split_arg *args,
                                size_t nargs)
{
    const uint64_t    size[2] = {rows, width};
    usm_parallel_run *launch  = NULL;
    usm_status        st      = start(run, kernel, offset, size, args, nargs, &launch);

    return st == USM_OK ? usm__template_finish(run, launch) : st;
}

bool usm__template_is_home(const usm_team *team, uint32_t home)
{
    return !team->ranks || usm__ranks_is_home(team->ranks, home);
}

usm_status usm__template_refuse(const usm_team *team, usm_status status, uint64_t launches)
{
    for (; team->ranks && launches > 0; launches--)
        usm__ranks_refuse(team->ranks, status);
    return status;
}

static uint64_t leaves_of(uint64_t n)
{
    return n / LEAF + (n % LEAF != 0);
}

/* A launch over the leaves of n elements.  elements: by argument, the bytes of one element where an
 * index is a leaf of them, else 0.  A private argument has bytes for both launches. */
static usm_status over_leaves(usm__template_run *run, usm_team_kernel *kernel, usm_split_arg *args,
                              size_t nargs, const size_t *elements, uint64_t n)
{
    bool       has_rest = elements[0] && n % LEAF;
    uint64_t   whole    = has_rest ? n / LEAF : leaves_of(n);
    usm_status st       = USM_OK;

    if (whole)
        st = usm__template_launch(run, kernel, 0, whole, 0, args, nargs);
    if (st != USM_OK || !has_rest)
        return st;
    for (size_t i = 0; i < nargs; i++) {
        if (args[i].follow == USM_FOLLOW_PRIVATE && args[i].host)
            args[i].host = (char *)args[i].host + args[i].size;
        if (args[i].follow != USM_FOLLOW_CHUNK)
            continue;
        args[i].offset += whole * args[i].stride;
        if (elements[i])
            args[i].stride = (size_t)(n % LEAF) * elements[i];
    }
    return usm__template_launch(run, kernel, whole, 1, 0, args, nargs);
}

/* ---- kinds ----------------------------------------------------------------------------------- */

usm_status usm__template_start_map(const usm__template_run *run, uint64_t first, uint64_t count,
                                   usm_parallel_run **launch)
{
    const usm_template *t       = run->t;
    const uint64_t      size[2] = {count, 0};
    const uint32_t      step    = t->in_size != 0;
    const usm_split_arg args[]  = {
         input(run->in, t->in_size), usm__template_rows(run->out, t->out_size, true, 0),
         usm__template_value(&step, sizeof step), usm__template_param(run)};

    return start(run, t->kernel, first, size, args, 4, launch);
}

static usm_status run_map(usm__template_run *run)
{
    usm_parallel_run *launch = NULL;
    usm_status        st     = usm__template_start_map(run, 0, run->desc->count, &launch);

    return st == USM_OK ? usm__template_finish(run, launch) : st;
}

/* Joins each leaf of n elements of `size` bytes (0: there are none) into one at `out`. */
static usm_status join_leaves(usm__template_run *run, usm_team_kernel *kernel,
                              usm__template_data in, size_t size, usm__template_data out,
                              uint64_t n)
{
    const uint32_t step       = size != 0;
    const size_t   elements[] = {size, 0, 0, 0, 0};
    usm_split_arg  args[]     = {input(in, LEAF * size),
                                 usm__template_rows(out, run->t->out_size, true, 0),
                                 usm__template_value(&step, sizeof step),
                                 usm__template_value(&n, sizeof n), usm__template_param(run)};

    return over_leaves(run, kernel, args, 5, elements, n);
}

static usm_status allocate(const usm__template_run *run, uint64_t n, usm__template_data *data)
{
    *data = (usm__template_data){NULL, NULL, 0};
    if (!run->is_home)
        return USM_OK;
    data->host = usm__heap_alloc((size_t)n * run->t->out_size);
    if (data->host)
        return USM_OK;
    return usm__template_refuse(run->t->team,
                                usm__fail(USM_E_NO_MEMORY,
                                          "no host memory for %" PRIu64
                                          " elements between the launches of template '%s'",
                                          n, run->t->name),
                                1);
}

static usm_status run_map_reduce(usm__template_run *run)
{
    usm__template_data from    = run->in;
    usm_team_kernel   *kernel  = run->t->kernel;
    size_t             size    = run->t->in_size;
    void              *held    = NULL;
    bool               is_last = false;
    usm_status         st      = USM_OK;

    for (uint64_t n = run->desc->count; st == USM_OK && !is_last; n = leaves_of(n)) {
        usm__template_data to = run->out;

        is_last = n <= LEAF;
        if (!is_last)
            st = allocate(run, leaves_of(n), &to);
        if (st == USM_OK)
            st = join_leaves(run, kernel, from, size, to, n);
        usm__heap_free(held);
        held   = is_last ? NULL : to.host;
        from   = to;
        size   = run->t->out_size;
        kernel = run->t->reduce;
    }
    usm__heap_free(held);
    return st;
}

static usm_status scan(usm__template_run *run, usm__template_data in, usm__template_data out,
                       uint64_t n)
{
    const size_t       size       = run->t->out_size;
    const size_t       elements[] = {size, size, 0, 0, 0};
    uint64_t           leaves     = leaves_of(n);
    usm__template_data joined     = {NULL, NULL, 0}, carry;
    usm_status         st         = allocate(run, leaves + 1, &carry);

    if (st == USM_OK && leaves > 1)
        st = allocate(run, leaves, &joined);
    if (st == USM_OK && leaves > 1)
        st = join_leaves(run, run->t->reduce, in, size, joined, n);
    if (st == USM_OK && leaves > 1)
        st = scan(run, joined, usm__template_at(carry, size), leaves);
    usm__heap_free(joined.host);
    if (st == USM_OK) {
        usm_split_arg args[] = {usm__template_rows(in, LEAF * size, false, 0),
                                usm__template_rows(out, LEAF * size, true, 0),
                                usm__template_rows(carry, size, false, 0),
                                usm__template_value(&n, sizeof n), usm__template_param(run)};

        st = over_leaves(run, run->t->kernel, args, 5, elements, n);
    }
    usm__heap_free(carry.host);
    return st;
}

static usm_status run_search(usm__template_run *run)
{
    const usm_template *t          = run->t;
    const uint32_t      step       = t->in_size != 0;
    const size_t        elements[] = {t->in_size, 0, 0, 0, 0};
    int64_t             found[2]   = {-1, -1}; /* in whole leaves, in the rest */
    const uint64_t      n          = run->desc->count;
    usm_split_arg       args[]     = {input(run->in, LEAF * t->in_size),
                                      {.follow = USM_FOLLOW_PRIVATE,
                                       .mode   = USM_READ_WRITE,
                                       .host   = &found[0],
                                       .size   = sizeof found[0],
                                       .merge  = USM_MERGE_FIRST,
                                       .leaf   = 1},
                                      usm__template_value(&step, sizeof step),
                                      usm__template_value(&n, sizeof n),
                                      usm__template_param(run)};
    usm_status          st         = over_leaves(run, t->kernel, args, 5, elements, n);
    usm_access          access;

    if (st != USM_OK || !run->is_home)
        return st;
    if (found[0] < 0)
        found[0] = found[1];
    if (run->out.host) {
        memcpy(run->out.host, found, sizeof found[0]);
        return USM_OK;
    }
    st = usm_access_begin(run->out.buffer, 0, sizeof found[0], USM_WRITE_NO_INIT, &access);
    if (st != USM_OK)
        return st;
    memcpy(access.ptr, found, sizeof found[0]);
    usm_access_end(&access);
    return USM_OK;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static usm_status check_rows(const usm_template *t, const usm_template_run_desc *d)
{
    if (t->radius > d->count)
        return usm__fail(USM_E_INVALID,
                         "template '%s': a halo of %zu %s is larger than the array of %" PRIu64
                         " %s",
                         t->name, t->radius, usm__plural(t->radius, "row", "rows"), d->count,
                         usm__plural(d->count, "row", "rows"));
    if (t->kind == USM_TEMPLATE_STENCIL && d->steps > 1 && t->in_size != t->out_size)
        return usm__fail(USM_E_INVALID,
                         "template '%s': %" PRIu64 " steps need an output that can be the next "
                         "input, but elements have %zu and %zu bytes",
                         t->name, d->steps, t->in_size, t->out_size);
    return USM_OK;
}

static usm_status check_places(const usm_template *t, const usm_template_run_desc *d)
{
    bool elsewhere = !usm__template_is_home(t->team, d->home);

    if ((d->in && d->in_buffer) || (d->out && d->out_buffer))
        return usm__fail(USM_E_INVALID, "template '%s': %s and %s_buffer are both set", t->name,
                         d->in && d->in_buffer ? "in" : "out",
                         d->in && d->in_buffer ? "in" : "out");
    if (t->in_size && !d->in && !d->in_buffer && !elsewhere)
        return usm__fail(USM_E_INVALID, "template '%s' has no input: set in, or in_buffer",
                         t->name);
    if (!d->out && !d->out_buffer && !elsewhere)
        return usm__fail(USM_E_INVALID, "template '%s' has no output: set out, or out_buffer",
                         t->name);
    if (t->param_size && !d->param)
        return usm__fail(USM_E_INVALID,
                         "template '%s' has a parameter of %zu bytes, and param is NULL", t->name,
                         t->param_size);
    return USM_OK;
}

static usm_status check(const usm_template *t, const usm_template_run_desc *d)
{
    const usm__template_kind *kind;
    size_t                    most, bytes;
    usm_status                st =
        usm__struct_check("usm_template_run", "run", d, sizeof *d, "USM_TEMPLATE_RUN_DESC_INIT");

    if (st != USM_OK)
        return st;
    kind = usm__template_kind_of(t->kind);
    most = t->in_size;
    if (!kind->reduces && t->kind != USM_TEMPLATE_SEARCH && t->out_size > most)
        most = t->out_size;
    if (d->count == 0)
        return usm__fail(USM_E_INVALID, "template '%s': count is 0; it must be at least 1",
                         t->name);
    if (d->width > 1 && !kind->has_rows)
        return usm__fail(USM_E_INVALID, "template '%s': the kind %s has no rows; set width to 0",
                         t->name, kind->name);
    if (__builtin_mul_overflow(d->count, most, &bytes) ||
        __builtin_mul_overflow(bytes, d->width ? d->width : 1, &bytes))
        return usm__fail(USM_E_SIZE,
                         "template '%s': %" PRIu64 " elements of %zu bytes are more than can be "
                         "addressed",
                         t->name, d->count, most);
    if (kind->has_rows)
        st = check_rows(t, d);
    return st == USM_OK ? check_places(t, d) : st;
}

usm_status usm_template_check(const usm_template *t, const usm_template_run_desc *d)
{
    usm_status st = usm__template_is(t);

    return st == USM_OK ? check(t, d) : st;
}

/* ---- the call -------------------------------------------------------------------------------- */

static usm_status run_kind(usm__template_run *run)
{
    switch (run->t->kind) {
    case USM_TEMPLATE_MAP:
    case USM_TEMPLATE_MASTER_WORKER:
        return run_map(run);
    case USM_TEMPLATE_MAP_REDUCE:
        return run_map_reduce(run);
    case USM_TEMPLATE_SCAN:
        return scan(run, run->in, run->out, run->desc->count);
    case USM_TEMPLATE_SEARCH:
        return run_search(run);
    case USM_TEMPLATE_STENCIL:
    case USM_TEMPLATE_ITERATE:
        break;
    }
    return usm__template_run_steps(run);
}

usm_status usm_template_run(usm_template *t, const usm_template_run_desc *desc,
                            usm_template_result *result)
{
    usm__template_run run = {.t = t, .desc = desc, .result = USM_TEMPLATE_RESULT_INIT};
    usm_status        st  = usm__template_is(t);

    if (st != USM_OK)
        return st;
    st = check(t, desc);
    if (st == USM_OK && result)
        st = usm__struct_check("usm_template_run", "result", result, sizeof *result,
                               "USM_TEMPLATE_RESULT_INIT");
    if (st != USM_OK)
        return usm__template_refuse(t->team, st, 1);
    run.in      = (usm__template_data){(void *)(uintptr_t)desc->in, desc->in_buffer, 0};
    run.out     = (usm__template_data){desc->out, desc->out_buffer, 0};
    run.param   = desc->param;
    run.is_home = usm__template_is_home(t->team, desc->home);
    st          = run_kind(&run);
    if (st == USM_OK && result) {
        run.result.struct_size = result->struct_size;
        *result                = run.result;
    }
    return st;
}
