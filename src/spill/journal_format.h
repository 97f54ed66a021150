/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The content of a journal.  All numbers are in the byte order of the machine; a journal of another
 * byte order is refused.  Every part begins at a multiple of 4 KiB:
 *
 *     header | table: one entry for each block | the blocks' new bytes, in the table's order
 *
 * journal.c writes it, journal_replay.c reads it. */
#ifndef USM_SPILL_JOURNAL_FORMAT_H
#define USM_SPILL_JOURNAL_FORMAT_H

#include "base/os_file.h"

#define USM__JOURNAL_PAGE    ((uint64_t)4096)
#define USM__JOURNAL_VERSION 1u

typedef struct usm__journal_sum {
    uint64_t low, high; /* XXH3, 128 bits                                                    */
} usm__journal_sum;

typedef struct usm__journal_entry {
    uint64_t         offset; /* in the backing file                                          */
    uint64_t         size;   /* bytes > 0                                                    */
    usm__journal_sum sum;    /* over the bytes and the offset                                */
} usm__journal_entry;

typedef enum usm__journal_state {
    USM__JOURNAL_COMMITTED = 1, /* to be replayed                                            */
    USM__JOURNAL_DONE      = 2  /* the backing file has the bytes; only the name remains     */
} usm__journal_state;

/* Fits into one 512-byte sector, which the disk writes completely or not at all. */
typedef struct usm__journal_header {
    char     magic[8];
    uint32_t version;
    uint32_t byte_order; /* 0x01020304                                                       */
    uint32_t state;      /* usm__journal_state                                               */
    uint32_t reserved;
    uint64_t inode, birth_ns; /* of the backing file                                             */
    uint64_t home_size;       /* the least length of the backing file                            */
    uint64_t sequence;        /* counts the rounds of one opening, for people who read a journal */
    uint64_t n;               /* entries                                                         */
    uint64_t size;            /* of the journal                                                  */
    usm__journal_sum table;   /* over the entries                                                */
    uint64_t         sum;     /* XXH3, 64 bits, over all fields before it                        */
} usm__journal_header;

static inline uint64_t usm__journal_round_up(uint64_t size)
{
    return (size + USM__JOURNAL_PAGE - 1) / USM__JOURNAL_PAGE * USM__JOURNAL_PAGE;
}

/* Offset of the first block in the journal. */
static inline uint64_t usm__journal_data_at(uint64_t n)
{
    return USM__JOURNAL_PAGE + usm__journal_round_up(n * sizeof(usm__journal_entry));
}

/* The checksum of a block's bytes, seeded with their offset in the backing file. */
usm__journal_sum usm__journal_sum_of(const void *data, size_t size, uint64_t seed);
/* Fills in the magic number, version, byte order, the table's checksum and the header's own. */
void usm__journal_seal(usm__journal_header *header, const usm__journal_entry *table);
/* Marks the journal as done and syncs it; returns 0, or -1 with errno. */
int usm__journal_mark(int fd, usm__journal_header *header);
/* NULL if the header is valid, else its flaw, as the end of a sentence. */
const char *usm__journal_header_flaw(const usm__journal_header *header, uint64_t file_size);
const char *usm__journal_table_flaw(const usm__journal_header *header,
                                    const usm__journal_entry  *table);
bool        usm__journal_sum_is(const usm__journal_entry *entry, const void *data);

#endif
