/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Visibility, attributes and C linkage for all public headers, which include
 * this one.  It declares no interface of its own. */
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
/** Like printf: `f` is the position of the format, `a` that of the first
 * argument. */
#define USM_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* Names the deallocator: gcc >= 11 then warns about frees by any other
 * function. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#define USM_MALLOC __attribute__((malloc, malloc(usm_free, 1)))
#else
#define USM_MALLOC __attribute__((malloc))
#endif
#define USM_ALLOC_SIZE(n)     __attribute__((alloc_size(n)))
#define USM_ALLOC_SIZE2(n, m) __attribute__((alloc_size(n, m)))
/* Not for clang: its optimizer (14) crashes on the constant alignment 0, which
 * is our default. */
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
