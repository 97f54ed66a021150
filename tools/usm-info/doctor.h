/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* --doctor: what is wrong with this machine, and what to do about it.
 *
 * A check adds findings: one sentence each, and one remedy unless all is well.  A problem is
 * something installed or requested that does not work; a note is something that the user may want
 * to know.  Only problems make the exit status 1. */
#ifndef USM_INFO_DOCTOR_H
#define USM_INFO_DOCTOR_H

#include "inventory.h"

typedef enum finding_level { FINDING_OK, FINDING_NOTE, FINDING_PROBLEM } finding_level;

typedef struct finding {
    finding_level level;
    const char   *check; /* short, static: "OpenCL drivers" */
    char         *text;
    char         *remedy; /* NULL when none is needed */
} finding;

typedef struct doctor {
    const char *root; /* "" or a folder that stands for / (tests) */
    finding    *findings;
    size_t      nfindings;
} doctor;

/* 0 when nothing is broken, else 1. */
int doctor_report(const char *root, bool as_json);

/* Text and remedy come from tool_printf(), and the doctor frees them; remedy may be NULL. */
void doctor_add(doctor *d, finding_level level, const char *check, char *text, char *remedy);
/* A path under the root; the caller frees it. */
char *doctor_path(const doctor *d, const char *path);

void doctor_check_library(doctor *d, const inventory *inv); /* doctor_library.c */
void doctor_check_settings(doctor *d);
void doctor_check_opencl(doctor *d);     /* doctor_opencl.c */
void doctor_check_level_zero(doctor *d); /* doctor_level_zero.c */
void doctor_check_nodes(doctor *d);      /* doctor_nodes.c */
void doctor_check_cache(doctor *d);      /* doctor_system.c */
void doctor_check_limits(doctor *d);
void doctor_check_managed(doctor *d);

/* Whether a .icd file that the loader reads names a library whose name contains
 * `part`; doctor_opencl.c. */
bool doctor_has_icd(const doctor *d, const char *part);

#endif
