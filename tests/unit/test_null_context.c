/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A context that is NULL means the default one, in every function that takes one
 * (include/usm/context.h).  tests/check_null_context.py compares this file with the headers. */
#include "plain.h"

#include <usm/usm.h>

#define OK(call) CHECK_INT((call), USM_OK)

static void memory_is_the_default_contexts(void)
{
    usm_device  *dev = usm_queue_get_device(usm_default_queue()), *of = NULL;
    usm_context *ctx = NULL;
    void        *p = usm_malloc_ctx(64, NULL, NULL, USM_SHARED), *base = NULL;
    void        *q    = usm_aligned_alloc_ctx(256, 64, dev, NULL, USM_HOST);
    size_t       size = 0;

    CHECK(p && q);
    OK(usm_get_pointer_context(p, &ctx));
    CHECK(ctx == usm_default_context());
    CHECK_INT(usm_get_pointer_type(p, NULL), USM_SHARED);
    OK(usm_get_pointer_device(p, NULL, &of));
    CHECK(of == dev);
    OK(usm_get_address_range(p, NULL, &base, &size));
    CHECK(base == p && size >= 64);
    OK(usm_free_ctx(p, NULL));
    OK(usm_free_blocking(q, NULL));
}

static void objects_are_the_default_contexts(void)
{
    usm_device      *dev[2];
    usm_queue       *q    = NULL;
    usm_pool        *pool = NULL;
    usm_event       *ev   = NULL;
    usm_program     *p    = NULL;
    usm_program_desc desc = USM_PROGRAM_DESC_INIT;
    size_t           n    = 0;
    void            *handle;

    OK(usm_context_get_devices(NULL, dev, 2, &n));
    CHECK_INT(n, 1);
    OK(usm_queue_create(NULL, NULL, NULL, &q));
    CHECK(usm_queue_get_context(q) == usm_default_context());
    OK(usm_pool_create(NULL, NULL, USM_HOST, NULL, &pool));
    CHECK(usm_pool_get_context(pool) == usm_default_context());
    CHECK(usm_pool_default(NULL, NULL, USM_HOST) != NULL);
    OK(usm_event_create(NULL, &ev));
    OK(usm_context_wait(NULL));
    /* What fails does so for another reason than its context. */
    CHECK_INT(usm_program_create(NULL, &desc, &p), USM_E_INVALID);
    CHECK_IN("0 images", usm_last_error());
    CHECK_INT(usm_queue_from_native(NULL, NULL, USM_KEEP, &q), USM_E_INVALID);
    CHECK_INT(usm_event_from_native(NULL, NULL, USM_KEEP, &ev), USM_E_INVALID);
    CHECK_INT(usm_context_get_native(NULL, "nobody", &handle), USM_E_INVALID);
    OK(usm_event_signal(ev, USM_OK));
    usm_event_release(ev);
    usm_pool_destroy(pool);
    usm_queue_destroy(q);
    usm_context_destroy(NULL); /* nothing: the default context is there as before */
    OK(usm_context_wait(NULL));
}

static void buffers_are_the_default_contexts(void)
{
    usm_buffer_desc        d      = USM_BUFFER_DESC_INIT;
    usm_shared_buffer_desc shared = USM_SHARED_BUFFER_DESC_INIT;
    usm_shared_buffer     *m      = NULL;
    usm_spill_stats        stats  = {.struct_size = sizeof stats};
    usm_buffer            *b = usm_buffer_new(NULL, 4096), *c = NULL, *f = NULL;
    char                   text[64];
    size_t                 size = 0;
    const char            *path = plain_path("file");

    d.size = 4096;
    CHECK(b && usm_buffer_get_context(b) == usm_default_context());
    OK(usm_buffer_create(NULL, &d, &c));
    CHECK(usm_buffer_get_context(c) == usm_default_context());
    plain_write(path, "some bytes");
    OK(usm_buffer_open(NULL, path, 0, 0, USM_READ, &f));
    CHECK(usm_buffer_get_context(f) == usm_default_context());
    OK(usm_spill_get_stats(NULL, &stats));
    (void)usm_spill_describe(NULL, USM_TEXT, text, sizeof text, &size);
    CHECK(size > 0);
    shared.size = 4096;
    CHECK_INT(usm_shared_buffer_create(NULL, &shared, &m), USM_E_MPI); /* there is no job */
    usm_buffer_destroy(f);
    usm_buffer_destroy(c);
    usm_buffer_destroy(b);
}

static void handles_are_the_default_contexts(void)
{
    usm_pool_desc  d    = USM_POOL_DESC_INIT;
    usm_pool      *pool = NULL;
    usm_ipc_handle handle;
    usm_ipc_event *ev = NULL, *opened = NULL;
    void          *p, *again          = NULL;

    d.export_mode = USM_POOL_EXPORT_RW;
    OK(usm_pool_create(NULL, NULL, USM_HOST, &d, &pool));
    p = usm_pool_malloc(pool, 64);
    CHECK(p != NULL);
    OK(usm_ipc_get(p, NULL, &handle));
    OK(usm_ipc_open(&handle, NULL, NULL, &again));
    OK(usm_ipc_close(again, NULL));
    OK(usm_ipc_put(&handle, NULL));
    usm_free(p);
    usm_pool_destroy(pool);
    OK(usm_ipc_event_create(NULL, &ev));
    OK(usm_ipc_event_get(ev, &handle));
    OK(usm_ipc_event_open(&handle, NULL, &opened));
    usm_ipc_event_destroy(opened);
    usm_ipc_event_destroy(ev);
}

static const plain_case cases[] = {
    CASE(memory_is_the_default_contexts),
    CASE(objects_are_the_default_contexts),
    CASE(buffers_are_the_default_contexts),
    CASE(handles_are_the_default_contexts),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
