/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A backend for tests of programs, kernels and launches: nothing runs, everything is counted.
 *
 * Devices, all of one platform:
 *   fake:0, fake:1   twins that take SPIR-V, OpenCL C and their own binaries
 *   fake:2           takes native functions only, and has system allocations
 *   fake:3           runs no kernels
 *
 * What it compiles are texts of lines "kernel NAME(KINDS)", where KINDS is a letter for each
 * argument: P pointer, V value, L local memory, - not told.  "#error TEXT" fails with a log,
 * "#warn TEXT" makes a log, "#unknown" is an image the device cannot take.  SPIR-V is 20 bytes of
 * header and such a text, a binary is "FAKEBIN1" and such a text.  Queues complete everything at
 * once. */
#ifndef FAKE_BACKEND_H
#define FAKE_BACKEND_H

#include <stdatomic.h>
#include <usm/backend.h>

extern struct fake {
    atomic_int builds[6]; /* tried, by usm_image_type                                  */
    atomic_int contexts, programs, kernels, queues, events, blocks; /* that live       */
    atomic_int markers, launches;
    /* switches */
    bool     refuse_binaries; /* as a driver does after an update                      */
    bool     no_binaries;     /* gives none                                            */
    unsigned build_ms;        /* that a build takes                                    */
    /* the last launch */
    usm_launch launch;
    usm_arg    args[8];
    char       kernel[128];
    size_t     ndeps;
} fake;

const usm_backend_ops *fake_backend_entry(const usm_host_api *api);

/* All that lives in the backend. */
int fake_alive(void);

/* An image of 20 bytes SPIR-V header and `text`, at an odd address. */
usm_image fake_spirv(const char *text);
usm_image fake_text(const char *text);

#endif
