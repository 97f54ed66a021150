/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The processes that use libusm, by their monitor pages: see web.h.  They are what usm-top shows,
 * in its JSON.  Pages are read while somebody listens, once for all that do. */
#include "web.h"

#include "usm-top/top.h"

#include <pthread.h>
#include <stdlib.h>

enum { READ_MS = 95 }; /* a process samples every 100 ms */

/* All below is guarded by `lock`, which makes the model one thread's at a time. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static top_model       model;
static bool            is_open, is_refused;
static uint64_t        version, next_ms;
static char           *text; /* of the last sample */
static size_t          text_size;

/* With the lock. */
static void sample(void)
{
    char  *news = NULL;
    size_t size = 0;
    FILE  *file = open_memstream(&news, &size);

    if (!file)
        return;
    (void)top_take(&model); /* without memory the processes that it has are shown */
    top_put_json(&(usm__json){.out = {.file = file}, .form = USM__JSON_COMPACT}, &model);
    if (fclose(file) != 0) {
        free(news);
        return;
    }
    free(text);
    text      = news;
    text_size = size;
    version++;
}

bool processes_write_new(usm__json *j, uint64_t *seen, uint64_t now_ms)
{
    bool is_new;

    (void)pthread_mutex_lock(&lock);
    if (!is_open && !is_refused) {
        is_open    = usm__monitor_open(&model.reader);
        is_refused = !is_open;
    }
    if (is_open && now_ms >= next_ms) {
        sample();
        next_ms = now_ms + READ_MS;
    }
    is_new = version > *seen;
    if (is_new) {
        usm__out_bytes(&j->out, text, text_size);
        *seen = version;
    }
    (void)pthread_mutex_unlock(&lock);
    return is_new;
}
