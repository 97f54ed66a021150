/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Words of a command line, for the samples' options. */
#ifndef SAMPLES_ARGUMENTS_H
#define SAMPLES_ARGUMENTS_H

#include <stdbool.h>
#include <stdint.h>

/* The value of `--name=value` or `--name value`, which is then `next`; NULL when `argument` is
 * another option, "" when the value is missing.  *used says how many words that took. */
const char *argument_value(const char *name, const char *argument, const char *next, int *used);

/* A decimal number from `least` to `most` and nothing else; *number is left alone on failure. */
bool argument_number(const char *text, int64_t least, int64_t most, int64_t *number);

#endif
