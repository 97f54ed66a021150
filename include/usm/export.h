/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * What every public header needs: visibility, attributes, C linkage.
 * Included by all the others; nothing here is an interface of its own. */
#ifndef USM_EXPORT_H
#define USM_EXPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(USM_STATIC)
#define USM_API
#else
#define USM_API __attribute__((visibility("default")))
#endif

#define USM_NODISCARD __attribute__((warn_unused_result))
/** printf-like: `f` is the position of the format, `a` of the first argument. */
#define USM_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* A deallocator named here makes gcc >= 11 warn about the wrong kind of free. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#define USM_MALLOC __attribute__((malloc, malloc(usm_free, 1)))
#else
#define USM_MALLOC __attribute__((malloc))
#endif
#define USM_ALLOC_SIZE(n)     __attribute__((alloc_size(n)))
#define USM_ALLOC_SIZE2(n, m) __attribute__((alloc_size(n, m)))
/* Not for clang: its optimizer (14) crashes on our default, the constant alignment 0. */
#if defined(__clang__)
#define USM_ALLOC_ALIGN(n)
#else
#define USM_ALLOC_ALIGN(n) __attribute__((alloc_align(n)))
#endif

#ifdef __cplusplus
#define USM_BEGIN_DECLS extern "C" {
#define USM_END_DECLS   }
#else
#define USM_BEGIN_DECLS
#define USM_END_DECLS
#endif

#endif
