/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Units for graph_model, in this process: each has blocks of its own, does what it is asked in the
 * order in which it was asked, and computes serially.  They come late, cannot execute some nodes,
 * fail, and are lost at any moment, with the blocks that lay only there.  A unit that is to read a
 * block which it does not have, or has been told to drop, ends the program. */
#include "graph_model.h"

#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNITS = 3, ASKED_MAX = 4096 };

typedef enum what { UNROLL, SEND, FETCH, RUN, DROP, GIVE_UP } what;

typedef struct asked {
    what             what;
    usm__graph_range range;
    uint32_t         part;
    const void      *data; /* read as late as the table allows */
    size_t           size;
    bool             comes_back;
} asked;

typedef struct fake {
    uint8_t      *data[NODES_MAX]; /* blocks */
    asked         queue[ASKED_MAX];
    uint32_t      first, end;
    unsigned char can[NODES_MAX];
    bool          has_come, is_lost, is_immortal;
    bool          has[NODES_MAX][PARTS_MAX];
    bool          has_more; /* the launch at the front has sent its blocks, and is done next */
} fake;

static fake             units[UNITS];
static usm__graph_mail *mail;
static uint64_t         counts[6];
static uint64_t         losses, failures, losses_of_blocks;

static void must(bool ok, const char *text)
{
    if (ok)
        return;
    printf("a unit: %s\n", text);
    exit(1);
}

/* ---- the table: what is asked ---------------------------------------------------------------- */

static void attach(void *user, usm__graph_mail *new_mail)
{
    (void)user;
    mail = new_mail;
    if (mail)
        usm__graph_mail_ring(mail);
}

static void ask(uint32_t unit, asked a)
{
    fake *f = &units[unit];

    must(f->has_come && f->end < ASKED_MAX, "it is asked before it has come, or too much");
    f->queue[f->end++] = a;
    counts[a.what]++;
    usm__graph_mail_ring(mail);
}

static void unroll(void *user, uint32_t unit, uint32_t n, uint32_t parts)
{
    (void)user;
    must(parts == nodes[n].blocks, "other parts than the graph has");
    ask(unit, (asked){.what = UNROLL, .range = {n, 0, parts}});
}

static void send(void *user, uint32_t unit, const usm__graph_range *range, const void *data,
                 size_t size)
{
    (void)user;
    ask(unit, (asked){.what = SEND, .range = *range, .data = data, .size = size});
}

static void fetch(void *user, uint32_t unit, const usm__graph_range *range, size_t size)
{
    (void)user;
    ask(unit, (asked){.what = FETCH, .range = *range, .size = size});
}

static void run(void *user, uint32_t unit, uint32_t part, const usm__graph_range *range,
                size_t size, bool comes_back)
{
    (void)user;
    ask(unit,
        (asked){
            .what = RUN, .range = *range, .part = part, .size = size, .comes_back = comes_back});
}

static void drop(void *user, uint32_t unit, uint32_t n)
{
    (void)user;
    ask(unit, (asked){.what = DROP, .range = {n, 0, nodes[n].blocks}});
}

static void give_up(void *user, uint32_t unit, const char *why)
{
    (void)user;
    (void)unit;
    must(false, why);
}

/* ---- what it does ---------------------------------------------------------------------------- */

static void set(fake *f, const usm__graph_range *range, bool has)
{
    for (uint32_t i = 0; i < range->count; i++)
        f->has[range->node][range->first + i] = has;
}

static void check_has(const fake *f, const usm__graph_range *range)
{
    for (uint32_t i = 0; i < range->count; i++)
        must(f->has[range->node][range->first + i], "it lacks a block that it is to read");
}

static void check_inputs(const fake *f, const node *n, uint32_t part)
{
    for (uint32_t i = 0; i < n->ninputs; i++) {
        const node      *in    = &nodes[n->inputs[i]];
        usm__graph_range range = {n->inputs[i], 0, in->blocks};

        if (n->kind == USM_NODE_EXPANDABLE && in->scope != UINT32_MAX)
            range = (usm__graph_range){n->inputs[i], part, 1};
        check_has(f, &range);
    }
}

static void give_blocks(const fake *f, const asked *a, usm__unit_event *ev)
{
    check_has(f, &a->range);
    must(a->size == (size_t)nodes[a->range.node].size * a->range.count, "a wrong size");
    ev->kind = USM__UNIT_BLOCKS;
    ev->data = usm__heap_alloc(a->size);
    must(ev->data != NULL, "no memory");
    memcpy(ev->data, f->data[a->range.node] + (size_t)a->range.first * nodes[a->range.node].size,
           a->size);
}

/* Whether the launch has more to say. */
static bool execute(fake *f, const asked *a, usm__unit_event *ev)
{
    const node *n = &nodes[a->range.node];

    if (!f->has_more) {
        must(f->can[a->range.node], "it cannot execute that");
        check_inputs(f, n, a->part);
        if (!f->is_immortal && below(20) == 0) {
            ev->kind   = USM__UNIT_FAILED;
            ev->range  = (usm__graph_range){a->range.node, a->part, 1};
            ev->status = below(2) ? USM_E_NO_MEMORY : USM_E_INVALID;
            failures++;
            return false;
        }
        compute(n, f->data, a->part);
        set(f, &a->range, true);
        if (a->comes_back) {
            give_blocks(f, a, ev);
            return true;
        }
    }
    ev->kind    = USM__UNIT_DONE;
    ev->range   = (usm__graph_range){a->range.node, a->part, 1};
    ev->busy_ns = 1000;
    ev->speed   = 1 + below(100);
    return false;
}

/* Does the next thing that it was asked; whether that is an event. */
static bool step(fake *f, usm__unit_event *ev)
{
    const asked *a = &f->queue[f->first];

    ev->range = a->range;
    ev->kind  = 0;
    switch (a->what) {
    case SEND:
        memcpy(f->data[a->range.node] + (size_t)a->range.first * nodes[a->range.node].size, a->data,
               a->size);
        set(f, &a->range, true);
        break;
    case FETCH:
        give_blocks(f, a, ev);
        break;
    case RUN:
        f->has_more = execute(f, a, ev);
        break;
    case DROP:
        set(f, &a->range, false);
        break;
    case UNROLL:
    case GIVE_UP:
        break;
    }
    f->first += !f->has_more;
    return ev->kind != 0;
}

static void count_loss(const fake *f)
{
    losses++;
    for (uint32_t i = 0; i < nnodes; i++)
        for (uint32_t j = 0; j < nodes[i].blocks; j++)
            losses_of_blocks += f->has[i][j];
}

/* At random: it comes, is lost, or does something; or nothing happens this time. */
static bool next(void *user, usm__unit_event *ev)
{
    uint32_t at = below(UNITS);
    fake    *f  = &units[at];

    (void)user;
    *ev = (usm__unit_event){.unit = at, .link = {1e-3 * below(3), 1e6 * (1 + below(5))}};
    for (uint32_t i = 0; i < UNITS; i++)
        if (!units[i].is_lost && (!units[i].has_come || units[i].first < units[i].end))
            usm__graph_mail_ring(mail); /* there will be more */
    if (f->is_lost || below(3) == 0)
        return false;
    if (!f->is_immortal && below(25) == 0) {
        ev->kind   = USM__UNIT_LOST;
        f->is_lost = true;
        count_loss(f);
        return true;
    }
    if (!f->has_come) {
        ev->kind    = USM__UNIT_CAME;
        ev->devices = 1 + below(2);
        ev->can     = f->can;
        f->has_come = true;
        return true;
    }
    return f->first < f->end && step(f, ev);
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void prepare(fake *f, bool is_immortal)
{
    *f = (fake){.is_immortal = is_immortal};
    for (uint32_t i = 0; i < nnodes; i++) {
        f->can[i]  = nodes[i].kind != USM_NODE_CALL && (is_immortal || below(8) > 0);
        f->data[i] = malloc((size_t)nodes[i].size * nodes[i].blocks);
        must(f->data[i] != NULL, "no memory");
        memset(f->data[i], 0xa5, (size_t)nodes[i].size * nodes[i].blocks);
    }
}

usm__unit_crew units_open(bool has_immortal)
{
    static const usm__unit_ops ops = {attach, next, unroll, send, fetch, run, drop, give_up};

    for (uint32_t i = 0; i < UNITS; i++)
        prepare(&units[i], i == 0 && has_immortal);
    return (usm__unit_crew){.ops = &ops, .n = UNITS, .no_local = has_immortal};
}

void units_close(void)
{
    must(mail == NULL, "it is not told of the end");
    for (uint32_t i = 0; i < UNITS; i++)
        for (uint32_t j = 0; j < nnodes; j++)
            free(units[i].data[j]);
}

uint64_t units_dropped(void)
{
    return counts[DROP];
}

usm_status run_with_units(usm_graph *g, const usm_graph_run_desc *d, uint64_t seed)
{
    usm__unit_crew crew = units_open(seed % 4 == 3);
    usm_status     st   = usm__graph_run_with(g, d, &crew, NULL);

    units_close();
    return st;
}

void print_units(void)
{
    printf(
        ": %llu launches on units, %llu failed; %llu units lost with %llu blocks; %llu sent, %llu "
        "fetched, %llu dropped",
        (unsigned long long)counts[RUN], (unsigned long long)failures, (unsigned long long)losses,
        (unsigned long long)losses_of_blocks, (unsigned long long)counts[SEND],
        (unsigned long long)counts[FETCH], (unsigned long long)counts[DROP]);
    must(counts[RUN] && failures && losses_of_blocks && counts[SEND] && counts[FETCH] &&
             counts[DROP],
         "something of this never happened: more seeds");
}
