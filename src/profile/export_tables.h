/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The part of the page's data that consists of text and numbers: summary, tables, stacks, advice.
 * Called by export_html.c. */
#ifndef USM_PROFILE_EXPORT_TABLES_H
#define USM_PROFILE_EXPORT_TABLES_H

#include "profile/blocks.h"

#include <stdio.h>

/* Members of the page's object, each with a comma before it.  0 or ENOMEM. */
int usm__export_tables(FILE *out, const usm__trace *t, const usm__trace_blocks *found);

#endif
