/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Data larger than memory: a plane wave, a matrix transposed, two stacks of images subtracted, each
 * through usm_buffer with a limit on memory.
 *
 *     out_of_core [wave|transpose|difference] [--size 4G] [--limit 256M] [--file data.raw]
 *                 [--compare mmap]
 *
 * Here: the limit, running the tasks, the tables of rates.  The tasks themselves, which are what a
 * user of buffers would write: wave.c, transpose.c, difference.c. */
#include "options.h"
#include "out_of_core.h"
#include "progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum exit_status { EXIT_RIGHT = 0, EXIT_WRONG = 1, EXIT_OPTIONS = 2 };

#define MIB 1048576.0

static const task *const tasks[] = {&wave_task, &transpose_task, &difference_task};
#define NTASKS (sizeof tasks / sizeof *tasks)

bool failed(const char *what)
{
    fprintf(stderr, "out_of_core: %s: %s\n", what, usm_last_error());
    return false;
}

bool wrong(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fprintf(stderr, "out_of_core: ");
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return false;
}

/* Before the first buffer is made: afterwards the limit is fixed. */
static bool set_limit(const char *limit)
{
    const char *value, *origin;
    char        setting[64];

    if (usm_config_get("memory_limit", &value, &origin) != USM_OK)
        return failed("the limit of memory");
    if (!limit && strcmp(origin, "default") != 0)
        return true; /* USM_MEMORY_LIMIT was set */
    snprintf(setting, sizeof setting, "host:%s", limit ? limit : "256M");
    return usm_config_set("memory_limit", setting) == USM_OK || failed("--limit");
}

static double rate(const struct stage *s)
{
    return s->seconds > 0.0 ? 1e-6 * (double)s->bytes / s->seconds : 0.0;
}

static void print_stages(const struct report *ours, const struct report *mapped)
{
    for (size_t i = 0; i < ours->nstages; i++) {
        const struct stage *s = &ours->stages[i];

        if (s->bytes == 0) /* an earlier run did it */
            continue;
        printf("          %-10s %8.1f MiB in %6.2f s  %7.0f MB/s", s->name, (double)s->bytes / MIB,
               s->seconds, rate(s));
        if (mapped && i < mapped->nstages)
            printf("   mmap %7.0f MB/s", rate(&mapped->stages[i]));
        putchar('\n');
    }
}

static double taken_mib(const struct report *r)
{
    return r->resident > r->before ? (double)(r->resident - r->before) / MIB : 0.0;
}

/* Pages of a mapped file count as long as they are in memory. */
static void print_memory(const struct report *ours, const struct report *mapped)
{
    printf("          memory, highest %.0f MiB", taken_mib(ours));
    if (mapped)
        printf("; mmap %.0f MiB", taken_mib(mapped));
    putchar('\n');
}

/* `before`: the memory that the process had before the first task. */
static bool run_task(const task *t, const struct options *o, uint64_t before)
{
    struct report    ours = {.before = before}, mapped = {.nstages = 0};
    const struct job with_buffers = {o->size, o->file, &ours};
    const struct job with_mmap    = {o->size, NULL, &mapped};

    printf("%-11s%s\n", t->name, t->what);
    if (!t->run(&with_buffers))
        return false;
    mapped.before = progress_memory();
    if (o->compares && !t->run_mapped(&with_mmap))
        return false;
    print_stages(&ours, o->compares ? &mapped : NULL);
    print_memory(&ours, o->compares ? &mapped : NULL);
    return true;
}

static void print_statistics(void)
{
    static char text[16384];

    if (usm_spill_describe(NULL, USM_TEXT, text, sizeof text, NULL) == USM_OK)
        printf("\n%s", text);
}

static enum exit_status run(const struct options *o)
{
    uint64_t before;
    size_t   ran = 0;

    if (o->is_quiet)
        progress_quiet();
    if (!set_limit(o->limit))
        return EXIT_OPTIONS;
    /* Now, so that drivers do not count as memory for the data. */
    if (!usm_default_context()) {
        failed("the device");
        return EXIT_WRONG;
    }
    before = progress_memory();
    for (size_t i = 0; i < NTASKS; i++) {
        if (o->task && strcmp(o->task, tasks[i]->name) != 0)
            continue;
        if (!run_task(tasks[i], o, before))
            return EXIT_WRONG;
        ran++;
    }
    if (ran == 0) {
        fprintf(stderr, "out_of_core: there is no task \"%s\"; --help lists them\n", o->task);
        return EXIT_OPTIONS;
    }
    if (o->describes)
        print_statistics();
    return EXIT_RIGHT;
}

int main(int argc, char **argv)
{
    struct options options;

    setvbuf(stdout, NULL, _IOLBF, 0);
    switch (options_parse(&options, argc, argv)) {
    case OPTIONS_HELP:
        options_help();
        return EXIT_RIGHT;
    case OPTIONS_WRONG:
        return EXIT_OPTIONS;
    case OPTIONS_GO:
    default:
        return (int)run(&options);
    }
}
