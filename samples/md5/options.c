/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The command line (options.h); for main.c. */
#include "options.h"

#include "../common/arguments.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DEMO_TEXT   "cloud"
#define DEMO_LENGTH 5

void options_help(void)
{
    printf("Usage: md5 [option]...\n"
           "Finds the text of small letters that has a given MD5 digest, by trying them all.\n"
           "\n"
           "  --digest HEX      the digest, 32 hexadecimal digits (that of \"%s\")\n"
           "  --max-length N    try all texts of 1 to N letters, 1 to %d (%d)\n"
           "  --from A --to B   or those with the numbers A to B - 1, where a = 0, z = 25,\n"
           "                    aa = 26, abc = 730\n"
           "  --verify          search the same texts in plain C too, and compare (slow)\n"
           "  --progress        how far it has got, on stderr\n"
           "%s"
           "  --json            the result as one line of JSON\n"
           "  --help            this text\n"
           "\n"
           "USM_DEVICE_SELECTOR chooses the device: host:*, opencl:cpu, opencl:gpu, ...\n"
           "Exit status: 0 found, 1 not there, 2 a wrong option, 3 no device that the selector\n"
           "names, 4 a failure or a wrong result.\n",
           DEMO_TEXT, MD5_LONGEST, DEMO_LENGTH, team_options_help);
}

/* What was said about the range; INT64_MIN: nothing. */
struct said {
    int64_t from, to, max_length;
};

static bool parse_number(const char *name, const char *text, int64_t least, int64_t most,
                         int64_t *number)
{
    if (argument_number(text, least, most, number))
        return true;
    fprintf(stderr, "md5: %s wants a number from %" PRId64 " to %" PRId64 ", not \"%s\"\n", name,
            least, most, text);
    return false;
}

static bool parse_digest(struct options *o, const char *text)
{
    if (md5_parse_digest(text, o->request.digest))
        return true;
    fprintf(stderr, "md5: --digest wants 32 hexadecimal digits, not \"%s\"\n", text);
    return false;
}

static bool parse_switch(struct options *o, const char *argument)
{
    if (strcmp(argument, "--verify") == 0)
        o->verify = true;
    else if (strcmp(argument, "--progress") == 0)
        o->progress = true;
    else if (strcmp(argument, "--json") == 0)
        o->json = true;
    else {
        fprintf(stderr, "md5: unknown option \"%s\"; --help lists them\n", argument);
        return false;
    }
    return true;
}

static bool parse_one(struct options *o, struct said *said, const char *argument, const char *next,
                      int *used)
{
    const char      *value;
    enum team_option of_team = team_option_parse(&o->team, "md5", argument, next, used);

    if (of_team != TEAM_OPTION_OTHER)
        return of_team == TEAM_OPTION_TAKEN;
    if ((value = argument_value("--digest", argument, next, used)) != NULL)
        return parse_digest(o, value);
    if ((value = argument_value("--from", argument, next, used)) != NULL)
        return parse_number("--from", value, 0, INT64_MAX - 1, &said->from);
    if ((value = argument_value("--to", argument, next, used)) != NULL)
        return parse_number("--to", value, 1, INT64_MAX, &said->to);
    if ((value = argument_value("--max-length", argument, next, used)) != NULL)
        return parse_number("--max-length", value, 1, MD5_LONGEST, &said->max_length);
    return parse_switch(o, argument);
}

static bool set_range(struct options *o, const struct said *said)
{
    const bool has_length = said->max_length != INT64_MIN, has_to = said->to != INT64_MIN;

    if (has_length && (has_to || said->from != INT64_MIN)) {
        fprintf(stderr, "md5: --max-length says what --from and --to say; give one of them\n");
        return false;
    }
    o->request.from = said->from == INT64_MIN ? 0 : said->from;
    o->request.to =
        has_to ? said->to : md5_texts_up_to(has_length ? (unsigned)said->max_length : DEMO_LENGTH);
    if (o->request.to <= o->request.from) {
        fprintf(stderr,
                "md5: no text is from %" PRId64 " to below %" PRId64
                "; --to wants a number above --from\n",
                o->request.from, o->request.to);
        return false;
    }
    return true;
}

enum options_result options_parse(struct options *options, int argc, char **argv)
{
    struct said said = {INT64_MIN, INT64_MIN, INT64_MIN};
    int         used;

    *options = (struct options){0};
    md5_digest_of(DEMO_TEXT, strlen(DEMO_TEXT), options->request.digest);
    for (int i = 1; i < argc; i += used) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return OPTIONS_HELP;
        if (!parse_one(options, &said, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &used))
            return OPTIONS_WRONG;
    }
    return set_range(options, &said) && team_options_fit(&options->team, "md5") ? OPTIONS_GO
                                                                                : OPTIONS_WRONG;
}
