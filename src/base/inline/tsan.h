/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads that ThreadSanitizer is not to check.  The kernel keeps a program's writes to managed memory
 * and the library's reads of it apart, by protecting pages and by faults, of which ThreadSanitizer
 * knows nothing. */
#ifndef USM_BASE_INLINE_TSAN_H
#define USM_BASE_INLINE_TSAN_H

#if defined(__SANITIZE_THREAD__)
#define USM_HAS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define USM_HAS_TSAN 1
#endif
#endif

#ifdef USM_HAS_TSAN
/* Of its runtime (LLVM, tsan_interface_ann.cpp). */
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
#define USM_TSAN_IGNORE_READS_BEGIN() AnnotateIgnoreReadsBegin(__FILE__, __LINE__)
#define USM_TSAN_IGNORE_READS_END()   AnnotateIgnoreReadsEnd(__FILE__, __LINE__)
#else
#define USM_TSAN_IGNORE_READS_BEGIN() ((void)0)
#define USM_TSAN_IGNORE_READS_END()   ((void)0)
#endif

#endif
