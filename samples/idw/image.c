/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A finished picture into a file: PNG by libpng, or PPM without it; for map.c. */
#include "canvas.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static uint8_t to_byte(float value)
{
    return (uint8_t)lrintf(255.0f * fminf(fmaxf(value, 0.0f), 1.0f));
}

static uint8_t *to_bytes(const struct canvas *canvas)
{
    const size_t n     = (size_t)canvas->width * (size_t)canvas->height;
    uint8_t     *bytes = malloc(3 * n);

    for (size_t i = 0; bytes && i < n; i++) {
        bytes[3 * i]     = to_byte(canvas->pixels[i].r);
        bytes[3 * i + 1] = to_byte(canvas->pixels[i].g);
        bytes[3 * i + 2] = to_byte(canvas->pixels[i].b);
    }
    return bytes;
}

#ifdef IDW_HAVE_PNG
#include <png.h>

const char image_suffix[] = ".png";

static void set_text(png_structp png, png_infop info, const char *key, const char *text)
{
    char     key_copy[80], text_copy[128];
    png_text entry = {.compression = PNG_TEXT_COMPRESSION_NONE, .key = key_copy, .text = text_copy};

    snprintf(key_copy, sizeof key_copy, "%s", key);
    snprintf(text_copy, sizeof text_copy, "%s", text);
    png_set_text(png, info, &entry, 1);
}

static void set_texts(png_structp png, png_infop info, const char *title)
{
    set_text(png, info, "Title", title);
    set_text(png, info, "Source",
             "Points: airportsdata (PyPI). Borders: U.S. Census Bureau, cb_2016_us_state_500k.");
    set_text(png, info, "Copyright",
             "Points: MIT, Mike Borsetti and mwgg. Borders: public domain.");
    set_text(png, info, "Software", "libusm, samples/idw");
}

/* libpng leaves by longjmp when a write fails: everything that must go is the caller's. */
static bool encode(FILE *file, png_structp png, png_infop info, const struct canvas *canvas,
                   const uint8_t *bytes, const char *title)
{
    if (setjmp(png_jmpbuf(png)))
        return false;
    png_init_io(png, file);
    png_set_IHDR(png, info, (png_uint_32)canvas->width, (png_uint_32)canvas->height, 8,
                 PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    set_texts(png, info, title);
    png_write_info(png, info);
    for (int y = 0; y < canvas->height; y++)
        png_write_row(png, bytes + (size_t)y * (size_t)canvas->width * 3);
    png_write_end(png, info);
    return true;
}

static bool write_bytes(FILE *file, const struct canvas *canvas, const uint8_t *bytes,
                        const char *title)
{
    png_structp png     = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop   info    = png ? png_create_info_struct(png) : NULL;
    bool        is_done = info && encode(file, png, info, canvas, bytes, title);

    png_destroy_write_struct(&png, &info);
    return is_done;
}

#else

const char image_suffix[] = ".ppm";

static bool write_bytes(FILE *file, const struct canvas *canvas, const uint8_t *bytes,
                        const char *title)
{
    const size_t n = 3 * (size_t)canvas->width * (size_t)canvas->height;

    return fprintf(file,
                   "P6\n# %s\n# Points: airportsdata (MIT). Borders: U.S. Census Bureau.\n"
                   "%d %d\n255\n",
                   title, canvas->width, canvas->height) > 0 &&
           fwrite(bytes, 1, n, file) == n;
}

#endif

bool image_write(const struct canvas *canvas, const char *path, const char *title)
{
    uint8_t *bytes   = to_bytes(canvas);
    FILE    *file    = fopen(path, "wb");
    bool     is_done = bytes && file && write_bytes(file, canvas, bytes, title);
    int      cause   = errno;

    if (file && fclose(file) != 0) {
        is_done = false;
        cause   = errno;
    }
    free(bytes);
    if (!is_done) {
        fputs("idw: cannot write the map: ", stderr);
        errno = cause;
        perror(path);
    }
    return is_done;
}
