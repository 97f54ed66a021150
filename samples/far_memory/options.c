/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The command line, the same on all ranks; one of them speaks. */
#include "far_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void options_help(void)
{
    printf(
        "Usage: mpirun -n 4 far_memory [option]...\n"
        "Rank 0 works on a grid that is larger than the memory it may use; the other ranks lend\n"
        "it theirs.\n"
        "\n"
        "  --limit BYTES   memory of rank 0 for the grid, with K, M, G (32M)\n"
        "  --times N       the grid is N times as large (8)\n"
        "  --steps N       (4)\n"
        "  --lend BYTES    of each other rank (USM_SPILL_LEND, else enough for two copies)\n"
        "  --kill RANK     which ends by SIGKILL in the middle\n"
        "  --memd          usm-memd lends, which the same mpirun has started\n"
        "  --quiet         only the passes and the verdict\n"
        "  --help          this text\n"
        "\n"
        "What the launcher needs to survive --kill: samples/far_memory/README.md.\n"
        "Exit status: 0 all right, 1 a wrong result or a failure, 2 a wrong option.\n");
}

static bool parse_number(const char *text, const char *units, uint64_t *number)
{
    char       *end;
    const char *unit;

    *number = strtoull(text, &end, 10);
    if (end == text || text[0] == '-')
        return false;
    if (*end == '\0')
        return true;
    unit = strchr(units, *end);
    if (!unit || end[1] != '\0')
        return false;
    *number <<= 10 * (unsigned)(unit - units + 1);
    return true;
}

/* false: there is no such option, or its value is wrong. */
static bool parse_value(options *o, const char *word, const char *value)
{
    const bool  is_size = strcmp(word, "--limit") == 0 || strcmp(word, "--lend") == 0;
    const char *units   = is_size ? "KMG" : "";
    uint64_t    n;

    if (!value || !parse_number(value, units, &n))
        return false;
    if (strcmp(word, "--limit") == 0 && n >= UINT64_C(4) << 20)
        o->limit = n;
    else if (strcmp(word, "--lend") == 0 && n > 0)
        o->lend = n;
    else if (strcmp(word, "--times") == 0 && n > 0 && n <= 1024)
        o->times = (unsigned)n;
    else if (strcmp(word, "--steps") == 0 && n > 0 && n <= 10000)
        o->steps = (unsigned)n;
    else if (strcmp(word, "--kill") == 0 && n > 0 && n <= 10000)
        o->kill = (int)n;
    else
        return false;
    return true;
}

options_result options_parse(options *o, int argc, char **argv, bool speaks)
{
    *o = (options){.limit = UINT64_C(32) << 20, .times = 8, .steps = 4, .kill = -1};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            return OPTIONS_HELP;
        } else if (strcmp(argv[i], "--memd") == 0) {
            o->memd = true;
        } else if (strcmp(argv[i], "--quiet") == 0) {
            o->quiet = true;
        } else if (parse_value(o, argv[i], argv[i + 1])) {
            i++;
        } else {
            if (speaks)
                fprintf(stderr,
                        "far_memory: \"%s\" or its value is wrong; --help lists the options\n",
                        argv[i]);
            return OPTIONS_WRONG;
        }
    }
    return OPTIONS_GO;
}
