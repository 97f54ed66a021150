/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What writing (journal.c) and reading (journal_replay.c) of a journal share: names, sentences, and
 * how a round comes home.  Nobody else includes it. */
#ifndef USM_SPILL_JOURNAL_PRIVATE_H
#define USM_SPILL_JOURNAL_PRIVATE_H

#include "spill/journal.h"
#include "spill/journal_format.h"

#include <limits.h>

typedef struct usm__journal_names {
    char home[PATH_MAX];
    char journal[PATH_MAX + 32];
    char fresh[PATH_MAX + 32]; /* where O_TMPFILE is refused: the journal before it counts   */
    char folder[PATH_MAX];
} usm__journal_names;

/*   USM_E_IO  the path is too long */
usm_status usm__journal_name(const char *path, usm__journal_names *names);
/* "PATH: what: the system's words", by errno: a full disk is USM_E_SPILL_FULL, else USM_E_IO. */
usm_status usm__journal_fail(const char *path, const char *what);
/* The name goes, and stays gone. */
usm_status usm__journal_remove(const usm__journal_names *names);

/* A journal whose header and table are to be believed. */
typedef struct usm__journal_round {
    const usm__journal_names *names;
    int                       fd;   /* of the journal                                        */
    int                       home; /* open for writing; -1: not yet                         */
    uint64_t                  n;
    const usm__journal_entry *table;
    void                     *room; /* for the largest block                                  */
} usm__journal_round;

/* Reads every block and looks whether it is what the table says.   USM_E_FORMAT, USM_E_IO */
usm_status usm__journal_check_blocks(const usm__journal_round *round);
/* The same, and writes each into the home; then syncs it. */
usm_status usm__journal_bring_home(const usm__journal_round *round);
/* USM_E_FORMAT, with what the user can do.  `flaw` ends a sentence. */
usm_status usm__journal_refuse(const usm__journal_names *names, const char *flaw);

#endif
