/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A search by brute force: which text has this MD5 digest?  On whatever device USM_DEVICE_SELECTOR
 * names.
 *
 * Here: the course of the program and what it prints.  What it asks of libusm is in search.c and
 * team.c, the kernels are in md5.cl and native.c, the check is in reference.c. */
#include "../common/job.h"
#include "../common/progress.h"
#include "../common/team.h"
#include "md5.h"
#include "options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum exit_status {
    EXIT_FOUND     = 0,
    EXIT_ABSENT    = 1,
    EXIT_OPTIONS   = 2,
    EXIT_NO_DEVICE = 3,
    EXIT_FAILED    = 4
};

struct outcome {
    usm_device_info    device;
    struct md5_figures figures;
    struct md5_answer  answer;
    int64_t            number;
};

static const char *image_name(usm_image_type image)
{
    switch (image) {
    case USM_IMAGE_OPENCL_C:
        return "OpenCL C";
    case USM_IMAGE_SPIRV:
        return "SPIR-V";
    case USM_IMAGE_NATIVE:
        return "native C";
    case USM_IMAGE_BINARY:
        return "binary";
    case USM_IMAGE_BUNDLE:
    default:
        return "unknown";
    }
}

static bool failed(const char *what)
{
    fprintf(stderr, "md5: %s: %s\n", what, usm_last_error());
    return false;
}

static void print_task(const struct options *options)
{
    char hex[33];

    md5_print_digest(options->request.digest, hex);
    printf("md5      %s among the texts %s to ", hex, md5_text_of(options->request.from).text);
    printf("%s\n", md5_text_of(options->request.to - 1).text);
}

static void print_answer(const struct outcome *o)
{
    if (o->answer.length > 0)
        printf("found    %s, number %" PRId64 "\n", o->answer.text, o->number);
    else
        printf("found    nothing\n");
}

static void print_text(const struct options *options, const struct outcome *o)
{
    const struct md5_figures *f = &o->figures;

    print_task(options);
    printf("device   %s  %s (%s)\n", o->device.selector, o->device.name, o->device.platform);
    printf("kernel   %s, built in %.2f s\n", image_name(f->image), f->build_s);
    printf("time     %.3f s, %.1f million texts/s\n", f->search_s,
           1e-6 * (double)f->tried / f->search_s);
    print_answer(o);
}

/* What each line of JSON begins with. */
static void print_json_answer(const struct options *options, const struct outcome *o)
{
    char hex[33];

    md5_print_digest(options->request.digest, hex);
    printf("{\"digest\":\"%s\",\"from\":%" PRId64 ",\"to\":%" PRId64 ",\"found\":%s,"
           "\"text\":\"%s\",\"number\":%" PRId64 ",",
           hex, options->request.from, options->request.to, o->answer.length > 0 ? "true" : "false",
           o->answer.text, o->number);
}

static void print_json(const struct options *options, const struct outcome *o)
{
    const struct md5_figures *f = &o->figures;

    print_json_answer(options, o);
    printf("\"device\":\"%s\",\"kernel\":\"%s\",\"tried\":%" PRId64
           ",\"build_s\":%.6f,\"search_s\":%.6f}\n",
           o->device.selector, image_name(f->image), f->tried, f->build_s, f->search_s);
}

static bool verify(const struct options *options, const struct outcome *o)
{
    const int64_t wanted = md5_scan(&options->request);

    if (wanted != o->number) {
        fprintf(stderr, "md5: plain C finds the number %" PRId64 ", the device %" PRId64 "\n",
                wanted, o->number);
        return false;
    }
    if (!options->json)
        printf("check    plain C says the same  PASS\n");
    return true;
}

static bool search(usm_device *dev, const struct options *options, struct outcome *o)
{
    struct md5_job *job = md5_job_create(dev);
    bool            is_good;

    if (!job)
        return false;
    o->device = (usm_device_info)USM_DEVICE_INFO_INIT;
    progress_begin("search", 1e-6, "million texts/s");
    is_good =
        (usm_device_get_info(dev, &o->device) == USM_OK || failed("asking the device")) &&
        md5_job_run(job, &options->request, options->progress ? progress_show : NULL, &o->number) &&
        md5_job_figures(job, &o->figures);
    if (options->progress)
        progress_end();
    o->answer = md5_text_of(o->number);
    md5_job_destroy(job);
    return is_good;
}

/* ---- over a team --------------------------------------------------------------------------- */

static void print_team(const struct options *options, const struct team_course *course,
                       const struct outcome *o)
{
    if (options->json) {
        print_json_answer(options, o);
        team_course_print_json(course);
        printf(",\"build_s\":%.6f,\"search_s\":%.6f}\n", course->build_s, course->run_s);
        return;
    }
    print_task(options);
    team_course_print(course);
    printf("kernel   built in %.2f s\n", course->build_s);
    printf("time     %.3f s\n", course->run_s);
    print_answer(o);
}

static enum exit_status status_of(const struct outcome *o)
{
    return o->answer.length > 0 ? EXIT_FOUND : EXIT_ABSENT;
}

/* Of several ranks only home has the answer, and speaks. */
static enum exit_status run_team(const struct options *options)
{
    const bool         is_shown = options->progress && job_is_home();
    struct outcome     outcome  = {.number = MD5_ABSENT};
    struct team_course course   = {.options = &options->team,
                                   .show    = is_shown ? progress_show : NULL,
                                   .total = (uint64_t)(options->request.to - options->request.from)};
    usm_status         status;
    enum exit_status   exit_status = EXIT_FOUND;

    progress_begin("search", 1e-6, "million texts/s");
    status = md5_team_run(&course, &options->request, &outcome.number);
    if (is_shown)
        progress_end();
    job_leave(team_course_close(&course) && status == USM_OK);
    outcome.answer = md5_text_of(outcome.number);
    if (status != USM_OK) {
        exit_status = status == USM_E_NO_DEVICE ? EXIT_NO_DEVICE : EXIT_FAILED;
    } else if (job_is_home()) {
        print_team(options, &course, &outcome);
        exit_status =
            options->verify && !verify(options, &outcome) ? EXIT_FAILED : status_of(&outcome);
    }
    team_course_fini(&course);
    return exit_status;
}

/* ---- on one device ------------------------------------------------------------------------- */

static enum exit_status run(const struct options *options)
{
    struct outcome outcome = {.number = MD5_ABSENT};
    usm_device    *dev     = NULL;
    size_t         count   = 0;

    if (usm_get_devices(&dev, 1, &count) != USM_OK) {
        failed("looking for a device");
        return usm_last_status() == USM_E_NO_DEVICE ? EXIT_NO_DEVICE : EXIT_FAILED;
    }
    if (!search(dev, options, &outcome))
        return EXIT_FAILED;
    if (options->json)
        print_json(options, &outcome);
    else
        print_text(options, &outcome);
    if (options->verify && !verify(options, &outcome))
        return EXIT_FAILED;
    return status_of(&outcome);
}

int main(int argc, char **argv)
{
    struct options options;

    setvbuf(stdout, NULL, _IOLBF, 0);
    switch (options_parse(&options, argc, argv)) {
    case OPTIONS_HELP:
        options_help();
        return EXIT_FOUND;
    case OPTIONS_WRONG:
        return EXIT_OPTIONS;
    case OPTIONS_GO:
    default:
        break;
    }
    if (!options.team.is_on && !options.team.ranks)
        return (int)run(&options);
    if (!job_join("md5", options.team.ranks))
        return EXIT_FAILED;
    return job_exit((int)run_team(&options));
}
