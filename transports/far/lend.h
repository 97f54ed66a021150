/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by lend.c (tables, requests) and stage.c (bytes in, bytes out). */
#ifndef FAR_LEND_H
#define FAR_LEND_H

#include "internal.h"

typedef struct lent_block lent_block;

typedef struct lent_store {
    usm_list     link; /* in peer->stores */
    far_peer    *peer;
    uint32_t     number;
    uint8_t      shift, chunk_shift;
    uint64_t     closed_by; /* the operation; 0: open */
    lent_block **buckets;
    uint32_t     bucket_count, count;
} lent_store;

typedef struct lent_part {
    far_chunk *chunk;
    uint64_t   operation; /* the last store applied */
} lent_part;

struct lent_block {
    lent_block *next; /* in its bucket */
    lent_store *store;
    usm_list    tomb; /* in peer->tombs: forgotten */
    uint64_t    number;
    uint64_t    operation; /* the one that reserved or forgot it last */
    uint64_t    kept_by;   /* the one that began to keep it */
    bool        is_kept;   /* it counts against `lend` */
    bool        is_stored;
    bool        is_near; /* in mapped memory: only the borrower knows where in its area */
    lent_part   parts[];
};

/* NULL and a status: no memory, closed, or blocks of another size. */
lent_store *far_lent_store(far_peer *peer, const far_header *h, far_wire_status *status);
/* Keeps the block from now on; NULL and a status: no room, or forgotten by a later operation. */
lent_block *far_lent_block(lent_store *s, uint64_t number, uint64_t operation,
                           far_wire_status *status);
/* The borrower does not await the request any more. */
bool far_lent_is_stale(far_peer *peer, const far_header *h);
void far_lent_answer(far_peer *peer, const far_header *h, far_wire_status status);

/* A store's bytes will follow: gets a chunk ready for them. */
void far_stage_announce(far_peer *peer, const far_header *h);
/* Another incarnation begins.  Posted receives stay posted. */
void far_stages_reset(far_peer *peer);
/* Sends bytes and header of a fetch's answer; false: no memory. */
bool far_serve(far_peer *peer, const far_header *h, far_chunk *c, size_t at);
void far_serve_nothing(far_peer *peer, const far_header *h);

#endif
