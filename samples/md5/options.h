/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the command line says; main.c's own. */
#ifndef SAMPLES_MD5_OPTIONS_H
#define SAMPLES_MD5_OPTIONS_H

#include "../common/team.h"
#include "md5.h"

struct options {
    struct md5_request  request;
    bool                verify;
    bool                progress;
    bool                json;
    struct team_options team;
};

enum options_result { OPTIONS_GO, OPTIONS_HELP, OPTIONS_WRONG };

/* Says on stderr what is wrong. */
enum options_result options_parse(struct options *options, int argc, char **argv);
void                options_help(void);

#endif
