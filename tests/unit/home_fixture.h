/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A file of the user with blocks of known versions, a home over it, and commits of a test's own:
 * what test_home.c, test_journal.c and test_power_loss.c share.  The transport is a small one of
 * the test: one call for a transfer, done before submit() returns. */
#ifndef HOME_FIXTURE_H
#define HOME_FIXTURE_H

#include "plain.h"

#include "base/fault.h"
#include "base/os.h"
#include "base/os_storage.h"
#include "device/init.h"
#include "device/registry.h"
#include "spill/home.h"
#include "spill/journal.h"

#include <errno.h>
#include <stdint.h>
#include <sys/stat.h>

#define BLOCK  ((size_t)8192)
#define SECTOR ((size_t)512)

/* --- a transport ----------------------------------------------------------------- */

typedef struct small_store {
    int                fd;
    size_t             block_size;
    usm_transport_home home;
} small_store;

static int small_fetches, small_refusals; /* so many fetches were made; so many more shall fail  */

static inline usm_status small_open(const usm_transport_params *params, void **store)
{
    small_store *s    = calloc(1, sizeof(*s));
    struct stat  st   = {0};
    uint64_t     ends = params->home->offset + params->home->size;

    CHECK(s != NULL);
    s->block_size = params->block_size;
    s->home       = *params->home;
    s->fd         = usm__os_file_open(params->home->path, s->home.writable ? O_RDWR : O_RDONLY, 0);
    if (s->fd < 0 || fstat(s->fd, &st) != 0) {
        usm_status status = params->api->report(USM_E_IO, "%s: errno %d", s->home.path, errno);

        free(s);
        return status;
    }
    if ((uint64_t)st.st_size < ends)
        CHECK(s->home.create && usm__os_file_truncate(s->fd, ends) == 0);
    *store = s;
    return USM_OK;
}

static inline void small_close(void *store)
{
    (void)usm__os_close(((small_store *)store)->fd);
    free(store);
}

static inline usm_status small_move(const small_store *s, const usm_transfer *t)
{
    uint64_t at     = t->block * s->block_size + t->offset;
    size_t   inside = at < s->home.size ? t->size : 0;
    ssize_t  got;

    CHECK(t->op == USM_TRANSFER_FETCH); /* homes are written through their journal */
    if (inside > s->home.size - at)
        inside = (size_t)(s->home.size - at);
    small_fetches++;
    if (small_refusals > 0 && small_refusals--)
        return usm__registry_api.report(USM_E_IO, "%s: the test's disk does not like it", "disk");
    got = inside > 0 ? pread(s->fd, t->data, inside, (off_t)(s->home.offset + at)) : 0;
    if (got != (ssize_t)inside)
        return usm__registry_api.report(USM_E_IO, "a short read: %zd of %zu", got, inside);
    return USM_OK;
}

static inline void small_submit(void *store, usm_transfer *list)
{
    while (list != NULL) {
        usm_transfer *t = list;

        list = t->next;
        t->done(t, small_move(store, t));
    }
}

static inline usm_status small_capacity(void *store, usm_transport_capacity *capacity)
{
    (void)store;
    *capacity = (usm_transport_capacity){.depth = 1};
    return USM_OK;
}

static inline usm_status small_reserve(void *store, uint64_t first, uint64_t n)
{
    (void)store, (void)first, (void)n;
    return USM_OK;
}

static inline void small_forget(void *store, uint64_t first, uint64_t n)
{
    (void)store, (void)first, (void)n;
}

static inline usm_status small_sync(void *store)
{
    return fsync(((small_store *)store)->fd) == 0 ? USM_OK : USM_E_IO;
}

static inline void small_describe(void *store, char *text, size_t cap)
{
    (void)store;
    (void)snprintf(text, cap, "the test's");
}

static inline const usm_transport_ops *small_entry(const usm_host_api *api)
{
    static const usm_transport_ops ops = {
        .abi         = USM_MODULE_ABI,
        .struct_size = sizeof(ops),
        .name        = "file",
        .caps        = USM_TRANSPORT_CAP_HOMES,
        .open        = small_open,
        .close       = small_close,
        .capacity    = small_capacity,
        .reserve     = small_reserve,
        .forget      = small_forget,
        .submit      = small_submit,
        .sync        = small_sync,
        .describe    = small_describe,
    };

    (void)api;
    return &ops;
}

/* Before the first case: no module is loaded then. */
static inline void small_transport_use(void)
{
    CHECK_INT(usm__start(), USM_OK);
    usm__registry_add_transport("file", small_entry);
}

/* --- contents ---------------------------------------------------------------------- */

/* What an 8-byte word of a block says: whose it is, of which version, and where. */
static inline uint64_t word_of(uint64_t block, uint64_t version, size_t at)
{
    return (version << 40 | block << 16 | at / 8) * 0x9e3779b97f4a7c15u + version;
}

static inline void fill_block(void *data, size_t size, uint64_t block, uint64_t version)
{
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = word_of(block, version, at);

        memcpy((char *)data + at, &word, size - at < 8 ? size - at : 8);
    }
}

/* The version that every byte of the block has, of 0 .. most; -1: none, it is torn. */
static inline int version_of(const void *data, size_t size, uint64_t block, int most)
{
    static _Thread_local char want[BLOCK];

    for (int version = 0; version <= most; version++) {
        fill_block(want, size, block, (uint64_t)version);
        if (memcmp(data, want, size) == 0)
            return version;
    }
    return -1;
}

/* A file: `lead` bytes, the part of the home, `lead` bytes; the bytes around are to stay 0xA5. */
typedef struct test_file {
    char     path[512];
    uint64_t lead;
    size_t   size; /* of the part                                                            */
} test_file;

static inline size_t blocks_of(const test_file *f)
{
    return (f->size + BLOCK - 1) / BLOCK;
}

static inline size_t size_of_block_in(const test_file *f, size_t block)
{
    return f->size - block * BLOCK < BLOCK ? f->size - block * BLOCK : BLOCK;
}

static inline char *file_image(const test_file *f, size_t *length)
{
    char *image;

    *length = (size_t)f->lead * 2 + f->size;
    image   = malloc(*length);
    CHECK(image != NULL);
    memset(image, 0xA5, *length);
    for (size_t b = 0; b < blocks_of(f); b++)
        fill_block(image + f->lead + b * BLOCK, size_of_block_in(f, b), b, 0);
    return image;
}

static inline void make_file(test_file *f, const char *name, uint64_t lead, size_t size)
{
    size_t length;
    char  *image;
    int    fd;

    (void)snprintf(f->path, sizeof(f->path), "%s", plain_path(name));
    f->lead = lead;
    f->size = size;
    image   = file_image(f, &length);
    fd      = open(f->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && write(fd, image, length) == (ssize_t)length && close(fd) == 0);
    free(image);
}

/* The versions of all blocks, of 0 .. most, into list; false: torn, or bytes around changed. */
static inline bool read_versions(const test_file *f, int most, int *list)
{
    size_t length = (size_t)f->lead * 2 + f->size;
    char  *image  = malloc(length + 1);
    int    fd     = open(f->path, O_RDONLY | O_CLOEXEC);
    bool   good   = image != NULL && fd >= 0 && read(fd, image, length + 1) == (ssize_t)length;

    for (size_t b = 0; good && b < blocks_of(f); b++) {
        list[b] = version_of(image + f->lead + b * BLOCK, size_of_block_in(f, b), b, most);
        good    = list[b] >= 0;
    }
    for (size_t i = 0; good && i < f->lead; i++)
        good = image[i] == (char)0xA5 && image[length - 1 - i] == (char)0xA5;
    (void)close(fd);
    free(image);
    return good;
}

static inline bool journal_is_there(const test_file *f)
{
    char path[600];

    (void)snprintf(path, sizeof(path), "%s%s", f->path, USM__JOURNAL_SUFFIX);
    return access(path, F_OK) == 0;
}

static inline usm_status open_home(const test_file *f, usm_access_mode mode, usm__home **home)
{
    size_t size = f->size;

    return usm__home_open_file(f->path, f->lead, &size, mode, BLOCK, home);
}

/* --- commits ------------------------------------------------------------------------ */

/* Blocks of one version that are dirty. */
typedef struct test_commit {
    const uint64_t *blocks;
    uint64_t        version;
    size_t          held;
    size_t          fail_at; /* get() of that index fails; SIZE_MAX: none                      */
    char            data[BLOCK];
} test_commit;

static inline usm_status commit_get(void *arg, size_t index, uint64_t *block, const void **data)
{
    test_commit *c = arg;

    if (index == c->fail_at)
        return usm__registry_api.report(USM_E_CORRUPT, "the test's block %zu is gone", index);
    CHECK(c->held++ == 0);
    fill_block(c->data, BLOCK, c->blocks[index], c->version);
    *block = c->blocks[index];
    *data  = c->data;
    return USM_OK;
}

static inline void commit_put(void *arg, size_t index)
{
    test_commit *c = arg;

    (void)index;
    CHECK(c->held-- == 1);
    memset(c->data, 0xEE, sizeof(c->data)); /* nobody looks at it afterwards */
}

static inline usm_status commit_blocks(usm__home *home, const uint64_t *blocks, size_t n,
                                       uint64_t version)
{
    static _Thread_local test_commit c;
    const usm__dirty_blocks          dirty = {n, commit_get, commit_put, &c};

    c = (test_commit){.blocks = blocks, .version = version, .fail_at = SIZE_MAX};
    return usm__home_commit(home, &dirty);
}

/* --- one transfer that is waited for --------------------------------------------------- */

typedef struct awaited {
    usm__io         io;
    pthread_mutex_t lock;
    pthread_cond_t  ended;
    bool            has_ended;
    usm_status      status;
    char            reason[256];
} awaited;

static inline void io_done(usm__io *io, usm_status status)
{
    awaited *a = io->user;

    (void)pthread_mutex_lock(&a->lock);
    a->status    = status;
    a->has_ended = true;
    (void)snprintf(a->reason, sizeof(a->reason), "%s", usm_last_error());
    (void)pthread_cond_signal(&a->ended);
    (void)pthread_mutex_unlock(&a->lock);
}

static inline void start_read(awaited *a, usm__home *home, uint64_t block, uint32_t first,
                              uint32_t count, void *data)
{
    memset(a, 0, sizeof(*a));
    (void)pthread_mutex_init(&a->lock, NULL);
    (void)pthread_cond_init(&a->ended, NULL);
    a->io = (usm__io){.data       = data,
                      .registered = SIZE_MAX,
                      .block      = block,
                      .first      = first,
                      .count      = count,
                      .done       = io_done,
                      .user       = a};
    usm__home_read(home, &a->io);
}

static inline usm_status await(awaited *a)
{
    (void)pthread_mutex_lock(&a->lock);
    while (!a->has_ended)
        (void)pthread_cond_wait(&a->ended, &a->lock);
    (void)pthread_mutex_unlock(&a->lock);
    (void)pthread_mutex_destroy(&a->lock);
    (void)pthread_cond_destroy(&a->ended);
    return a->status;
}

/* A whole block of two sectors of 4 KiB. */
static inline usm_status read_block_of(usm__home *home, uint64_t block, void *data)
{
    awaited a;

    start_read(&a, home, block, 0, 2, data);
    return await(&a);
}

#endif
