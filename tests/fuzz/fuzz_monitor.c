/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fuzzes the reader of monitor pages, and all that usm-top makes of one.  Called by libFuzzer.
 *
 * The input is laid over a page that is right, from a place on that its first two bytes say, so that
 * what is behind the head is reached; and it is read as a page itself.  What is checked beyond "no
 * sanitizer speaks": a refusal has a sentence; of a page that is accepted counts are in their arrays,
 * texts end, and no form of it has a control character but line ends. */
#include "top.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char text[1 << 20];

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void must_be_plain(const usm__out *o)
{
    size_t n = o->used < sizeof text ? o->used : sizeof text - 1;

    for (size_t i = 0; i < n; i++)
        must(text[i] == '\n' || ((unsigned char)text[i] >= ' ' && text[i] != 0x7f));
}

/* All that is made of it: twice, so that there is a sample before. */
static void show(top_process *p)
{
    static top_model      m; /* one thread */
    static const unsigned widths[] = {1, 7, 40, 80, 200};
    usm__json             j        = {.out = {.text = text, .cap = sizeof text}};

    m.n       = 1;
    m.list[0] = p;
    top_sum(p);
    for (int sampled = 0; sampled < 2; sampled++) {
        p->is_sampled = sampled;
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
            usm__out o = {.text = text, .cap = sizeof text};

            top_put_title(&o, &m, widths[i]);
            top_put_head(&o, &m, widths[i]);
            top_put_row(&o, p, widths[i]);
            top_put_details(&o, p, widths[i]);
            must_be_plain(&o);
        }
    }
    top_put_json(&j, &m);
    must_be_plain(&j.out);
    j.out.used = 0;
    top_put_openmetrics(&j.out, &m);
    must_be_plain(&j.out);
}

static void read_page(const uint8_t *data, size_t at, size_t size, size_t whole)
{
    static top_process p; /* one thread */
    char               why[USM__MONITOR_WHY] = "";

    p.now = (usm__monitor_page){.magic   = USM__MONITOR_MAGIC,
                                .version = USM__MONITOR_VERSION,
                                .size    = (uint32_t)sizeof p.now,
                                .samples = 1};
    memcpy((char *)&p.now + at, data, size);
    if (!usm__monitor_check(&p.now, whole, why)) {
        must(why[0] != '\0' && memchr(why, 0, sizeof why) != NULL);
        return;
    }
    must(p.now.ntags <= USM__MONITOR_TAGS && p.now.nqueues <= USM__MONITOR_QUEUES &&
         p.now.ndevices <= USM__MONITOR_DEVICES && p.now.ntiers <= USM__MONITOR_TIERS &&
         p.now.nlaunches <= USM__MONITOR_LAUNCHES);
    for (uint32_t i = 0; i < p.now.map.nsegments; i++) {
        const usm__monitor_segment *s = &p.now.map.segments[i];

        must(s->size > 0 && ((s->size - 1) >> s->shift) + s->first < USM__MONITOR_CELLS);
    }
    must(memchr(p.now.program, 0, sizeof p.now.program) != NULL);
    show(&p);
    p.before = p.now;
    top_follow(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t all = sizeof(usm__monitor_page);
    size_t       at, n;

    n = size < all ? size : all;
    read_page(data, 0, n, n);
    if (size < 2)
        return 0;
    at = ((size_t)data[0] << 8 | data[1]) * 8 % all;
    n  = size - 2 < all - at ? size - 2 : all - at;
    read_page(data + 2, at, n, all);
    return 0;
}
