/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a driver gave to pools, by address.  Each layer has a copy of its own.  Sizes are bytes.  Any
 * thread may call. */
#ifndef USM_INSIDE_AREAS_H
#define USM_INSIDE_AREAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct inside_area {
    uintptr_t start;
    size_t    size;
    void     *data; /* the layer's; changed only within inside_area_do() */
} inside_area;

/* false: no memory, or an area there that the driver has not been seen to free. */
bool inside_area_add(void *p, size_t size);
/* Removes the area around p; returns its data. */
void *inside_area_remove(void *p);
/* Of the area around p; NULL: p is the driver's. */
void *inside_area_start(const void *p);
/* Calls fn for the area around p, with the lock of all areas.  false: p is the driver's. */
bool inside_area_do(const void *p, void (*fn)(inside_area *area, void *user), void *user);
/* In the child of a fork. */
void inside_areas_in_child(void);

#endif
