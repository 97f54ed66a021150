/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Buffers with and without a file below them.
 *
 * In a file, the first page tells what the data are and how far the work has got.  A commit makes
 * durable what was written before it; after a crash each block of the file is as before the commit
 * or as after it, never torn, but not all need be of one side.  So there are two commits: the
 * data's, then that of the page which says that they are there.  Every step of the tasks can be
 * done again, so what lies between is not missed.  Called by the tasks. */
#include "store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DATA_OFFSET ((size_t)1 << 20) /* a block of its own for the first page */
#define MAGIC       "usm out_of_core"

/* The first page of a file. */
typedef struct header {
    char        magic[16];
    char        task[16];
    uint64_t    size;
    store_state state;
} header;

static bool is_blank(const header *h)
{
    static const header blank;

    return memcmp(h, &blank, sizeof blank) == 0;
}

/* Is the file new, or one that this task may go on with? */
static bool accept(store *s, const header *h, const char *path)
{
    if (is_blank(h))
        return true;
    if (memcmp(h->magic, MAGIC, sizeof h->magic) != 0)
        return wrong("%s is none of this sample's files: it is left alone", path);
    if (strncmp(h->task, s->task, sizeof h->task) != 0 || h->size != s->size)
        return wrong("%s holds %" PRIu64 " bytes of \"%.15s\", not %" PRIu64
                     " of \"%s\": ask for that, or remove it",
                     path, h->size, h->task, s->size, s->task);
    s->state = h->state;
    fprintf(stderr, "%s: going on at stage %" PRIu64 ", step %" PRIu64 "\n", path, s->state.stage,
            s->state.done);
    return true;
}

static bool read_header(store *s, const char *path)
{
    usm_access page;
    header     h;

    if (usm_access_begin(s->data, 0, sizeof h, USM_READ, &page) != USM_OK)
        return failed(path);
    memcpy(&h, page.ptr, sizeof h);
    usm_access_end(&page);
    return accept(s, &h, path);
}

static bool write_header(store *s)
{
    header     h = {.magic = MAGIC, .size = s->size, .state = s->state};
    usm_access page;

    snprintf(h.task, sizeof h.task, "%s", s->task);
    if (usm_access_begin(s->data, 0, sizeof h, USM_WRITE, &page) != USM_OK)
        return failed("the first page of the file");
    memcpy(page.ptr, &h, sizeof h);
    usm_access_end(&page);
    return true;
}

static bool open_file(store *s, const char *path)
{
    if (usm_buffer_open(NULL, path, 0, DATA_OFFSET + (size_t)s->size, USM_READ_WRITE_NO_INIT,
                        &s->data) != USM_OK)
        return failed(path);
    return read_header(s, path);
}

bool store_open(store *s, const struct job *job, const char *name, uint64_t size)
{
    *s = (store){.task = name, .size = size, .is_file = job->file != NULL};
    if (s->is_file)
        return open_file(s, job->file);
    s->data = usm_buffer_new(NULL, (size_t)size);
    return s->data || failed("a buffer");
}

void store_close(store *s)
{
    usm_buffer_destroy(s->data);
    s->data = NULL;
}

size_t store_offset(const store *s, uint64_t offset)
{
    return (size_t)offset + (s->is_file ? DATA_OFFSET : 0);
}

bool store_commit(store *s, uint64_t stage, uint64_t done)
{
    if (!s->is_file || s->state.stage > stage || (s->state.stage == stage && s->state.done >= done))
        return true;
    if (usm_buffer_commit(s->data) != USM_OK)
        return failed("committing the data");
    s->state = (store_state){stage, done};
    if (!write_header(s))
        return false;
    return usm_buffer_commit(s->data) == USM_OK || failed("committing the first page");
}

uint64_t store_first_step(const store *s, uint64_t stage, uint64_t steps)
{
    if (s->state.stage > stage)
        return steps;
    return s->state.stage == stage ? s->state.done : 0;
}

bool store_is_due(const store *s, uint64_t step, uint64_t steps)
{
    uint64_t quarter = steps / 4;

    return s->is_file && quarter > 0 && (step + 1) % quarter == 0;
}
