/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How much power devices draw: from the table that USM_WATTS gives, or measured. */
#ifndef USM_OFFLOAD_WATTS_H
#define USM_OFFLOAD_WATTS_H

#include <usm/status.h>

#include <stdbool.h>
#include <stdint.h>

/* Finds the power that a device ("opencl:0", "3/host:0") draws while it computes.  *source:
 * "USM_WATTS", "powercap" for the host's counters, or "unknown", and the power is 0.  Counters are
 * read over an interval of at least 50 ms: the first call waits for it, later calls measure the
 * time since the previous one.  The function reads files: do not call it for each chunk, nor with a
 * lock held.
 *   USM_E_SETTING  USM_WATTS names a file that cannot be read, or an entry is not name=watts */
usm_status usm__watts_of(const char *device_name, double *watts, const char **source);
/* The same for a member of a team; writes it to the log. */
usm_status usm__watts_ask(const char *device_name, double *watts);
/* Only what USM_WATTS says; 0: it does not name the device.  USM_E_SETTING */
usm_status usm__watts_stated(const char *device_name, double *watts);

#define USM__POWERCAP       "/sys/class/powercap"
#define USM__POWERCAP_ZONES 8

/* The energy counters of the host's packages. */
typedef struct usm__powercap {
    unsigned n;
    uint64_t uj[USM__POWERCAP_ZONES], most_uj[USM__POWERCAP_ZONES]; /* a counter above its most_uj
                                                                       starts at 0 */
    uint64_t at_ns;
    int error; /* an errno: one of the packages has a counter that cannot be read; 0: all can */
} usm__powercap;

/* False: the folder has no counters, or this process may not read them. */
bool usm__powercap_read(const char *folder, uint64_t now_ns, usm__powercap *counters);
/* The energy between two readings; < 0: unknown, as the packages are not the same. */
double usm__powercap_joules(const usm__powercap *before, const usm__powercap *after);
/* The mean power between two readings; 0: unknown. */
double usm__powercap_watts(const usm__powercap *before, const usm__powercap *after);

#endif
