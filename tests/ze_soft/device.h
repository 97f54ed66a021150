/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What entry.c and sysman.c need of device.c. */
#ifndef ZE_SOFT_DEVICE_H
#define ZE_SOFT_DEVICE_H

#include "soft.h"

/* Reads the knobs and variables; the first call does it. */
void soft_devices_init(void);
/* All but stype and pNext of a zeroed or filled structure. */
void soft_device_describe(const soft_device *dev, ze_device_properties_t *out);
void soft_device_uuid(const soft_device *dev, uint8_t *uuid, size_t size);

/* The usual protocol: a count of 0 asks how many there are, a larger one than that is cut.  False
 * when nothing is to be filled. */
static inline bool soft_count(uint32_t *count, uint32_t n)
{
    bool fill = *count != 0;

    if (*count == 0 || *count > n)
        *count = n;
    return fill && *count != 0;
}

extern soft_handle soft_driver;

#endif
