/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The redo journal beside a home file: how many blocks of a file change as one, whenever the
 * machine or the program stops.
 *
 *     home       /data/field.raw
 *     journal    /data/field.raw.usm-journal        only while a commit is under way, or was cut
 * off
 *
 * A round of a commit:
 *
 *     1  a file without a name in the same folder gets the new bytes, then a table of them with
 *        checksums and the home's identity; fsync          (no O_TMPFILE:
 * field.raw.usm-journal.new) 2  room for the bytes is reserved in the home, where it has holes 3
 * the file gets its name; fsync of the folder       <- here the round happens 4  the bytes are
 * written in place, from the journal; the home is synced 5  the name is removed; fsync of the
 * folder
 *
 * A file gets its name in one step, so a journal that can be found is a whole one: there is no
 * state of it that a crash explains and a checksum has to guess at.  What was cut off before step 3
 * has changed nothing; after it, opening the home repeats step 4 from the journal (as often as need
 * be: the bytes are the same) and does step 5.  Nobody reads the home before that.
 *
 * What is promised.  A round is at most USM__JOURNAL_ROUND bytes.  A commit of one round is all or
 * nothing; a larger one is a sequence of rounds, each of them all or nothing, so after a crash each
 * block is old or new, and never torn.  A failure before step 3 leaves the home untouched; after it
 * the journal stays and the next commit, or the next opening, first brings the round to its end.  A
 * sync that failed is not tried again on the same pages: step 1 is repeated with a new file, step 4
 * writes again.
 *
 * What is not.  The journal is found by the home's name: who renames a file after a crash has to
 * take the journal with it.  A copy of both is another file, and refused (the identity is inode and
 * time of birth): replay first, then copy.  A disk that says "synced" and is not is believed.
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
    const char *path;   /* of the home, without symbolic links                               */
    uint64_t    offset; /* of block 0 in it                                                  */
    size_t      block_size;
    size_t      size;  /* bytes from the offset on; the last block is cut short by it         */
    size_t      round; /* bytes of blocks; 0: USM__JOURNAL_ROUND                              */
    int         home;  /* a descriptor of the home, open for writing as long as the journal is */
} usm__journal_params;

/* Brings a commit that was cut off to its end, before the file is made longer.  *is_replayed: there
 * was one.
 *   USM_E_FORMAT     the journal is damaged, or another file's
 *   USM_E_READ_ONLY  there is one, and we may not write;   USM_E_IO, USM_E_NO_MEMORY */
usm_status usm__journal_replay(const char *path, bool *is_replayed);

/* Of a home that is written. */
usm_status usm__journal_open(const usm__journal_params *params, usm__journal **journal);
/* A round that was cut off stays for the next opening. */
void usm__journal_close(usm__journal *journal);
/* Each block is looked at once, and as it is then; one at a time is held.
 *   USM_E_SPILL_FULL  no room for the journal, or in the home: the home is untouched
 *   USM_E_IO, USM_E_NO_MEMORY, and as usm__journal_replay() for what an earlier one left */
usm_status usm__journal_commit(usm__journal *journal, const usm__dirty_blocks *dirty);

#endif
