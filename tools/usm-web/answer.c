/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Answers to requests: see web.h.
 *
 * Content-Security-Policy: all that the page uses comes from this server, and no script or style
 * stands inside of HTML, so a name with markup in it cannot run. */
#include "web.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *reason_of(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 409:
        return "Conflict";
    case 413:
        return "Content Too Large";
    case 503:
        return "Service Unavailable";
    case 507:
        return "Insufficient Storage";
    default:
        return "Internal Server Error";
    }
}

void answer_head(request *r, int status, const char *type)
{
    (void)mg_printf(r->c,
                    "HTTP/1.1 %d %s\r\n"
                    "Content-Type: %s\r\n"
                    "Cache-Control: no-store\r\n"
                    "Content-Security-Policy: default-src 'self'; base-uri 'none'; "
                    "form-action 'none'; frame-ancestors 'none'\r\n"
                    "X-Content-Type-Options: nosniff\r\n"
                    "Referrer-Policy: no-referrer\r\n"
                    "Cross-Origin-Resource-Policy: same-origin\r\n"
                    "Cross-Origin-Opener-Policy: same-origin\r\n",
                    status, reason_of(status), type);
}

int answer(request *r, int status, const char *type, const void *body, size_t size)
{
    answer_head(r, status, type);
    (void)mg_printf(r->c, "Content-Length: %zu\r\n\r\n", size);
    if (strcmp(r->info->request_method, "HEAD") != 0)
        (void)mg_write(r->c, body, size);
    return status;
}

bool json_open(request *r, json_answer *a)
{
    FILE *file;

    *a   = (json_answer){.text = NULL};
    file = open_memstream(&a->text, &a->size);
    if (!file) {
        (void)answer(r, 503, "text/plain", "no memory is left\n", 18);
        return false;
    }
    a->j = (usm__json){.out = {.file = file}, .form = USM__JSON_COMPACT};
    return true;
}

int json_close(request *r, int status, json_answer *a)
{
    if (fclose(a->j.out.file) != 0)
        status = answer(r, 503, "text/plain", "no memory is left\n", 18);
    else
        status = answer(r, status, "application/json", a->text, a->size);
    free(a->text);
    return status;
}

int answer_error(request *r, int status, const char *format, ...)
{
    json_answer a;
    char        text[1024];
    va_list     args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!json_open(r, &a))
        return 503;
    usm__json_object_begin(&a.j, NULL);
    usm__json_text(&a.j, "error", text);
    usm__json_object_end(&a.j);
    return json_close(r, status, &a);
}

bool query_text(const request *r, const char *key, char *text, size_t size)
{
    const char *query = r->info->query_string;

    return query && mg_get_var(query, strlen(query), key, text, size) >= 0;
}

char *read_body(request *r, size_t *size)
{
    long long length = r->info->content_length;
    size_t    n      = 0;
    char     *text;

    if (length < 0 || length > TEXT_MAX) {
        (void)answer_error(r, 413, "a file of at most %d MiB, with its length, is what can be sent",
                           TEXT_MAX >> 20);
        return NULL;
    }
    text = malloc((size_t)length + 1);
    if (!text) {
        (void)answer_error(r, 503, "no memory is left for %lld bytes", length);
        return NULL;
    }
    while (n < (size_t)length) {
        int got = mg_read(r->c, text + n, (size_t)length - n);

        if (got <= 0)
            break; /* the browser went away */
        n += (size_t)got;
    }
    if (n < (size_t)length) {
        free(text);
        (void)answer_error(r, 400, "only %zu of %lld bytes came", n, length);
        return NULL;
    }
    text[n] = '\0';
    *size   = n;
    return text;
}
