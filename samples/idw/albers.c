/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Albers' projection both ways (albers.h); for relief.c and borders.c. */
#include "albers.h"

#include <math.h>

#define RADIANS   0.017453292519943295
#define RADIUS_KM 6371.0

/* Of the cone that cuts the sphere at 29.5 and 45.5 degrees:
 *   n = (sin 29.5 + sin 45.5) / 2,  C = cos^2 29.5 + 2 n sin 29.5,  rho0 = sqrt(C - 2 n sin 37.5) /
 * n */
static const double n = 0.60283700, C = 1.35122133, rho0 = 1.30326243;

struct point frame_place(const struct frame *frame, struct degrees at)
{
    double rho   = sqrt(C - 2.0 * n * sin(at.north * RADIANS)) / n;
    double theta = n * (at.east + 96.0) * RADIANS;
    double x = RADIUS_KM * rho * sin(theta), y = RADIUS_KM * (rho0 - rho * cos(theta));

    return (struct point){(x - frame->left_km) / frame->km_per_pixel,
                          (frame->top_km - y) / frame->km_per_pixel};
}

struct degrees frame_degrees(const struct frame *frame, struct point at)
{
    double x   = (frame->left_km + at.x * frame->km_per_pixel) / RADIUS_KM;
    double y   = rho0 - (frame->top_km - at.y * frame->km_per_pixel) / RADIUS_KM;
    double rho = hypot(x, y);
    double s   = (C - n * n * rho * rho) / (2.0 * n);

    return (struct degrees){atan2(x, y) / (n * RADIANS) - 96.0,
                            asin(fmin(fmax(s, -1.0), 1.0)) / RADIANS};
}
