/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The command line. */
#ifndef OUT_OF_CORE_OPTIONS_H
#define OUT_OF_CORE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct options {
    const char *task;  /* NULL: all                             */
    const char *limit; /* of memory, as USM_MEMORY_LIMIT has it; NULL: not said */
    const char *file;  /* that the data live in; NULL           */
    uint64_t    size;  /* bytes of data                         */
    bool        compares, is_quiet, describes;
};

enum options_result { OPTIONS_GO, OPTIONS_HELP, OPTIONS_WRONG };

/* WRONG: what is wrong has been said. */
enum options_result options_parse(struct options *options, int argc, char **argv);
void                options_help(void);

#endif
