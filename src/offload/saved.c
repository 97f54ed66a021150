/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Heads, records and leftovers of files from which work is resumed; see saved.h.
 *
 * A head tells by two things that it is one: its first characters and its checksum, which does not
 * cover these.  If one of the two is wrong, the head is damaged.  If both are wrong, the file is
 * another version's, or none of ours. */
#include "offload/saved.h"

#include "base/inline/bits.h"
#include "base/inline/bytes.h"
#include "spill/tier_sum.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

/* The number behind the kind is raised with each change of the format. */
static const char magics[][USM__SAVED_MAGIC + 1] = {
    [USM__SAVED_LAUNCH] = "USMRUN2\n",
    [USM__SAVED_STATES] = "USMSTA2\n",
    [USM__SAVED_GRAPH]  = "USMGRA2\n",
};

/* What the files of other versions begin with. */
static const char *const families[] = {"USMRUN", "USMSTA", "USMGRA", "usmgraph"};

static uint64_t sum_of(const void *data, size_t size)
{
    return usm__xxh3(data, size, 0);
}

/* ---- heads --------------------------------------------------------------------------------- */

void usm__saved_head_begin(usm__saved_head *h, usm__saved_kind kind)
{
    h->size = 0;
    usm__saved_head_add(h, magics[kind], USM__SAVED_MAGIC);
}

void usm__saved_head_add(usm__saved_head *h, const void *bytes, size_t size)
{
    memcpy(h->bytes + h->size, bytes, size);
    h->size += size;
}

void usm__saved_head_number(usm__saved_head *h, uint64_t number)
{
    usm_put_le(h->bytes + h->size, number, 8);
    h->size += 8;
}

void usm__saved_head_hash(usm__saved_head *h, const usm__hash *hash)
{
    usm__saved_head_number(h, hash->hi);
    usm__saved_head_number(h, hash->lo);
}

void usm__saved_head_end(usm__saved_head *h)
{
    usm__saved_head_number(h, sum_of(h->bytes + USM__SAVED_MAGIC, h->size - USM__SAVED_MAGIC));
}

static bool has_sum(const unsigned char *bytes, size_t size)
{
    return usm_get_le(bytes + size - 8, 8) ==
           sum_of(bytes + USM__SAVED_MAGIC, size - 8 - USM__SAVED_MAGIC);
}

usm__saved_found usm__saved_look(const usm__saved_head *wanted, const void *bytes, size_t size)
{
    bool is_named = memcmp(bytes, wanted->bytes, usm_min_size(size, USM__SAVED_MAGIC)) == 0;
    bool is_whole = size >= wanted->size && has_sum(bytes, wanted->size);

    if (is_named && size < wanted->size)
        return USM__SAVED_CUT;
    if (is_named || is_whole)
        return is_named && is_whole ? USM__SAVED_WHOLE : USM__SAVED_DAMAGED;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (size >= USM__SAVED_MAGIC && memcmp(bytes, families[i], strlen(families[i])) == 0)
            return USM__SAVED_OTHER;
    return USM__SAVED_FOREIGN;
}

/* ---- records ------------------------------------------------------------------------------- */

static uint64_t sum_of_record(const unsigned char *record, const void *payload, size_t size)
{
    return usm__xxh3(payload, size, sum_of(record, USM__RECORD_SIZE - 8));
}

void usm__saved_seal(unsigned char *at, uint64_t a, uint64_t b, size_t size)
{
    usm_put_le(at, a, 8);
    usm_put_le(at + 8, b, 8);
    usm_put_le(at + 16, size, 8);
    usm_put_le(at + 24, sum_of_record(at, at + USM__RECORD_SIZE, size), 8);
}

usm__saved_record usm__saved_record_at(const unsigned char *at)
{
    return (usm__saved_record){usm_get_le(at, 8), usm_get_le(at + 8, 8), usm_get_le(at + 16, 8)};
}

bool usm__saved_is_whole(const unsigned char *record, const void *payload)
{
    return usm_get_le(record + 24, 8) ==
           sum_of_record(record, payload, usm__saved_record_at(record).size);
}

/* ---- folders ------------------------------------------------------------------------------- */

bool usm__saved_is_aside(const char *ending)
{
    static const char characters[] =
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

    return strlen(ending) == 7 && ending[0] == '.' && strspn(ending + 1, characters) == 6;
}

void usm__saved_sweep(const char *folder, usm__saved_fn *fn, const void *arg)
{
    DIR           *dir = opendir(folder);
    struct dirent *e;

    while (dir && (e = readdir(dir)) != NULL) /* NOLINT(concurrency-mt-unsafe): this call's */
        if (fn(e->d_name, arg))
            (void)unlinkat(dirfd(dir), e->d_name, 0);
    if (dir)
        (void)closedir(dir);
}
