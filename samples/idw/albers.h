/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The projection of the picture: Albers' equal-area cone as the U.S. Geological Survey uses it for
 * the contiguous states (parallels 29.5 and 45.5, origin 37.5 north, 96 west), on a sphere. */
#ifndef IDW_ALBERS_H
#define IDW_ALBERS_H

#include "canvas.h"

/* Where the plane of the projection lies in the picture. */
struct frame {
    double km_per_pixel;
    double left_km, top_km; /* of the picture's corner */
};

struct degrees {
    double east, north;
};

struct point   frame_place(const struct frame *frame, struct degrees at);
struct degrees frame_degrees(const struct frame *frame, struct point at);

#endif
