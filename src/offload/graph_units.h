/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A run of a graph that reaches beyond this process: units, each a process elsewhere that executes
 * launches of the same graph on its own devices, behind a table of functions (tools/units has one
 * over pipes).  And the other end: a run that executes what it is told to.
 *
 *     master   usm__graph_run_with(..., crew, ...)   a unit is a member of the run, after the team's
 *     unit     usm__graph_serve()
 *
 * Each block stays where it was made, and where it was sent, until its last reader has ended.  Home
 * asks for it when a launch elsewhere needs it.  Blocks of sinks come home with the launch, and so do
 * all when the run keeps blocks in a folder.  When a unit is lost, what lay only there is made
 * again: its launches wait anew, and those before them if their blocks are gone as well.
 *
 * The thread that runs the graph calls all functions of both tables but usm__graph_mail_ring(). */
#ifndef USM_OFFLOAD_GRAPH_UNITS_H
#define USM_OFFLOAD_GRAPH_UNITS_H

#include "offload/graph_run.h"
#include "offload/graph_where.h"

/* ---- the master ------------------------------------------------------------------------------ */

/* Blocks of a node, or the blocks that one launch makes. */
typedef struct usm__graph_range {
    uint32_t node, first, count;
} usm__graph_range;

typedef enum usm__unit_event_kind {
    USM__UNIT_CAME = 1, /* it can be given launches */
    USM__UNIT_DONE,     /* a launch has ended; what was to come back came before this */
    USM__UNIT_FAILED,   /* a launch has failed there */
    USM__UNIT_BLOCKS,   /* blocks have come home */
    USM__UNIT_LOST      /* nothing more will come from it */
} usm__unit_event_kind;

typedef struct usm__unit_event {
    usm__unit_event_kind kind;
    uint32_t             unit;
    usm__graph_range     range;   /* DONE, FAILED: first is the launch's part */
    usm__link            link;    /* as measured so far */
    double               speed;   /* DONE: work per second of all its devices; 0: unknown */
    uint64_t             busy_ns; /* DONE */
    usm_status           status;  /* FAILED */
    uint32_t             devices; /* CAME */
    const unsigned char *can;  /* CAME: by node, whether it has the kernel; valid during the run */
    unsigned char       *data; /* BLOCKS: all bytes of the range; from usm__heap_alloc(), the
                                  receiver frees it */
    char                 message[256]; /* FAILED */
} usm__unit_event;

/* None of these waits for the unit, or fails: a unit that is lost says so by an event. */
typedef struct usm__unit_ops {
    /* Every event rings this mail; NULL: no longer. */
    void (*attach)(void *user, usm__graph_mail *mail);
    bool (*next)(void *user, usm__unit_event *ev);
    void (*unroll)(void *user, uint32_t unit, uint32_t node, uint32_t parts);
    /* The data stay as they are until a launch that reads them has ended or the unit is lost. */
    void (*send)(void *user, uint32_t unit, const usm__graph_range *range, const void *data,
                 size_t size);
    void (*fetch)(void *user, uint32_t unit, const usm__graph_range *range, size_t size);
    /* size: bytes of its blocks; comes_back: they are to be sent home. */
    void (*run)(void *user, uint32_t unit, uint32_t part, const usm__graph_range *range,
                size_t size, bool comes_back);
    void (*drop)(void *user, uint32_t unit, uint32_t node);
    /* It did what no unit does: LOST is the next of its events. */
    void (*give_up)(void *user, uint32_t unit, const char *why);
} usm__unit_ops;

typedef struct usm__unit_crew {
    const usm__unit_ops *ops;
    void                *user;
    uint32_t             n;
    bool                 no_local; /* the devices of this process are given nothing */
} usm__unit_crew;

/* crew: NULL, or units that take part. */
usm_status usm__graph_run_with(usm_graph *graph, const usm_graph_run_desc *desc,
                               const usm__unit_crew *crew, usm_parallel_stats *stats);

/* ---- what graph_run.c asks of graph_units.c, when a run has units ----------------------------- */

usm_status usm__units_open(usm__graph_run *r, const usm__unit_crew *crew);
void       usm__units_close(usm__graph_run *r);
/* Makes the tables of blocks of a node that was unrolled, and those after it; tells all units. */
usm_status usm__units_unrolled(usm__graph_run *r, uint32_t node);
/* Whether the unit behind a member can execute the task. */
bool usm__units_can(const usm__graph_run *r, uint32_t member, const usm__graph_task *task);
/* Seconds until all that the task reads is at the member. */
double usm__units_bring(const usm__graph_run *r, uint32_t member, const usm__graph_task *task);
/* Starts a task that a member was given, or lets it wait for blocks from elsewhere. */
usm_status usm__units_begin(usm__graph_run *r, usm__graph_task *task);
/* A member of this process has made the blocks of a task. */
void usm__units_made_here(usm__graph_run *r, const usm__graph_task *task);
/* Whether home has all that the task reads; if not, it is asked for. */
bool usm__units_bring_home(usm__graph_run *r, const usm__graph_task *task);
/* Only home has these blocks, or nobody. */
void usm__units_reset(usm__graph_run *r, const usm__graph_range *range, bool is_home);
/* Of a unit that takes part: how many devices, whether it has the node's kernel. */
uint32_t usm__units_devices(const usm__graph_run *r);
bool     usm__units_have(const usm__graph_run *r, uint32_t node);
/* The blocks of a node are not needed any more. */
void usm__units_release(usm__graph_run *r, uint32_t node);
/* Handles all events that have come. */
usm_status usm__units_handle(usm__graph_run *r);
/* Whether a unit may still come that was not there yet. */
bool usm__units_expect(const usm__graph_run *r);
/* Whether units have tasks, or tasks wait for blocks from elsewhere. */
bool usm__units_busy(const usm__graph_run *r);

/* ---- the unit -------------------------------------------------------------------------------- */

typedef struct usm__graph_server {
    void *user;
    void (*attach)(void *user, usm__graph_mail *mail);
    /* Called at the begin and after each ring: handles what has come, by the functions below.
     * false: the end, once launches under way have ended. */
    bool (*handle)(void *user, usm__graph_run *r);
    /* speed: work per second of all members together; 0: none was measured */
    void (*done)(void *user, const usm__graph_task *task, uint64_t busy_ns, double speed);
    void (*failed)(void *user, const usm__graph_task *task, usm_status status, const char *why);
} usm__graph_server;

/* crew: NULL, or units that execute a part of it.  Home has all blocks then: what a unit makes comes
 * home with the launch. */
usm_status usm__graph_serve(usm_graph *graph, const usm__graph_server *server,
                            const usm__unit_crew *crew);

/* Whether all units have come or are lost: what follows is known from then on. */
bool usm__graph_serve_is_ready(const usm__graph_run *r);
/* Devices that work, with those of units. */
uint32_t usm__graph_serve_devices(const usm__graph_run *r);
/* Whether a node can be executed here, or by a unit. */
bool usm__graph_serve_can(const usm__graph_run *r, uint32_t node);
/* USM_E_INVALID if what the other side says cannot be, USM_E_NO_MEMORY. */
usm_status usm__graph_serve_unroll(usm__graph_run *r, uint32_t node, uint32_t parts);
/* Where the bytes of these blocks are; *size: how many. */
usm_status usm__graph_serve_blocks(usm__graph_run *r, const usm__graph_range *range, void **data,
                                   size_t *size);
/* The other side's bytes are in these blocks now. */
void       usm__graph_serve_filled(usm__graph_run *r, const usm__graph_range *range);
usm_status usm__graph_serve_task(usm__graph_run *r, uint32_t node, uint32_t part);
void       usm__graph_serve_drop(usm__graph_run *r, uint32_t node);

#endif
