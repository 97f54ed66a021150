/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What devices draw: from the table that USM_WATTS gives, or measured. */
#ifndef USM_OFFLOAD_WATTS_H
#define USM_OFFLOAD_WATTS_H

#include <usm/status.h>

/* What a device ("opencl:0", "3/host:0") draws while it computes, and who says so: "USM_WATTS",
 * "powercap" for the host's counters, or "unknown", and 0.  Counters are looked at over 50 ms,
 * which the first call waits for; later calls over the time since.  Reads files: not for each
 * chunk, and no lock held. USM_E_SETTING  USM_WATTS names a file that cannot be read, or an entry
 * is not name=watts */
usm_status usm__watts_of(const char *device_name, double *watts, const char **source);
/* The same, of a team's member, and told in the log. */
usm_status usm__watts_ask(const char *device_name, double *watts);

#define USM__POWERCAP_ZONES 8

/* Energy of the host's packages, as Linux counts it. */
typedef struct usm__powercap {
    unsigned n;
    uint64_t uj[USM__POWERCAP_ZONES], most_uj[USM__POWERCAP_ZONES]; /* behind most: 0 again       */
    uint64_t at_ns;
} usm__powercap;

/* False: there are none under the folder, or this process may not read them. */
bool usm__powercap_read(const char *folder, uint64_t now_ns, usm__powercap *counters);
/* The mean between two looks; 0: not to be told. */
double usm__powercap_watts(const usm__powercap *before, const usm__powercap *after);

#endif
