/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Difference imaging: the same field of stars photographed many times in two nights; a star that
 * flared up in between shows in the difference of the nights' mean images, far below what can be
 * seen in a single one.
 *
 * The photographs of both nights are one buffer.  Two stages: they are taken (made up here, with
 * noise); then each pair is added into two images of sums, which are small and stay in memory.  The
 * stars that flared up must be found, all of them and no others. */
#include "mapped.h"
#include "progress.h"
#include "store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SIDE        1024
#define PIXELS      ((size_t)SIDE * SIDE)
#define IMAGE_BYTES (PIXELS * sizeof(float))
#define SUMS_BYTES  (PIXELS * sizeof(double))

#define NOISE  100.0f /* a single photograph's, from -NOISE to NOISE */
#define FLARES 12
#define FLARE  100.0f

enum { EXPOSE, ADD };
enum { BEFORE, AFTER, NIGHTS };

/* ---- what is done to an image ------------------------------------------------------ */

static uint32_t mix(uint64_t x)
{
    x = (x ^ (x >> 31)) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)((x ^ (x >> 29)) >> 24);
}

/* Where star k flared up. */
static size_t flare_at(unsigned k)
{
    return mix(UINT64_C(0xf1a7e) * (k + 1)) % PIXELS;
}

/* Photograph number `number` of all, of the night `night`. */
static void expose(float *image, unsigned night, uint64_t number)
{
    for (size_t i = 0; i < PIXELS; i++) {
        uint32_t sky  = mix(i + 1) & 1023; /* the same in each photograph */
        uint32_t seed = mix(number * PIXELS + i);

        image[i] = (float)sky + NOISE * ((float)(seed & 0xffff) / 32768.0f - 1.0f);
    }
    for (unsigned k = 0; k < FLARES && night == AFTER; k++)
        image[flare_at(k)] += FLARE;
}

static void add_image(double *sum, const float *image)
{
    for (size_t i = 0; i < PIXELS; i++)
        sum[i] += (double)image[i];
}

static bool is_flare(size_t pixel)
{
    for (unsigned k = 0; k < FLARES; k++)
        if (flare_at(k) == pixel)
            return true;
    return false;
}

/* Looks for pixels whose mean differs by more than half a flare, and compares with where they are.
 */
static bool find_flares(const double *before, const double *after, uint64_t pairs)
{
    size_t found = 0, errors = 0;

    for (size_t i = 0; i < PIXELS; i++) {
        bool stands_out = (after[i] - before[i]) / (double)pairs > (double)FLARE / 2;

        found += stands_out;
        errors += stands_out != is_flare(i);
    }
    if (errors > 0)
        return wrong("%zu pixels of the difference are wrong", errors);
    printf("          %zu stars of %d flared up, none was missed or imagined\n", found, FLARES);
    return true;
}

/* ---- over a buffer ----------------------------------------------------------------- */

static size_t image_offset(const store *s, uint64_t number)
{
    return store_offset(s, number * IMAGE_BYTES);
}

/* Photograph 2 k is of the first night, 2 k + 1 of the second. */
static bool expose_all(store *s, uint64_t images, struct report *r)
{
    progress_begin(r, "expose", images * IMAGE_BYTES);
    for (uint64_t n = store_first_step(s, EXPOSE, images); n < images; n++) {
        usm_access a;

        if (usm_access_begin(s->data, image_offset(s, n), IMAGE_BYTES, USM_WRITE_NO_INIT, &a) !=
            USM_OK)
            return failed("access to a photograph");
        expose(a.ptr, n % NIGHTS, n);
        usm_access_end(&a);
        progress_add(IMAGE_BYTES);
        if (store_is_due(s, n, images) && !store_commit(s, EXPOSE, n + 1))
            return false;
    }
    progress_end();
    return store_commit(s, ADD, 0);
}

static bool add_one(const store *s, uint64_t number, usm_buffer *sums)
{
    const usm_buffer_range both[2] = {
        {s->data, image_offset(s, number), IMAGE_BYTES, USM_READ},
        {sums, number % NIGHTS * SUMS_BYTES, SUMS_BYTES, USM_READ_WRITE}};
    usm_access a[2];

    if (usm_access_many(2, both, a) != USM_OK)
        return failed("access to a photograph and a sum");
    add_image(a[1].ptr, a[0].ptr);
    usm_access_end(&a[0]);
    usm_access_end(&a[1]);
    return true;
}

/* SEQUENTIAL: what has been passed is not worth keeping, what follows may be read ahead. */
static bool add_all(const store *s, uint64_t images, usm_buffer *sums, struct report *r)
{
    if (usm_buffer_advise(s->data, image_offset(s, 0), images * IMAGE_BYTES,
                          USM_BUFFER_SEQUENTIAL) != USM_OK)
        return failed("advice");
    progress_begin(r, "add", images * IMAGE_BYTES);
    for (uint64_t n = 0; n < images; n++) {
        if (!add_one(s, n, sums))
            return false;
        progress_add(IMAGE_BYTES);
    }
    progress_end();
    return true;
}

static bool clear(usm_buffer *sums)
{
    usm_access a;
    double    *sum;

    if (usm_access_begin(sums, 0, NIGHTS * SUMS_BYTES, USM_WRITE_NO_INIT, &a) != USM_OK)
        return failed("access to the sums");
    sum = a.ptr;
    for (size_t i = 0; i < NIGHTS * PIXELS; i++)
        sum[i] = 0.0;
    usm_access_end(&a);
    return true;
}

static bool compare(usm_buffer *sums, uint64_t pairs)
{
    usm_access    a;
    const double *sum;
    bool          is_right;

    if (usm_access_begin(sums, 0, NIGHTS * SUMS_BYTES, USM_READ, &a) != USM_OK)
        return failed("access to the sums");
    sum      = a.ptr;
    is_right = find_flares(sum, sum + PIXELS, pairs);
    usm_access_end(&a);
    return is_right;
}

static uint64_t images_in(uint64_t size)
{
    uint64_t pairs = size / IMAGE_BYTES / NIGHTS;

    return NIGHTS * (pairs < 8 ? 8 : pairs); /* fewer would not lift a flare out of the noise */
}

static bool run(const struct job *job)
{
    const uint64_t images = images_in(job->size);
    usm_buffer    *sums   = usm_buffer_new(NULL, NIGHTS * SUMS_BYTES);
    store          s;
    bool           is_good = store_open(&s, job, difference_task.name, images * IMAGE_BYTES) &&
                   (sums || failed("a buffer")) && expose_all(&s, images, job->report) &&
                   clear(sums) && add_all(&s, images, sums, job->report) &&
                   compare(sums, images / NIGHTS);

    usm_buffer_destroy(sums);
    store_close(&s);
    return is_good;
}

/* ---- the same over an mmap()ed file ------------------------------------------------ */

static void expose_mapped(float *data, uint64_t images, struct report *r)
{
    progress_begin(r, "expose", images * IMAGE_BYTES);
    for (uint64_t n = 0; n < images; n++) {
        expose(data + n * PIXELS, n % NIGHTS, n);
        progress_add(IMAGE_BYTES);
    }
    progress_end();
}

static void add_mapped(const float *data, uint64_t images, double *sums, struct report *r)
{
    progress_begin(r, "add", images * IMAGE_BYTES);
    for (uint64_t n = 0; n < images; n++) {
        add_image(sums + n % NIGHTS * PIXELS, data + n * PIXELS);
        progress_add(IMAGE_BYTES);
    }
    progress_end();
}

static bool run_mapped(const struct job *job)
{
    const uint64_t images  = images_in(job->size);
    double        *sums    = calloc(NIGHTS, SUMS_BYTES);
    float         *data    = mapped_create(images * IMAGE_BYTES);
    bool           is_good = false;

    if (data && sums) {
        expose_mapped(data, images, job->report);
        add_mapped(data, images, sums, job->report);
        is_good = find_flares(sums, sums + PIXELS, images / NIGHTS);
    }
    mapped_destroy(data, images * IMAGE_BYTES);
    free(sums);
    return is_good;
}

const task difference_task = {"difference", "two nights' photographs, averaged and subtracted", run,
                              run_mapped};
