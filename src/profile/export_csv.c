/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Events as comma-separated values, one line each, for spreadsheets and scripts: RFC 4180, with a
 * line of names first. Called by usm-prof. */
#include "profile/export.h"
#include "profile/out.h"

#include <inttypes.h>
#include <string.h>

/* In quotes when it has to be. */
static void put_text(FILE *out, const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        (void)fputs(text, out);
        return;
    }
    (void)fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            (void)fputc('"', out);
        (void)fputc(*text, out);
    }
    (void)fputc('"', out);
}

static void put_record(FILE *out, const usm__trace *t, const usm__trace_record *r)
{
    static const char *const names[] = {"",     "alloc", "free", "failed",
                                        "take", "give",  "map",  "unmap"};
    const usm__trace_event  *e       = &r->e;

    (void)fprintf(out, "%" PRIu64 ",%u,%u,%s,%u,", e->time_ns, r->source, r->thread, names[e->type],
                  e->pool);
    put_text(out, t->tags[e->tag]);
    (void)fprintf(out, ",0x%" PRIx64 ",%" PRIu64 ",%" PRIu64 ",%u,%u\n", e->address, e->size,
                  e->usable, e->type >= USM__EVENT_TAKE ? e->extra : 0,
                  e->type == USM__EVENT_ALLOC ? e->extra : 0);
}

int usm__export_csv(const usm__trace *t, const char *path)
{
    FILE *out    = NULL;
    int   status = usm__out_open(path, &out);

    if (status != 0)
        return status;
    (void)fputs("time_ns,source,thread,event,pool,tag,address,size,usable,duration_ns,stack\n",
                out);
    for (size_t i = 0; i < t->nrecords; i++)
        put_record(out, t, &t->records[i]);
    return usm__out_close(out, path, 0);
}
