/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What one unit was asked for, and what it may therefore say: a state machine without system calls,
 * which believes a unit nothing.  A frame that was not asked for, or of another size, ends the
 * conversation before any memory is taken for it.
 *
 *     STARTS --hello--> TALKS --ready--> WORKS      and from each of them to LOST */
#ifndef USM_TOOLS_UNITS_PEER_H
#define USM_TOOLS_UNITS_PEER_H

#include "offload/graph_units.h"
#include "units/app.h"
#include "units/wire.h"

typedef enum peer_phase { PEER_STARTS = 0, PEER_TALKS, PEER_WORKS, PEER_LOST } peer_phase;

/* Blocks that it is to send. */
typedef struct peer_ask {
    usm__graph_range range;
    uint32_t         part; /* of the launch that makes them */
    bool             is_fetch;
    uint64_t         size, begin_ns; /* begin: 0: the question is not sent yet */
} peer_ask;

/* Bytes whose arrival it is to confirm. */
typedef struct peer_sent {
    uint64_t number, bytes, begin_ns;
} peer_sent;

typedef struct peer_event {
    struct peer_event *next;
    usm__unit_event    event;
} peer_event;

typedef struct peer {
    /* fixed */
    uint32_t        unit;
    const unit_app *app;
    bool (*put)(void *user, const unit_frame *f, const void *data, bool owned);
    void *user;
    /* changes */
    peer_phase     phase;
    bool           has_wanted;
    char           who[UNIT_TEXT + 1];
    char           why[2 * UNIT_TEXT]; /* the last sentence that peer_take() returned */
    unsigned char *can;
    peer_ask      *asks;
    uint32_t       nasks;
    size_t         asks_cap;
    peer_sent     *sent;
    uint32_t       nsent;
    size_t         sent_cap;
    uint64_t       runs, numbers, last_end_ns;
    usm__link      link;
    peer_event    *first, **last;
    /* for the report */
    uint64_t ended, bytes_sent, bytes_come;
} peer;

void peer_init(peer *p);
/* Frees all it has; events that nobody took, too. */
void peer_fini(peer *p);

/* ---- what the unit says: NULL, or what is wrong with it ---------------------------------------- */

const char *peer_expects(peer *p, const unit_frame *f);
/* bytes: as of unit_reader.take (pipe.h) */
const char *peer_take(peer *p, const unit_frame *f, unsigned char *bytes, uint64_t now_ns);
/* The first byte of a frame is about to be sent. */
void peer_begins(peer *p, const unit_frame *f, uint64_t now_ns);

/* ---- what is asked of it: false: no memory ---------------------------------------------------- */

bool peer_hello(peer *p, const char *who);
bool peer_send(peer *p, const usm__graph_range *range, const void *data, uint64_t size);
bool peer_fetch(peer *p, const usm__graph_range *range, uint64_t size);
bool peer_run(peer *p, uint32_t part, const usm__graph_range *range, uint64_t size, bool comes);
bool peer_unroll(peer *p, uint32_t node, uint32_t parts);
bool peer_drop(peer *p, uint32_t node);

/* It is lost: the one event that is left says so. */
void peer_lose(peer *p);
bool peer_next(peer *p, usm__unit_event *ev);

#endif
