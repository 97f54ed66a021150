/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Lettering by strokes, so that it is as sharp as its lines at any height; for map.c. */
#include "canvas.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define CAPITAL_UNITS 12.0 /* height of a capital  */
#define GAP_UNITS     4.5  /* between two glyphs   */
#define SPACE_UNITS   5.0

/* Strokes are separated by spaces; each is a row of corners, a digit for x and a letter for y:
 * `a` is the base line, `m` the top of a capital. */
static const char *const glyphs[128] = {
    ['0'] = "2a6a8c8k6m2m0k0c2a",
    ['1'] = "0k3m3a",
    ['2'] = "0k2m6m8k8h0a8a",
    ['3'] = "0k2m6m8k8i6g3g 6g8e8c6a2a0c",
    ['4'] = "6a6m0d8d",
    ['5'] = "7m0m0g6g8e8c6a2a0c",
    ['6'] = "7m3m0i0c2a6a8c8e6g2g0e",
    ['7'] = "0m8m3a",
    ['8'] = "2g0i0k2m6m8k8i6g2g0e0c2a6a8c8e6g",
    ['9'] = "1a5a8e8k6m2m0k0i2g6g8i",
    ['A'] = "0a4m8a 1d7d",
    ['B'] = "6g8i8k6m0m0a6a8c8e6g0g",
    ['C'] = "8k6m2m0k0c2a6a8c",
    ['D'] = "0a0m5m8j8d5a0a",
    ['E'] = "7a0a0m7m 0g6g",
    ['F'] = "0a0m7m 0g6g",
    ['G'] = "8k6m2m0k0c2a6a8c8g5g",
    ['H'] = "0a0m 8a8m 0g8g",
    ['I'] = "0a0m",
    ['J'] = "6m6c4a2a0c",
    ['K'] = "0a0m 8m0e 3h8a",
    ['L'] = "0m0a7a",
    ['M'] = "0a0m4e8m8a",
    ['N'] = "0a0m8a8m",
    ['O'] = "2a6a8c8k6m2m0k0c2a",
    ['P'] = "0a0m6m8k8h6f0f",
    ['Q'] = "2a6a8c8k6m2m0k0c2a 5d8a",
    ['R'] = "0a0m6m8k8h6f0f 4f8a",
    ['S'] = "8k6m2m0k0i2g6g8e8c6a2a0c",
    ['T'] = "0m8m 4m4a",
    ['U'] = "0m0c2a6a8c8m",
    ['V'] = "0m4a8m",
    ['W'] = "0m2a4i6a8m",
    ['X'] = "0a8m 0m8a",
    ['Y'] = "0m4g8m 4g4a",
    ['Z'] = "0m8m0a8a",
    ['.'] = "0a0a",
    [','] = "1a0_",
    [':'] = "0c0c 0i0i",
    ['-'] = "0g5g",
    ['/'] = "0a6m",
    ['('] = "3n0k0b3_",
    [')'] = "0n3k3b0_",
};

static const char *glyph_of(char letter)
{
    unsigned char c = (unsigned char)toupper((unsigned char)letter);

    return c < 128 && glyphs[c] ? glyphs[c] : "";
}

static double glyph_units(char letter)
{
    const char *glyph = glyph_of(letter);
    double      width = letter == ' ' ? SPACE_UNITS : 0.0;

    for (; *glyph; glyph++) {
        if (*glyph >= '0' && *glyph <= '9')
            width = fmax(width, *glyph - '0');
    }
    return width;
}

static double text_units(const char *text)
{
    double width = 0.0;

    for (; *text; text++)
        width += glyph_units(*text) + (text[1] ? GAP_UNITS : 0.0);
    return width;
}

static void draw_glyph(struct canvas *canvas, struct point at, double unit, const char *glyph)
{
    const double width = fmax(1.3 * unit, 1.2);
    struct point last  = at;
    bool         is_on = false;

    for (; *glyph; glyph++) {
        if (*glyph == ' ') {
            is_on = false;
            continue;
        }
        struct point next = {at.x + unit * (glyph[0] - '0'), at.y - unit * (glyph[1] - 'a')};

        if (is_on)
            stencil_line(canvas, last, next, width);
        last  = next;
        is_on = true;
        glyph++;
    }
}

void stencil_text(struct canvas *canvas, struct point at, double height, enum text_align align,
                  const char *text)
{
    const double unit = height / CAPITAL_UNITS;

    if (align != TEXT_LEFT)
        at.x -= text_units(text) * unit * (align == TEXT_CENTRE ? 0.5 : 1.0);
    for (; *text; text++) {
        draw_glyph(canvas, at, unit, glyph_of(*text));
        at.x += (glyph_units(*text) + GAP_UNITS) * unit;
    }
}
