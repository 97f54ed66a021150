/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The raw driver as a peer: its own calls, in the native context that libusm itself uses, so that
 * both sides talk to one driver.  raw_opencl.c, raw_level_zero.c. */
#ifndef USM_BENCH_RAW_H
#define USM_BENCH_RAW_H

#include <usm/usm.h>

typedef struct raw_driver raw_driver;
struct raw_driver {
    const char *alloc_name; /* "clDeviceMemAllocINTEL": what alloc calls                     */
    const char *query_name; /* NULL: the driver has no query for pointers, and query is NULL  */
    void *(*alloc)(raw_driver *raw, size_t size);
    void (*free)(raw_driver *raw, void *p);
    int (*query)(raw_driver *raw, const void *p); /* not 0                                   */
    /* Queues a copy; every one before it is done first. */
    bool (*copy)(raw_driver *raw, void *dst, const void *src, size_t n);
    bool (*fill)(raw_driver *raw, void *dst, unsigned char value, size_t n); /* as a copy      */
    bool (*finish)(raw_driver *raw);
    void (*close)(raw_driver *raw);
};

/* Each NULL when the queue is another backend's, or the headers were missing at build time. */
raw_driver *raw_opencl_open(usm_queue *q);
raw_driver *raw_level_zero_open(usm_queue *q);

#endif
