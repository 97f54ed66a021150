/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Words of a command line (arguments.h). */
#include "arguments.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *argument_value(const char *name, const char *argument, const char *next, int *used)
{
    const size_t length = strlen(name);

    if (strncmp(argument, name, length) != 0)
        return NULL;
    if (argument[length] == '=') {
        *used = 1;
        return argument + length + 1;
    }
    if (argument[length] != '\0')
        return NULL;
    *used = next ? 2 : 1;
    return next ? next : "";
}

bool argument_number(const char *text, int64_t least, int64_t most, int64_t *number)
{
    char     *end;
    long long parsed;

    errno  = 0;
    parsed = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || parsed < least || parsed > most)
        return false;
    *number = parsed;
    return true;
}
