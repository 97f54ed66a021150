/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* See dag.h.  Here: what operations do to bytes, and the program that does it on devices. */
#include "dag.h"
#include "dag_kernels.h" /* made by usm_add_kernels() */

#include <string.h>

/* ---- native kernels -------------------------------------------------------------------- */

static unsigned char *bytes_of(void *arg)
{
    return *(unsigned char *const *)arg;
}

static uint32_t number_of(void *arg)
{
    return *(const uint32_t *)arg;
}

static void mix(const usm_range *range, void *const *args)
{
    unsigned char       *dst   = bytes_of(args[0]);
    const unsigned char *src   = bytes_of(args[1]);
    uint32_t             value = number_of(args[2]);

    for (size_t i = range->begin[0]; i < range->end[0]; i++)
        dst[i] = (unsigned char)(dst[i] * 3u + src[i] + value);
}

static void gather(const usm_range *range, void *const *args)
{
    unsigned char       *dst = bytes_of(args[0]);
    const unsigned char *a = bytes_of(args[1]), *b = bytes_of(args[2]);
    uint32_t             n = number_of(args[3]), value = number_of(args[4]);

    for (size_t i = range->begin[0]; i < range->end[0]; i++)
        dst[i] = (unsigned char)(a[i] + b[n - 1 - i] * 5u + value);
}

static void stripe(const usm_range *range, void *const *args)
{
    unsigned char *dst  = bytes_of(args[0]);
    uint32_t       step = number_of(args[1]), value = number_of(args[2]);

    for (size_t i = range->begin[0]; i < range->end[0]; i++)
        if (i % step == 0)
            dst[i] = (unsigned char)(value + i);
}

static void swap(const usm_range *range, void *const *args)
{
    unsigned char *a = bytes_of(args[0]), *b = bytes_of(args[1]);
    uint32_t       value = number_of(args[2]);

    for (size_t i = range->begin[0]; i < range->end[0]; i++) {
        unsigned char held = a[i];

        a[i] = (unsigned char)(b[i] + value);
        b[i] = held;
    }
}

usm_status dag_program_create(usm_context *ctx, usm_program **program, usm_kernel *kernels[4])
{
    static const usm_native_kernel natives[] = {{"dag_mix", mix, 3, NULL},
                                                {"dag_gather", gather, 5, NULL},
                                                {"dag_stripe", stripe, 3, NULL},
                                                {"dag_swap", swap, 3, NULL}};
    usm_image                      images[]  = {{USM_IMAGE_BUNDLE, dag_kernels, dag_kernels_size},
                                                {USM_IMAGE_NATIVE, natives, sizeof natives}};
    usm_program_desc               desc      = USM_PROGRAM_DESC_INIT;
    usm_status                     st;

    desc.images  = images;
    desc.nimages = 2;
    st           = usm_program_create(ctx, &desc, program);
    for (int i = 0; st == USM_OK && i < 4; i++)
        st = usm_kernel_create(*program, natives[i].name, &kernels[i]);
    return st;
}

/* ---- the model's ------------------------------------------------------------------------- */

void dag_compute(const dag_op *op, unsigned char *const *ptrs)
{
    usm_range      range = {.dims = 1, .global = {op->n, 1, 1}, .end = {op->n, 1, 1}};
    unsigned char *p[DAG_USES];
    uint32_t       n = (uint32_t)op->n, value = op->value, step = op->step;

    for (unsigned i = 0; i < op->nuses; i++)
        p[i] = ptrs[i];
    if (op->kind == DAG_MIX)
        mix(&range, (void *[]){&p[0], &p[1], &value});
    else if (op->kind == DAG_GATHER)
        gather(&range, (void *[]){&p[0], &p[1], &p[2], &n, &value});
    else if (op->kind == DAG_STRIPE)
        stripe(&range, (void *[]){&p[0], &step, &value});
    else if (op->kind == DAG_SWAP)
        swap(&range, (void *[]){&p[0], &p[1], &value});
    else if (op->kind == DAG_COPY)
        memcpy(p[0], p[1], op->n);
    for (size_t i = 0; op->kind == DAG_FILL && i < op->n; i++)
        p[0][i] = (unsigned char)(value >> (i % step * 8));
}

void dag_compute_known(const dag_op *op, unsigned char *const *known)
{
    for (unsigned i = 0; i < op->nuses; i++)
        if (op->uses[i].mode & USM_NO_INIT)
            memset(known[i], 0, op->n);
    if (op->kind == DAG_FILL)
        memset(known[0], 0xff, op->n);
    if (op->kind == DAG_COPY)
        memcpy(known[0], known[1], op->n);
    for (size_t i = 0; i < op->n; i++) {
        if (op->kind == DAG_MIX) {
            known[0][i] &= known[1][i];
        } else if (op->kind == DAG_GATHER) {
            known[0][i] = known[1][i] & known[2][op->n - 1 - i];
        } else if (op->kind == DAG_STRIPE && i % op->step == 0) {
            known[0][i] = 0xff;
        } else if (op->kind == DAG_SWAP) {
            unsigned char held = known[0][i];

            known[0][i] = known[1][i];
            known[1][i] = held;
        }
    }
}
