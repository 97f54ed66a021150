/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The functions of spill/journal_private.h. */
#include "spill/journal_private.h"

#include "base/os_storage.h"
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

usm_status usm__journal_name(const char *path, usm__journal_names *names)
{
    size_t      n     = strlen(path);
    const char *slash = strrchr(path, '/');
    size_t      dir   = slash == NULL || slash == path ? 1 : (size_t)(slash - path);

    if (n >= sizeof(names->home))
        return usm__fail(USM_E_IO, "the path %.80s... is longer than %zu bytes", path,
                         sizeof(names->home) - 1);
    memcpy(names->home, path, n + 1);
    (void)snprintf(names->journal, sizeof(names->journal), "%s%s", path, USM__JOURNAL_SUFFIX);
    (void)snprintf(names->fresh, sizeof(names->fresh), "%s%s.new", path, USM__JOURNAL_SUFFIX);
    memcpy(names->folder, slash == NULL ? "." : path, dir);
    names->folder[dir] = '\0';
    return USM_OK;
}

usm_status usm__journal_fail(const char *path, const char *what)
{
    char       why[128];
    int        error  = errno;
    bool       full   = error == ENOSPC || error == EDQUOT;
    usm_status status = full ? USM_E_SPILL_FULL : USM_E_IO;

    usm__note(status, "%s: %s: %s%s", path, what, strerror_r(error, why, sizeof(why)),
              full ? "; the buffer keeps what was not committed: make room and commit again" : "");
    return status;
}

usm_status usm__journal_remove(const usm__journal_names *names)
{
    if (usm__os_file_unlink(names->journal) != 0 && errno != ENOENT)
        return usm__journal_fail(names->journal, "the journal cannot be removed");
    if (usm__os_fsync_dir(names->folder) != 0)
        return usm__journal_fail(names->folder, "the folder cannot be synced");
    return USM_OK;
}

usm_status usm__journal_refuse(const usm__journal_names *names, const char *flaw)
{
    return usm__fail(USM_E_FORMAT,
                     "%s cannot be used: %s; an interrupted commit may have left %s half done: "
                     "restore both from a copy, or remove the journal to take the file as it is",
                     names->journal, flaw, names->home);
}

/* --- writing a round to the backing file ----------------------------------------- */

static usm_status read_block(const usm__journal_round *r, const usm__journal_entry *entry,
                             uint64_t at)
{
    ssize_t got = usm__os_pread(r->fd, r->room, (size_t)entry->size, at);

    if (got < 0)
        return usm__journal_fail(r->names->journal, "the journal cannot be read");
    if ((uint64_t)got != entry->size)
        return usm__journal_refuse(r->names, "it is cut short");
    if (!usm__journal_sum_is(entry, r->room))
        return usm__journal_refuse(r->names, "the checksum of a block in it is wrong");
    return USM_OK;
}

static usm_status write_block(const usm__journal_round *r, const usm__journal_entry *entry)
{
    if (usm__os_pwrite(r->home, r->room, (size_t)entry->size, entry->offset) != 0)
        return usm__journal_fail(r->names->home, "a commit cannot be written in place");
    usm__os_file_drop_cache(r->home, entry->offset, entry->size); /* the disk begins to write now */
    return USM_OK;
}

static usm_status pass(const usm__journal_round *r, bool writes)
{
    uint64_t at = usm__journal_data_at(r->n);

    for (uint64_t i = 0; i < r->n; i++) {
        const usm__journal_entry *entry  = &r->table[i];
        usm_status                status = read_block(r, entry, at);

        if (status != USM_OK)
            return status;
        if (writes)
            status = write_block(r, entry);
        if (status != USM_OK)
            return status;
        at += usm__journal_round_up(entry->size);
    }
    return USM_OK;
}

usm_status usm__journal_check_blocks(const usm__journal_round *round)
{
    return pass(round, false);
}

/* Drops the system's cached copy of the written bytes: the engine has one in memory, which the
 * user's limit counts. */
static void drop_cache(const usm__journal_round *r)
{
    for (uint64_t i = 0; i < r->n;) {
        uint64_t start = r->table[i].offset, end = start;

        while (i < r->n && r->table[i].offset == end)
            end += r->table[i++].size;
        usm__os_file_drop_cache(r->home, start, end - start);
    }
}

usm_status usm__journal_bring_home(const usm__journal_round *round)
{
    usm_status status = pass(round, true);

    if (status != USM_OK)
        return status;
    if (usm__os_fsync(round->home) != 0)
        return usm__journal_fail(round->names->home, "a commit cannot be synced in place");
    drop_cache(round);
    return USM_OK;
}
