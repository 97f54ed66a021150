/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The writing side of the journal: the rounds of a commit.  spill/journal.h explains the mechanism
 * and its guarantees; replay is in journal_replay.c. */
#include "spill/journal.h"

#include "base/os.h"
#include "base/os_storage.h"
#include "base/status.h"
#include "spill/journal_private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* What an earlier round may have left under the journal's name. */
typedef enum leftover {
    LEFT_NOTHING,
    LEFT_UNTOUCHED, /* a journal whose backing file is unchanged: it may be removed            */
    LEFT_APPLIED    /* one whose backing file may be half written: its round must be completed */
} leftover;

struct usm__journal {
    usm__journal_names  names;
    usm__journal_params params;
    uint64_t            sequence;
    leftover            left;
    /* the current round */
    int                 fd;
    bool                is_nameless;
    size_t              first, n;
    usm__journal_header header;
    usm__journal_entry *table;
    void               *room; /* buffer for a block, as it is written                         */
    uint64_t            size; /* of the journal                                               */
    usm__os_stat        identity;
};

static size_t size_of_block(const usm__journal *j, uint64_t block)
{
    uint64_t at = block * j->params.block_size;

    if (at >= j->params.size)
        return 0;
    return j->params.size - at < j->params.block_size ? (size_t)(j->params.size - at)
                                                      : j->params.block_size;
}

/* --- step 1: the new bytes ------------------------------------------------------ */

/* Opens a file with the name *.new, where files cannot be nameless. */
static int open_named(const usm__journal *j)
{
    (void)usm__os_file_unlink(j->names.fresh); /* left by a round that was cut off */
    return usm__os_open(j->names.fresh, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
}

static usm_status open_round(usm__journal *j)
{
    j->is_nameless = true;
    j->fd          = usm__os_open_nameless(j->names.folder, 0600);
    if (j->fd < 0 && errno == EOPNOTSUPP) {
        j->is_nameless = false;
        j->fd          = open_named(j);
    }
    if (j->fd < 0)
        return usm__journal_fail(j->names.folder, "no journal can be created here");
    if (usm__os_stat_fd(j->params.home, &j->identity) != 0)
        return usm__journal_fail(j->names.home, "its identity cannot be read");
    if (j->identity.size < j->params.offset + j->params.size) /* else a gap of zeros            */
        return usm__fail(
            USM_E_IO,
            "%s ends before byte %llu: the file was truncated, and nothing is committed to it",
            j->names.home, (unsigned long long)(j->params.offset + j->params.size));
    usm__os_permit_as(j->fd, &j->identity);
    return USM_OK;
}

/* Copies the block first, so that the checksum is that of the bytes written, even if a program
 * changes the block at this moment. */
static usm_status copy_block(usm__journal *j, const usm__dirty_blocks *dirty, size_t i)
{
    usm__journal_entry *entry = &j->table[i];
    uint64_t            block;
    const void         *data;
    usm_status          status = dirty->get(dirty->arg, j->first + i, &block, &data);

    if (status != USM_OK)
        return status;
    entry->size   = size_of_block(j, block);
    entry->offset = j->params.offset + block * j->params.block_size;
    memcpy(j->room, data, (size_t)entry->size);
    dirty->put(dirty->arg, j->first + i);
    if (entry->size == 0)
        return usm__fail(USM_E_INTERNAL, "block %llu is beyond the end of %s",
                         (unsigned long long)block, j->names.home);
    return USM_OK;
}

static usm_status write_block(usm__journal *j, const usm__dirty_blocks *dirty, size_t i)
{
    usm__journal_entry *entry  = &j->table[i];
    usm_status          status = copy_block(j, dirty, i);

    if (status != USM_OK)
        return status;
    entry->sum = usm__journal_sum_of(j->room, (size_t)entry->size, entry->offset);
    if (usm__os_pwrite(j->fd, j->room, (size_t)entry->size, j->size) != 0)
        return usm__journal_fail(j->names.journal, "the journal cannot be written");
    usm__os_file_drop_cache(j->fd, j->size, entry->size); /* writing begins now, not at the sync  */
    j->size += usm__journal_round_up(entry->size);
    return USM_OK;
}

/* The file gets the length in its header, also when the last block is no multiple of a page. */
static usm_status write_table(usm__journal *j)
{
    j->header = (usm__journal_header){
        .state     = USM__JOURNAL_COMMITTED,
        .inode     = j->identity.inode,
        .birth_ns  = j->identity.birth_ns,
        .home_size = j->identity.size,
        .sequence  = ++j->sequence,
        .n         = j->n,
        .size      = j->size,
    };
    usm__journal_seal(&j->header, j->table);
    if (usm__os_pwrite(j->fd, j->table, j->n * sizeof(*j->table), USM__JOURNAL_PAGE) != 0 ||
        usm__os_pwrite(j->fd, &j->header, sizeof(j->header), 0) != 0 ||
        usm__os_file_truncate(j->fd, j->size) != 0)
        return usm__journal_fail(j->names.journal, "the journal cannot be written");
    if (usm__os_fsync(j->fd) != 0)
        return usm__journal_fail(j->names.journal, "the journal cannot be synced");
    return USM_OK;
}

static usm_status write_round(usm__journal *j, const usm__dirty_blocks *dirty)
{
    uint64_t most =
        usm__journal_data_at(j->n) + (uint64_t)j->n * usm__journal_round_up(j->params.block_size);
    usm_status status = open_round(j);

    if (status != USM_OK)
        return status;
    if (usm__os_fallocate(j->fd, 0, most, false) != 0)
        return usm__journal_fail(j->names.journal, "there is no room for the journal");
    j->size = usm__journal_data_at(j->n);
    for (size_t i = 0; i < j->n && status == USM_OK; i++)
        status = write_block(j, dirty, i);
    return status == USM_OK ? write_table(j) : status;
}

/* --- steps 2 to 5 ------------------------------------------------------------------ */

/* Allocates room in the holes of the backing file, which still read as zeros: a full disk is found
 * before the round counts. */
static usm_status reserve(const usm__journal *j)
{
    for (size_t i = 0; i < j->n;) {
        uint64_t start = j->table[i].offset, end = start;

        while (i < j->n && j->table[i].offset == end)
            end += j->table[i++].size;
        if (usm__os_fallocate(j->params.home, start, end - start, true) != 0)
            return usm__journal_fail(j->names.home, "there is no room in the file");
    }
    return USM_OK;
}

static usm_status publish(usm__journal *j)
{
    usm__os_stat st;
    int          rc = j->is_nameless ? usm__os_link_fd(j->fd, j->names.journal)
                                     : usm__os_rename(j->names.fresh, j->names.journal);

    if (rc != 0) {
        usm_status status = usm__journal_fail(j->names.journal, "the journal cannot be renamed");

        /* On a network file system the link may have been made although the answer was lost. */
        if (usm__os_stat_path(j->names.journal, &st) == 0 || errno != ENOENT)
            j->left = LEFT_UNTOUCHED;
        return status;
    }
    j->left = LEFT_UNTOUCHED;
    if (usm__os_fsync_dir(j->names.folder) != 0)
        return usm__journal_fail(j->names.folder, "the folder cannot be synced");
    return USM_OK;
}

/* If the name cannot be removed, the journal itself is marked as done: it must never be replayed
 * over later writes of other programs. */
static usm_status retire(usm__journal *j)
{
    usm_status status = usm__journal_remove(&j->names);

    if (status == USM_OK) {
        j->left = LEFT_NOTHING;
        return USM_OK;
    }
    return usm__journal_mark(j->fd, &j->header) == 0 ? USM_OK : status;
}

static void close_round(usm__journal *j)
{
    if (j->fd >= 0) {
        (void)usm__os_close(j->fd);
        if (!j->is_nameless && j->left == LEFT_NOTHING)
            (void)usm__os_file_unlink(j->names.fresh);
    }
    j->fd = -1;
    usm__heap_free(j->table);
    usm__heap_free(j->room);
    j->table = NULL;
    j->room  = NULL;
}

static usm_status bring_home(usm__journal *j)
{
    usm__journal_round round = {&j->names, j->fd, j->params.home, j->n, j->table, j->room};

    j->left = LEFT_APPLIED;
    return usm__journal_bring_home(&round);
}

static usm_status run_round(usm__journal *j, const usm__dirty_blocks *dirty)
{
    usm_status status;

    j->table = usm__heap_alloc(j->n * sizeof(*j->table));
    j->room  = usm__heap_alloc(j->params.block_size);
    status   = j->table != NULL && j->room != NULL
                   ? write_round(j, dirty)
                   : usm__fail(USM_E_NO_MEMORY, "no memory for a journal of %zu blocks", j->n);
    if (status == USM_OK)
        status = reserve(j);
    if (status == USM_OK)
        status = publish(j);
    if (status == USM_OK)
        status = bring_home(j);
    if (status == USM_OK)
        status = retire(j);
    close_round(j);
    return status;
}

/* --- commit ---------------------------------------------------------------------- */

usm_status usm__journal_open(const usm__journal_params *params, usm__journal **journal)
{
    usm__journal *j = usm__heap_alloc(sizeof(*j));
    usm_status    status;

    if (j == NULL)
        return usm__fail(USM_E_NO_MEMORY, "no memory for the journal of %s", params->path);
    j->params = *params;
    j->fd     = -1;
    if (j->params.round == 0)
        j->params.round = USM__JOURNAL_ROUND;
    status = usm__journal_name(params->path, &j->names);
    if (status != USM_OK)
        goto err_journal;
    j->params.path = j->names.home;
    /* The file of a process that was killed is worth nothing. */
    (void)usm__os_file_unlink(j->names.fresh);
    *journal = j;
    return USM_OK;

err_journal:
    usm__heap_free(j);
    return status;
}

void usm__journal_close(usm__journal *journal)
{
    usm__heap_free(journal);
}

/* Completes a round that was cut off before another begins: the next round may have other
 * blocks. */
static usm_status finish(usm__journal *j)
{
    bool       is_replayed;
    usm_status status = USM_OK;

    if (j->left == LEFT_UNTOUCHED)
        status = usm__journal_remove(&j->names);
    else if (j->left == LEFT_APPLIED)
        status = usm__journal_replay(j->names.home, &is_replayed);
    if (status == USM_OK)
        j->left = LEFT_NOTHING;
    return status;
}

usm_status usm__journal_commit(usm__journal *j, const usm__dirty_blocks *dirty)
{
    size_t     most   = j->params.round / j->params.block_size;
    usm_status status = finish(j);

    if (most == 0)
        most = 1;
    for (j->first = 0; status == USM_OK && j->first < dirty->n; j->first += j->n) {
        j->n   = dirty->n - j->first < most ? dirty->n - j->first : most;
        status = run_round(j, dirty);
    }
    return status;
}
