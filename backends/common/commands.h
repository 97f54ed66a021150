/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One command with all its parameters, so that it can also be issued later (defer.h), and the
 * functions of a backend's table that make one.  Compiled into each backend over a driver.  Not
 * here: the driver's calls, which the defer_ops of a backend make of a command; launches, which
 * each backend prepares. */
#ifndef USM_BACKENDS_COMMON_COMMANDS_H
#define USM_BACKENDS_COMMON_COMMANDS_H

#include "base/inline/module.h"
#include "defer.h"

typedef enum driver_command_type {
    DRIVER_COPY, /* one row of the rectangle */
    DRIVER_COPY_2D,
    DRIVER_FILL,
    DRIVER_PREFETCH,
    DRIVER_ADVISE,
    DRIVER_MARKER,
    DRIVER_BARRIER,
    DRIVER_LAUNCH
} driver_command_type;

#define DRIVER_MAX_PATTERN 128

typedef struct driver_rect {
    void       *dst;
    const void *src;
    size_t      dst_pitch, src_pitch, width, height;
} driver_rect;

/* What the backend makes of a usm_launch. */
typedef struct driver_launch {
    void    *instance; /* the backend's, with its arguments set; owned */
    uint32_t dims;
    bool     has_offset, has_local;
    size_t   offset[3], global[3], local[3];
    uint32_t groups[3]; /* of work-items; for drivers that take no global size */
} driver_launch;

typedef struct driver_command {
    defer_command       deferral; /* first member; driver_submit() fills it in */
    driver_command_type type;
    union {
        driver_rect rect;
        struct {
            void         *dst;
            size_t        size, pattern_size;
            unsigned char pattern[DRIVER_MAX_PATTERN];
        } fill;
        struct {
            const void *p;
            size_t      n;
            usm_advice  advice;
        } range;
        driver_launch launch;
    } as;
} driver_command;

/* For error messages: "the copy". */
const char *driver_command_name(const driver_command *cmd);
/* Issues or defers a command, as defer_submit() does. */
usm_status driver_submit(void *q, driver_command *cmd, size_t ndeps, void *const *deps, void **ev);

/* The functions of the backend's table, and those of the deferral queue: what all drivers have.
 * DEFER_ENTRY and DRIVER_ENTRY are for the table itself. */
#define DRIVER_OPS(X) X(copy) X(copy_2d) X(fill) X(prefetch) X(advise) X(marker) X(barrier)
#define DEFER_OPS(X)                                                                               \
    X(event_create_user)                                                                           \
    X(event_signal) X(event_query) X(event_wait) X(event_release) X(event_notify)
#define DRIVER_ENTRY(member)   .member = driver_##member,
#define DEFER_ENTRY(member)    .member = defer_##member,
#define DRIVER_DECLARE(member) USM_DECLARE_ENTRY(usm_backend_ops, member, driver_##member);
DRIVER_OPS(DRIVER_DECLARE)
#undef DRIVER_DECLARE

#endif
