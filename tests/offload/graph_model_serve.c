/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A server for graph_model, that has the units of graph_model_units.c: here is what tells it what to
 * do.  It sends inputs, and what calls give, has launches executed in a random order, some of them
 * again, and drops blocks that nobody reads any more.  Each launch must give what the serial
 * execution gives. */
#include "graph_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum progress { NOT_YET, ASKED, HERE } progress;

static progress         state[NODES_MAX][PARTS_MAX];
static bool             is_unrolled[NODES_MAX], is_dropped[NODES_MAX];
static usm__graph_mail *mail;
static uint64_t         launches, repeated, dropped;

static void must(bool ok, const char *text)
{
    if (ok)
        return;
    printf("a server: %s: %s\n", text, usm_last_error());
    exit(1);
}

/* ---- what is known of the nodes ---------------------------------------------------------------- */

static bool is_sent(const node *n)
{
    return n->kind == USM_NODE_INPUT || n->kind == USM_NODE_CALL;
}

static uint32_t tasks_of(const node *n)
{
    return n->kind == USM_NODE_EXPANDABLE ? n->blocks : 1;
}

static bool is_all(uint32_t at, progress p)
{
    for (uint32_t i = 0; i < tasks_of(&nodes[at]); i++)
        if (state[at][i] != p)
            return false;
    return true;
}

static bool has_inputs(const node *n, uint32_t part)
{
    for (uint32_t i = 0; i < n->ninputs; i++) {
        uint32_t in     = n->inputs[i];
        bool     is_one = n->kind == USM_NODE_EXPANDABLE && nodes[in].scope != UINT32_MAX &&
                      nodes[in].kind == USM_NODE_EXPANDABLE;

        if (is_dropped[in] || !(is_one ? state[in][part] == HERE : is_all(in, HERE)))
            return false;
    }
    return true;
}

static bool reads(const node *n, uint32_t at)
{
    for (uint32_t i = 0; i < n->ninputs; i++)
        if (n->inputs[i] == at)
            return true;
    return false;
}

/* Whether a task that reads the node is under way, or, with is_any, is not done. */
static bool has_readers(uint32_t at, bool is_any)
{
    for (uint32_t i = 0; i < nnodes; i++)
        for (uint32_t j = 0; j < tasks_of(&nodes[i]) && reads(&nodes[i], at); j++)
            if (state[i][j] == ASKED || (is_any && state[i][j] != HERE))
                return true;
    return false;
}

/* ---- what it is told ----------------------------------------------------------------------------- */

static void send_blocks(usm__graph_run *r, uint32_t at)
{
    usm__graph_range range = {at, 0, 1};
    void            *data;
    size_t           size;

    must(usm__graph_serve_blocks(r, &range, &data, &size) == USM_OK && size == nodes[at].size,
         "no room for blocks");
    memcpy(data, nodes[at].data, size);
    usm__graph_serve_filled(r, &range);
    state[at][0] = HERE;
}

/* Bytes that a launch which is repeated must write again. */
static void spoil(usm__graph_run *r, uint32_t at, uint32_t part)
{
    const node      *n     = &nodes[at];
    usm__graph_range range = {at, part, tasks_of(n) == 1 ? n->blocks : 1};
    void            *data;
    size_t           size;

    must(usm__graph_serve_blocks(r, &range, &data, &size) == USM_OK, "no room for blocks");
    memset(data, 0xee, size);
}

static void ask(usm__graph_run *r, uint32_t at, uint32_t part)
{
    must(usm__graph_serve_task(r, at, part) == USM_OK, "a launch is refused");
    state[at][part] = ASKED;
    launches++;
}

static void tell_task(usm__graph_run *r, uint32_t at, uint32_t part)
{
    const node *n = &nodes[at];

    if (state[at][part] == ASKED || !has_inputs(n, part) || is_dropped[at] || below(2))
        return;
    if (is_sent(n) && state[at][part] == NOT_YET) {
        send_blocks(r, at);
    } else if (!is_sent(n) && state[at][part] == NOT_YET) {
        ask(r, at, part);
    } else if (!is_sent(n) && n->is_read && below(20) == 0 && !has_readers(at, false)) {
        repeated++;
        spoil(r, at, part);
        ask(r, at, part);
    }
}

static void tell(usm__graph_run *r, uint32_t at)
{
    const node *n = &nodes[at];

    if (n->kind == USM_NODE_PARTITION && !is_unrolled[at] && has_inputs(n, 0)) {
        must(usm__graph_serve_unroll(r, at, n->blocks) == USM_OK, "parts are refused");
        is_unrolled[at] = true;
    }
    if (n->scope == UINT32_MAX || is_unrolled[n->scope])
        for (uint32_t i = 0; i < tasks_of(n); i++)
            tell_task(r, at, i);
    if (n->is_read && !is_dropped[at] && is_all(at, HERE) && !has_readers(at, true) &&
        n->kind != USM_NODE_INPUT) {
        usm__graph_serve_drop(r, at);
        is_dropped[at] = true;
        dropped++;
    }
}

/* ---- the table ----------------------------------------------------------------------------------- */

static void attach(void *user, usm__graph_mail *new_mail)
{
    (void)user;
    mail = new_mail;
}

static bool handle(void *user, usm__graph_run *r)
{
    bool has_all = true;

    *(usm__graph_run **)user = r;
    if (!usm__graph_serve_is_ready(r))
        return true;
    for (uint32_t i = 0; i < nnodes; i++)
        tell(r, i);
    for (uint32_t i = 0; i < nnodes; i++)
        has_all &= is_all(i, HERE);
    usm__graph_mail_ring(mail); /* there will be more */
    return !has_all;
}

static void done(void *user, const usm__graph_task *task, uint64_t busy_ns, double speed)
{
    const node      *n     = &nodes[task->node];
    usm__graph_range range = {task->node, tasks_of(n) == 1 ? 0 : task->part,
                              tasks_of(n) == 1 ? n->blocks : 1};
    void            *data;
    size_t           size;

    (void)speed;
    must(busy_ns > 0 && state[task->node][task->part] == ASKED, "it ends what it was not asked");
    must(usm__graph_serve_blocks(*(usm__graph_run **)user, &range, &data, &size) == USM_OK,
         "blocks are not there");
    must(memcmp(data, n->data + (size_t)range.first * n->size, size) == 0,
         "a launch differs from its serial execution");
    state[task->node][task->part] = HERE;
}

static void failed(void *user, const usm__graph_task *task, usm_status status, const char *why)
{
    (void)user;
    (void)task;
    (void)status;
    must(false, why);
}

usm_status run_served(usm_graph *g)
{
    usm__graph_run   *r     = NULL;
    usm__graph_server table = {&r, attach, handle, done, failed};
    usm__unit_crew    crew  = units_open(false);
    usm_status        st;

    memset(state, 0, sizeof state);
    memset(is_unrolled, 0, sizeof is_unrolled);
    memset(is_dropped, 0, sizeof is_dropped);
    st = usm__graph_serve(g, &table, &crew);
    units_close();
    return st;
}

void print_served(void)
{
    printf(": %llu launches of servers, %llu again, %llu nodes dropped",
           (unsigned long long)launches, (unsigned long long)repeated, (unsigned long long)dropped);
    must(launches && repeated && dropped && units_dropped(),
         "something of this never happened: more seeds");
}
