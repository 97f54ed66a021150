/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The redo journal beside a backing file: with it many blocks of a file change as one, whenever the
 * machine or the program stops.
 *
 *     backing file  /data/field.raw
 *     journal       /data/field.raw.usm-journal   only while a commit is under way, or was cut off
 *
 * The rounds of a commit:
 *
 *     1  the new bytes, and a table of them with checksums and the identity of the backing file,
 *        are written to a file without a name in the same folder; fsync
 *                                           (no O_TMPFILE: field.raw.usm-journal.new)
 *     2  where the backing file has holes, room for the bytes is reserved in it
 *     3  the journal file gets its name; fsync of the folder       <- from here on the round counts
 *     4  the bytes are written from the journal to their place in the backing file; it is synced
 *     5  the journal's name is removed; fsync of the folder
 *
 * A file gets its name in one step, so a journal that can be found is complete: no crash leaves a
 * partial journal that a checksum would have to recognise.  A round that was cut off before step 3
 * has changed nothing.  After step 3, the next opening of the backing file repeats step 4 from the
 * journal (as often as needed: the bytes are the same) and does step 5.  Nothing reads the backing
 * file before that.
 *
 * Guarantees.  A round is at most USM__JOURNAL_ROUND bytes.  A commit of one round is all or
 * nothing.  A larger commit is a sequence of rounds, each of them all or nothing, so after a crash
 * each block is old or new, and never torn.  A failure before step 3 leaves the backing file
 * untouched.  After a failure behind step 3 the journal stays, and the next commit or the next
 * opening first completes the round.  A sync that failed is not tried again on the same pages: step
 * 1 is repeated with a new file, step 4 writes again.
 *
 * Limits.  The journal is found by the name of the backing file: a user who renames the file after
 * a crash must rename the journal too.  A copy of both files is refused, because the journal names
 * the original (by inode and time of birth): replay first, then copy.  A disk that reports a sync
 * that did not happen is believed.
 *
 * Called by home_file.c, which excludes other writers (the transport's lock) and concurrent
 * commits. */
#ifndef USM_SPILL_JOURNAL_H
#define USM_SPILL_JOURNAL_H

#include "spill/home.h"

#define USM__JOURNAL_SUFFIX ".usm-journal"
#define USM__JOURNAL_ROUND  ((size_t)1 << 30)

typedef struct usm__journal usm__journal;

typedef struct usm__journal_params {
    const char *path;   /* of the backing file, without symbolic links                       */
    uint64_t    offset; /* of block 0 in it                                                  */
    size_t      block_size;
    size_t      size;  /* bytes from the offset on; the last block ends there                    */
    size_t      round; /* most bytes of blocks in a round; 0: USM__JOURNAL_ROUND                 */
    int         home;  /* descriptor of the backing file, open for writing; outlives the journal */
} usm__journal_params;

/* Completes a commit that was cut off, before the file is made longer.  *is_replayed: there was
 * one.
 *
 *     USM_E_FORMAT     the journal is damaged, or belongs to another file
 *     USM_E_READ_ONLY  there is a journal, and the file cannot be written
 *     USM_E_IO, USM_E_NO_MEMORY */
usm_status usm__journal_replay(const char *path, bool *is_replayed);

/* For a backing file that is written. */
usm_status usm__journal_open(const usm__journal_params *params, usm__journal **journal);
/* A round that was cut off is completed by the next opening. */
void usm__journal_close(usm__journal *journal);
/* Reads each block once, one at a time, and writes the content that it has then.
 *
 *     USM_E_SPILL_FULL  no room for the journal, or in the backing file, which is untouched
 *     USM_E_IO, USM_E_NO_MEMORY, and as usm__journal_replay() for an earlier round */
usm_status usm__journal_commit(usm__journal *journal, const usm__dirty_blocks *dirty);

#endif
