/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of the model share: model.c (buffers, accesses), model_command.c. */
#ifndef SPILL_MODEL_INSIDE_H
#define SPILL_MODEL_INSIDE_H

#include "model.h"

#include <stdatomic.h>

enum { BUFFERS = 24, OPEN = 6 };

/* Where the bytes of a buffer come from and are committed to. */
typedef struct lair {
    size_t         size;
    unsigned char *bytes;     /* as the buffer's functions wrote it                         */
    unsigned char *committed; /* as it has to be since the last commit                      */
    unsigned char *known;     /* of committed                                              */
    bool           is_torn;   /* a commit failed: each block is as before or after          */
    atomic_bool    is_closed;
    bool (*fails)(bool is_write);
} lair;

/* The bytes behind a buffer and its sub-buffers. */
typedef struct data {
    size_t         size;
    unsigned       handles;
    bool           is_user; /* host_data, at `user`                                         */
    unsigned char *user;
    unsigned char *bytes; /* what they are; has slack of 8 bytes                            */
    unsigned char *known; /* 0xff: so; 0: indeterminate                                     */
    lair          *home;  /* or NULL                                                        */
    const char    *base;  /* where the bytes of accesses lay; NULL: none was opened          */
} data;

typedef struct handle {
    usm_buffer *buf; /* NULL: free slot                                                     */
    data       *data;
    size_t      offset, size;
    bool        is_sub;
    size_t      kept; /* bytes from `offset` on that are kept by USM_BUFFER_PIN               */
} handle;

typedef struct opened {
    handle         *h; /* NULL: free slot                                                   */
    size_t          offset, size;
    usm_access_mode mode;
    usm_access      acc;
} opened;

struct model {
    model_params p;
    uint64_t     random;
    size_t       bytes; /* of all buffers                                                   */
    handle       handles[BUFFERS];
    opened       open[OPEN];
    model_counts counts;
    bool         is_planted;
};

uint64_t model_random(model *m);
size_t   model_pick(model *m, size_t n);
/* A buffer, by chance; NULL: there is none. */
handle *model_any(model *m);
/* A part of it, by chance: small, wide, at edges of blocks. */
void model_part(model *m, const handle *h, size_t *offset, size_t *size);
/* Ends the accesses that touch these bytes. */
void           model_end_overlapping(model *m, const data *d, size_t offset, size_t size);
_Noreturn void model_wrong(const model *m, const char *format, ...) USM_PRINTF(2, 3);
void           model_tell(const model *m, const char *format, ...) USM_PRINTF(2, 3);

void model_command(model *m); /* model_command.c */

/* model_home.c */
lair *model_home_create(model *m, data *d);
void  model_home_check(model *m, const data *d); /* after the buffer has gone               */
void  model_home_destroy(lair *home);
void  model_commit(model *m);
extern const usm_home_ops model_home_ops;
/* Whether the status may be, for a call that needs a block at a time. */
void model_judge(model *m, usm_status st, const char *what);

#endif
