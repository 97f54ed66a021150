/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Links of units and routes over them: see graph_where.h. */
#include "offload/graph_where.h"

/* A transfer below this measures the latency: the bytes do not count beside it. */
#define SHORT_BYTES 4096
/* Of a link that has carried nothing yet: a network of 1 Gbit/s. */
#define UNKNOWN_BYTES_PER_S 1e8

void usm__link_measure(usm__link *l, uint64_t bytes, double seconds)
{
    double rate;

    if (!(seconds > 0))
        return;
    if (bytes < SHORT_BYTES) {
        l->latency = l->latency > 0 ? (3 * l->latency + seconds) / 4 : seconds;
        return;
    }
    /* The answer's way does not carry the bytes; a transfer faster than it was the pipe's buffer */
    seconds        = seconds > 2 * l->latency ? seconds - l->latency : seconds;
    rate           = (double)bytes / seconds;
    l->bytes_per_s = l->bytes_per_s > 0 ? (l->bytes_per_s + rate) / 2 : rate;
}

double usm__link_seconds(const usm__link *l, uint64_t bytes)
{
    return l->latency + (double)bytes / (l->bytes_per_s > 0 ? l->bytes_per_s : UNKNOWN_BYTES_PER_S);
}

uint32_t usm__place_nearest(const usm__link *links, uint32_t nlinks, uint64_t places)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < nlinks; i++)
        if (places & usm__place_bit(i + 1) &&
            (!found || usm__link_seconds(&links[i], SHORT_BYTES) <
                           usm__link_seconds(&links[found - 1], SHORT_BYTES)))
            found = i + 1;
    return found;
}

void usm__route_add(usm__route *r, const usm__link *links, uint32_t nlinks, uint64_t from,
                    uint64_t bytes, uint32_t to)
{
    if (from & usm__place_bit(to))
        return;
    if (!(from & USM__PLACE_HOME)) {
        uint32_t source = usm__place_nearest(links, nlinks, from);

        if (source)
            r->bytes[source - 1] += bytes;
    }
    if (to)
        r->bytes[to - 1] += bytes;
}

double usm__route_seconds(const usm__route *r, const usm__link *links, uint32_t nlinks)
{
    double sum = 0;

    for (uint32_t i = 0; i < nlinks; i++)
        if (r->bytes[i])
            sum += usm__link_seconds(&links[i], r->bytes[i]);
    return sum;
}
