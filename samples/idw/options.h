/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the command line says; main.c's own. */
#ifndef IDW_OPTIONS_H
#define IDW_OPTIONS_H

#include "../common/team.h"

#include <stdbool.h>
#include <stdint.h>

struct options {
    uint32_t            size;
    unsigned            power;
    const char         *out; /* NULL: no map */
    bool                check_all;
    bool                all_devices;
    bool                is_quiet;
    struct team_options team;
};

enum options_result { OPTIONS_GO, OPTIONS_HELP, OPTIONS_WRONG };

/* Says on stderr what is wrong. */
enum options_result options_parse(struct options *options, int argc, char **argv);
void                options_help(void);

#endif
