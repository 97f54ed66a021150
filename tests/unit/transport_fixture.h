/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What tests of one transport module share: it is loaded from $USM_PLUGIN_PATH, given the table of
 * module_api.h, and driven through its own table alone; transfers are started and awaited here, and
 * blocks are filled with a pattern that says which block, which page and which turn they are of. */
#ifndef TRANSPORT_FIXTURE_H
#define TRANSPORT_FIXTURE_H

#include "module_api.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <usm/transport.h>

#define PAGE  ((size_t)4096)
#define BLOCK ((size_t)65536) /* of the stores in these tests, but where one says otherwise */

static const usm_transport_ops *ops;

/* ---- transfers ------------------------------------------------------------------ */

typedef struct job {
    usm_transfer t;
    usm_status   status;
    bool         ended;
    char         reason[256]; /* of the thread that ended it                                   */
} job;

static pthread_mutex_t job_lock  = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t  job_ended = PTHREAD_COND_INITIALIZER;

static void job_done(usm_transfer *t, usm_status status)
{
    job *j = (job *)(void *)t; /* t comes first */

    if (status != USM_OK)
        (void)snprintf(j->reason, sizeof(j->reason), "%.255s", usm_last_error());
    (void)pthread_mutex_lock(&job_lock);
    CHECK(!j->ended); /* once */
    j->status = status;
    j->ended  = true;
    (void)pthread_cond_broadcast(&job_ended);
    (void)pthread_mutex_unlock(&job_lock);
}

static inline void job_set(job *j, usm_transfer_op op, uint64_t block, void *data)
{
    *j = (job){.t = {.op         = op,
                     .block      = block,
                     .size       = BLOCK,
                     .data       = data,
                     .registered = SIZE_MAX,
                     .done       = job_done}};
}

static inline usm_status job_await(job *j)
{
    (void)pthread_mutex_lock(&job_lock);
    while (!j->ended)
        (void)pthread_cond_wait(&job_ended, &job_lock);
    (void)pthread_mutex_unlock(&job_lock);
    return j->status;
}

static inline usm_status job_run(void *store, job *j)
{
    j->ended = false;
    ops->submit(store, &j->t);
    return job_await(j);
}

/* All of the n jobs as one list. */
static inline void jobs_submit(void *store, job *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        list[i].t.next = i + 1 < n ? &list[i + 1].t : NULL;
    ops->submit(store, &list[0].t);
}

static inline usm_status transfer(void *store, usm_transfer_op op, uint64_t block, void *data)
{
    job j;

    job_set(&j, op, block, data);
    return job_run(store, &j);
}

static inline void store_block(void *store, uint64_t block, void *data)
{
    CHECK_INT(transfer(store, USM_TRANSFER_STORE, block, data), USM_OK);
}

static inline void fetch_block(void *store, uint64_t block, void *data)
{
    CHECK_INT(transfer(store, USM_TRANSFER_FETCH, block, data), USM_OK);
}

/* ---- memory --------------------------------------------------------------------- */

static inline char *pages(size_t size)
{
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(p != MAP_FAILED);
    return p;
}

static inline uint64_t word_of(uint64_t block, uint64_t turn, size_t at)
{
    return (block * 0x9E3779B97F4A7C15u) ^ (turn << 48) ^ at;
}

/* Bytes [offset, offset + size) of a block, multiples of 8. */
static inline void fill(char *data, uint64_t block, uint64_t turn, size_t offset, size_t size)
{
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = word_of(block, turn, offset + i);

        memcpy(data + i, &word, 8);
    }
}

static inline bool is_filled(const char *data, uint64_t block, uint64_t turn, size_t offset,
                             size_t size)
{
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = word_of(block, turn, offset + i);

        if (memcmp(data + i, &word, 8) != 0)
            return false;
    }
    return true;
}

/* ---- stores --------------------------------------------------------------------- */

static inline usm_status open_store(const char *config, const usm_transport_home *home,
                                    void **store)
{
    const usm_transport_params params = {.struct_size = sizeof(params),
                                         .api         = &module_api,
                                         .config      = config,
                                         .block_size  = BLOCK,
                                         .home        = home};

    return ops->open(&params, store);
}

/* A folder on a disk for stores and homes, removed at the end; NULL: there is none. */
static inline const char *disk_folder(void)
{
    static char       path[512];
    const char *const tops[] = {getenv("USM_TEST_DISK"), getenv("TMPDIR"), "/var/tmp",
                                getenv("USM_TEST_BINARY_DIR"), "/tmp"};
    const char *const id     = getenv("USM_TEST_ID"); /* tests/leftovers.sh looks for it */

    for (size_t i = 0; !path[0] && i < sizeof(tops) / sizeof(tops[0]); i++) {
        void *store = NULL;

        if (!tops[i] || open_store(tops[i], NULL, &store) != USM_OK)
            continue;
        ops->close(store);
        module_clean(); /* its threads are gone before a case counts its own */
        (void)snprintf(path, sizeof(path), "%.400s/%.40s-disk.XXXXXX", tops[i], id ? id : "usm");
        if (!mkdtemp(path))
            path[0] = '\0';
    }
    return path[0] ? path : NULL;
}

static inline const char *load_transport(const char *name)
{
    usm_transport_entry_fn *entry;
    const char             *folder = getenv("USM_PLUGIN_PATH");
    char                    path[1024];
    void                   *library, *symbol;

    if (!folder)
        return "USM_PLUGIN_PATH names no folder of modules";
    (void)snprintf(path, sizeof(path), "%.900s/libusm_transport_%s.so", folder, name);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return dlerror();
    symbol = dlsym(library, "usm_transport_entry");
    if (!symbol)
        return "the module has no entry";
    memcpy(&entry, &symbol, sizeof(entry));
    ops = entry(&module_api);
    return ops ? NULL : usm_last_error();
}

static inline int transport_main(const char *name, int argc, char **argv, const plain_case *cases)
{
    const char *why = load_transport(name);
    int         end;

    if (!why && !disk_folder())
        why = "there is no folder on a disk; USM_TEST_DISK may name one";
    if (why) {
        printf("skipped: %s\n", why);
        return 77;
    }
    end = plain_main(argc, argv, cases);
    (void)nftw(disk_folder(), plain_remove, 16, FTW_DEPTH | FTW_PHYS);
    return end;
}

#endif
