/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The build flags of a module made from SPIR-V: those of the user's options that apply to it, and
 * ours.  Called by program.c; tests link it separately. */
#include "program.h"

#include <string.h>

/* Lets kernels access all of a block that memory.c allocated with relaxed limits. */
#define LARGE_BUFFERS "-ze-opt-greater-than-4GB-buffer-required"
#define BLANKS        " \t\r\n"

/* Options of the compiler of text: SPIR-V was already compiled with or without them. */
static bool is_for_text(const char *word)
{
    static const char *const prefixes[] = {"-D", "-I",       "-w",
                                           "-W", "-cl-std=", "-cl-kernel-arg-info"};

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(word, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* The length of the word at `at`; blanks between double quotes are part of it. */
static size_t word_length(const char *at)
{
    bool   is_quoted = false;
    size_t n         = 0;

    for (; at[n] && (is_quoted || !strchr(BLANKS, at[n])); n++)
        if (at[n] == '"')
            is_quoted = !is_quoted;
    return n;
}

/* "-D NAME" and "-I folder" are two words. */
static bool has_second_word(const char *word, size_t length)
{
    return length == 2 && (word[1] == 'D' || word[1] == 'I');
}

static void append(char *flags, const char *word, size_t length)
{
    size_t used = strlen(flags);

    if (used)
        flags[used++] = ' ';
    memcpy(flags + used, word, length);
    flags[used + length] = '\0';
}

char *lz_build_flags(const char *options, bool is_large)
{
    const char *at    = options ? options : "";
    char       *flags = lz_host->heap_alloc(strlen(at) + sizeof(LARGE_BUFFERS) + 2);
    bool        skip  = false;

    while (flags && *(at += strspn(at, BLANKS)) != '\0') {
        size_t length = word_length(at);

        if (!skip && !is_for_text(at))
            append(flags, at, length);
        skip = !skip && has_second_word(at, length);
        at += length;
    }
    if (flags && is_large)
        append(flags, LARGE_BUFFERS, sizeof(LARGE_BUFFERS) - 1);
    return flags;
}
