/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* --machine: the description of this machine for usm-run --simulate. */
#ifndef USM_INFO_MACHINE_H
#define USM_INFO_MACHINE_H

/* Prints JSON.  The exit status is 1, and the reason is reported, if there is no device or one cannot
 * be measured. */
int machine_report(void);

#endif
