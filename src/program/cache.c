/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The cache of built programs: in memory for each context, and behind it on disk.
 *
 * The key is a hash of everything that the result depends on: the image and its type, the
 * compiler's options, the device and its driver as they name themselves, the processor if the
 * device is one, and libusm's version.
 *
 *     get --> in memory? --> on disk? --> a turn, on disk now? --> the driver builds --> to disk
 *
 * A build may take seconds and calls the driver, so no lock is held during it.  The building thread
 * leaves an entry that says "building".  Other threads that want the same program sleep until the
 * build ends, and build it themselves if it failed, so that each caller gets its own log.  Tables
 * of native functions are not cached: building them costs nothing, and two tables with equal bytes
 * may have different lifetimes.
 *
 * Of processes that want a program at once one builds it, and the others load it.
 *
 * On disk is the driver's binary.  One that the driver rejects (a new version under an old name) is
 * replaced by a new build.  disk_cache.c has the files.
 *
 * Called by program.c, and by context.c, which owns the cache. */
#include "base/fault.h"
#include "base/log.h"
#include "base/os.h"
#include "program/disk_cache.h"
#include "program/program.h"

#include <string.h>

#include <usm/version.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#else
#include <sys/auxv.h>
#endif

/* Number of programs kept in memory although only the cache uses them. */
#define KEEP_MAX 128

typedef struct entry {
    usm_list    link;
    usm__hash   key;
    size_t      index; /* of the device: two devices of one kind have the same key */
    bool        building;
    usm__built *built; /* the cache holds one reference; NULL while building */
} entry;

struct usm__program_cache {
    usm__mutex     lock;    /* guards everything below     */
    pthread_cond_t done;    /* signalled when a build ends */
    usm_list       entries; /* least recently used first   */
    size_t         count;
};

/* The parameters of usm__program_cache_get. */
typedef struct request {
    usm_context     *ctx;
    size_t           index;
    const usm_image *image;
    const char      *options;
    char            *log;
    size_t           log_size;
    usm__hash        key;
} request;

/* --- keys ----------------------------------------------------------------- */

/* Machines with different processors may share a home directory, under one processor name if they
 * are virtual. */
static void add_processor(usm__hash *h)
{
#if defined(__x86_64__) || defined(__i386__)
    unsigned r[4] = {0}, ext[4] = {0};

    /* Leaf 1: not ebx, which differs between cores, nor ecx bit 27 (OSXSAVE). */
    (void)__get_cpuid(1, &r[0], &r[1], &r[2], &r[3]);
    (void)__get_cpuid_count(7, 0, &ext[0], &ext[1], &ext[2], &ext[3]);
    r[1] = ext[1];
    r[2] = (r[2] & ~(1u << 27)) ^ ext[2];
    usm__hash_add(h, r, sizeof r);
#else
    unsigned long caps[2] = {getauxval(AT_HWCAP), getauxval(AT_HWCAP2)};

    usm__hash_add(h, caps, sizeof caps);
#endif
}

static usm__hash key_of(const request *r)
{
    const usm_backend_device *d    = &r->ctx->devices[r->index].dev->desc;
    usm__hash                 h    = USM__HASH_INIT;
    uint64_t                  n[2] = {(uint64_t)r->image->type, r->image->size};

    usm__hash_text(&h, USM_VERSION_STRING);
    usm__hash_text(&h, r->ctx->be->name);
    usm__hash_text(&h, d->name);
    usm__hash_text(&h, d->platform_name);
    usm__hash_text(&h, d->driver_version);
    if (d->type == USM_DEVICE_TYPE_CPU)
        add_processor(&h);
    usm__hash_text(&h, r->options);
    usm__hash_add(&h, n, sizeof n);
    usm__hash_add(&h, r->image->data, r->image->size);
    return h;
}

/* --- in memory ------------------------------------------------------------ */

struct usm__program_cache *usm__program_cache_create(void)
{
    struct usm__program_cache *c = usm__heap_alloc(sizeof *c);

    if (!c)
        return NULL;
    usm__mutex_init(&c->lock, USM__RANK_PROGRAM, "program cache");
    (void)pthread_cond_init(&c->done, NULL);
    usm_list_init(&c->entries);
    return c;
}

/* pre: the lock is held, or no other thread knows the cache. */
static void drop_entry(struct usm__program_cache *c, entry *e)
{
    usm_list_remove(&e->link);
    c->count--;
    usm__heap_free(e);
}

/* Takes out any entry that is not being built, and returns its program; NULL: none. */
static usm__built *take_any(struct usm__program_cache *c)
{
    usm__built *b = NULL;

    usm__mutex_lock(&c->lock);
    USM_LIST_FOREACH_SAFE (it, next, &c->entries) {
        entry *e = usm_container_of(it, entry, link);

        if (e->building)
            continue;
        b = e->built;
        drop_entry(c, e);
        break;
    }
    usm__mutex_unlock(&c->lock);
    return b;
}

void usm__program_cache_clear(struct usm__program_cache *c)
{
    usm__built *b;

    while ((b = take_any(c)) != NULL)
        usm__built_release(b);
}

void usm__program_cache_destroy(struct usm__program_cache *c)
{
    if (!c)
        return;
    usm__program_cache_clear(c);
    (void)pthread_cond_destroy(&c->done);
    usm__mutex_fini(&c->lock);
    usm__heap_free(c);
}

/* pre: the lock is held. */
static entry *find(struct usm__program_cache *c, const request *r)
{
    USM_LIST_FOREACH (it, &c->entries) {
        entry *e = usm_container_of(it, entry, link);

        if (e->index == r->index && e->key.hi == r->key.hi && e->key.lo == r->key.lo)
            return e;
    }
    return NULL;
}

/* pre: the lock is held. */
static entry *add(struct usm__program_cache *c, const request *r)
{
    entry *e = usm__heap_alloc(sizeof *e);

    if (!e)
        return NULL;
    e->key      = r->key;
    e->index    = r->index;
    e->building = true;
    usm_list_append(&c->entries, &e->link);
    c->count++;
    return e;
}

/* Either *hit is a program with a reference for the caller, or *mine is an entry that the caller
 * must finish(). */
static usm_status find_or_begin(struct usm__program_cache *c, const request *r, usm__built **hit,
                                entry **mine)
{
    entry *e;

    usm__mutex_lock(&c->lock);
    while ((e = find(c, r)) != NULL && e->building)
        (void)usm__mutex_wait(&c->lock, &c->done, NULL);
    if (e) {
        (void)usm_ref_take(&e->built->refs);
        *hit = e->built;
        usm_list_remove(&e->link); /* most recently used: to the end */
        usm_list_append(&c->entries, &e->link);
    } else {
        *mine = add(c, r);
    }
    usm__mutex_unlock(&c->lock);
    if (!*hit && !*mine)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for an entry of the program cache");
    return USM_OK;
}

/* Takes out the least recently used program that only the cache holds.  NULL: none, or the cache is
 * not full.  pre: the lock is held. */
static usm__built *take_excess(struct usm__program_cache *c)
{
    if (c->count <= KEEP_MAX)
        return NULL;
    USM_LIST_FOREACH (it, &c->entries) {
        entry      *e = usm_container_of(it, entry, link);
        usm__built *b = e->built;

        /* One reference is the cache's; it becomes two only under the lock. */
        if (b && usm_load_acquire(&b->refs) == 1) {
            drop_entry(c, e);
            return b;
        }
    }
    return NULL;
}

/* `built` NULL: the build failed, and a waiting thread may try. */
static void finish(struct usm__program_cache *c, entry *e, usm__built *built)
{
    usm__built *excess;

    usm__mutex_lock(&c->lock);
    if (built) {
        (void)usm_ref_take(&built->refs);
        e->built    = built;
        e->building = false;
    } else {
        drop_entry(c, e);
    }
    excess = take_excess(c);
    (void)pthread_cond_broadcast(&c->done);
    usm__mutex_unlock(&c->lock);
    usm__built_release(excess);
}

/* --- on disk -------------------------------------------------------------- */

/* A failure of the disk cache never fails a caller, so faults are not injected in it.  If a driver
 * leaves an error message here, program.c drops it, as it does for images tried in vain. */
static bool is_for_disk(const request *r)
{
    return r->image->type == USM_IMAGE_OPENCL_C || r->image->type == USM_IMAGE_SPIRV;
}

static usm__built *load(const request *r)
{
    usm_image   image = {USM_IMAGE_BINARY, NULL, 0};
    usm__built *built = NULL;
    void       *data;

    usm__fault_benign_begin();
    data = usm__disk_cache_read(&r->key, &image.size);
    if (data) {
        image.data = data;
        if (usm__built_make(r->ctx, r->index, &image, r->options, NULL, 0, &built) == USM_OK)
            built->type = r->image->type;
        else
            usm__debug("program cache: the driver refuses a cached program: %s", usm_last_error());
        usm__heap_free(data);
    }
    usm__fault_benign_end();
    return built;
}

static void store(const request *r, const usm__built *built)
{
    void  *data = NULL;
    size_t size = 0;

    usm__fault_benign_begin();
    if (usm__be_program_binary(r->ctx->be, built->native, &data, &size) == USM_OK) {
        usm__disk_cache_write(&r->key, data, size);
        usm__heap_free(data);
    }
    usm__fault_benign_end();
}

/* --- both ----------------------------------------------------------------- */

static int begin_turn(const request *r)
{
    int turn;

    usm__fault_benign_begin();
    turn = usm__disk_cache_turn(&r->key);
    usm__fault_benign_end();
    return turn;
}

static usm_status build(const request *r, usm__built **built)
{
    return usm__built_make(r->ctx, r->index, r->image, r->options, r->log, r->log_size, built);
}

/* Builds the program, unless another process has done so meanwhile. */
static usm_status build_in_turn(const request *r, usm__built **built)
{
    usm_status s    = USM_OK;
    int        turn = begin_turn(r);

    *built = load(r);
    if (!*built) {
        s = build(r, built);
        if (s == USM_OK)
            store(r, *built);
    }
    usm__disk_cache_turn_end(turn);
    return s;
}

static usm_status obtain(const request *r, usm__built **built)
{
    usm_status s = USM_OK;

    *built = is_for_disk(r) ? load(r) : NULL;
    if (!*built)
        s = is_for_disk(r) ? build_in_turn(r, built) : build(r, built);
    if (s == USM_OK)
        (*built)->key = r->key;
    return s;
}

usm_status usm__program_cache_get(usm_context *ctx, size_t index, const usm_image *image,
                                  const char *options, char *log, size_t log_size,
                                  usm__built **built)
{
    request     r    = {.ctx = ctx, .index = index, .image = image, .options = options};
    usm__built *b    = NULL;
    entry      *mine = NULL;
    usm_status  s;

    r.log      = log;
    r.log_size = log_size;
    if (log && log_size)
        *log = 0; /* a program from the cache has no log */
    if (image->type == USM_IMAGE_NATIVE)
        return usm__built_make(ctx, index, image, options, log, log_size, built);
    r.key = key_of(&r);
    s     = find_or_begin(ctx->programs, &r, &b, &mine);
    if (s == USM_OK && mine) {
        s = obtain(&r, &b);
        finish(ctx->programs, mine, s == USM_OK ? b : NULL);
    }
    if (s == USM_OK)
        *built = b;
    return s;
}
