/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Buffers: created, divided, and at their end written back (buffer/buffer.h).
 *
 * There are two counts.  `owners` are handles: the buffer's own and its sub-buffers'.  When the
 * last one is destroyed, the final content is written to its destination, which waits for commands.
 * `refs` counts the owners as one, and commands and accesses under way; with the last of them the
 * memory is freed.  The buffer counts as a user of its context, so the context's memory outlives
 * it. */
#include "buffer/buffer.h"

#include "base/log.h"
#include "base/meta.h"
#include "base/os.h"
#include "buffer/command.h"
#include "buffer/grant.h"
#include "buffer/keep.h"
#include "buffer/pins.h"
#include "buffer/slot.h"
#include "buffer/work.h"
#include "heap/area.h"
#include "spill/home.h"

#include <string.h>

static usm__meta_type buffer_type =
    USM__META_TYPE(struct usm_buffer, sizeof(usm__magic_word), "buffers");

/* ---- memory ----------------------------------------------------------------------- */

static usm_status alloc_memory(usm_buffer *b, const usm__space_params *params)
{
    if (!params->home && !params->foreign && params->size <= usm__segment_max(b->spill)) {
        usm_status st = usm__segment_alloc(b->spill, params->size, &b->space, &b->base);

        if (st == USM_OK)
            usm_store_relaxed(&b->flags, USM__BUFFER_SHARES | USM__BUFFER_FRESH);
        return st;
    }
    usm_store_relaxed(&b->flags, params->foreign ? USM__BUFFER_FOREIGN
                                 : params->home  ? USM__BUFFER_HAS_HOME
                                                 : USM__BUFFER_FRESH);
    return usm__space_create(b->spill, params, &b->space);
}

static void free_memory(usm_buffer *b)
{
    if (usm_load_relaxed(&b->flags) & USM__BUFFER_SHARES)
        usm__segment_free(b->space, b->base, b->size);
    else
        usm__space_destroy(b->space);
}

/* ---- end ----------------------------------------------------------------------------- */

void usm__buffer_unref(usm_buffer *b)
{
    usm_context *ctx = b->ctx;

    if (!usm_ref_drop(&b->refs))
        return;
    usm__track_free(b); /* before the blocks that copies may have pinned */
    usm__buffer_unkeep_all(b);
    free_memory(b);
    usm__heap_free(b->name);
    usm__spill_drop_record(b->spill, usm__meta_slot_size(&buffer_type));
    usm__meta_free(&buffer_type, b);
    usm__context_unuse(ctx);
}

/* Writes the final content to its destination. */
static usm_status write_back(usm_buffer *b)
{
    uint32_t   flags = usm_load_relaxed(&b->flags);
    void      *dest  = usm_load_acquire(&b->final_data);
    bool       wants = !(flags & USM__BUFFER_NO_BACK);
    usm_status st    = USM_OK, settled;

    if (dest && wants)
        st = usm__buffer_read(b, b->base, dest, b->size);
    if (!(flags & USM__BUFFER_FOREIGN))
        return st;
    settled = usm__buffer_finalize(b, wants && !dest); /* from here on it is the user's again */
    return st == USM_OK ? settled : st;
}

static void drop_owner(usm_buffer *b)
{
    usm__message message;
    usm_status   st;

    if (!usm_ref_drop(&b->owners))
        return;
    if (usm_load_acquire(&b->track) || usm_load_acquire(&b->final_data)) {
        usm__message_save(&message);
        st = write_back(b);
        if (st != USM_OK)
            usm__context_error(b->ctx, st, usm_last_error());
        usm__message_restore(&message);
    }
    usm__buffer_unref(b);
}

void usm_buffer_destroy(usm_buffer *buf)
{
    usm_buffer *root;

    if (!buf || usm__handle_check(buf, USM__MAGIC_BUFFER) != USM_OK)
        return;
    if (buf->fork_generation != usm__fork_generation()) {
        (void)usm__handle_kill(buf, USM__MAGIC_BUFFER);
        return; /* it belongs to the parent process */
    }
    root = buf->root;
    if (usm__slot_is_open_here(root) && usm_load_relaxed(&root->owners) == 1) {
        usm__warn(
            "usm_buffer_destroy: the thread has an access to the buffer open; the buffer stays");
        return;
    }
    if (!usm__handle_kill(buf, USM__MAGIC_BUFFER))
        return;
    if (buf != root) {
        usm__meta_free(&buffer_type, buf);
        usm__spill_drop_record(root->spill, usm__meta_slot_size(&buffer_type));
    }
    drop_owner(root);
}

/* ---- creation ------------------------------------------------------------------------- */

static usm_status check_context(usm_context **ctx)
{
    usm_status st = usm__context_resolve(ctx);

    if (st == USM_OK && usm__context_is_inert(*ctx))
        st = usm__fail(USM_E_FORKED, "the context was made before fork(); make one in the child");
    return st;
}

/* Consumes params->home, also on failure.  The caller publishes the buffer. */
static usm_status make(usm_context *ctx, const usm__space_params *params, usm_buffer **out)
{
    usm_buffer *b  = usm__meta_alloc(&buffer_type);
    usm_status  st = USM_OK;

    if (!b) {
        st = usm__fail(USM_E_NO_MEMORY, "no host memory for a buffer");
        goto err_home;
    }
    if (params->name) {
        b->name = usm__heap_strdup(params->name);
        if (!b->name) {
            st = usm__fail(USM_E_NO_MEMORY, "no host memory for a buffer");
            goto err_free;
        }
    }
    st = usm__spill_of(ctx, &b->spill);
    if (st != USM_OK)
        goto err_free;
    st = alloc_memory(b, params);
    if (st != USM_OK)
        goto err_taken;
    b->root            = b;
    b->fork_generation = ctx->fork_generation;
    b->ptr             = b->space->base + b->base;
    b->size            = params->size;
    b->ctx             = ctx;
    usm_store_relaxed(&b->owners, 1u);
    usm_store_relaxed(&b->refs, 1u);
    usm__context_use(ctx);
    usm__spill_add_record(b->spill, usm__meta_slot_size(&buffer_type));
    *out = b;
    return USM_OK;

err_free:
    if (params->home)
        usm__home_close(params->home);
err_taken:
    usm__heap_free(b->name);
    usm__meta_free(&buffer_type, b);
    return st;
err_home:
    if (params->home)
        usm__home_close(params->home);
    return st;
}

static void publish(usm_buffer *b, usm_buffer **out)
{
    usm_store_release(&b->magic, (uint32_t)USM__MAGIC_BUFFER);
    *out = b;
}

/* A block at a time: the buffer may be larger than memory. */
static usm_status copy_in(usm_buffer *b, const void *data)
{
    size_t     piece = (size_t)1 << b->space->shift;
    usm_status st    = USM_OK;

    for (size_t done = 0, n; st == USM_OK && done < b->size; done += n) {
        usm__pin pin = {b->space, b->base + done, 0, USM_WRITE_NO_INIT};

        n        = piece - (pin.offset & (piece - 1));
        n        = n < b->size - done ? n : b->size - done;
        pin.size = n;
        st       = usm__pins_take_waiting(1, &pin);
        if (st != USM_OK)
            break;
        memcpy(b->ptr + done, (const char *)data + done, n);
        usm__pins_give(1, &pin);
    }
    usm__buffer_written(b);
    return st;
}

static usm_status check_desc(const usm_buffer_desc *d, usm_buffer *const *buf)
{
    const uint32_t both = USM_BUFFER_CONST_DATA | USM_BUFFER_COPY_DATA;

    if (!d || !buf)
        return usm__fail(USM_E_INVALID, "usm_buffer_create: %s is NULL", d ? "buf" : "desc");
    if (d->struct_size < sizeof *d)
        return usm__fail(USM_E_ABI,
                         "usm_buffer_create: struct_size is %zu; start with USM_BUFFER_DESC_INIT",
                         d->struct_size);
    if (d->size == 0)
        return usm__fail(USM_E_INVALID,
                         "usm_buffer_create: size is 0; a buffer has a byte at least");
    if (d->flags & ~both || d->flags == both)
        return usm__fail(USM_E_INVALID,
                         "usm_buffer_create: flags 0x%x; one of USM_BUFFER_CONST_DATA and "
                         "USM_BUFFER_COPY_DATA, or none",
                         d->flags);
    if (d->flags && !d->host_data)
        return usm__fail(USM_E_INVALID, "usm_buffer_create: flags 0x%x without host_data",
                         d->flags);
    if (d->home && d->host_data)
        return usm__fail(USM_E_INVALID, "usm_buffer_create: the content comes from host_data or "
                                        "from a backing store, not from both");
    if (d->home && (d->home->struct_size < sizeof *d->home || !d->home->read))
        return usm__fail(d->home->read ? USM_E_ABI : USM_E_INVALID,
                         "usm_buffer_create: the backing store %s",
                         d->home->read ? "has a wrong struct_size" : "has no read function");
    return USM_OK;
}

static usm_status open_home(usm_context *ctx, const usm_buffer_desc *d, usm__home **home)
{
    usm__home_params params = {.size = d->size};
    usm__spill      *spill  = NULL;
    usm_status       st     = usm__spill_of(ctx, &spill);

    if (st != USM_OK)
        return st;
    usm__spill_get_sizes(spill, &params.block_size, &params.sector_size);
    if (d->home)
        return usm__home_open_user(d->home, d->home_data, &params, home);
    return usm__home_open_memory(d->host_data, &params, home);
}

/* Small memory that is only read is copied instead of serving as a backing store. */
static usm_status is_copied(usm_context *ctx, const usm_buffer_desc *d, bool *is)
{
    usm__spill *spill = NULL;
    usm_status  st;

    *is = (d->flags & USM_BUFFER_COPY_DATA) != 0;
    if (!(d->flags & USM_BUFFER_CONST_DATA))
        return USM_OK;
    st = usm__spill_of(ctx, &spill);
    if (st == USM_OK)
        *is = d->size <= usm__segment_max(spill);
    return st;
}

static usm_status create(usm_context *ctx, const usm_buffer_desc *d, usm_buffer **out)
{
    usm__space_params params = {.size = d->size, .name = d->name, .ctx = ctx};
    bool              copies = false;
    usm_status        st     = USM_OK;

    if (d->flags)
        st = is_copied(ctx, d, &copies);
    if (st != USM_OK)
        return st;
    if (d->home || (d->flags && !copies))
        st = open_home(ctx, d, &params.home);
    else if (d->host_data && !copies)
        params.foreign = d->host_data;
    if (st == USM_OK)
        st = make(ctx, &params, out);
    if (st == USM_OK && copies) {
        st = copy_in(*out, d->host_data);
        if (st != USM_OK)
            usm__buffer_unref(*out);
    }
    return st;
}

usm_status usm_buffer_create(usm_context *ctx, const usm_buffer_desc *desc, usm_buffer **buf)
{
    usm_buffer *made = NULL;
    usm_status  st   = check_desc(desc, buf);

    if (st == USM_OK)
        st = check_context(&ctx);
    if (st == USM_OK)
        st = create(ctx, desc, &made);
    if (st != USM_OK)
        return st;
    if (desc->home && !desc->home->write)
        usm_store_relaxed(&made->flags, usm_load_relaxed(&made->flags) | USM__BUFFER_READ_ONLY);
    publish(made, buf);
    return USM_OK;
}

usm_buffer *usm_buffer_new(usm_context *ctx, size_t size)
{
    usm_buffer_desc desc = USM_BUFFER_DESC_INIT;
    usm_buffer     *buf  = NULL;

    desc.size = size;
    return usm_buffer_create(ctx, &desc, &buf) == USM_OK ? buf : NULL;
}

static usm_status check_open(const char *path, usm_access_mode mode, usm_buffer *const *buf)
{
    if (!path || !buf)
        return usm__fail(USM_E_INVALID, "usm_buffer_open: %s is NULL", path ? "buf" : "path");
    if (mode != USM_READ && mode != USM_READ_WRITE && mode != USM_READ_WRITE_NO_INIT)
        return usm__fail(USM_E_INVALID,
                         "usm_buffer_open: mode 0x%x; USM_READ, USM_READ_WRITE, or "
                         "USM_READ_WRITE_NO_INIT to make the file",
                         (unsigned)mode);
    return USM_OK;
}

usm_status usm_buffer_open(usm_context *ctx, const char *path, uint64_t offset, size_t size,
                           usm_access_mode mode, usm_buffer **buf)
{
    usm__space_params params = {.name = path, .size = size};
    usm__spill       *spill  = NULL;
    size_t            block = 0, sector = 0;
    usm_buffer       *made = NULL;
    usm_status        st   = check_open(path, mode, buf);

    if (st == USM_OK)
        st = check_context(&ctx);
    if (st == USM_OK)
        st = usm__spill_of(ctx, &spill);
    if (st != USM_OK)
        return st;
    params.ctx = ctx;
    usm__spill_get_sizes(spill, &block, &sector);
    st = usm__home_open_file(path, offset, &params.size, mode, block, &params.home);
    if (st == USM_OK)
        st = make(ctx, &params, &made);
    if (st != USM_OK)
        return st;
    if (mode == USM_READ)
        usm_store_relaxed(&made->flags, USM__BUFFER_HAS_HOME | USM__BUFFER_READ_ONLY);
    publish(made, buf);
    return USM_OK;
}

usm_status usm_buffer_create_sub(usm_buffer *parent, size_t offset, size_t size, usm_buffer **sub)
{
    usm_buffer *b;
    usm_status  st = usm__buffer_check(parent);

    if (st != USM_OK)
        return st;
    if (!sub || size == 0 || parent->root != parent)
        return usm__fail(USM_E_INVALID, "usm_buffer_create_sub: %s",
                         !sub        ? "sub is NULL"
                         : size == 0 ? "size is 0"
                                     : "the parent is a sub-buffer itself; take its own parent");
    st = usm__buffer_check_range(parent, offset, size);
    if (st != USM_OK)
        return st;
    b = usm__meta_alloc(&buffer_type);
    if (!b)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a buffer");
    b->root            = parent;
    b->fork_generation = parent->fork_generation;
    b->space           = parent->space;
    b->base            = parent->base + offset;
    b->ptr             = parent->ptr + offset;
    b->size            = size;
    usm_ref_take(&parent->owners);
    usm__spill_add_record(parent->spill, usm__meta_slot_size(&buffer_type));
    publish(b, sub);
    return USM_OK;
}

/* ---- settings of a buffer ------------------------------------------------------------------ */

size_t usm_buffer_size(const usm_buffer *buf)
{
    return usm__handle_check(buf, USM__MAGIC_BUFFER) == USM_OK ? buf->size : 0;
}

usm_context *usm_buffer_get_context(const usm_buffer *buf)
{
    return usm__handle_check(buf, USM__MAGIC_BUFFER) == USM_OK ? buf->root->ctx : NULL;
}

static usm_status check_whole(const usm_buffer *buf, const char *what)
{
    usm_status st = usm__buffer_check(buf);

    if (st == USM_OK && buf->root != buf)
        st = usm__fail(USM_E_INVALID, "%s: it is the parent of a sub-buffer that has this", what);
    return st;
}

usm_status usm_buffer_set_final_data(usm_buffer *buf, void *dest)
{
    usm_status st = check_whole(buf, "usm_buffer_set_final_data");

    if (st != USM_OK)
        return st;
    usm_store_release(&buf->final_data, dest);
    /* NULL: no destination, not even the memory that the content came from. */
    return usm_buffer_set_write_back(buf, dest != NULL);
}

usm_status usm_buffer_set_write_back(usm_buffer *buf, bool enabled)
{
    usm_status st = check_whole(buf, "usm_buffer_set_write_back");

    if (st != USM_OK)
        return st;
    if (enabled)
        (void)atomic_fetch_and(&buf->flags, ~USM__BUFFER_NO_BACK);
    else
        (void)atomic_fetch_or(&buf->flags, USM__BUFFER_NO_BACK);
    return USM_OK;
}

/* ---- the part --------------------------------------------------------------------------- */

static void fork_order(usm_fork_phase phase)
{
    usm__track_fork(phase);
    usm__commands_fork(phase);
}

static void context_unused(usm_context *ctx)
{
    (void)ctx;
    usm__commands_forget();
}

const usm_part usm__buffer_part = {.name                = "buffer",
                                   .fork                = {{USM__RANK_PLACING, usm__grant_fork},
                                                           {USM__RANK_BUFFER, usm__kept_fork},
                                                           {USM__RANK_LOCATIONS, usm__locations_fork},
                                                           {USM__RANK_ORDER, fork_order}},
                                   .thread_ended        = usm__slot_thread_ended,
                                   .context_unused      = context_unused,
                                   .queue_waiting       = usm__grant_warn_of_own_access,
                                   .outside_drain       = usm__grant_drain,
                                   .out_of_memory       = usm__buffers_give_back,
                                   .memory_starved      = usm__buffers_starved,
                                   .launch_over_buffers = usm__buffers_launch};
