/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a monitor page must be before anybody looks at it: see usm__monitor_check(). */
#include "monitor/reader.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

static bool is_control(const unsigned char *at, size_t n)
{
    return at[0] < 0x20 || at[0] == 0x7f || (n == 2 && at[0] == 0xc2 && at[1] < 0xa0);
}

/* Ends the text, and replaces what a terminal could take for a command, and what is no UTF-8. */
static void clean_text(char *text, size_t size)
{
    size_t left;

    text[size - 1] = '\0';
    left           = strlen(text);
    for (size_t n; left > 0; text += n, left -= n) {
        n = usm__json_utf8_length(text, left);
        if (n == 0 || is_control((unsigned char *)text, n)) {
            memset(text, '?', n ? n : 1);
            n = n ? n : 1;
        }
    }
}

static void clean(char *text)
{
    clean_text(text, USM__MONITOR_TEXT);
}

static void clamp(uint32_t *n, uint32_t most)
{
    *n = *n < most ? *n : most;
}

static void clean_launch(usm__monitor_launch *l)
{
    clean(l->kernel);
    for (size_t i = 0; i < USM__MONITOR_MEMBERS; i++) {
        clean_text(l->members[i].name, sizeof l->members[i].name);
        clean_text(l->members[i].why, sizeof l->members[i].why);
    }
}

/* A segment whose cells are not in the array ends the list. */
static void clean_map(usm__monitor_map *m)
{
    uint32_t n = 0;

    clamp(&m->nsegments, USM__MONITOR_SEGMENTS);
    while (n < m->nsegments && m->segments[n].shift < 48 &&
           m->segments[n].first < USM__MONITOR_CELLS && m->segments[n].size > 0 &&
           (m->segments[n].size - 1) >> m->segments[n].shift <
               USM__MONITOR_CELLS - m->segments[n].first)
        n++;
    m->nsegments = n;
    for (size_t i = 0; i < USM__MONITOR_CELLS; i++)
        if (m->cells[i] > USM__MONITOR_FREE + USM__MONITOR_FULL)
            m->cells[i] = USM__MONITOR_UNTOLD;
}

static void clean_all(usm__monitor_page *p)
{
    clean_map(&p->map);
    clean(p->program);
    clean(p->host);
    for (size_t i = 0; i < USM__MONITOR_POOLS; i++) {
        clean_text(p->pools[i].name, sizeof p->pools[i].name);
        clean(p->pools[i].device);
    }
    for (size_t i = 0; i < USM__MONITOR_TAGS; i++)
        clean(p->tags[i].name);
    for (size_t i = 0; i < USM__MONITOR_DEVICES; i++) {
        clean(p->devices[i].term);
        clean(p->devices[i].name);
    }
    for (size_t i = 0; i < USM__MONITOR_TIERS; i++)
        clean(p->tiers[i].name);
    for (size_t i = 0; i < USM__MONITOR_LAUNCHES; i++)
        clean_launch(&p->launches[i]);
}

bool usm__monitor_check(usm__monitor_page *p, size_t size, char *why)
{
    const size_t head = offsetof(usm__monitor_page, pid);

    if (size < head || memcmp(p->magic, USM__MONITOR_MAGIC, sizeof p->magic) != 0) {
        (void)snprintf(why, USM__MONITOR_WHY, "it is no monitor page");
        return false;
    }
    if (p->version != USM__MONITOR_VERSION || p->size != sizeof *p) {
        (void)snprintf(why, USM__MONITOR_WHY,
                       "its libusm writes pages of version %u, and this program reads version %u: "
                       "use the usm-top of that libusm",
                       p->version, USM__MONITOR_VERSION);
        return false;
    }
    if (size < sizeof *p) {
        (void)snprintf(why, USM__MONITOR_WHY, "the page was cut off after %zu of %zu bytes", size,
                       sizeof *p);
        return false;
    }
    clamp(&p->ntags, USM__MONITOR_TAGS);
    clamp(&p->ndevices, USM__MONITOR_DEVICES);
    clamp(&p->nqueues, USM__MONITOR_QUEUES);
    clamp(&p->ntiers, USM__MONITOR_TIERS);
    clamp(&p->nlaunches, USM__MONITOR_LAUNCHES);
    for (size_t i = 0; i < USM__MONITOR_LAUNCHES; i++)
        clamp(&p->launches[i].nmembers, USM__MONITOR_MEMBERS);
    clean_all(p);
    return true;
}
