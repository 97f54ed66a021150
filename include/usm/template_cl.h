/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * The kernels of templates (usm/template.h) in OpenCL C.  libusm compiles this
 * text in front of the bodies that usm_template_create() is given.  A .cl file
 * for usm_add_kernels() includes it in quotes, and then the same USM_MAP(...),
 * USM_STENCIL(...) lines as the program in C.
 *
 * The kernels of a template are called usm_name_kernel and usm_name_reduce, so
 * that its name may be that of a function of OpenCL C.  A launch has one work-item for each index.  An index of reductions, scans and
 * searches is a leaf of USM_TEMPLATE_LEAF elements.  `step` is 0 where there is
 * no input; `n` counts the elements of all leaves. */
#ifndef USM_TEMPLATE_CL_H
#define USM_TEMPLATE_CL_H

#define USM_TEMPLATE_LEAF 256

#if defined(__OPENCL_VERSION__) || defined(__OPENCL_C_VERSION__)
typedef char   int8_t;
typedef uchar  uint8_t;
typedef short  int16_t;
typedef ushort uint16_t;
typedef int    int32_t;
typedef uint   uint32_t;
typedef long   int64_t;
typedef ulong  uint64_t;
typedef uint   usm_nothing;

/* ---- bodies ------------------------------------------------------------------------------------ */

#define USM_BODY_MAP(name, in_type, out_type, param_type)                                          \
    out_type name##_body(in_type x, ulong i, param_type p)
#define USM_BODY_JOIN(name, type, param_type)      type name##_join(type a, type b, param_type p)
#define USM_BODY_SEARCH(name, in_type, param_type) int name##_body(in_type x, ulong i, param_type p)
#define USM_BODY_STENCIL(name, in_type, out_type, param_type)                                      \
    out_type name##_body(__global const in_type *usm_in, long x, long y, long width, long height,  \
                         long usm_radius, param_type p)
#define USM_BODY_SETTLED(name, type, param_type)                                                   \
    int name##_settled(type before, type now, param_type p)

/* The element dx to the right and dy below, of the nearest row and column that there is. */
#define USM_AT(dx, dy)                                                                             \
    usm_in[(clamp(y + clamp((long)(dy), -usm_radius, usm_radius), 0L, height - 1) - y) * width +   \
           clamp(x + (long)(dx), 0L, width - 1)]

/* ---- kernels ----------------------------------------------------------------------------------- */

#define USM_KERNEL_MAP(name, in_type, out_type, param_type)                                        \
    __kernel void name##_kernel(__global const in_type *in, __global out_type *out, uint step,     \
                                param_type p)                                                      \
    {                                                                                              \
        size_t k = get_global_id(0) - get_global_offset(0);                                        \
                                                                                                   \
        out[k] = name##_body(in[k * step], get_global_id(0), p);                                   \
    }

#define USM_KERNEL_LEAF_(kernel, in_type, out_type, param_type, value, join)                       \
    __kernel void kernel(__global const in_type *in, __global out_type *out, uint step, ulong n,   \
                         param_type p)                                                             \
    {                                                                                              \
        size_t   k = get_global_id(0) - get_global_offset(0), at = k * USM_TEMPLATE_LEAF;          \
        ulong    i    = get_global_id(0) * (ulong)USM_TEMPLATE_LEAF;                               \
        ulong    end  = min(i + USM_TEMPLATE_LEAF, n);                                             \
        out_type left = value(in[at * step], i, p);                                                \
                                                                                                   \
        for (i++, at++; i < end; i++, at++)                                                        \
            left = join(left, value(in[at * step], i, p), p);                                      \
        out[k] = left;                                                                             \
    }
#define USM_ITSELF_(x, i, p) (x)

#define USM_KERNEL_MAP_REDUCE(name, in_type, out_type, param_type)                                 \
    USM_KERNEL_LEAF_(name##_kernel, in_type, out_type, param_type, name##_body, name##_join)       \
    USM_KERNEL_LEAF_(name##_reduce, out_type, out_type, param_type, USM_ITSELF_, name##_join)

#define USM_KERNEL_SCAN(name, type, param_type)                                                    \
    __kernel void name##_kernel(__global const type *in, __global type *out,                       \
                                __global const type *carry, ulong n, param_type p)                 \
    {                                                                                              \
        size_t k = get_global_id(0) - get_global_offset(0), at = k * USM_TEMPLATE_LEAF;            \
        ulong  i    = get_global_id(0) * (ulong)USM_TEMPLATE_LEAF;                                 \
        ulong  end  = min(i + USM_TEMPLATE_LEAF, n);                                               \
        type   left = i > 0 ? name##_join(carry[k], in[at], p) : in[at];                           \
                                                                                                   \
        out[at] = left;                                                                            \
        for (i++, at++; i < end; i++, at++) {                                                      \
            left    = name##_join(left, in[at], p);                                                \
            out[at] = left;                                                                        \
        }                                                                                          \
    }                                                                                              \
    USM_KERNEL_LEAF_(name##_reduce, type, type, param_type, USM_ITSELF_, name##_join)

#define USM_KERNEL_SEARCH(name, in_type, param_type)                                               \
    __kernel void name##_kernel(__global const in_type *in, __global long *found, uint step,       \
                                ulong n, param_type p)                                             \
    {                                                                                              \
        size_t k = get_global_id(0) - get_global_offset(0), at = k * USM_TEMPLATE_LEAF;            \
        ulong  i   = get_global_id(0) * (ulong)USM_TEMPLATE_LEAF;                                  \
        ulong  end = min(i + USM_TEMPLATE_LEAF, n);                                                \
                                                                                                   \
        while (i < end && !name##_body(in[at * step], i, p)) {                                     \
            i++;                                                                                   \
            at++;                                                                                  \
        }                                                                                          \
        if (i < end)                                                                               \
            found[k] = (long)i;                                                                    \
    }

/* Rows of one element are a launch of one dimension. */
#define USM_POSITION_                                                                              \
    uint rows = width == 1 ? 0 : 1;                                                                \
    long x    = width == 1 ? 0 : (long)get_global_id(0);                                           \
    long y = (long)get_global_id(rows), row = y - (long)get_global_offset(rows)

#define USM_KERNEL_STENCIL(name, in_type, out_type, param_type, radius)                            \
    __kernel void name##_kernel(__global const in_type *in, __global out_type *out, long width,    \
                                long height, param_type p)                                         \
    {                                                                                              \
        USM_POSITION_;                                                                             \
        out[row * width + x] = name##_body(in + row * width, x, y, width, height, radius, p);      \
    }

#define USM_KERNEL_ITERATE(name, type, param_type, radius)                                         \
    __kernel void name##_kernel(__global const type *in, __global type *out, __global int *moving, \
                                long width, long height, param_type p)                             \
    {                                                                                              \
        USM_POSITION_;                                                                             \
        type now = name##_body(in + row * width, x, y, width, height, radius, p);                  \
                                                                                                   \
        out[row * width + x] = now;                                                                \
        if (!name##_settled(in[row * width + x], now, p))                                          \
            (void)atomic_xchg(moving, 1);                                                          \
    }

/* ---- as in the program in C ------------------------------------------------------------------ */

#define USM_STRIP_(...) __VA_ARGS__

/* clang-format off */
#define USM_MAP(name, in_type, out_type, param_type, ...)                                          \
    USM_BODY_MAP(usm_##name, in_type, out_type, param_type) { __VA_ARGS__ }                        \
    USM_KERNEL_MAP(usm_##name, in_type, out_type, param_type)
#define USM_MASTER_WORKER USM_MAP
#define USM_MAP_REDUCE(name, in_type, out_type, param_type, map, reduce)                           \
    USM_BODY_MAP(usm_##name, in_type, out_type, param_type) { USM_STRIP_ map }                     \
    USM_BODY_JOIN(usm_##name, out_type, param_type) { USM_STRIP_ reduce }                          \
    USM_KERNEL_MAP_REDUCE(usm_##name, in_type, out_type, param_type)
#define USM_SCAN(name, type, param_type, ...)                                                      \
    USM_BODY_JOIN(usm_##name, type, param_type) { __VA_ARGS__ }                                    \
    USM_KERNEL_SCAN(usm_##name, type, param_type)
#define USM_SEARCH(name, in_type, param_type, ...)                                                 \
    USM_BODY_SEARCH(usm_##name, in_type, param_type) { __VA_ARGS__ }                               \
    USM_KERNEL_SEARCH(usm_##name, in_type, param_type)
#define USM_STENCIL(name, in_type, out_type, param_type, radius, ...)                              \
    USM_BODY_STENCIL(usm_##name, in_type, out_type, param_type) { __VA_ARGS__ }                    \
    USM_KERNEL_STENCIL(usm_##name, in_type, out_type, param_type, radius)
#define USM_ITERATE(name, type, param_type, radius, step, settled)                                 \
    USM_BODY_STENCIL(usm_##name, type, type, param_type) { USM_STRIP_ step }                       \
    USM_BODY_SETTLED(usm_##name, type, param_type) { USM_STRIP_ settled }                          \
    USM_KERNEL_ITERATE(usm_##name, type, param_type, radius)
/* clang-format on */
#endif

#endif
