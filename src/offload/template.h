/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of templates (usm/template.h).
 *
 *     template.c        templates: checks, kernels
 *     template_text.c   the OpenCL C of a template: usm/template_cl.h, the bodies, the kernels
 *     template_run.c    runs: maps, reductions, scans, searches
 *     template_steps.c  runs that go over their own result: stencils, iterations
 *     pipeline.c        several maps behind each other
 *
 * A run is one launch or several of usm_parallel(), so everything about chunks, failures and ranks
 * is there.  Over ranks each makes the same launches; memory between them is allocated by the rank
 * of the data only.  A failure outside of a launch is reported by usm__template_refuse(), or the
 * other ranks would wait in theirs. */
#ifndef USM_OFFLOAD_TEMPLATE_H
#define USM_OFFLOAD_TEMPLATE_H

#include "offload/offload.h"

#include <usm/template.h>

struct usm_template {
    usm__magic_word   magic;
    usm_team         *team;
    usm_template_kind kind;
    char              name[64];
    char              kernel_name[80], reduce_name[80];
    size_t            in_size, out_size, param_size; /* 0: there is none */
    size_t            radius;
    usm_team_kernel  *kernel;
    usm_team_kernel  *reduce;     /* joins leaves; NULL: the kind does not */
    usm_native_kernel natives[2]; /* of these two */
};

/* What is said of a kind in one place, for checks and for tools. */
typedef struct usm__template_kind {
    const char *name;
    size_t      nbodies;
    const char *bodies; /* in words, for messages */
    size_t      nargs;  /* of the kernel */
    bool        has_rows, reduces;
    bool        needs_input;
} usm__template_kind;
/* NULL: there is no such kind. */
const usm__template_kind *usm__template_kind_of(usm_template_kind kind);

usm_status usm__template_is(const usm_template *t);

/* template_text.c.  Returns the OpenCL C of a checked description, or NULL: no memory.  The caller
 * frees it by usm__heap_free(). */
char *usm__template_text(const usm_template_desc *desc, size_t *size);

/* ---- runs ------------------------------------------------------------------------------------ */

/* Elements of a run in host memory or a buffer. */
typedef struct usm__template_data {
    void       *host;
    usm_buffer *buffer;
    size_t      offset; /* bytes */
} usm__template_data;

static inline usm__template_data usm__template_at(usm__template_data data, uint64_t bytes)
{
    data.offset += bytes;
    return data;
}

typedef struct usm__template_run {
    usm_template                *t;
    const usm_template_run_desc *desc;
    usm__template_data           in, out;
    const void                  *param;
    bool                         is_home; /* the data are here; always, on one process */
    uint64_t                     merged;  /* over ranks: usm__ranks_merged() of the last launch */
    usm_template_result          result;
} usm__template_run;

/* Whether a run's data are those of this process. */
bool usm__template_is_home(const usm_team *team, uint32_t home);
/* Makes the next launches of the other ranks fail as this rank has, with this thread's error
 * message.  Returns the status. */
usm_status usm__template_refuse(const usm_team *team, usm_status status, uint64_t launches);

/* Makes one launch of `kernel` over [offset, offset + rows) rows of `width` items (0: of none, so in
 * one dimension). */
usm_status usm__template_launch(usm__template_run *run, usm_team_kernel *kernel, uint64_t offset,
                                uint64_t rows, uint64_t width, const usm_split_arg *args,
                                size_t nargs);
/* Starts a map of `count` elements, of which run->in and run->out begin with number `first`. */
usm_status usm__template_start_map(const usm__template_run *run, uint64_t first, uint64_t count,
                                   usm_parallel_run **launch);
/* Waits for a launch, and releases it. */
usm_status usm__template_finish(usm__template_run *run, usm_parallel_run *launch);
/* Arguments of kernels; `value` must live until the launch has been made. */
usm_split_arg usm__template_rows(usm__template_data data, size_t stride, bool is_output,
                                 size_t halo);
usm_split_arg usm__template_value(const void *value, size_t size);
/* The parameter, or the number that stands for none. */
usm_split_arg usm__template_param(const usm__template_run *run);

/* template_steps.c */
usm_status usm__template_run_steps(usm__template_run *run);

#endif
