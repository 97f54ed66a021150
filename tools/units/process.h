/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A command with a pipe to its standard input and one from its standard output. */
#ifndef USM_TOOLS_UNITS_PROCESS_H
#define USM_TOOLS_UNITS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct unit_process {
    int pid;     /* 0: it was waited for */
    int in, out; /* what it writes, and what it reads */
} unit_process;

/* Runs `sh -c command` in a session of its own: an interrupt of the terminal is for this program, and
 * no command asks for a password there.  0, or an error number. */
int unit_process_start(unit_process *p, const char *command);
/* Waits until deadline_ns for its end, then kills it and what it has started; writes how it ended, as "status 1" or
 * "signal 9".  Its pipes are closed already. */
void unit_process_end(unit_process *p, uint64_t deadline_ns, char *how, size_t room);

#endif
