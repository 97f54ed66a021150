/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What is looked for by `md5`, and whether it was found (md5_task.h). */
#include "md5_task.h"

#include <string.h>

static int64_t wanted(const struct baseline *b)
{
    return b->hit_pct < 0 ? MD5_ABSENT : baseline_cut(b->candidates, b->hit_pct, 100);
}

void md5_task_init(struct md5_request *request, const struct baseline *b)
{
    *request = (struct md5_request){.from = 0, .to = b->candidates}; /* no text has a digest of 0 */
    if (wanted(b) != MD5_ABSENT) {
        const struct md5_answer text = md5_text_of(wanted(b));

        md5_digest_of(text.text, (size_t)text.length, request->digest);
    }
}

int64_t md5_task_groups(const struct md5_request *request)
{
    const int64_t strips = (request->to + MD5_LETTERS - 1) / MD5_LETTERS;

    return (strips + MD5_LOCAL - 1) / MD5_LOCAL;
}

uint64_t md5_task_answer(const struct md5_request *request, uint32_t strip,
                         const struct baseline *b)
{
    struct md5_request last   = *request;
    int64_t            number = MD5_ABSENT;

    if (strip != MD5_NO_STRIP) {
        last.from = (int64_t)strip * MD5_LETTERS;
        if (last.to > last.from + MD5_LETTERS)
            last.to = last.from + MD5_LETTERS;
        number = md5_scan(&last);
    }
    if (b->verify && number != wanted(b))
        baseline_die("that is not the text that has the digest");
    return (uint64_t)number;
}
