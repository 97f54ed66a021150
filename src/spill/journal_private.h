/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the writer (journal.c) and the reader (journal_replay.c) of a journal: names, messages,
 * and how a round is written to the backing file.  No other file includes it. */
#ifndef USM_SPILL_JOURNAL_PRIVATE_H
#define USM_SPILL_JOURNAL_PRIVATE_H

#include "spill/journal.h"
#include "spill/journal_format.h"

#include <limits.h>

typedef struct usm__journal_names {
    char home[PATH_MAX];
    char journal[PATH_MAX + 32];
    char fresh[PATH_MAX + 32]; /* the journal until it counts, where O_TMPFILE is refused    */
    char folder[PATH_MAX];
} usm__journal_names;

/* USM_E_IO  the path is too long */
usm_status usm__journal_name(const char *path, usm__journal_names *names);
/* Fails with "PATH: what: the system's message", by errno: a full disk is USM_E_SPILL_FULL, other
 * errors are USM_E_IO. */
usm_status usm__journal_fail(const char *path, const char *what);
/* Removes the journal's name, durably. */
usm_status usm__journal_remove(const usm__journal_names *names);

/* A journal whose header and table are valid. */
typedef struct usm__journal_round {
    const usm__journal_names *names;
    int                       fd;   /* of the journal                                        */
    int                       home; /* the backing file, open for writing; -1: not yet       */
    uint64_t                  n;
    const usm__journal_entry *table;
    void                     *room; /* a buffer for the largest block                         */
} usm__journal_round;

/* Reads every block and compares it with the table.  USM_E_FORMAT, USM_E_IO */
usm_status usm__journal_check_blocks(const usm__journal_round *round);
/* The same, and writes each block to the backing file, which it then syncs. */
usm_status usm__journal_bring_home(const usm__journal_round *round);
/* Fails with USM_E_FORMAT and a message that tells the user what to do.  `flaw` ends a sentence. */
usm_status usm__journal_refuse(const usm__journal_names *names, const char *flaw);

#endif
