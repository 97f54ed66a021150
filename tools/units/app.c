/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* An app as bytes for a unit: see app.h. */
#include "units/app.h"

#include "base/inline/bytes.h"
#include "base/os.h"

#include <string.h>

/* ---- writing --------------------------------------------------------------------------------- */

static unsigned char *put(unsigned char *to, const void *bytes, uint64_t size)
{
    if (size)
        memcpy(to, bytes, (size_t)size);
    return to + size;
}

static unsigned char *put_number(unsigned char *to, uint64_t number)
{
    usm_put_le(to, number, 8);
    return to + 8;
}

unsigned char *unit_app_encode(const unit_app *a, uint64_t *size)
{
    uint64_t       all = 8 + a->size + 8 + 8 * a->nnodes + 8;
    unsigned char *bytes, *to;

    for (uint64_t i = 0; i < a->nimages; i++)
        all += 32 + strlen(a->images[i].key);
    bytes = usm__heap_alloc((size_t)all);
    if (!bytes)
        return NULL;
    to = put_number(bytes, a->size);
    to = put(to, a->text, a->size);
    to = put_number(to, a->nnodes);
    for (uint64_t i = 0; i < a->nnodes; i++)
        to = put_number(to, a->sizes[i]);
    to = put_number(to, a->nimages);
    for (uint64_t i = 0; i < a->nimages; i++) {
        const unit_image *image = &a->images[i];

        to = put_number(to, image->hash.hi);
        to = put_number(to, image->hash.lo);
        to = put_number(to, image->size);
        to = put_number(to, strlen(image->key));
        to = put(to, image->key, strlen(image->key));
    }
    *size = all;
    return bytes;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct cursor {
    const unsigned char *at;
    uint64_t             left;
} cursor;

static bool get_number(cursor *c, uint64_t most, uint64_t *number)
{
    if (c->left < 8)
        return false;
    *number = usm_get_le(c->at, 8);
    c->at += 8;
    c->left -= 8;
    return *number <= most;
}

/* Text, with a 0 behind it and none in it. */
static char *get_text(cursor *c, uint64_t size)
{
    char *text = size <= c->left ? usm__heap_alloc((size_t)size + 1) : NULL;

    if (!text)
        return NULL;
    memcpy(text, c->at, (size_t)size);
    text[size] = '\0';
    c->at += size;
    c->left -= size;
    return text;
}

static bool get_image(cursor *c, unit_image *image)
{
    uint64_t length = 0;

    if (!get_number(c, UINT64_MAX, &image->hash.hi) ||
        !get_number(c, UINT64_MAX, &image->hash.lo) ||
        !get_number(c, UNIT_FILE_MAX, &image->size) || !get_number(c, c->left, &length))
        return false;
    image->key = get_text(c, length);
    return image->key && strlen(image->key) == length;
}

bool unit_app_decode(const unsigned char *bytes, uint64_t size, unit_app *a)
{
    cursor c = {bytes, size};

    *a = (unit_app){.text = NULL};
    if (!get_number(&c, UNIT_APP_MAX, &a->size))
        return false;
    a->text = get_text(&c, a->size);
    if (!a->text || !get_number(&c, UNIT_NODES_MAX, &a->nnodes) || a->nnodes > c.left / 8)
        return false;
    a->sizes = usm__heap_alloc((size_t)(a->nnodes + 1) * sizeof *a->sizes);
    for (uint64_t i = 0; i < a->nnodes && a->sizes; i++)
        if (!get_number(&c, UNIT_SIZE_MAX, &a->sizes[i]))
            return false;
    if (!a->sizes || !get_number(&c, UNIT_IMAGES_MAX, &a->nimages) || a->nimages > c.left / 32) {
        a->nimages = 0;
        return false;
    }
    a->images = usm__heap_alloc((size_t)(a->nimages + 1) * sizeof *a->images);
    for (uint64_t i = 0; i < a->nimages && a->images; i++)
        if (!get_image(&c, &a->images[i]))
            return false;
    return a->images && c.left == 0;
}

void unit_app_free(unit_app *a)
{
    for (uint64_t i = 0; i < a->nimages && a->images; i++)
        usm__heap_free(a->images[i].key);
    usm__heap_free(a->images);
    usm__heap_free(a->sizes);
    usm__heap_free(a->text);
    *a = (unit_app){.text = NULL};
}

uint64_t unit_app_first(const unit_app *a, uint64_t image)
{
    uint64_t first = 0;

    while (first < image && (a->images[first].hash.hi != a->images[image].hash.hi ||
                             a->images[first].hash.lo != a->images[image].hash.lo ||
                             a->images[first].size != a->images[image].size))
        first++;
    return first;
}
