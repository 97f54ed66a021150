/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the parts of the sample tell each other.
 *
 * The computation: which text has a given MD5 digest?  Texts have numbers (text.h), and those from
 * one number up to another are all tried.  The work-items are strips: the 26 texts that differ in
 * the last letter, whose messages differ in one byte. */
#ifndef SAMPLES_MD5_H
#define SAMPLES_MD5_H

#include "text.h"

#include <usm/usm.h>

/* native.c: the kernel for devices that run C -------------------------------------------------- */

extern const usm_native_kernel md5_native_kernels[2];

/* Kernels count strips in 32 bits: a range of more is searched in several parts. */
#define MD5_PART_STRIPS (INT64_C(1) << 31) /* less than MD5_NO_STRIP */

/* search.c: one device searches --------------------------------------------------------------- */

struct md5_figures {
    usm_image_type image; /* what the device took from the program */
    double         build_s;
    double         search_s;
    int64_t        tried; /* texts, at least: those of launches that are over */
};

/* Called when `done` of `total` texts were tried; `start_s` is when the first was begun. */
typedef void (*md5_progress_fn)(uint64_t done, uint64_t total, double start_s);

struct md5_job;

/* Failures are said on stderr. */
struct md5_job *md5_job_create(usm_device *dev);
/* *number: the lowest that fits, or MD5_ABSENT.  `progress` may be NULL. */
bool md5_job_run(struct md5_job *job, const struct md5_request *request, md5_progress_fn progress,
                 int64_t *number);
/* Which of the texts of strip `strip` of the request it is, by the host: so it also sees whether it
 * is true. */
bool md5_look_up(const struct md5_request *request, int64_t strip, int64_t *number);
bool md5_job_figures(const struct md5_job *job, struct md5_figures *figures);
void md5_job_destroy(struct md5_job *job);

/* team.c: all devices search, of all ranks if there are several ------------------------------- */

struct team_course; /* ../common/team.h */

/* Over a team that it makes of the course's options.  *number is home's.  Collective.  Failures are
 * said on stderr. */
usm_status md5_team_run(struct team_course *course, const struct md5_request *request,
                        int64_t *number);

#endif
