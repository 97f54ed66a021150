/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* src/spill/records.c and the memory that frames have beyond their own: what an engine keeps about
 * buffers counts against the limit, and the kernel adds nothing to the arena.  Every case has an
 * engine of its own: a context's. */
#include "buffer/buffer.h"
#include "fake_transport.h"
#include "plain.h"
#include "spill/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

typedef struct fixture {
    usm_context *ctx;
    usm__spill  *spill;
} fixture;

static fixture fixture_of(size_t limit)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    fixture          f    = {0};

    fake_reset();
    CHECK_INT(usm_config_set("spill", "fake_a:"), USM_OK);
    desc.host_limit = limit;
    CHECK_INT(usm_context_create(&desc, &f.ctx), USM_OK);
    CHECK_INT(usm__spill_of(f.ctx, &f.spill), USM_OK);
    return f;
}

static void end(fixture *f)
{
    usm_context_destroy(f->ctx);
}

static usm__space *space_of(const fixture *f, size_t size)
{
    const usm__space_params params = {.size = size, .name = "data", .ctx = f->ctx};
    usm__space             *space  = NULL;

    CHECK_INT(usm__space_create(f->spill, &params, &space), USM_OK);
    return space;
}

static usm_status pin(usm__space *space, uint32_t block)
{
    const usm__pin p = {space, (size_t)block << space->shift, 8, USM_WRITE};

    return usm__spill_pin(space->spill, 1, &p);
}

static void unpin(usm__space *space, uint32_t block)
{
    usm__space_unpin(space, (size_t)block << space->shift, 8, USM_WRITE);
}

#define FREE_RECORDS (64 * KIB) /* of an engine with a small limit */

static void write_all(usm__space *space)
{
    for (uint32_t i = 0; i < space->nblocks; i++) {
        CHECK_INT(pin(space, i), USM_OK);
        space->base[(size_t)i << space->shift] = 1;
        unpin(space, i);
    }
}

static void records_take_the_place_of_frames(void)
{
    fixture     f     = fixture_of(MIB);
    usm__space *space = space_of(&f, 4 * MIB);
    size_t      block = f.spill->block_size, more = FREE_RECORDS + 3 * block;

    write_all(space); /* every frame has memory before */
    CHECK_INT(usm__spill_in_memory(f.spill), MIB);
    CHECK(usm_load_relaxed(&f.spill->records) < FREE_RECORDS);
    usm__spill_add_record(f.spill, more);
    write_all(space);
    CHECK_INT(usm__spill_in_memory(f.spill), MIB - 4 * block);
    CHECK_INT(usm_load_relaxed(&f.ctx->own_host.reserved), MIB); /* pools do not get it */
    usm__spill_drop_record(f.spill, more - FREE_RECORDS);
    CHECK_INT(usm_load_relaxed(&f.ctx->own_host.reserved), MIB - 3 * block);
    usm__spill_drop_record(f.spill, FREE_RECORDS);
    write_all(space);
    CHECK_INT(usm__spill_in_memory(f.spill), MIB);
    usm__space_destroy(space);
    CHECK_INT(usm_load_relaxed(&f.spill->records), 0);
    end(&f);
}

static void records_are_paid_for_by_frames_that_never_had_memory(void)
{
    fixture     f     = fixture_of(MIB);
    usm__space *space = space_of(&f, 4 * MIB);

    usm__spill_add_record(f.spill, 64 * MIB); /* more than the limit: an eighth stays for data */
    CHECK_INT(pin(space, 0), USM_OK);
    unpin(space, 0);
    CHECK_INT(f.spill->record_frames, f.spill->frames.count / 8 * 7);
    write_all(space);
    CHECK_INT(usm__spill_in_memory(f.spill), MIB / 8);
    CHECK_INT(usm_load_relaxed(&f.ctx->own_host.reserved), MIB);
    usm__spill_drop_record(f.spill, 64 * MIB);
    usm__space_destroy(space);
    end(&f);
}

static void what_may_be_accessed_at_once_does_not_depend_on_records(void)
{
    fixture     f     = fixture_of(MIB);
    usm__space *space = space_of(&f, 4 * MIB);
    uint32_t    all   = f.spill->frames.count;

    usm__spill_add_record(f.spill, MIB / 2);
    write_all(space);
    CHECK(usm__spill_in_memory(f.spill) < MIB);
    for (uint32_t i = 0; i < all; i++)
        CHECK_INT(pin(space, i), USM_OK);
    CHECK_INT(usm_load_relaxed(&f.ctx->own_host.reserved), MIB);
    for (uint32_t i = 0; i < all; i++)
        unpin(space, i);
    write_all(space); /* they go back to the records */
    CHECK(usm__spill_in_memory(f.spill) <= MIB / 2 + FREE_RECORDS);
    usm__spill_drop_record(f.spill, MIB / 2);
    usm__space_destroy(space);
    end(&f);
}

static void buffers_blocks_and_copies_have_records(void)
{
    fixture     f   = fixture_of(MIB);
    usm_buffer *sub = NULL, *large, *small[100];
    size_t      few, after;

    for (int i = 0; i < 100; i++)
        CHECK((small[i] = usm_buffer_new(f.ctx, 64)) != NULL);
    few = usm_load_relaxed(&f.spill->records);
    CHECK(few >= 100 * sizeof(usm_buffer));
    large = usm_buffer_new(f.ctx, 4 * MIB);
    CHECK_INT(usm_buffer_create_sub(large, 0, MIB, &sub), USM_OK);
    after = usm_load_relaxed(&f.spill->records);
    CHECK(after >= few + 2 * sizeof(usm_buffer) + sizeof(usm__space));
    write_all(large->space);
    CHECK(usm_load_relaxed(&f.spill->records) >=
          after + 96 * (usm__tiers_copy_size(f.spill->tiers) + sizeof(usm__block)));
    usm_buffer_destroy(sub);
    usm_buffer_destroy(large);
    CHECK_INT(usm_load_relaxed(&f.spill->records), few);
    for (int i = 0; i < 100; i++)
        usm_buffer_destroy(small[i]);
    CHECK(usm_load_relaxed(&f.spill->records) <= few - 100 * sizeof(usm_buffer));
    end(&f);
}

/* Whether the mapping around the address has a flag, as /proc/self/smaps calls them. */
static bool has_flag(const void *at, const char *flag)
{
    FILE     *file     = fopen("/proc/self/smaps", "re");
    bool      is_there = false, has = false;
    char      line[512];
    uintptr_t from, to;

    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
            is_there = (uintptr_t)at >= from && (uintptr_t)at < to;
        else if (is_there && strncmp(line, "VmFlags:", 8) == 0)
            has = strstr(line, flag) != NULL;
    }
    CHECK(fclose(file) == 0);
    return has;
}

/* The kernel would fill the holes that its neighbours have left. */
static void no_huge_page_is_made_of_a_single_frame(void)
{
    fixture     f     = fixture_of(16 * MIB);
    usm__space *space = space_of(&f, 4 * MIB);

    write_all(space);
    CHECK(has_flag(f.spill->frames.base, " rd ")); /* it is the mapping that is meant */
    CHECK(!has_flag(f.spill->frames.base, " hg "));
    CHECK(has_flag(f.spill->frames.base, " nh "));
    usm__space_destroy(space);
    end(&f);
}

/* Bytes of the arena that are in memory: those of the frames that no block has. */
static size_t in_arena(const usm__spill *s)
{
    static unsigned char present[16 * MIB / 4096];
    size_t               n = s->frames.size / 4096, pages = 0;

    CHECK(n <= sizeof present && mincore(s->frames.base, s->frames.size, present) == 0);
    for (size_t i = 0; i < n; i++)
        pages += present[i] & 1;
    return pages * 4096;
}

/* Four frames share a huge page, which one of them was the first to touch. */
static void frames_that_pay_for_records_have_no_memory(void)
{
    fixture     f     = fixture_of(16 * MIB);
    usm__space *space = space_of(&f, 20 * MIB);
    size_t      bytes = FREE_RECORDS + 2 * f.spill->block_size, unused;

    usm__spill_add_record(f.spill, bytes);
    write_all(space);
    CHECK(f.spill->record_frames >= 2 && f.spill->resident + f.spill->nfree > 16);
    unused = f.spill->nfree + (f.spill->spare != USM__NO_FRAME);
    CHECK(in_arena(f.spill) <= unused * f.spill->block_size);
    usm__spill_drop_record(f.spill, bytes);
    usm__space_destroy(space);
    end(&f);
}

static const plain_case cases[] = {
    CASE(records_take_the_place_of_frames),
    CASE(records_are_paid_for_by_frames_that_never_had_memory),
    CASE(what_may_be_accessed_at_once_does_not_depend_on_records),
    CASE(buffers_blocks_and_copies_have_records),
    CASE(no_huge_page_is_made_of_a_single_frame),
    CASE(frames_that_pay_for_records_have_no_memory),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
