/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The transport over files: files of the user, of any offset and size, against a copy in memory. */
#include "transport_fixture.h"

#include <sys/resource.h>
#include <sys/stat.h>

static const char *const configs[] = {"engine=auto", "engine=threads", "direct=off"};

#define CONFIGS (sizeof(configs) / sizeof(configs[0]))

/* Of parts of the file: begin and size in bytes. */
static const struct {
    uint64_t offset;
    size_t   size;
} parts[] = {
    {0, 3 * BLOCK},        {0, 1},
    {0, PAGE - 1},         {0, 2 * BLOCK + PAGE},
    {0, 2 * BLOCK + 17},   {PAGE, BLOCK + 3 * PAGE + 100},
    {512, 3 * BLOCK},      {512, 2 * BLOCK + 512},
    {44, 3 * BLOCK + 5},   {44, 100},
    {PAGE - 1, 2 * BLOCK}, {3 * PAGE + 1, BLOCK - 1},
    {100, PAGE},           {8191, 2 * PAGE + 2},
};

#define PARTS (sizeof(parts) / sizeof(parts[0]))

enum { GUARD = 5000 }; /* bytes behind the part that are not the buffer's                     */

static const char *home_path(void)
{
    static char path[600];

    (void)snprintf(path, sizeof(path), "%s/home.data", disk_folder());
    return path;
}

/* A file of `size` bytes, and the same in memory. */
static char *make_file(size_t size)
{
    char *model = malloc(size);
    int   fd    = open(home_path(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(model != NULL && fd >= 0);
    for (size_t i = 0; i < size; i++)
        model[i] = (char)(i * 131 + i / 4096 + 7);
    CHECK(write(fd, model, size) == (ssize_t)size);
    (void)close(fd);
    return model;
}

static void check_file(const char *model, size_t size)
{
    char *now = malloc(size + 1);
    int   fd  = open(home_path(), O_RDONLY | O_CLOEXEC);

    CHECK(now != NULL && fd >= 0);
    CHECK_INT(read(fd, now, size + 1), size);
    CHECK(memcmp(now, model, size) == 0);
    (void)close(fd);
    free(now);
}

static usm_transport_home home_of(size_t part, bool writable)
{
    return (usm_transport_home){.path     = home_path(),
                                .offset   = parts[part].offset,
                                .size     = parts[part].size,
                                .writable = writable};
}

static void *open_part(size_t config, size_t part, bool writable)
{
    const usm_transport_home home  = home_of(part, writable);
    void                    *store = NULL;

    CHECK_INT(open_store(configs[config], &home, &store), USM_OK);
    return store;
}

static size_t blocks_of(size_t part)
{
    return (parts[part].size + BLOCK - 1) / BLOCK;
}

/* What a block must be: the file's bytes, and zeros behind the part. */
static void check_block(const char *data, size_t part, uint64_t block, const char *model)
{
    const size_t begin = block * BLOCK;
    const size_t size  = parts[part].size > begin ? parts[part].size - begin : 0;
    const size_t there = size < BLOCK ? size : BLOCK;

    CHECK(memcmp(data, model + parts[part].offset + begin, there) == 0);
    for (size_t i = there; i < BLOCK; i++)
        CHECK(data[i] == 0);
}

static void a_part_is_read_as_it_is(void)
{
    char *data = pages(BLOCK);

    for (size_t c = 0; c < CONFIGS; c++)
        for (size_t p = 0; p < PARTS; p++) {
            const size_t size  = parts[p].offset + parts[p].size + (p % 2 ? GUARD : 0);
            char        *model = make_file(size);
            void        *store;

            module_start();
            store = open_part(c, p, false);
            for (uint64_t b = 0; b <= blocks_of(p); b++) { /* one behind the end */
                job j;

                memset(data, 0xa5, BLOCK);
                fetch_block(store, b, data);
                check_block(data, p, b, model);
                memset(data, 0xa5, BLOCK);
                for (size_t offset = 0; offset < BLOCK; offset += 4 * PAGE) {
                    job_set(&j, USM_TRANSFER_FETCH, b, data + offset);
                    j.t.offset     = offset;
                    j.t.size       = 4 * PAGE;
                    j.t.is_awaited = offset & (4 * PAGE);
                    CHECK_INT(job_run(store, &j), USM_OK);
                }
                check_block(data, p, b, model);
            }
            CHECK_INT(transfer(store, USM_TRANSFER_STORE, 0, data), USM_E_READ_ONLY);
            ops->close(store);
            check_file(model, size);
            free(model);
            module_clean();
        }
    munmap(data, BLOCK);
}

/* The part of the model that a store changes. */
static void change_model(char *model, size_t part, const job *j)
{
    const size_t begin = j->t.block * BLOCK + j->t.offset;

    if (begin < parts[part].size) {
        const size_t left = parts[part].size - begin;

        memcpy(model + parts[part].offset + begin, j->t.data, left < j->t.size ? left : j->t.size);
    }
}

static void stores_change_the_part_and_nothing_else(void)
{
    char *data = pages(BLOCK);

    for (size_t c = 0; c < CONFIGS; c++)
        for (size_t p = 0; p < PARTS; p++) {
            const size_t size  = parts[p].offset + parts[p].size + (p % 2 ? GUARD : 0);
            char        *model = make_file(size);
            uint64_t     seed  = 88172645463325252u + p;
            void        *store;

            module_start();
            store = open_part(c, p, true);
            CHECK_INT(ops->reserve(store, 0, blocks_of(p)), USM_OK);
            for (uint64_t turn = 0; turn < 12; turn++) {
                const size_t npages = BLOCK / PAGE;
                size_t       first, count;
                job          j;

                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                first = seed % npages;
                count = 1 + (seed >> 8) % (npages - first);
                if (turn % 4 == 0) {
                    first = 0;
                    count = npages;
                }
                job_set(&j, USM_TRANSFER_STORE, (seed >> 16) % blocks_of(p), data);
                j.t.offset     = first * PAGE;
                j.t.size       = count * PAGE;
                j.t.is_awaited = turn & 1;
                fill(data, turn + 100, turn, 0, j.t.size);
                CHECK_INT(job_run(store, &j), USM_OK);
                change_model(model, p, &j);
                job_set(&j, USM_TRANSFER_FETCH, j.t.block, data);
                CHECK_INT(job_run(store, &j), USM_OK);
                check_block(data, p, j.t.block, model);
            }
            CHECK_INT(ops->sync(store), USM_OK);
            check_file(model, size); /* as long as it was */
            ops->forget(store, 0, blocks_of(p));
            ops->close(store);
            check_file(model, size);
            free(model);
            module_clean();
        }
    munmap(data, BLOCK);
}

enum { NEIGHBOURS = 6, TURNS = 15 };

static void *neighbour_store;

static void *be_a_neighbour(void *arg)
{
    const uint64_t self = (uint64_t)(uintptr_t)arg;
    char          *data = pages(BLOCK);

    for (uint64_t turn = 0; turn < TURNS; turn++) {
        fill(data, self, turn, 0, BLOCK);
        store_block(neighbour_store, self, data);
        memset(data, 0, BLOCK);
        fetch_block(neighbour_store, self, data);
        CHECK(is_filled(data, self, turn, 0, BLOCK));
    }
    munmap(data, BLOCK);
    return NULL;
}

/* Blocks that share pages of the file are stored at one time, and none loses anything. */
static void neighbours_do_not_hurt_each_other(void)
{
    static const uint64_t offsets[] = {44, 512, PAGE - 8, PAGE};
    char                 *data      = pages(BLOCK);

    for (size_t c = 0; c < CONFIGS; c++)
        for (size_t o = 0; o < 4; o++) {
            const size_t       size  = offsets[o] + NEIGHBOURS * BLOCK + GUARD;
            usm_transport_home home  = {.path     = home_path(),
                                        .offset   = offsets[o],
                                        .size     = NEIGHBOURS * BLOCK,
                                        .writable = true};
            char              *model = make_file(size);
            pthread_t          threads[NEIGHBOURS];

            module_start();
            CHECK_INT(open_store(configs[c], &home, &neighbour_store), USM_OK);
            for (uintptr_t i = 0; i < NEIGHBOURS; i++)
                CHECK(pthread_create(&threads[i], NULL, be_a_neighbour, (void *)i) == 0);
            for (size_t i = 0; i < NEIGHBOURS; i++)
                CHECK(pthread_join(threads[i], NULL) == 0);
            for (uint64_t i = 0; i < NEIGHBOURS; i++)
                fill(model + offsets[o] + i * BLOCK, i, TURNS - 1, 0, BLOCK);
            CHECK_INT(ops->sync(neighbour_store), USM_OK);
            check_file(model, size);
            ops->close(neighbour_store);
            free(model);
            module_clean();
        }
    munmap(data, BLOCK);
}

static void faults_of_unaligned_parts_are_told(void)
{
    char *data  = pages(BLOCK);
    char *model = make_file(44 + 3 * BLOCK);

    for (size_t c = 0; c < CONFIGS; c++) {
        usm_transport_home home = {
            .path = home_path(), .offset = 44, .size = 3 * BLOCK, .writable = true};
        void *store = NULL;
        job   j;

        module_start();
        CHECK_INT(open_store(configs[c], &home, &store), USM_OK);
        CHECK(usm__fault_arm("file.short", 1, true, USM_OK));
        memcpy(data, model + 44 + BLOCK, BLOCK);
        store_block(store, 1, data);
        memset(data, 0, BLOCK);
        fetch_block(store, 1, data);
        CHECK(memcmp(data, model + 44 + BLOCK, BLOCK) == 0);
        usm__fault_disarm_all();
        CHECK(usm__fault_arm("heap.alloc", 1, true, USM_OK)); /* no memory to go through */
        job_set(&j, USM_TRANSFER_FETCH, 1, data);
        CHECK_INT(job_run(store, &j), USM_OK);
        usm__fault_disarm_all();
        for (uint64_t n = 1; n <= (c < 2 ? 3 : 1); n++) { /* head, middle, tail */
            CHECK(usm__fault_arm("file.store", n, false, USM_OK));
            job_set(&j, USM_TRANSFER_STORE, 1, data);
            CHECK_INT(job_run(store, &j), USM_E_IO);
            CHECK_IN("home.data failed: Input/output error", j.reason);
            usm__fault_disarm_all();
        }
        store_block(store, 1, data);
        CHECK(usm__fault_arm("file.fetch", 1, false, USM_OK));
        job_set(&j, USM_TRANSFER_FETCH, 0, data);
        CHECK_INT(job_run(store, &j), USM_E_IO);
        usm__fault_disarm_all();
        ops->close(store);
        check_file(model, 44 + 3 * BLOCK);
        module_clean();
    }
    free(model);
    munmap(data, BLOCK);
}

/* ---- opening ------------------------------------------------------------------------- */

static usm_status try_open(const usm_transport_home *home)
{
    void      *store = NULL;
    usm_status st    = open_store("", home, &store);

    CHECK((store != NULL) == (st == USM_OK));
    ops->close(store);
    return st;
}

static void what_cannot_be_opened_is_told(void)
{
    char              *model = make_file(1000);
    usm_transport_home home  = {.path = "/nowhere/x", .size = 10};

    module_start();
    CHECK_INT(try_open(&home), USM_E_IO);
    CHECK_IN("/nowhere/x cannot be opened: No such file or directory", usm_last_error());
    home.path = disk_folder();
    CHECK_INT(try_open(&home), USM_E_INVALID);
    CHECK_IN("is neither a file nor a disk", usm_last_error());
    home.path = "/dev/null";
    CHECK_INT(try_open(&home), USM_E_INVALID);
    home = (usm_transport_home){.path = home_path(), .size = 1001};
    CHECK_INT(try_open(&home), USM_E_INVALID);
    CHECK_IN("has 1000 bytes, but 1001 from byte 0 on", usm_last_error());
    home.size = 0;
    CHECK_INT(try_open(&home), USM_E_INVALID);
    home.size   = 2;
    home.offset = UINT64_MAX - 1;
    CHECK_INT(try_open(&home), USM_E_INVALID);
    home = (usm_transport_home){.path = home_path(), .size = 10, .create = true};
    CHECK_INT(try_open(&home), USM_E_INVALID);
    CHECK_IN("without being written to", usm_last_error());
    check_file(model, 1000);
    free(model);
    module_clean();
}

static void parts_in_use_are_busy(void)
{
    char              *model = make_file(10 * BLOCK);
    usm_transport_home home  = {.path = home_path(), .size = 2 * BLOCK, .writable = true};
    usm_transport_home other = home;
    void              *store = NULL;

    module_start();
    CHECK_INT(open_store("", &home, &store), USM_OK);
    CHECK_INT(try_open(&other), USM_E_BUSY);
    CHECK_IN("home.data is in use", usm_last_error());
    other.writable = false;
    CHECK_INT(try_open(&other), USM_E_BUSY);
    other.offset = 2 * BLOCK - 1;
    CHECK_INT(try_open(&other), USM_E_BUSY);
    other.offset = 2 * BLOCK; /* another part */
    CHECK_INT(try_open(&other), USM_OK);
    other.writable = true;
    CHECK_INT(try_open(&other), USM_OK);
    ops->close(store);
    home.writable = false; /* readers do not exclude each other, but writers */
    other         = home;
    CHECK_INT(open_store("", &home, &store), USM_OK);
    CHECK_INT(try_open(&other), USM_OK);
    other.writable = true;
    CHECK_INT(try_open(&other), USM_E_BUSY);
    ops->close(store);
    CHECK_INT(try_open(&other), USM_OK);
    CHECK(usm__fault_arm("os.lock", 1, true, USM_E_NOT_SUPPORTED)); /* no locks there */
    CHECK_INT(try_open(&other), USM_OK);
    free(model);
    module_clean();
}

static void files_are_made_only_when_asked(void)
{
    usm_transport_home home = {
        .path = home_path(), .offset = 100, .size = 2 * BLOCK + 1, .writable = true};
    const size_t size  = 100 + 2 * BLOCK + 1;
    char        *data  = pages(BLOCK);
    char        *model = calloc(1, size + 10);
    void        *store = NULL;

    CHECK(model != NULL);
    module_start();
    (void)unlink(home_path());
    CHECK_INT(try_open(&home), USM_E_IO);
    CHECK(access(home_path(), F_OK) != 0);
    home.create = true;
    CHECK_INT(open_store("", &home, &store), USM_OK);
    check_file(model, size);
    CHECK_INT(ops->reserve(store, 0, 1000), USM_OK);
    fill(data, 1, 1, 0, BLOCK);
    store_block(store, 1, data);
    store_block(store, 2, data); /* a byte of it */
    store_block(store, 3, data); /* nothing of it */
    memcpy(model + 100 + BLOCK, data, BLOCK);
    model[100 + 2 * BLOCK] = data[0];
    CHECK(usm__fault_arm("os.open", 1, false, USM_OK)); /* the folder, for the file's name */
    CHECK_INT(ops->sync(store), USM_E_IO);
    CHECK_IN("home.data cannot be made durable", usm_last_error());
    usm__fault_disarm_all();
    CHECK_INT(ops->sync(store), USM_OK);
    ops->close(store);
    check_file(model, size);
    home.size = 10; /* a longer file is not cut */
    CHECK_INT(try_open(&home), USM_OK);
    check_file(model, size);
    home.size = 2 * BLOCK + 11;
    CHECK_INT(try_open(&home), USM_OK);
    memset(model + size, 0, 10);
    check_file(model, size + 10);
    free(model);
    munmap(data, BLOCK);
    module_clean();
}

static void a_file_that_becomes_shorter_is_an_error(void)
{
    char *data = pages(BLOCK);

    for (size_t c = 0; c < CONFIGS; c++)
        for (uint64_t offset = 0; offset < 200; offset += 100) {
            char              *model = make_file(4 * BLOCK);
            usm_transport_home home  = {
                 .path = home_path(), .offset = offset, .size = 3 * BLOCK + 100};
            void *store = NULL;
            job   j;

            module_start();
            CHECK_INT(open_store(configs[c], &home, &store), USM_OK);
            CHECK(truncate(home_path(), BLOCK + 10000) == 0);
            fetch_block(store, 0, data);
            for (uint64_t b = 1; b < 4; b++) {
                job_set(&j, USM_TRANSFER_FETCH, b, data);
                CHECK_INT(job_run(store, &j), USM_E_IO);
                CHECK_IN("the file was truncated", j.reason);
            }
            ops->close(store);
            free(model);
            module_clean();
        }
    munmap(data, BLOCK);
}

static void reserve_and_sync_of_homes_tell_failures(void)
{
    usm_transport_home     home = {.path = home_path(), .size = BLOCK, .writable = true};
    usm_transport_capacity capacity;
    char                  *model = make_file(BLOCK);
    void                  *store = NULL;

    module_start();
    CHECK_INT(open_store("", &home, &store), USM_OK);
    CHECK(usm__fault_arm("os.fallocate", 1, false, USM_OK));
    CHECK_INT(ops->reserve(store, 0, 1), USM_E_SPILL_FULL);
    CHECK_IN("no room for all of", usm_last_error());
    usm__fault_disarm_all();
    CHECK(usm__fault_arm("os.fallocate", 1, false, USM_E_NOT_SUPPORTED));
    CHECK_INT(ops->reserve(store, 0, 1), USM_OK);
    usm__fault_disarm_all();
    CHECK(usm__fault_arm("os.fsync", 1, false, USM_OK));
    CHECK_INT(ops->sync(store), USM_E_IO);
    CHECK_IN("home.data could not be made durable", usm_last_error());
    usm__fault_disarm_all();
    CHECK_INT(ops->capacity(store, &capacity), USM_OK);
    CHECK_INT(capacity.total, BLOCK);
    ops->close(store);
    home.writable = false;
    CHECK_INT(open_store("", &home, &store), USM_OK);
    CHECK_INT(ops->reserve(store, 0, 1), USM_E_READ_ONLY);
    ops->close(store);
    free(model);
    module_clean();
}

static bool survive(void)
{
    usm_transport_home home = {
        .path = home_path(), .offset = 44, .size = 2 * BLOCK, .writable = true, .create = true};
    char *data  = pages(BLOCK);
    void *store = NULL;
    bool  is_ok = open_store("", &home, &store) == USM_OK;

    if (is_ok) {
        fill(data, 0, 0, 0, BLOCK);
        is_ok = transfer(store, USM_TRANSFER_STORE, 0, data) == USM_OK;
        memset(data, 0, BLOCK);
        if (is_ok && transfer(store, USM_TRANSFER_FETCH, 0, data) == USM_OK)
            CHECK(is_filled(data, 0, 0, 0, BLOCK));
        is_ok = ops->sync(store) == USM_OK && is_ok;
    }
    ops->close(store);
    munmap(data, BLOCK);
    return is_ok;
}

static void each_call_may_fail(void)
{
    uint64_t n = 0;

    for (uint64_t fired = 1; fired; fired = usm__fault_fired()) {
        module_start();
        (void)unlink(home_path());
        CHECK(usm__fault_arm("*", ++n, false, USM_OK));
        (void)survive();
        module_clean();
        CHECK(n < 200);
    }
    CHECK(n > 10);
    usm__fault_disarm_all();
    CHECK(survive());
    module_clean();
}

static const plain_case cases[] = {
    CASE(a_part_is_read_as_it_is),
    CASE(stores_change_the_part_and_nothing_else),
    CASE(neighbours_do_not_hurt_each_other),
    CASE(faults_of_unaligned_parts_are_told),
    CASE(what_cannot_be_opened_is_told),
    CASE(parts_in_use_are_busy),
    CASE(files_are_made_only_when_asked),
    CASE(a_file_that_becomes_shorter_is_an_error),
    CASE(reserve_and_sync_of_homes_tell_failures),
    CASE(each_call_may_fail),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return transport_main("file", argc, argv, cases);
}
