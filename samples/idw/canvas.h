/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A picture and the few ways to draw on it; the map's parts share it.
 *
 * Shapes are drawn into a stencil first, as coverage from 0 to 1 with soft edges, and the stencil
 * is then painted at once: so a line that crosses itself is no darker there. */
#ifndef IDW_CANVAS_H
#define IDW_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rgb {
    float r, g, b; /* 0 to 1 */
};

struct canvas {
    int         width, height;
    struct rgb *pixels;
    float      *stencil;
};

struct point {
    double x, y; /* pixels; the middle of the first is 0.5, 0.5 */
};

/* canvas.c ---------------------------------------------------------------------------------- */

bool       canvas_init(struct canvas *canvas, int width, int height, struct rgb background);
void       canvas_fini(struct canvas *canvas);
struct rgb rgb_mix(struct rgb a, struct rgb b, float share_of_b);

void stencil_clear(struct canvas *canvas);
void stencil_line(struct canvas *canvas, struct point a, struct point b, double width);
/* Lays the stencil, moved by (dx, dy), over the picture in one colour. */
void stencil_paint(struct canvas *canvas, struct rgb colour, float opacity, int dx, int dy);
/* Softens the stencil or any other field of the same size; false: out of memory. */
bool field_blur(float *field, int width, int height, double sigma);

/* text.c ------------------------------------------------------------------------------------ */

enum text_align { TEXT_LEFT, TEXT_CENTRE, TEXT_RIGHT };

/* Adds capitals, digits and some signs to the stencil: `at` is on the base line, `height` that of a
 * capital, in pixels.  Small letters are drawn as capitals. */
void stencil_text(struct canvas *canvas, struct point at, double height, enum text_align align,
                  const char *text);

/* image.c ----------------------------------------------------------------------------------- */

/* Writes the picture as PNG, or as PPM in a build without libpng.  Failures are said on stderr. */
bool image_write(const struct canvas *canvas, const char *path, const char *title);
/* The name's usual end: ".png" or ".ppm". */
extern const char image_suffix[];

#endif
