/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One picture through each template, on all devices that USM_DEVICE_SELECTOR names.  Every line of the
 * output is the same whichever they are. */
#include <usm/template.h>
#include <usm/usm.h>

#include "bodies.h"
#include "bodies_kernels.h" /* made by usm_add_kernels() */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 512, HEIGHT = 384, POINTS = WIDTH * HEIGHT };

static usm_team *team;

static void must(usm_status status)
{
    if (status == USM_OK)
        return;
    fprintf(stderr, "%s\n", usm_last_error());
    exit(1); /* NOLINT(concurrency-mt-unsafe): nothing runs any more */
}

/* A template with the kernels of bodies.cl: with the text of its bodies alone it would not run on
 * Level Zero. */
static usm_template *create(const usm_template_desc *desc)
{
    const usm_image   images[] = {{USM_IMAGE_BUNDLE, bodies_kernels, bodies_kernels_size}};
    usm_template_desc d        = *desc;
    usm_template     *t;

    d.nimages = 1, d.images = images;
    must(usm_template_create(team, &d, &t));
    return t;
}

static usm_template_result run(const usm_template_desc *desc, usm_template_run_desc data)
{
    usm_template       *t      = create(desc);
    usm_template_result result = USM_TEMPLATE_RESULT_INIT;

    must(usm_template_run(t, &data, &result));
    usm_template_destroy(t);
    return result;
}

static usm_template_run_desc data_of(uint64_t count, const void *in, void *out)
{
    usm_template_run_desc d = USM_TEMPLATE_RUN_DESC_INIT;

    d.count = count, d.in = in, d.out = out;
    return d;
}

static uint64_t checksum(const uint32_t *points, size_t n)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum = sum * 31 + points[i];
    return sum;
}

/* ---- a picture -------------------------------------------------------------------------------- */

static void look(const uint32_t *picture, uint32_t *out)
{
    static uint64_t       wide[POINTS], up_to[POINTS];
    const uint32_t        width = WIDTH;
    uint64_t              light_of;
    usm_template_run_desc d = data_of(POINTS, picture, out);
    usm_template_result   result;

    d.param = &width;
    (void)run(&darken, d);
    printf("map            darker: %016llx\n", (unsigned long long)checksum(out, POINTS));
    (void)run(&light, data_of(POINTS, picture, &light_of));
    printf("map_reduce     light: %llu\n", (unsigned long long)light_of);
    d = data_of(HEIGHT, picture, out), d.width = WIDTH, d.steps = 10;
    (void)run(&blur, d);
    printf("stencil        blurred: %016llx\n", (unsigned long long)checksum(out, POINTS));
    for (size_t i = 0; i < POINTS; i++)
        wide[i] = picture[i];
    (void)run(&total, data_of(POINTS, wide, up_to));
    printf("scan           half of the light: %llu\n", (unsigned long long)up_to[POINTS / 2 - 1]);
    d = data_of(HEIGHT, picture, out), d.width = WIDTH;
    result = run(&spread, d);
    printf("iterate        spread after %llu steps: %016llx\n", (unsigned long long)result.steps,
           (unsigned long long)checksum(out, POINTS));
}

/* ---- numbers ---------------------------------------------------------------------------------- */

static void count(uint32_t *out)
{
    const uint64_t        digits = 580644; /* of 762 squared, and of others */
    int64_t               found;
    usm_template_run_desc d    = data_of((uint64_t)1 << 40, NULL, &found);
    uint32_t              most = 0;

    d.param = &digits;
    (void)run(&ends_in, d);
    printf("search         %lld\n", (long long)found);
    d = data_of(20000, NULL, out), d.grain = 64;
    (void)run(&steps_of, d);
    for (uint32_t i = 1; i < 20000; i++)
        most = out[i] > out[most] ? i : most;
    printf("master_worker  %u has the most steps, %u\n", most + 1, out[most]);
}

/* ---- a stream ---------------------------------------------------------------------------------- */

static bool make_numbers(void *elements, uint64_t first, uint64_t n, void *user)
{
    uint32_t *numbers = elements;

    (void)user;
    for (uint64_t i = 0; i < n; i++)
        numbers[i] = (uint32_t)(first + i);
    return true;
}

static bool add_numbers(void *elements, uint64_t first, uint64_t n, void *user)
{
    uint64_t *sum = user;

    (void)first;
    *sum += checksum(elements, n);
    return true;
}

static void stream(void)
{
    usm_template     *stages[] = {create(&scale), create(&fold)};
    usm_pipeline_desc d        = USM_PIPELINE_DESC_INIT;
    uint64_t          sum      = 0;

    d.nstages = 2, d.stages = stages, d.count = 1000000, d.batch = 65536;
    d.source = make_numbers, d.sink = add_numbers, d.user = &sum;
    must(usm_pipeline_run(&d));
    printf("pipeline       %016llx\n", (unsigned long long)sum);
    usm_template_destroy(stages[0]);
    usm_template_destroy(stages[1]);
}

int main(void)
{
    static uint32_t picture[POINTS], out[POINTS];

    for (uint32_t i = 0; i < POINTS; i++)
        picture[i] = (i * 2654435761u >> 24) % 5 ? (i * 40503u >> 8) % 256 : 0;
    must(usm_team_create(NULL, &team));
    look(picture, out);
    count(out);
    stream();
    usm_team_destroy(team);
    return 0;
}
