/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The tool's output, as text for people and as JSON for programs.  The
 * schema of the JSON is documented in docs/man/usm-info.1. */
#ifndef USM_INFO_SHOW_H
#define USM_INFO_SHOW_H

#include "base/json.h"
#include "inventory.h"

#define JSON_SCHEMA 1

/* The first members of every document: schema, version. */
void show_json_head(usm__json *j, FILE *out);

void show_text(const inventory *inv);
void show_list(const inventory *inv);
void show_json(const inventory *inv);
void show_list_json(const inventory *inv);

/* settings.c */
void show_settings(void);              /* all of it: --env */
void show_settings_short(void);        /* variable, value, origin */
void show_settings_markdown(void);     /* the table of docs/settings.md */
void show_settings_json(usm__json *j); /* the member "settings" */

#endif
