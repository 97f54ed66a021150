/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The picture: paper, land, borders, title, legend; called by main.c when a grid is there. */
#include "map.h"

#include <stdio.h>

#define WIDTH  1600
#define HEIGHT 1060

/* 4,900 x 3,246 km; the land takes up 4,602 x 2,905 of them. */
static const struct frame frame = {3.0625, -2500.0, 1735.0};

static const struct rgb paper = {0.930f, 0.922f, 0.895f}, ink = {0.225f, 0.215f, 0.225f},
                        shore = {0.230f, 0.260f, 0.300f}, shade = {0.270f, 0.275f, 0.300f};

/* The land throws a soft shadow on the paper. */
static bool draw_land(struct canvas *canvas, const struct borders *borders,
                      const struct idw_grid *grid, const float *heights)
{
    stencil_clear(canvas);
    if (!borders_fill(canvas, borders) ||
        !field_blur(canvas->stencil, canvas->width, canvas->height, 7.0))
        return false;
    stencil_paint(canvas, shade, 0.55f, 6, 8);
    stencil_clear(canvas);
    return borders_fill(canvas, borders) && relief_paint(canvas, &frame, grid, heights);
}

static void draw_borders(struct canvas *canvas, const struct borders *borders)
{
    stencil_clear(canvas);
    borders_draw(canvas, borders, 0.9);
    stencil_paint(canvas, shore, 0.42f, 0, 0);
}

static void draw_title(struct canvas *canvas, const char *title)
{
    stencil_clear(canvas);
    stencil_text(canvas, (struct point){40, 912}, 22, TEXT_LEFT, "Relief of the United States");
    stencil_text(canvas, (struct point){40, 940}, 11, TEXT_LEFT, title);
    stencil_paint(canvas, ink, 1.0f, 0, 0);
    stencil_clear(canvas);
    stencil_text(canvas, (struct point){40, HEIGHT - 18}, 8, TEXT_LEFT,
                 "Points: airportsdata (MIT).  Borders: U.S. Census Bureau.  Made with libusm.");
    stencil_paint(canvas, ink, 0.65f, 0, 0);
}

#define BAR_LEFT   40
#define BAR_TOP    962
#define BAR_WIDTH  400
#define BAR_HEIGHT 14
#define BAR_METRES 3000

static void draw_bar(struct canvas *canvas)
{
    for (int x = 0; x < BAR_WIDTH; x++) {
        struct rgb tint = relief_tint((float)(x * BAR_METRES) / BAR_WIDTH);

        for (int y = 0; y < BAR_HEIGHT; y++)
            canvas->pixels[(BAR_TOP + y) * canvas->width + BAR_LEFT + x] = tint;
    }
}

static void draw_legend(struct canvas *canvas)
{
    const double base = BAR_TOP + BAR_HEIGHT, right = BAR_LEFT + BAR_WIDTH;

    draw_bar(canvas);
    stencil_clear(canvas);
    stencil_line(canvas, (struct point){BAR_LEFT, BAR_TOP}, (struct point){right, BAR_TOP}, 1.0);
    stencil_line(canvas, (struct point){BAR_LEFT, base}, (struct point){right, base}, 1.0);
    for (int metres = 0; metres <= BAR_METRES; metres += 500) {
        double x = BAR_LEFT + (double)metres * BAR_WIDTH / BAR_METRES;
        char   text[16];

        snprintf(text, sizeof text, metres < BAR_METRES ? "%d" : "%d m", metres);
        stencil_line(canvas, (struct point){x, BAR_TOP}, (struct point){x, base + 5}, 1.0);
        stencil_text(canvas, (struct point){x, base + 17}, 9, TEXT_CENTRE, text);
    }
    stencil_paint(canvas, ink, 0.9f, 0, 0);
}

/* 500 km, where the projection is true: it is within 1.3 % everywhere. */
static void draw_scale(struct canvas *canvas)
{
    const double left = 1290, right = left + 500 / frame.km_per_pixel, y = HEIGHT - 24;

    stencil_clear(canvas);
    stencil_line(canvas, (struct point){left, y}, (struct point){right, y}, 1.6);
    stencil_line(canvas, (struct point){left, y - 5}, (struct point){left, y + 1}, 1.6);
    stencil_line(canvas, (struct point){right, y - 5}, (struct point){right, y + 1}, 1.6);
    stencil_text(canvas, (struct point){0.5 * (left + right), y - 8}, 9, TEXT_CENTRE, "500 km");
    stencil_paint(canvas, ink, 0.9f, 0, 0);
}

bool idw_map_write(const struct idw_grid *grid, const float *heights, const char *path,
                   const char *title)
{
    struct canvas  canvas  = {0};
    struct borders borders = {0};
    bool           is_done = false;

    if (!canvas_init(&canvas, WIDTH, HEIGHT, paper) || !borders_load(&borders, &frame) ||
        !draw_land(&canvas, &borders, grid, heights)) {
        fprintf(stderr, "idw: out of memory for the map\n");
    } else {
        draw_borders(&canvas, &borders);
        draw_title(&canvas, title);
        draw_legend(&canvas);
        draw_scale(&canvas);
        is_done = image_write(&canvas, path, title);
    }
    borders_fini(&borders);
    canvas_fini(&canvas);
    return is_done;
}
