/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The part of the page's data that consists of text and numbers: summary, tables, stacks, advice.
 * Called by export_html.c. */
#ifndef USM_PROFILE_EXPORT_TABLES_H
#define USM_PROFILE_EXPORT_TABLES_H

#include "base/json.h"
#include "profile/blocks.h"

/* Writes members of the page's object.  0 or ENOMEM. */
int usm__export_tables(usm__json *j, const usm__profile *t, const usm__profile_blocks *found);

#endif
