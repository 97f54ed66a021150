/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How long a launch of usm_parallel() would take on devices that are only described, and what a trial
 * of it here records for that (graph_sim.h has the same for graphs, whose calls make such launches).
 *
 *     trial         the launch is executed by one member, in a number of chunks:   its time
 *     simulation    schedule.c and the launch's policy give chunks to devices, on a simulated clock
 *
 * A chunk takes a device `cost` seconds and `each` for every index; what is copied to it and from it
 * travels while the kernels of other chunks run. */
#ifndef USM_OFFLOAD_LAUNCH_SIM_H
#define USM_OFFLOAD_LAUNCH_SIM_H

#include "offload/schedule.h"

struct usm__plan;
struct usm__ledger_part;
struct usm_team;
struct usm_team_kernel;

typedef struct usm__sim_device {
    const char *name;
    bool        uses_host_memory; /* a single input is read, and the output written, in place */
    double      latency_s;        /* of a copy between host memory and the device */
    double      bytes_per_s;      /* of such copies; more than 0 */
    double      watts;            /* while it executes or copies */
    double      idle_watts;
} usm__sim_device;

/* The same device on the simulated clock, in seconds. */
typedef struct usm__sim_place {
    double   copies_end, compute_end; /* when what was given to it will have ended */
    double   results_end;             /* the same of copies of chunks' results to the host */
    double   last_end;                /* of a launch or chunk that has ended */
    double   busy;
    uint64_t launches;
} usm__sim_place;

static inline double usm__sim_later(double a, double b)
{
    return a > b ? a : b;
}

static inline double usm__sim_copy_seconds(const usm__sim_device *d, uint64_t bytes,
                                           uint32_t copies)
{
    return copies * d->latency_s + (double)bytes / d->bytes_per_s;
}

/* ---- what a trial finds out ------------------------------------------------------------------ */

enum { USM__SIM_NUMBERS = 8 };

/* Copies in one direction: so many a chunk, with `each` bytes for every index, and `besides`. */
typedef struct usm__sim_copies {
    uint32_t n;
    uint64_t each, besides;
} usm__sim_copies;

/* A launch as it was made.  Of `params` the workers, weights, watts and numbers are not set. */
typedef struct usm__sim_shape {
    usm__schedule_params params;
    double               numbers[USM__SIM_NUMBERS];
    usm__sim_copies      in, out;
    usm__sim_copies      whole; /* of arguments that every device gets before its first chunk */
} usm__sim_shape;

typedef struct usm__tried_launch {
    usm__sim_shape shape;
    uint64_t       chunks, items; /* items: fewer than the range, if something was found in it */
    double         busy_s; /* of the member, from its first chunk until the end of its last */
    double         wall_s;
    bool           is_on_member; /* else the member has no image, and others executed it */
} usm__tried_launch;

/* The launches of one call, in their order. */
typedef struct usm__tried_call {
    usm__tried_launch *launches;
    uint32_t           n;
    size_t             cap;
} usm__tried_call;

/* Freed by usm__tried_call_clear(). */
static inline usm__tried_call usm__tried_call_none(void)
{
    return (usm__tried_call){NULL, 0, 0};
}
void usm__tried_call_clear(usm__tried_call *c);

/* While a team has one, its launches are trials.  One thread makes them, one after the other. */
typedef struct usm__trial_parallel {
    uint32_t         member;
    uint64_t         chunks; /* of each launch, about */
    double           grain;
    usm__tried_call *into;
} usm__trial_parallel;

/* Whether a member takes part in a launch of the team. */
bool usm__trial_has(const struct usm_team *team, const struct usm_team_kernel *k, uint32_t member);
/* A launch is about to begin: records how it was made, and changes its policy to that of the trial.
 * USM_E_NO_MEMORY */
usm_status usm__trial_begin(usm__trial_parallel *t, const struct usm__plan *plan,
                            usm__schedule_params *params);
/* It has ended. */
void usm__trial_launched(usm__trial_parallel *t, const struct usm__ledger_part *parts,
                         uint32_t nmembers, uint64_t wall_ns);

/* ---- the simulation -------------------------------------------------------------------------- */

/* What chunks of a launch cost a device, in seconds. */
typedef struct usm__sim_pace {
    double cost, each;
    bool   has_image;
} usm__sim_pace;

typedef struct usm__sim_parallel {
    const usm__sim_shape *shape;
    double                fixed_s; /* besides its chunks */
    const usm__sim_pace  *paces;   /* by device */
} usm__sim_parallel;

typedef struct usm__sim_traffic {
    uint64_t chunks, bytes_in, bytes_out;
} usm__sim_traffic;

/* The launch begins at *now, and has ended at *now.  places: by device, as watts.
 *   USM_E_INVALID    the policy does not go with the devices
 *   USM_E_NO_IMAGE   no device has an image
 *   USM_E_NO_MEMORY */
usm_status usm__sim_parallel_run(const usm__sim_parallel *launch, const usm__sim_device *devices,
                                 uint32_t ndevices, usm__sim_place *places, double *now,
                                 usm__sim_traffic *traffic);

#endif
