/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* An allocator as a table of functions, and what a plugin of the workers exports.  C and C++:
 * umf.c, sycl.cpp, allocators.c. */
#ifndef USM_BENCH_PLUGIN_H
#define USM_BENCH_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The functions may be called from any thread. */
typedef struct bench_allocator {
    void *self; /* first argument of what follows                              */
    void *(*malloc)(void *self, size_t size);
    void (*free)(void *self, void *p);
    int (*query)(void *self, const void *p); /* the kind of a pointer; NULL: cannot */
    void (*stats)(void *self);               /* one call for the statistics; NULL   */
    void (*close)(void *self);
} bench_allocator;

/* What a plugin exports: false and a text when it cannot. */
#define BENCH_PLUGIN_SYMBOL "usm_bench_allocator_open"
typedef bool bench_plugin_open_fn(const char *what, bench_allocator *a, char *why, size_t cap);
__attribute__((visibility("default"))) bench_plugin_open_fn usm_bench_allocator_open;

/* Small buffers of 4 KiB, n of them one after the other; what `usm-bench spill` compares with. */
typedef struct bench_buffers {
    void *self;
    bool (*create)(void *self, size_t n); /* made, written by the host, destroyed              */
    bool (*device)(void *self, size_t n); /* over the program's memory: filled, written back    */
} bench_buffers;

#define BENCH_PLUGIN_BUFFERS_SYMBOL "usm_bench_buffers_open"
typedef bool bench_plugin_buffers_fn(bench_buffers *b, char *why, size_t cap);
__attribute__((visibility("default"))) bench_plugin_buffers_fn usm_bench_buffers_open;

/* Commands on one in-order queue, n of them one after the other, over device memory of the plugin's
 * of at most BENCH_COMMAND_SIZE bytes: returned when they are submitted; what `usm-bench async`
 * compares with.  false: one failed. */
#define BENCH_COMMAND_SIZE ((size_t)1 << 20)
typedef struct bench_commands {
    void *self;
    bool (*pairs)(void *self, size_t size, size_t n); /* async_malloc, async_free; NULL: has none */
    bool (*memset)(void *self, size_t size, size_t n);
    bool (*memcpy)(void *self, size_t size, size_t n);
    bool (*memset_plain)(void *self, size_t size,
                         size_t n); /* the same without asking for events  */
    bool (*memcpy_plain)(void *self, size_t size, size_t n);
    bool (*wait)(void *self);
} bench_commands;

#define BENCH_PLUGIN_COMMANDS_SYMBOL "usm_bench_commands_open"
typedef bool bench_plugin_commands_fn(bench_commands *c, char *why, size_t cap);
__attribute__((visibility("default"))) bench_plugin_commands_fn usm_bench_commands_open;

#ifdef __cplusplus
}
#endif
#endif
