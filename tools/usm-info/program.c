/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The report of program.h.  Each device builds in a child of its own: compilers are the parts of a
 * driver that crash most often. */
#include "program.h"
#include "child.h"
#include "show.h"
#include "table.h"

#include "base/os.h"
#include "program/program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_S  120
#define LOG_SIZE   ((size_t)64 << 10)
#define MAX_IMAGES 8

/* The result of the program on one device. */
typedef struct verdict {
    bool  runs;
    char *image;  /* "opencl_c", ...; "" if none */
    char *status; /* name of the failure; "" if none */
    char *reason;
    char *log; /* of the compiler; "" */
} verdict;

static const char *image_name(usm_image_type type)
{
    const char *name = usm__image_type_name(type);

    return name ? name : "unknown";
}

/* A bundle and SPIR-V begin with a magic (SPIR-V in either byte order); all
 * else is text. */
static usm_image_type guess_type(const void *data, size_t size)
{
    static const unsigned char spirv[4] = {0x03, 0x02, 0x23, 0x07}, swapped[4] = {7, 0x23, 2, 3};

    if (size >= 6 && memcmp(data, "USMK1 ", 6) == 0)
        return USM_IMAGE_BUNDLE;
    if (size >= 4 && (memcmp(data, spirv, 4) == 0 || memcmp(data, swapped, 4) == 0))
        return USM_IMAGE_SPIRV;
    return USM_IMAGE_OPENCL_C;
}

/* --- the child -------------------------------------------------------------- */

static usm_status build(usm_device *dev, const usm_program_desc *program_desc, usm_image_type *type)
{
    usm_context_desc desc    = USM_CONTEXT_DESC_INIT;
    usm_context     *ctx     = NULL;
    usm_program     *program = NULL;
    usm_status       status;

    desc.ndevices = 1;
    desc.devices  = &dev;
    status        = usm_context_create(&desc, &ctx);
    if (status)
        return status;
    status = usm_program_create(ctx, program_desc, &program);
    if (status == USM_OK)
        status = usm_program_get_image(program, dev, type);
    usm_program_destroy(program);
    usm_context_destroy(ctx);
    return status;
}

/* "ok\nIMAGE\n\nLOG" or "failed\nSTATUS\nMESSAGE\nLOG" (an error message has no newline). */
static void answer_build(usm_status status, usm_image_type type, const char *log)
{
    if (status)
        fprintf(child_answer(), "failed\n%s\n", usm_status_name(status));
    else
        fprintf(child_answer(), "ok\n%s\n", image_name(type));
    for (const char *p = status ? usm_last_error() : ""; *p; p++)
        fputc(*p == '\n' ? ' ' : *p, child_answer());
    fprintf(child_answer(), "\n%s", log);
}

/* TERM FILE OPTIONS.  Stays in the caller's folder: options may name headers relative to it. */
int child_build_program(int argc, char **argv)
{
    static char      log[LOG_SIZE];
    usm_program_desc desc  = USM_PROGRAM_DESC_INIT;
    usm_image        image = {USM_IMAGE_OPENCL_C, NULL, 0};
    usm_image_type   type  = USM_IMAGE_OPENCL_C;
    usm_device      *dev   = NULL;
    size_t           count;
    void            *data;
    usm_status       status;

    if (argc != 3)
        return 2;
    data = usm__os_read_file(argv[1], SIZE_MAX, &image.size);
    if (!data)
        return 2;
    image.type    = guess_type(data, image.size);
    image.data    = data;
    desc.nimages  = 1;
    desc.images   = &image;
    desc.options  = argv[2][0] ? argv[2] : NULL;
    desc.log      = log;
    desc.log_size = sizeof log;
    status        = usm_select_devices(argv[0], &dev, 1, &count);
    if (status == USM_OK)
        status = build(dev, &desc, &type);
    answer_build(status, type, log);
    usm__heap_free(data);
    return 0;
}

/* --- the parent ------------------------------------------------------------- */

/* Removes a line from the start of *rest. */
static char *take_line(char **rest)
{
    char *line = *rest, *end = strchr(line, '\n');

    if (end)
        *end++ = '\0';
    *rest = end ? end : line + strlen(line);
    return line;
}

static void judge_answer(char *answer, verdict *v)
{
    v->runs = strcmp(take_line(&answer), "ok") == 0;
    if (v->runs)
        v->image = tool_printf("%s", take_line(&answer));
    else
        v->status = tool_printf("%s", take_line(&answer));
    v->reason = tool_printf("%s", take_line(&answer));
    v->log    = tool_printf("%s", answer);
}

static void try_device(const char *term, const char *path, const char *options, verdict *v)
{
    const char *const args[] = {"build-program", term, path, options, NULL};
    child_result      result;
    char              why[256];

    memset(v, 0, sizeof *v);
    child_run(args, TIMEOUT_S, &result);
    if (result.end == CHILD_EXITED && result.code == 0) {
        judge_answer(result.answer, v);
    } else {
        v->status = tool_printf("%s", result.end == CHILD_KILLED ? "crashes" : "no answer");
        v->reason = tool_printf("while it was built, %s", child_end_text(&result, why, sizeof why));
    }
    free(result.answer);
}

static void verdict_free(verdict *v)
{
    free(v->image);
    free(v->status);
    free(v->reason);
    free(v->log);
}

static void show_verdict(table *t, const inventory_device *d, const verdict *v)
{
    table_cell(t, "%s", d->info.selector);
    table_cell(t, "%s", v->runs ? v->image : "none");
    table_cell(t, "%s", d->info.name);
    table_row(t);
    if (v->runs)
        return;
    table_note(t, 6, "%s", v->reason);
    if (v->log)
        table_verbatim(t, 6, v->log);
}

static void write_verdict(usm__json *j, const inventory_device *d, const verdict *v)
{
    usm__json_object_begin(j, NULL);
    usm__json_text(j, "selector", d->info.selector);
    usm__json_text(j, "name", d->info.name);
    usm__json_bool(j, "runs", v->runs);
    usm__json_text(j, "image", v->image);
    usm__json_text(j, "status", v->runs ? "USM_OK" : v->status);
    usm__json_text(j, "story", v->runs ? NULL : v->reason);
    usm__json_text(j, "log", v->log && *v->log ? v->log : NULL);
    usm__json_object_end(j);
}

/* The content of the file: "bundle of opencl_c (1203 bytes), spirv (2096 bytes)". */
static char *contents_text(const void *data, size_t size, usm_image_type type)
{
    usm_image images[MAX_IMAGES];
    char     *text;
    size_t    n;

    if (type != USM_IMAGE_BUNDLE)
        return tool_printf("%s (%zu bytes)", image_name(type), size);
    if (usm__bundle_parse(data, size, images, MAX_IMAGES, &n))
        return tool_printf("bundle, broken: %s", usm_last_error());
    text = tool_printf("bundle of");
    for (size_t i = 0; i < n && i < MAX_IMAGES; i++) {
        char *longer = tool_printf("%s%s %s (%zu bytes)", text, i ? "," : "",
                                   image_name(images[i].type), images[i].size);

        free(text);
        text = longer;
    }
    return text;
}

static void report_json(const inventory *inv, const char *path, const char *contents,
                        const verdict *verdicts)
{
    usm__json j;

    show_json_head(&j, stdout);
    usm__json_text(&j, "program", path);
    usm__json_text(&j, "contents", contents);
    usm__json_text(&j, "error", inv->error);
    usm__json_array_begin(&j, "devices");
    for (size_t i = 0; i < inv->nselected; i++)
        write_verdict(&j, &inv->devices[i], &verdicts[i]);
    usm__json_array_end(&j);
    usm__json_object_end(&j);
}

static void report_text(const inventory *inv, const char *path, const char *contents,
                        const verdict *verdicts)
{
    table *t = table_new(2, 2);

    printf("%s: %s\n\n", path, contents);
    if (inv->error)
        printf("  no device: %s\n", inv->error);
    for (size_t i = 0; i < inv->nselected; i++)
        show_verdict(t, &inv->devices[i], &verdicts[i]);
    table_print(t, stdout);
}

static int report(const char *path, const char *options, const char *contents, bool as_json)
{
    inventory inv;
    verdict  *verdicts;
    bool      any_runs = false;

    inventory_collect(&inv, INVENTORY_SELECTED);
    verdicts = tool_alloc(inv.nselected * sizeof *verdicts);
    for (size_t i = 0; i < inv.nselected; i++) {
        try_device(inv.devices[i].info.selector, path, options, &verdicts[i]);
        any_runs |= verdicts[i].runs;
    }
    if (as_json)
        report_json(&inv, path, contents, verdicts);
    else
        report_text(&inv, path, contents, verdicts);
    for (size_t i = 0; i < inv.nselected; i++)
        verdict_free(&verdicts[i]);
    free(verdicts);
    inventory_free(&inv);
    return any_runs ? 0 : 1;
}

int program_report(const char *path, const char *options, bool as_json)
{
    size_t size = 0;
    void  *data = usm__os_read_file(path, SIZE_MAX, &size);
    char  *contents;
    int    rc;

    if (!data) {
        fprintf(stderr, "usm-info: %s: %s\n", path, strerror(errno));
        return 2;
    }
    contents = contents_text(data, size, guess_type(data, size));
    rc       = report(path, options ? options : "", contents, as_json);
    free(contents);
    usm__heap_free(data);
    return rc;
}
