/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The reading side of the journal: completes a commit that was cut off.
 *
 * Everything is read and checked before the first byte is written, and each block once more when it
 * is written: a damaged journal changes nothing.  The journal may be in a folder where anybody can
 * create files, so its owner must be this user, the owner of the backing file, or root.  See
 * spill/journal.h. */
#include "spill/journal.h"

#include "base/inline/plural.h"
#include "base/log.h"
#include "base/os.h"
#include "base/status.h"
#include "spill/journal_private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

typedef struct replay {
    usm__journal_names  names;
    int                 fd, home;
    bool                may_mark; /* fd is open for writing                                  */
    usm__os_stat        journal_stat, home_stat;
    usm__journal_header header;
    usm__journal_entry *table;
    void               *block; /* buffer for the largest block                               */
} replay;

static usm_status refuse(const replay *r, const char *flaw)
{
    return usm__journal_refuse(&r->names, flaw);
}

static usm_status refuse_read_only(const replay *r, const char *path)
{
    char why[128];

    return usm__fail(USM_E_READ_ONLY,
                     "a commit of %s was interrupted and must be completed before the file is read "
                     "(its journal is beside it, *%s), but %s cannot be written "
                     "(%s): open it once as a user who may write both",
                     r->names.home, USM__JOURNAL_SUFFIX, path, strerror_r(errno, why, sizeof(why)));
}

/* --- finding the journal ---------------------------------------------------------- */

/* fd -1 with USM_OK: there is no journal. */
static usm_status open_journal(replay *r)
{
    r->may_mark = true;
    r->fd       = usm__os_open(r->names.journal, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
    if (r->fd < 0 && (errno == EACCES || errno == EROFS)) {
        r->may_mark = false;
        r->fd       = usm__os_open(r->names.journal, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    }
    if (r->fd < 0)
        return errno == ENOENT ? USM_OK
                               : usm__journal_fail(r->names.journal, "the journal cannot be read");
    if (usm__os_stat_fd(r->fd, &r->journal_stat) != 0)
        return usm__journal_fail(r->names.journal, "the journal cannot be read");
    return USM_OK;
}

static usm_status read_at(replay *r, void *data, size_t size, uint64_t offset)
{
    ssize_t got = usm__os_pread(r->fd, data, size, offset);

    if (got < 0)
        return usm__journal_fail(r->names.journal, "the journal cannot be read");
    return (size_t)got == size ? USM_OK : refuse(r, "it is cut short");
}

static usm_status check_owner(const replay *r)
{
    uint32_t owner = r->journal_stat.uid;

    if (!r->journal_stat.is_regular)
        return refuse(r, "it is not a regular file");
    if (owner != 0 && owner != geteuid() && owner != r->home_stat.uid)
        return refuse(r, "it belongs to neither this user nor the file's owner");
    return USM_OK;
}

static usm_status check_identity(const replay *r)
{
    const usm__journal_header *h = &r->header;

    if (h->inode != r->home_stat.inode ||
        (h->birth_ns != 0 && r->home_stat.birth_ns != 0 && h->birth_ns != r->home_stat.birth_ns))
        return refuse(r, "it was written for another file of that name");
    if (h->home_size > r->home_stat.size)
        return refuse(r, "the file has become shorter since");
    return USM_OK;
}

static usm_status read_header(replay *r)
{
    const char *flaw;
    usm_status  status = check_owner(r);

    if (status == USM_OK)
        status = read_at(r, &r->header, sizeof(r->header), 0);
    if (status != USM_OK)
        return status;
    flaw = usm__journal_header_flaw(&r->header, r->journal_stat.size);
    return flaw == NULL ? check_identity(r) : refuse(r, flaw);
}

static usm_status read_table(replay *r)
{
    size_t      size = (size_t)r->header.n * sizeof(*r->table), largest = 0;
    const char *flaw;
    usm_status  status;

    r->table = usm__heap_alloc(size);
    if (r->table == NULL)
        return usm__fail(USM_E_NO_MEMORY, "no memory to replay %s", r->names.journal);
    status = read_at(r, r->table, size, USM__JOURNAL_PAGE);
    if (status != USM_OK)
        return status;
    flaw = usm__journal_table_flaw(&r->header, r->table);
    if (flaw != NULL)
        return refuse(r, flaw);
    for (uint64_t i = 0; i < r->header.n; i++)
        if (r->table[i].size > largest)
            largest = (size_t)r->table[i].size;
    r->block = usm__heap_alloc(largest);
    if (r->block == NULL)
        return usm__fail(USM_E_NO_MEMORY, "no memory to replay %s", r->names.journal);
    return USM_OK;
}

/* --- completing the round --------------------------------------------------------- */

static usm_status apply(replay *r)
{
    usm__journal_round round = {&r->names, r->fd, -1, r->header.n, r->table, r->block};
    usm_status         status;

    status = usm__journal_check_blocks(&round);
    if (status != USM_OK)
        return status;
    if (!r->may_mark && !usm__os_may_write(r->names.folder))
        return refuse_read_only(r, r->names.folder);
    r->home = usm__os_open(r->names.home, O_RDWR, 0);
    if (r->home < 0 && (errno == EACCES || errno == EPERM || errno == EROFS))
        return refuse_read_only(r, r->names.home);
    if (r->home < 0)
        return usm__journal_fail(r->names.home, "the file cannot be opened for writing");
    /* The name may exist in the system's memory only: it must be durable before the backing file is
     * written. */
    if (usm__os_fsync_dir(r->names.folder) != 0)
        return usm__journal_fail(r->names.folder, "the folder cannot be synced");
    round.home = r->home;
    return usm__journal_bring_home(&round);
}

/* If the name cannot be removed, the journal itself is marked as done. */
static usm_status settle(replay *r)
{
    usm_status status = usm__journal_remove(&r->names);

    if (status == USM_OK || r->header.state == USM__JOURNAL_DONE)
        return USM_OK;
    return r->may_mark && usm__journal_mark(r->fd, &r->header) == 0 ? USM_OK : status;
}

static usm_status run(replay *r, bool *is_replayed)
{
    usm_status status = open_journal(r);

    if (status != USM_OK || r->fd < 0)
        return status;
    if (usm__os_stat_path(r->names.home, &r->home_stat) != 0)
        return usm__journal_fail(r->names.home, "the file cannot be inspected");
    status = read_header(r);
    if (status == USM_OK)
        status = read_table(r);
    if (status == USM_OK && r->header.state == USM__JOURNAL_COMMITTED) {
        status       = apply(r);
        *is_replayed = status == USM_OK;
    }
    return status == USM_OK ? settle(r) : status;
}

static replay *new_replay(const char *path)
{
    replay *r = usm__heap_alloc(sizeof(*r));

    if (r == NULL) {
        usm__note(USM_E_NO_MEMORY, "no memory to look for the journal of %s", path);
        return NULL;
    }
    r->fd = r->home = -1;
    return r;
}

static void free_replay(replay *r)
{
    if (r->fd >= 0)
        (void)usm__os_close(r->fd);
    if (r->home >= 0)
        (void)usm__os_close(r->home);
    usm__heap_free(r->table);
    usm__heap_free(r->block);
    usm__heap_free(r);
}

usm_status usm__journal_replay(const char *path, bool *is_replayed)
{
    replay    *r            = new_replay(path);
    bool       was_replayed = false;
    usm_status status;

    if (r == NULL)
        return USM_E_NO_MEMORY;
    status = usm__journal_name(path, &r->names);
    if (status == USM_OK)
        status = run(r, &was_replayed);
    if (status == USM_OK) {
        *is_replayed = was_replayed;
        if (was_replayed)
            usm__info("%s: an interrupted commit of %llu %s was completed", path,
                      (unsigned long long)r->header.n, usm__plural(r->header.n, "block", "blocks"));
    }
    free_replay(r);
    return status;
}
