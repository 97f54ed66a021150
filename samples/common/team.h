/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What samples that run over a team have in common: options, progress, who has done how much. */
#ifndef SAMPLES_TEAM_H
#define SAMPLES_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#include <usm/usm.h>

struct team_options {
    bool        is_on;
    const char *ranks; /* NULL: this process alone; "": MPI's job; else what usm_job_join() takes */
    int64_t     chunks; /* 0: as the policy says */
    const char *policy; /* NULL: as USM_POLICY says */
};

enum team_option { TEAM_OPTION_OTHER, TEAM_OPTION_TAKEN, TEAM_OPTION_WRONG };

/* One word of `program`'s command line, as argument_value(); says on stderr what is wrong. */
enum team_option team_option_parse(struct team_options *o, const char *program,
                                   const char *argument, const char *next, int *used);
/* Do they fit together? */
bool              team_options_fit(const struct team_options *o, const char *program);
extern const char team_options_help[];

struct team_member {
    usm_team_member info;
    double          share; /* of the launch under way */
    double          done;  /* of what `show` counts, in launches that are over */
};

/* Launches over a team that follow each other, and what became of them. */
struct team_course {
    /* set by the caller */
    const struct team_options *options;
    void (*show)(uint64_t done, uint64_t total, double start_s); /* or NULL */
    uint64_t total;                                              /* of what `show` counts */
    /* the course's own */
    usm_team           *team;
    uint32_t            nmembers;
    struct team_member *members;
    double              chunk, start_s, build_s, run_s;
    double              fraction;
    uint64_t            before, units; /* done before this launch, in it */
    usm_parallel_stats  sum;
};

/* Makes the team that the options ask for; collective where they name ranks. */
usm_status team_course_open(struct team_course *c, const char *program);
/* The policy and the progress of a launch of `units` over `extent` indices. */
void team_course_set(struct team_course *c, usm_parallel_desc *d, uint64_t extent, uint64_t units);
/* It has ended, all of it or, as there was nothing more to look for, early. */
void team_course_add(struct team_course *c, const usm_parallel_stats *stats);
/* The team goes, the figures stay.  True: no rank was lost. */
bool team_course_close(struct team_course *c);
void team_course_fini(struct team_course *c);
/* Of all that was done. */
double team_course_share(const struct team_course *c, uint32_t member);
void   team_course_print(const struct team_course *c);
/* As members of a JSON object: "members":[...],"chunks":... */
void team_course_print_json(const struct team_course *c);

#endif
