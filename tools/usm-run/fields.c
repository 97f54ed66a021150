/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fields of objects: which names are allowed, with which type and range; the files that they
 * name. */
#include "app.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *need(void *memory)
{
    if (memory)
        return memory;
    fputs("usm-run: no memory is left\n", stderr);
    exit(1);
}

static const char *type_name(const json_t *j)
{
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a text";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "true or false";
    case JSON_NULL:
        break;
    }
    return "null";
}

/* keys: ended by NULL. */
bool check_keys(app *a, value object, const char *what, const char *const *keys)
{
    const char *key;
    json_t     *ignored;
    bool        is_ok = true;

    if (!json_is_object(object.json))
        return mistake(a, object.at, "%s must be an object, not %s", what, type_name(object.json));
    json_object_foreach(object.json, key, ignored)
    {
        char   list[300] = "";
        size_t used      = 0;
        size_t i;

        for (i = 0; keys[i] && strcmp(keys[i], key) != 0; i++) {
            int n = snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", keys[i]);

            used += n > 0 && (size_t)n < sizeof list - used ? (size_t)n : 0;
        }
        if (!keys[i])
            is_ok = mistake(a, member(object, key).at, "%s has no field '%s'; there are %s", what,
                            key, list);
    }
    return is_ok;
}

bool get_text(app *a, value object, const char *key, const char **out)
{
    value v = member(object, key);

    if (!v.json)
        return true;
    if (!json_is_string(v.json) || !*json_string_value(v.json))
        return mistake(a, v.at, "'%s' must be a text that is not empty, not %s", key,
                       json_is_string(v.json) ? "\"\"" : type_name(v.json));
    *out = json_string_value(v.json);
    return true;
}

static bool whole(app *a, value v, const char *key, uint64_t least, uint64_t most, uint64_t *out)
{
    if (!json_is_integer(v.json) || json_integer_value(v.json) < 0 ||
        (uint64_t)json_integer_value(v.json) < least || (uint64_t)json_integer_value(v.json) > most)
        return mistake(a, v.at, "'%s' must be a whole number from %llu to %llu%s%s", key,
                       (unsigned long long)least, (unsigned long long)most,
                       json_is_integer(v.json) ? "" : ", not ",
                       json_is_integer(v.json) ? "" : type_name(v.json));
    *out = (uint64_t)json_integer_value(v.json);
    return true;
}

bool get_number(app *a, value object, const char *key, uint64_t least, uint64_t most, uint64_t *out)
{
    value v = member(object, key);

    return !v.json || whole(a, v, key, least, most, out);
}

bool get_real(app *a, value object, const char *key, double least, double *out)
{
    value v = member(object, key);

    if (!v.json || json_is_null(v.json))
        return true;
    if (!json_is_number(v.json) || !(json_number_value(v.json) >= least))
        return mistake(a, v.at, "'%s' must be a number, %g or more%s%s", key, least,
                       json_is_number(v.json) ? "" : ", not ",
                       json_is_number(v.json) ? "" : type_name(v.json));
    *out = json_number_value(v.json);
    return true;
}

/* Reads a number, or an array of one to three. */
bool get_sizes(app *a, value object, const char *key, size_t *out, uint32_t *count)
{
    value    v = member(object, key);
    uint64_t n = 0;

    if (!v.json)
        return true;
    if (!json_is_array(v.json)) {
        *count = 1;
        if (!whole(a, v, key, 1, INT32_MAX, &n))
            return false;
        out[0] = n;
        return true;
    }
    if (json_array_size(v.json) < 1 || json_array_size(v.json) > 3)
        return mistake(a, v.at, "'%s' must have 1 to 3 numbers, not %zu", key,
                       json_array_size(v.json));
    *count = (uint32_t)json_array_size(v.json);
    for (uint32_t i = 0; i < *count; i++) {
        if (!whole(a, element(v, i), key, 1, INT32_MAX, &n))
            return false;
        out[i] = n;
    }
    return true;
}

char *path_of(const app *a, const char *name)
{
    size_t size = strlen(a->folder) + strlen(name) + 1;
    char  *path = need(malloc(size));

    (void)snprintf(path, size, "%s%s", *name == '/' ? "" : a->folder, name);
    return path;
}

FILE *open_file(const app *a, const char *path, bool is_output)
{
    int flags = is_output ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY;
    int fd;

    if (!a->within.path)
        return fopen(path, is_output ? "we" : "re");
    fd = tool_root_open_file(&a->within, path, flags);
    return fd < 0 ? NULL : fdopen(fd, is_output ? "w" : "r");
}

const char *open_error(const app *a)
{
    return a->within.path && (errno == EXDEV || errno == ELOOP)
               ? "it lies outside of the folder of --within"
               : strerror(errno);
}

char *read_file(app *a, value at, const char *name, size_t *size)
{
    char  *path = path_of(a, name), *data = NULL;
    FILE  *file = at.json ? open_file(a, path, false) : fopen(path, "re");
    size_t cap = 0, n = 0, got;

    errno = file ? 0 : errno;
    for (got = 1; file && got > 0; n += got) {
        if (n + 1 >= cap) {
            cap  = cap ? cap * 2 : 4096;
            data = need(realloc(data, cap));
        }
        got = fread(data + n, 1, cap - n - 1, file);
    }
    if (!file || ferror(file)) {
        (void)mistake(a, at.at, "'%s' cannot be read: %s", path, open_error(a));
        free(data);
        data = NULL;
    } else {
        data[n] = '\0';
        *size   = n;
    }
    if (file)
        (void)fclose(file);
    free(path);
    return data;
}
