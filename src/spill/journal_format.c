/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checksums of a journal's parts, and the checks that find an invalid journal: see
 * spill/journal_format.h. */
#include "spill/journal_format.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define BYTE_ORDER_MARK 0x01020304u

static const char magic[8] = {'U', 'S', 'M', 'J', 'R', 'N', 'L', '\n'};

_Static_assert(sizeof(usm__journal_header) <= 512, "no crash damages a header like this");

usm__journal_sum usm__journal_sum_of(const void *data, size_t size, uint64_t seed)
{
    XXH128_hash_t hash = XXH3_128bits_withSeed(data, size, seed);

    return (usm__journal_sum){hash.low64, hash.high64};
}

static bool is_equal(usm__journal_sum a, usm__journal_sum b)
{
    return a.low == b.low && a.high == b.high;
}

static uint64_t sum_of_header(const usm__journal_header *header)
{
    return XXH3_64bits(header, offsetof(usm__journal_header, sum));
}

static usm__journal_sum sum_of_table(const usm__journal_entry *table, uint64_t n)
{
    return usm__journal_sum_of(table, (size_t)n * sizeof(*table), n);
}

void usm__journal_seal(usm__journal_header *header, const usm__journal_entry *table)
{
    memcpy(header->magic, magic, sizeof(magic));
    header->version    = USM__JOURNAL_VERSION;
    header->byte_order = BYTE_ORDER_MARK;
    header->table      = sum_of_table(table, header->n);
    header->sum        = sum_of_header(header);
}

int usm__journal_mark(int fd, usm__journal_header *header)
{
    header->state = USM__JOURNAL_DONE;
    header->sum   = sum_of_header(header);
    if (usm__os_pwrite(fd, header, sizeof(*header), 0) != 0)
        return -1;
    return usm__os_fsync(fd);
}

/* Whether n is so small that the table fits into the file, and no product overflows. */
static bool is_sane(const usm__journal_header *header, uint64_t file_size)
{
    return header->size <= file_size && header->n > 0 &&
           header->n <= file_size / sizeof(usm__journal_entry) &&
           usm__journal_data_at(header->n) <= header->size;
}

const char *usm__journal_header_flaw(const usm__journal_header *header, uint64_t file_size)
{
    if (memcmp(header->magic, magic, sizeof(magic)) != 0)
        return "it does not begin as a journal";
    if (header->byte_order != BYTE_ORDER_MARK)
        return "it was written by a machine of another byte order";
    if (header->version != USM__JOURNAL_VERSION)
        return "it was written by another version of libusm";
    if (header->sum != sum_of_header(header))
        return "the checksum of its header is wrong";
    if (header->state != USM__JOURNAL_COMMITTED && header->state != USM__JOURNAL_DONE)
        return "its header has an unknown state";
    return is_sane(header, file_size) ? NULL : "it is shorter than its header says";
}

const char *usm__journal_table_flaw(const usm__journal_header *header,
                                    const usm__journal_entry  *table)
{
    uint64_t at = usm__journal_data_at(header->n);

    if (!is_equal(header->table, sum_of_table(table, header->n)))
        return "the checksum of its table is wrong";
    for (uint64_t i = 0; i < header->n; i++) {
        uint64_t size = table[i].size, end;

        if (size == 0 || size > header->size - at ||
            __builtin_add_overflow(table[i].offset, size, &end) || end > header->home_size)
            return "an entry of its table is out of range";
        at += usm__journal_round_up(size);
        if (at > header->size)
            return "an entry of its table is out of range";
    }
    return NULL;
}

bool usm__journal_sum_is(const usm__journal_entry *entry, const void *data)
{
    return is_equal(entry->sum, usm__journal_sum_of(data, (size_t)entry->size, entry->offset));
}
