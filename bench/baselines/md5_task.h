/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The computation `md5`: what samples/md5 does, with its kernel md5_search, over the texts 0 to
 * --candidates.  Nothing has the digest that is looked for, or, with --hit, one text in them. */
#ifndef BASELINE_MD5_TASK_H
#define BASELINE_MD5_TASK_H

#include "../../samples/md5/text.h"
#include "baseline.h"

#define MD5_LOCAL 64 /* work-items of a work-group; chunks are whole work-groups */

void md5_task_init(struct md5_request *request, const struct baseline *b);
/* Of MD5_LOCAL strips; the last one reaches beyond the texts, which the kernel leaves alone. */
int64_t md5_task_groups(const struct md5_request *request);
/* Which text of a strip it is, as an answer; with --verify ends the process when it is another. */
uint64_t md5_task_answer(const struct md5_request *request, uint32_t strip,
                         const struct baseline *b);

#endif
