/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks whether a device does what it reports: 64 bytes are copied to the device and back, in a
 * child.  Some drivers complete commands without executing them, and some crash. */
#ifndef USM_INFO_PROBE_H
#define USM_INFO_PROBE_H

typedef enum moves_data {
    MOVES_UNKNOWN, /* could not be tried: text says why */
    MOVES_YES,
    MOVES_NO,
    MOVES_CRASHES,
    MOVES_HANGS
} moves_data;

typedef struct probe_answer {
    moves_data moves;
    char       text[512]; /* for people: "commands crash (...)" */
} probe_answer;

void        probe_device(const char *term, probe_answer *answer);
const char *moves_data_name(moves_data moves); /* "yes", "no", "crashes", "hangs", "unknown" */

#endif
