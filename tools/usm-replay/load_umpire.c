/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Umpire's replay logs: a JSON object per line, among other output of the program.  Two forms:
 *
 *   {"kind":"replay", "uid":N, "event":"allocate", "payload":{"allocator_ref":"0x..", "size":N},
 *    "result":{"memory_ptr":"0x.."}}                              until 2021; a line without result
 *                                                                 comes before, as the intention
 *   {"category":"operation", "name":"allocate", "numeric_args":{"size":N},
 *    "string_args":{"allocator_ref":"0x..", "pointer":"0x.."}, ...}                      since
 *
 * and "deallocate" likewise.  Other events (allocators made, copies, statistics) are ignored. */
#include "replay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef USM_HAVE_JANSSON
#include <jansson.h>

static bool pointer_of(const json_t *text, uint64_t *address)
{
    const char *s = json_string_value(text);
    char       *end;

    if (!s || *s == '\0')
        return false;
    errno    = 0;
    *address = strtoull(s, &end, 16);
    return *end == '\0' && errno == 0;
}

/* The content of a line, in either form. */
typedef struct said {
    const char *what;
    json_t     *size, *pointer;
    uint64_t    process;
    bool        intention; /* the old form's first line of two */
} said;

static said understand(const json_t *line)
{
    const json_t *payload = json_object_get(line, "payload"),
                 *result  = json_object_get(line, "result");
    const json_t *numbers = json_object_get(line, "numeric_args");
    const json_t *strings = json_object_get(line, "string_args");
    said          s       = {.what = ""};

    if (json_object_get(line, "event")) {
        s.what      = json_string_value(json_object_get(line, "event"));
        s.process   = (uint64_t)json_integer_value(json_object_get(line, "uid"));
        s.size      = json_object_get(payload, "size");
        s.intention = result == NULL;
        s.pointer   = json_object_get(json_object_get(payload, "memory_ptr") ? payload : result,
                                    "memory_ptr");
    } else if (json_object_get(line, "name")) {
        s.what    = json_string_value(json_object_get(line, "name"));
        s.size    = json_object_get(numbers, "size");
        s.pointer = json_object_get(strings, "pointer");
    }
    if (!s.what)
        s.what = "";
    if (strcmp(s.what, "named_allocate") == 0)
        s.what = "allocate";
    return s;
}

/* NULL, or an error in the line; *memory false: out of memory. */
static const char *take_in(loader *l, const json_t *line, uint64_t at, bool *memory)
{
    said     s       = understand(line);
    uint64_t address = 0;

    if (strcmp(s.what, "allocate") == 0) {
        if (s.intention)
            return NULL;
        if (!json_is_integer(s.size) || json_integer_value(s.size) < 0)
            return "the allocation has no size";
        if (!pointer_of(s.pointer, &address))
            return "the allocation has no pointer";
        *memory = loader_alloc(l, s.process, address, (uint64_t)json_integer_value(s.size), 0, at);
    } else if (strcmp(s.what, "deallocate") == 0) {
        if (!pointer_of(s.pointer, &address))
            return "the deallocation has no pointer";
        *memory = loader_free(l, s.process, address, 0, at);
    }
    return NULL;
}

static const char *read_line(loader *l, char *line, uint64_t at, bool *memory)
{
    static char  reason[JSON_ERROR_TEXT_LENGTH + 64];
    json_error_t error;
    json_t      *object;
    const char  *wrong;

    line += strspn(line, " \t");
    if (*line != '{')
        return NULL; /* output of the program */
    object = json_loads(line, 0, &error);
    if (!object) {
        snprintf(reason, sizeof reason, "it is no JSON: %s, column %d", error.text, error.column);
        return reason;
    }
    wrong = take_in(l, object, at, memory);
    json_decref(object);
    return wrong;
}

bool log_read_umpire(loader *l, const char *path, uint32_t only_pool, char *why, size_t why_size)
{
    (void)only_pool;
    return loader_lines(l, path, read_line, why, why_size);
}

#else

bool log_read_umpire(loader *l, const char *path, uint32_t only_pool, char *why, size_t why_size)
{
    (void)l;
    (void)only_pool;
    snprintf(
        why, why_size,
        "%s is an Umpire log, which this usm-replay cannot read: it was built without the JSON "
        "library jansson (Debian: libjansson-dev)",
        path);
    return false;
}

#endif
