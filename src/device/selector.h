/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The grammar of USM_DEVICE_SELECTOR, which is that of ONEAPI_DEVICE_SELECTOR plus the backend
 * `host`: accepted and discarded devices.  Parsing neither allocates nor calls a driver.
 * device/device.c matches the devices. */
#ifndef USM_DEVICE_SELECTOR_H
#define USM_DEVICE_SELECTOR_H

#include "base/status.h"

#include <stddef.h>

#define USM__SELECTOR_TERMS   32
#define USM__SELECTOR_DEVICES 32
#define USM__SELECTOR_LEVELS  3
#define USM__SELECTOR_STAR    SIZE_MAX

/* cpu, gpu, accelerator, or an index of 1 to 3 levels, each a number or *. */
typedef struct usm__selector_device {
    int    type;   /* usm_device_type, or 0 for an index                            */
    size_t levels; /* 1..3 when type is 0                                           */
    size_t index[USM__SELECTOR_LEVELS]; /* number or USM__SELECTOR_STAR                */
} usm__selector_device;

typedef struct usm__selector_term {
    char                 backend[32]; /* "*" for any                                  */
    size_t               ndevices;
    usm__selector_device devices[USM__SELECTOR_DEVICES];
} usm__selector_term;

typedef struct usm__selector {
    size_t             naccepts, ndiscards;
    usm__selector_term accepts[USM__SELECTOR_TERMS];
    usm__selector_term discards[USM__SELECTOR_TERMS];
} usm__selector;

/* "" and discards alone imply `*:*`.  USM_E_SELECTOR the message quotes the wrong part */
usm_status usm__selector_parse(const char *text, usm__selector *selector);
/* For the settings table. */
bool usm__selector_check(const char *text, char *why, size_t why_size);

#endif
